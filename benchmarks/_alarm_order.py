"""Rows that depend on their neighbours: part order of the benchmark of the alarm."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from _alarm_scores import MODEL_ROWS, ROWS, Floats, fit_scores

from density_regression.serve.alarm import Alarm


def order(args: argparse.Namespace) -> list[dict[str, Any]]:
    """An autoregressive series of the same law in every row, and hours of weather in their order and shuffled."""
    result = []
    rate = 10_000
    for correlation in (0.0, 0.05, 0.1, 0.5, 0.9):
        for setting in ({}, {"every": 6}, {"every": 48}, {"block": 24}, {"block": 48}):
            alarms = _alarms(lambda rng, rho=correlation: _series(rng, rho), setting, rate, args.streams // 20)
            result.append({"series": f"correlation {correlation:g}", "c": rate, **alarms})
    scores = fit_scores(args.cache, "jena", lambda: _weather(args))
    reference, hours = scores["reference"], scores["ordered"]
    draws: dict[str, tuple[Any, int]] = {
        "hours of weather in order": (lambda _: (reference, hours), 1),
        "the same hours, shuffled": (lambda rng: (reference, rng.permutation(hours)), args.streams // 20),
    }
    for setting in ({}, {"every": 6}, {"every": 24}, {"every": 48}, {"block": 6}, {"block": 24}, {"block": 48}):
        for series, (draw, streams) in draws.items():
            result.append({"series": series, "c": rate, **_alarms(draw, setting, rate, streams)})
    return result


def _alarms(draw: Any, setting: dict[str, int], rate: int, streams: int) -> dict[str, Any]:
    """Alarms beside their bound, and how often the alarm itself says that neighbours are alike."""
    alarms, alike, rows = 0, 0, 0
    for stream in range(max(1, streams)):
        reference, scores = draw(np.random.default_rng(stream))
        alarm = Alarm(reference, false_alarms_per=rate, seed=stream, **setting)
        alarm.update_scores(scores)
        alarms, alike, rows = alarms + alarm.alarms, alike + alarm.neighbours_alike, rows + len(scores)
    return {
        "setting": " ".join(f"{name}={value}" for name, value in setting.items()) or "every row",
        "streams": max(1, streams),
        "rows": rows,
        "alarms": alarms,
        "bound": rows / rate,
        "says so": alike / max(1, streams),
    }


def _series(rng: np.random.Generator, correlation: float) -> tuple[Floats, Floats]:
    """300 independent reference rows, and an autoregressive series with the same standard normal law."""
    noise = rng.normal(size=ROWS) * math.sqrt(1 - correlation**2)
    series = np.empty(ROWS)
    last = rng.normal()
    for i, shock in enumerate(noise):
        last = correlation * last + shock
        series[i] = last
    return rng.normal(size=300), series


def _weather(args: argparse.Namespace) -> dict[str, Any]:
    """Hours of a year in Jena: a model of the temperature by 2,000 random ones, and all others in their order."""
    import pandas as pd

    frame = pd.read_csv(Path(args.data_dir) / "weather" / "jena_climate_2020.csv.gz")
    frame = frame[frame["Date Time"].str.endswith(":00:00")]
    hour = frame["Date Time"].str.slice(11, 13).astype(int) * (2 * np.pi / 24)
    X = frame.drop(columns=["Date Time", "T (degC)", "Tpot (K)"]).assign(sine=np.sin(hour), cosine=np.cos(hour))
    drawn = np.random.default_rng(0).permutation(len(X))
    train, others = drawn[:MODEL_ROWS], np.sort(drawn[MODEL_ROWS:])
    X, y = X.to_numpy(), frame["T (degC)"].to_numpy()
    return {"train": (X[train], y[train]), "ordered": X[others]}
