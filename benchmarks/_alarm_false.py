"""False alarms beside the promise: parts fixed, false, fresh and workers of the benchmark of the alarm."""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np
from _alarm_scores import RATES, ROWS, Floats, evidence, shift_scores

from density_regression.serve.alarm.betting import BETS, Jumper
from density_regression.serve.alarm.ranks import SequentialRanks

POOLS = ("kc_house", "beijing_no2", "gas_turbine_nox", "avocado_price")
LARGE = (*POOLS, "nlswork_wage", "maize_yield_texas", "lending_rate")


def fixed(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Ville's alarm at 5 % with ranks among a fixed reference, and with sequential ones."""
    rng = np.random.default_rng(0)
    result = []
    for size in (200, 1_000):
        kinds: dict[str, list[Floats]] = {"fixed reference": [], "sequential ranks": []}
        for stream in range(args.streams):
            reference, scores = rng.normal(size=size), rng.normal(size=ROWS)
            below = np.searchsorted(np.sort(reference), scores)
            kinds["fixed reference"].append((below + rng.random(ROWS)) / (size + 1))
            kinds["sequential ranks"].append(SequentialRanks(reference, seed=stream).update(scores))
        for kind, p in kinds.items():
            capital = np.cumsum(np.log(Jumper(BETS["changed"]).factors(np.array(p).T)), axis=0)
            share = float((capital.max(axis=0) >= math.log(20)).mean())
            result.append({"reference rows": size, "p-values": kind, "promise": 0.05, "share with an alarm": share})
    return result


def false(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Reference and stream drawn from one pool with replacement: scores of real rows, or normal ones.

    "quantiles": the reference are 1,001 quantiles of 5,000 rows, as a model keeps them that has so many held-out rows.
    """
    result = []
    for source in ("normal", "quantiles", *POOLS):
        rng = np.random.default_rng(0)
        scores = shift_scores(args, source) if source in POOLS else None
        pool = None if scores is None else np.concatenate([scores["reference"], scores["home"]])
        p = np.empty((ROWS, args.streams))
        for stream in range(args.streams):
            drawn = rng.normal(size=300 + ROWS) if pool is None else rng.choice(pool, 300 + ROWS)
            known = (
                drawn[:300] if source != "quantiles" else np.quantile(rng.normal(size=5_000), np.linspace(0, 1, 1_001))
            )
            p[:, stream] = SequentialRanks(known, seed=stream).update(drawn[300:])
        for direction in BETS:
            first, count = evidence(p, direction=direction)
            for i, rate in enumerate(RATES):
                row = {"source": source, "direction": direction, "c": rate}
                for rows in (500, 5_000, 20_000):
                    if rows < rate:
                        row |= {f"within {rows}": float((first[i] <= rows).mean()), f"bound {rows}": rows / rate}
                alarms = count[i].sum()
                result.append(row | {"rows for each alarm": float(p.size / alarms) if alarms else None})
    return result


def fresh(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The held-out rows of a real model as the reference, and rows it has never seen, shuffled: each once."""
    result = []
    for name in LARGE:
        scores = shift_scores(args, name)
        home, rows = scores["home"], min(5_000, len(scores["home"]))
        rng = np.random.default_rng(0)
        streams = max(1, args.streams // 5)
        p = [SequentialRanks(scores["reference"], seed=i).update(rng.permutation(home)[:rows]) for i in range(streams)]
        first, _ = evidence(np.array(p).T)
        familiar = np.searchsorted(scores["reference"], home) / len(scores["reference"])
        row: dict[str, Any] = {"set": name, "rows": rows, "mean familiarity": float(familiar.mean())}
        for i, rate in enumerate(RATES[1:], 1):
            row |= {f"c {rate}": float((first[i] <= rows).mean()), f"bound {rate}": rows / rate}
        result.append(row)
    return result


def workers(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows shared out among processes, each with an alarm of its own and the same threshold."""
    result = []
    for number in (1, 4, 16):
        rng = np.random.default_rng(0)
        rows = 5_000 // number
        p = np.empty((rows, args.streams, number))
        for stream in range(args.streams):
            reference = rng.normal(size=300)
            for worker in range(number):
                ranks = SequentialRanks(reference, seed=number * stream + worker)
                p[:, stream, worker] = ranks.update(rng.normal(size=rows))
        first, count = evidence(p.reshape(rows, -1))
        first, count = (part.reshape(len(RATES), args.streams, number) for part in (first, count))
        for i, rate in enumerate(RATES[1:], 1):
            share = float((first[i].min(axis=1) <= rows).mean())
            alarms = count[i].sum()
            each = float(p.size / alarms) if alarms else None
            result.append(
                {"workers": number, "c": rate, "within 5000": share, "bound": 5_000 / rate, "rows for each alarm": each}
            )
    return result
