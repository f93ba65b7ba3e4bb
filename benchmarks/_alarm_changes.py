"""Delays after changes, beside other detectors: parts wine and shifts of the benchmark of the alarm."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from _alarm_scores import RATES, ROWS, Floats, evidence, fit_scores, shift_scores

from density_regression.datasets import load_uci
from density_regression.datasets.natural import natural_shifts
from density_regression.serve.alarm import Alarm
from density_regression.serve.alarm.betting import BETS
from density_regression.serve.alarm.ranks import SequentialRanks

HOME_ROWS, AWAY_ROWS = 300, 2_000
WINDOW = 100


def wine(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Red wines that the model has never seen, then white ones: five models, twenty streams of each."""
    red, white = load_uci("wine_red", args.data_dir), load_uci("wine_white", args.data_dir)
    result = []
    for rate in RATES[1:]:
        delays, since, early = [], [], 0
        for seed in range(5):
            order = np.random.default_rng(seed).permutation(len(red.X))
            train, rest = order[:1_100], order[1_100:]

            def draw(train: Any = train, rest: Any = rest) -> dict[str, Any]:
                return {"train": (red.X[train], red.y[train]), "home": red.X[rest], "away": white.X}

            scores = fit_scores(args.cache, f"wine-{seed}", draw)
            for stream in range(20):
                rng = np.random.default_rng(100 * seed + stream)
                alarm = Alarm(scores["reference"], false_alarms_per=rate, seed=stream)
                home = rng.permutation(scores["home"])
                early += len(alarm.update_scores(home))
                reports = alarm.update_scores(rng.permutation(scores["away"])[:1_000])
                delays.append(reports[0].row - len(home) if reports else np.inf)
                since.append(reports[0].since - len(home) - 1 if reports else np.inf)
        late = np.array(delays)
        result.append(
            {
                "c": rate,
                "streams": len(late),
                "within 100 rows": int((late <= 100).sum()),
                "median delay": float(np.median(late)),
                "longest": float(late.max()),
                "median error of since": float(np.median(np.abs(since))),
                "false alarms before": early,
            }
        )
    return result


def shifts(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Delays of the alarm and of two others, all with one false alarm in 10,000 rows."""
    rate = 10_000
    delta, level = calibrated_adwin(rate), calibrated_window(rate)
    result: list[dict[str, Any]] = []
    for name in natural_shifts(args.data_dir):
        scores = shift_scores(args, name)
        found: dict[str, list[float]] = {}
        for stream in range(max(1, args.streams // 20)):
            rng = np.random.default_rng(stream)
            home = rng.choice(scores["home"], HOME_ROWS, replace=len(scores["home"]) < HOME_ROWS)
            away = rng.choice(scores["away"], AWAY_ROWS, replace=len(scores["away"]) < AWAY_ROWS)
            rows = np.concatenate([home, away])
            p = SequentialRanks(scores["reference"], seed=stream).update(rows)[:, None]
            for direction in BETS:
                first, _ = evidence(p, [rate], direction)
                found.setdefault(direction, []).append(float(first[0, 0]))
            familiar = familiarity(scores["reference"], rows, rng)
            found.setdefault("window", []).append(window_alarms(familiar[:, None], len(scores["reference"]), level)[0])
            if delta is not None:
                found.setdefault("ADWIN", []).append(adwin_alarms(familiar, scores["reference"], delta, rng)[0])
        mean = float((np.searchsorted(scores["reference"], scores["away"]) / len(scores["reference"])).mean())
        row: dict[str, Any] = {"set": name, "mean familiarity": mean}
        for kind, first_alarms in found.items():
            delays = np.array(first_alarms) - HOME_ROWS
            late = delays[delays > 0]
            row[kind] = {
                "median delay": float(np.median(late)) if len(late) else None,
                "found": float(np.isfinite(late).mean()) if len(late) else None,
                "too early": float((delays <= 0).mean()),
            }
        result.append(row)
    kinds = [name for name, value in result[-1].items() if isinstance(value, dict)]
    result.append(
        {"set": "too early, all sets"}
        | {kind: float(np.mean([row[kind]["too early"] for row in result])) for kind in kinds}
    )
    return [*result, {"set": "calibrated", "ADWIN": f"delta {delta}", "window": f"statistic {level:.4f}"}]


def familiarity(reference: Floats, scores: Floats, rng: np.random.Generator) -> Floats:
    """Ranks among a fixed reference, from 0 to 1, ties broken at random."""
    below, up_to = (np.searchsorted(np.sort(reference), scores, side) for side in ("left", "right"))
    return np.asarray((below + rng.random(len(scores)) * (up_to - below + 1)) / (len(reference) + 1))


def adwin_alarms(familiar: Floats, reference: Floats, delta: float, rng: np.random.Generator) -> list[float]:
    """Rows at which ADWIN rings, infinity at last; it has read the reference before."""
    from river.drift import ADWIN

    detector = ADWIN(delta=delta, clock=1)
    for value in familiarity(reference, rng.permutation(reference), rng):
        detector.update(value)
    alarms = []
    for row, value in enumerate(familiar, 1):
        detector.update(value)
        if detector.drift_detected:
            alarms.append(float(row))
    return [*alarms, math.inf]


def window_alarms(familiar: Floats, size: int, level: float, *, count: bool = False) -> Any:
    """First rows (streams,) at which the latest 100 rows differ from the reference, or the number of all alarms.

    By the Kolmogorov-Smirnov statistic of ranks (rows, streams) among `size` reference rows. After an alarm the window
    is emptied.
    """
    streams = familiar.shape[1]
    cells = np.minimum((familiar * (size + 1)).astype(int), size)
    grid = np.arange(size + 1)
    cumulated = np.zeros((streams, size + 1))
    filled, first, total = np.zeros(streams, int), np.full(streams, np.inf), 0
    for row in range(len(cells)):
        cumulated += grid >= cells[row][:, None]
        old = filled == WINDOW
        if old.any():
            cumulated[old] -= grid >= cells[row - WINDOW][old][:, None]
        filled = np.minimum(filled + 1, WINDOW)
        statistic = np.abs(cumulated / WINDOW - (grid + 1) / (size + 1)).max(axis=1)
        rings = (filled == WINDOW) & (statistic >= level)
        first = np.where(rings & np.isinf(first), row + 1, first)
        total += int(rings.sum())
        cumulated[rings], filled[rings] = 0.0, 0
    return total if count else first


def calibrated_adwin(rate: int) -> float | None:
    """The delta of ADWIN with one false alarm in so many rows, over references of 300 rows."""
    try:
        import river.drift  # noqa: F401
    except ImportError:
        return None
    rng = np.random.default_rng(0)
    streams = []
    for _ in range(100):
        reference, scores = rng.normal(size=300), rng.normal(size=ROWS)
        streams.append((reference, familiarity(reference, scores, rng)))

    def alarms(log_delta: float) -> float:
        draws = np.random.default_rng(1)
        return sum(len(adwin_alarms(rows, known, math.exp(log_delta), draws)) - 1 for known, rows in streams)

    return math.exp(_where(alarms, -18.0, 0.0, 100 * ROWS / rate))


def calibrated_window(rate: int) -> float:
    """The Kolmogorov-Smirnov statistic with one false alarm in so many rows, over references of 300 rows."""
    rng = np.random.default_rng(0)
    known = [rng.normal(size=300) for _ in range(100)]
    rows = np.array([familiarity(reference, rng.normal(size=ROWS), rng) for reference in known]).T
    return _where(lambda level: window_alarms(rows, 300, -level, count=True), -0.5, -0.1, 100 * ROWS / rate, 8) * -1


def _where(function: Callable[[float], float], low: float, high: float, wanted: float, steps: int = 10) -> float:
    """Where a growing function reaches what is wanted, by bisection."""
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < wanted else (low, middle)
    return (low + high) / 2
