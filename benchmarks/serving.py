"""What the server stands: load, abuse and faults on loopback.

    python benchmarks/serving.py [--seconds 60] [--bodies 10000] [--replacements 50] [--json FILE]

Load: single-row requests over eight connections that stay open, from a process of its own; errors, requests a second
beside a bare FastAPI handler around the same ONNX file, quantiles of the latency, and the growth of the memory in the
second half. Abuse: malformed bodies, drawn from a seed, and slow clients. Faults: SIGTERM under load, kill -9 of one of
two processes, a model replaced again and again under load. Client and server share the machine, so the figures are for
comparison with each other.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _timing import finish, machine
from serving_abuse import abuse
from serving_client import load, memory_growth, process
from serving_faults import killed, replaced, terminated
from sklearn.datasets import make_friedman1

from density_regression import DensityRegressor
from density_regression.serve.prepare import make_bundle

CONNECTIONS = 8
TURNS = 9
BARE = Path(__file__).with_name("serving_bare.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of load")
    parser.add_argument("--bodies", type=int, default=10_000, help="malformed bodies")
    parser.add_argument("--replacements", type=int, default=50, help="of a model under load")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    figures: dict[str, Any] = {"machine": machine()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = saved(folder)
        figures["load"] = under_load(folder / "price", args.seconds)
        figures["abuse"] = abuse(folder / "price", args.bodies)
        figures["sigterm under load"] = terminated(folder / "price", CONNECTIONS)
        figures["kill -9 of one of two processes"] = killed(folder / "price", CONNECTIONS)
        figures["model replaced under load"] = replaced(folder / "price", models, args.replacements, CONNECTIONS)
    finish(figures, args.json)


def saved(folder: Path) -> list[DensityRegressor]:
    """Two models of one table, the second far above the first; the first is saved and prepared as "price"."""
    X, y = make_friedman1(n_samples=2000, n_features=10, noise=1.0, random_state=0)
    settings = {"epochs": 40, "random_state": 0, "verbose": False, "n_threads": 1}
    models = [DensityRegressor(**settings).fit(X, y + 1000.0 * i) for i in (1, 0)]
    for model in models:
        model.save(folder / "price")
        # Both are prepared: what is measured is taking up a model.
        make_bundle(folder / "price")
    return models


def under_load(model: Path, seconds: float) -> dict[str, Any]:
    """Our server alone for so long; then by turns with a bare handler, each asked by the same client."""
    graph = next((model / "serving").glob("*/model.onnx"))
    row = np.round(np.random.default_rng(0).uniform(size=10), 6).tolist()
    ours = ["-m", "density_regression", "serve", str(model), "--port", "0"]
    invocations = "/invocations", {"inputs": [row]}
    with process(*ours) as server:
        alone = load(server, *invocations, seconds, CONNECTIONS)
        figures: dict[str, Any] = {"connections": CONNECTIONS, "start to ready, s": server.ready_after}
    growth = memory_growth(alone.pop("memory"))
    figures |= {"alone": alone, "p99 / p50": alone["p99, ms"] / alone["p50, ms"], "memory growth": growth}
    with process(*ours) as server, process(str(BARE), str(graph), "--port", "0") as bare:
        asked = {"bare": (bare, "/", invocations[1]), "/invocations": (server, *invocations)}
        asked["/v2"] = (server, "/v2/models/price/infer", tensor(row))
        rates: dict[str, list[float]] = {name: [] for name in asked}
        for _ in range(TURNS):
            for name, case in asked.items():
                rates[name].append(load(*case, seconds / 30, CONNECTIONS)["requests a second"])
    figures["requests a second, by turns"] = {name: statistics.median(own) for name, own in rates.items()}
    ratios = [own / other for own, other in zip(rates["/invocations"], rates["bare"], strict=True)]
    figures["throughput / bare"] = {"median": statistics.median(ratios), "turns": ratios}
    return figures


def tensor(row: list[float]) -> dict[str, Any]:
    """A row as the Open Inference Protocol has it."""
    return {"inputs": [{"name": "X", "shape": [1, len(row)], "datatype": "FP64", "data": row}]}


if __name__ == "__main__":
    main()
