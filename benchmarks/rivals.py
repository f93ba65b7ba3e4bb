"""Are the rivals as good as their papers say? UCI, the standard splits, against the figures of the paper's tables.

    python benchmarks/rivals.py [--data-dir DIR] [--sets boston,...] [--methods Gaussian,...] [--splits 20] [--jobs 2]

Every method with its default settings, the same splits, scaling, held-out rows and budget. A cell is met if its mean
over the splits is at most the paper's mean + 2 sd, both as the paper prints them. NLL is that of the Normal with the
method's mean and std; for EDL the paper's figures are only possible with its own Student-t law, so there `own` is what
is compared. The paper's "Deterministic" is the Gaussian network. Results are kept in a file of JSON lines as they
come; an interrupted run goes on from there, and results of other code than the present are made again.
"""

from __future__ import annotations

import argparse
import ast
import csv
import hashlib
import inspect
import json
import os
import sys
import warnings
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import Progress

import density_regression
from density_regression import metrics
from density_regression.datasets import load_uci, standard_splits
from density_regression.estimators.base import DeepRegressor

SETS = ("boston", "concrete", "energy", "kin8nm", "power", "wine_red", "yacht")
FEW_SPLITS = {"kin8nm": 5, "power": 5}
METHODS = {method.name: method.estimator for method in density_regression.methods()}
IN_PAPER = {
    "Gaussian": "Deterministic",
    "Quantile": "Quantile",
    "MC Dropout": "MC Dropout",
    "MFVI-BNN": "MFVI-BNN",
    "EDL": "EDL",
    "SNGP": "SNGP",
    "DUE": "DUE",
    "Deep Ensembles": "Ensembles",
}
SOURCES = Path(density_regression.__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("DENSITY_REGRESSION_DATA"))
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--methods", default=",".join(IN_PAPER))
    parser.add_argument("--splits", type=int, default=20, help="at most; of kin8nm and power five")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("demo/rivals.jsonl"), help="where results are kept")
    parser.add_argument(
        "--report-only", action="store_true", help="fit nothing; report the last results there are, of whatever code"
    )
    args = parser.parse_args()
    if args.data_dir is None:
        sys.exit("Give the data folder: --data-dir DIR, or DENSITY_REGRESSION_DATA.")

    args.out.parent.mkdir(parents=True, exist_ok=True)
    sets, names = args.sets.split(","), args.methods.split(",")
    wanted = [job for job in product(range(args.splits), sets, names) if job[0] < FEW_SPLITS.get(job[1], args.splits)]
    code = {name: code_of(METHODS[name]) for name in names}
    present = (row for row in read(args.out) if args.report_only or code.get(row["method"]) == row["code"])
    results = {key(row): row for row in present}
    missing = [] if args.report_only else [job for job in wanted if job not in results]
    with Progress(console=Console(stderr=True)) as progress, args.out.open("a") as file:
        task = progress.add_task("fits", total=len(wanted), completed=len(wanted) - len(missing))
        parallel = Parallel(n_jobs=args.jobs, return_as="generator_unordered")
        for row in parallel(delayed(run)(*job, args.data_dir) for job in missing):
            results[key(row)] = row
            print(json.dumps(row), file=file, flush=True)
            progress.advance(task)
    report([results[job] for job in wanted if job in results], sets, names)


def run(split: int, name: str, method: str, data_dir: str) -> dict[str, object]:
    """Fit one method to one split; test figures in the target's units."""
    warnings.simplefilter("ignore")
    data = load_uci(name, data_dir)
    train, test = standard_splits(name, data_dir)[split]
    regressor = METHODS[method](random_state=split, n_threads=1, verbose=False).fit(data.X[train], data.y[train])
    mean, std = regressor.predict(data.X[test], return_std=True)
    row = {
        "set": name,
        "split": split,
        "method": method,
        "code": code_of(METHODS[method]),
        "nll": metrics.nll(data.y[test], mean, std),
        "rmse": metrics.rmse(data.y[test], mean),
        "epochs": len(regressor.report_.history),
        "seconds": sum(regressor.report_.seconds.values()),
    }
    if hasattr(regressor, "own_dist"):
        law = regressor.own_dist(data.X[test])
        row["own"] = -float(law.log_prob(law.mean.new_tensor(data.y[test])).mean())
    return row


class Cell(NamedTuple):
    """One figure of one method on one set, and what the paper prints for it."""

    set: str
    method: str
    metric: str
    splits: int
    value: float
    paper: str
    met: bool


def cells_of(rows: list[dict[str, object]], sets: list[str], names: list[str]) -> list[Cell]:
    """Every figure that both we and the paper have."""
    with (Path(__file__).parent / "paper_uci.csv").open() as file:
        paper = {(row["set"], row["method"], row["metric"]): row for row in csv.DictReader(file)}
    cells = []
    for metric, name, method in product(("NLL", "RMSE"), sets, names):
        found = [row for row in rows if (row["set"], row["method"]) == (name, method)]
        printed = paper.get((name, IN_PAPER.get(method, ""), metric))
        if not found or printed is None:
            continue
        column = "own" if (metric, method) == ("NLL", "EDL") else metric.lower()
        value = float(np.mean([row[column] for row in found]))
        band = f"{printed['mean']} ± {printed['sd']}"
        met = within(value, printed["mean"], printed["sd"])
        cells.append(Cell(name, method, metric, len(found), value, band, met))
    return cells


def report(rows: list[dict[str, object]], sets: list[str], names: list[str]) -> None:
    """Print a table for each metric in Markdown, then what has no place in it, and the cells that are not met."""
    cells = cells_of(rows, sets, names)
    splits = {cell.set: cell.splits for cell in cells}
    for metric in ("NLL", "RMSE"):
        print(f"\n| {metric} | " + " | ".join(f"{name} ({splits.get(name, 0)} splits)" for name in sets) + " |")
        print("|---" * (len(sets) + 1) + "|")
        for method in names:
            line = {cell.set: cell for cell in cells if (cell.metric, cell.method) == (metric, method)}
            shown = [f"{mark(line[name])} ({line[name].paper})" if name in line else "" for name in sets]
            if any(shown):
                print(f"| {method} | " + " | ".join(shown) + " |")
    print("\nmean over splits    NLL of the Normal   of its own law     RMSE   seconds   epochs")
    for name, method in product(sets, names):
        found = [row for row in rows if (row["set"], row["method"]) == (name, method)]
        parts = ("nll", "own", "rmse", "seconds", "epochs")
        if found:
            mean = [np.mean([row[part] for row in found]) if part in found[0] else np.nan for part in parts]
            print(
                f"{name:9s} {method:14s} {mean[0]:10.3f} {mean[1]:16.3f} {mean[2]:9.3f} {mean[3]:9.1f} {mean[4]:8.0f}"
            )
    missed = [cell for cell in cells if not cell.met]
    print(f"\n{len(cells) - len(missed)} of {len(cells)} cells met; not met:")
    for cell in missed:
        print(f"{cell.set:9s} {cell.method:14s} {cell.metric:4s} {cell.value:8.3f}   paper {cell.paper}")


def mark(cell: Cell) -> str:
    return f"{cell.value:.2f}" if cell.met else f"**{cell.value:.2f}**"


def within(value: float, mean: str, sd: str) -> bool:
    """Whether `value`, rounded as the paper prints its mean, is at most mean + 2 sd."""
    decimals = len(mean.partition(".")[2])
    return round(value, decimals) <= float(mean) + 2 * float(sd) + 1e-9


def code_of(estimator: type[DeepRegressor]) -> str:
    """Checksum of the code that a method's result depends on, whatever its comments and docstrings say."""
    paths = sorted(imported(Path(inspect.getfile(estimator)), imported(SOURCES / "metrics" / "__init__.py", set())))
    code = "".join(ast.dump(_Undocumented().visit(ast.parse(path.read_text()))) for path in paths)
    return hashlib.sha256(code.encode()).hexdigest()[:12]


def imported(path: Path, seen: set[Path]) -> set[Path]:
    """A module of the package, and those that it imports, and so on."""
    if path not in seen:
        seen.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("density_regression."):
                below = SOURCES.joinpath(*node.module.split(".")[1:])
                imported(below / "__init__.py" if below.is_dir() else below.with_suffix(".py"), seen)
                for part in (below / f"{name.name}.py" for name in node.names):
                    if part.exists():
                        imported(part, seen)
    return seen


class _Undocumented(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def key(row: dict[str, object]) -> tuple[object, ...]:
    return row["split"], row["set"], row["method"]


if __name__ == "__main__":
    main()
