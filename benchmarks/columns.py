"""Our own code of columns against scikit-learn's usual pipeline, on tables with text, dates and gaps.

    python benchmarks/columns.py --data-dir DIR [--seeds 2] [--rows 5000] [--json FILE]

The tables are those of `bench shift` that have text, dates or gaps. "Ours" is the regressor given the data frame.
"Usual" is the same regressor behind a pipeline: dates as days since 1970, numbers with the median in gaps and scaled,
text one-hot, with one code for the values that fewer than ten training rows have. Same rows, same seeds, one thread:
NLL at home and shifted, and the time of `fit`, the pipeline's included. What the file has already is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from density_regression import DensityRegressor, metrics
from density_regression.datasets import load_natural_shift, natural_shifts
from density_regression.tabular.columns import read_frame

TESTS = ("in distribution", "shifted")
METHODS = ("ours", "usual")


def with_days(frame: pd.DataFrame, dates: list[str]) -> pd.DataFrame:
    """Columns of dates as days since 1970."""
    days = {name: (pd.to_datetime(frame[name]) - pd.Timestamp(0)) / pd.Timedelta(days=1) for name in dates}
    return frame.assign(**days)


def usual_pipeline(frame: pd.DataFrame, regressor: DensityRegressor) -> Any:
    """Median, scaler and one-hot code in front of a regressor."""
    numbers = frame.select_dtypes("number").columns.tolist()
    texts = [name for name in frame.columns if name not in numbers]
    one_hot = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=10, sparse_output=False)
    return make_pipeline(
        make_column_transformer(
            (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
            (make_pipeline(SimpleImputer(strategy="most_frequent"), one_hot), texts),
        ),
        regressor,
    )


def run(name: str, seed: int, method: str, args: argparse.Namespace) -> dict[str, Any]:
    """Fit one of the two, and score it."""
    warnings.simplefilter("ignore")
    data = load_natural_shift(name, args.data_dir, random_state=seed, max_rows=args.rows, coded=False)
    model: Any = DensityRegressor(random_state=seed, n_threads=1, verbose=False)
    frames = {test: rows.X for test, rows in data.tests.items()} | {"train": data.train.X}
    start = time.process_time()
    if method == "usual":
        train = frames["train"]
        texts = train.select_dtypes(exclude="number").columns
        dates = [c for c in texts if train[c].dropna().astype(str).str.fullmatch(r"\d{4}-\d{2}-\d{2}").all()]
        frames = {part: with_days(frame, dates) for part, frame in frames.items()}
        model = usual_pipeline(frames["train"], model)
    model.fit(frames["train"], data.train.y)
    seconds = time.process_time() - start
    scores = {}
    for test in TESTS:
        y = data.tests[test].y
        mean, std = model.predict(frames[test], return_std=True)
        scores[test] = {"nll": metrics.nll(y, mean, std), "rmse": metrics.rmse(y, mean)}
    return {"dataset": name, "seed": seed, "method": method, "seconds": seconds, "tests": scores}


def table(results: list[dict[str, Any]]) -> str:
    """Means over seeds, in Markdown."""
    lines = [
        "| table | NLL at home: ours | usual | shifted: ours | usual | RMSE at home, ratio | time to fit, ratio |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    less, ratios = [], []
    for name in dict.fromkeys(one["dataset"] for one in results):

        def mean(method: str, test: str, score: str, name: str = name) -> float:
            own = [one for one in results if one["dataset"] == name and one["method"] == method]
            return float(np.mean([one["tests"][test][score] if test else one["seconds"] for one in own]))

        nll = [mean(method, test, "nll") for test in TESTS for method in METHODS]
        rmse = mean("ours", TESTS[0], "rmse") / mean("usual", TESTS[0], "rmse")
        ratios.append(mean("ours", "", "") / mean("usual", "", ""))
        less.append(nll[0] - nll[1])
        lines.append(f"| {name} | {' | '.join(f'{value:.3f}' for value in nll)} | {rmse:.3f} | {ratios[-1]:.2f} |")
    lines.append(
        f"\nNLL at home, ours less usual: mean {np.mean(less):+.3f}, median {np.median(less):+.3f}, lower on "
        f"{sum(value < 0 for value in less)} of {len(less)}; time to fit: mean ratio {np.mean(ratios):.2f}"
    )
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("DENSITY_REGRESSION_DATA"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--json", type=Path, default=Path("columns.json"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    results = json.loads(args.json.read_text()) if args.json.exists() else []
    done = {(one["dataset"], one["seed"], one["method"]) for one in results}
    for name in natural_shifts(args.data_dir):
        data = load_natural_shift(name, args.data_dir, max_rows=args.rows, coded=False)
        if read_frame(data.train.X).is_plain:
            continue
        for key in ((name, seed, method) for seed in range(args.seeds) for method in METHODS):
            if key not in done:
                results.append(run(*key, args))
                args.json.write_text(json.dumps(results, indent=0))
                print(*key, round(results[-1]["seconds"], 1), flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
