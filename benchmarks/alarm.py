"""The alarm: false alarms beside its promise, and delays after changes beside other detectors.

python benchmarks/alarm.py --data-dir DATA [--out FILE.json] [--cache FOLDER] [--parts false fresh ...] [--streams 1000]

Parts, one table each:
  fixed     ranks among a fixed reference, as it is often done, beside sequential ranks
  false     streams of rows like those before: share with an alarm within N rows, and rows for each alarm
  fresh     the same from end to end: held-out rows of real models, then rows that these have never seen
  workers   several processes with the same reference, each with its own share of the rows
  wine      red wine turns into white
  shifts    delays after natural shifts, beside ADWIN (river) and a Kolmogorov-Smirnov window at the same rate
  order     rows that depend on their neighbours: a made-up series and hours of weather, and what mends it
  speed     processor time of a row, and size of the state

Models are fitted to at most 2,000 rows with 60 epochs; their scores are kept in the folder --cache. river must be
installed for ADWIN; otherwise its column is empty.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from density_regression import DensityRegressor
from density_regression.datasets import load_uci
from density_regression.datasets.natural import load_natural_shift, natural_shifts
from density_regression.serve.alarm import Alarm
from density_regression.serve.alarm.betting import BETS, Jumper
from density_regression.serve.alarm.ranks import SequentialRanks

Floats = np.ndarray
ROWS = 20_000
POOLS = ("kc_house", "beijing_no2", "gas_turbine_nox", "avocado_price")
LARGE = (*POOLS, "nlswork_wage", "maize_yield_texas", "lending_rate")
RATES = (1_000, 10_000, 100_000)
MODEL_ROWS, HOME_ROWS, AWAY_ROWS = 2_000, 300, 2_000
WINDOW = 100


def evidence(p: Floats, rates: Sequence[float] = RATES, direction: str = "unfamiliar") -> tuple[Floats, Floats]:
    """First alarm (rates, streams), infinite if there was none, and number of alarms, of p-values (rows, streams)."""
    thresholds = np.array(rates, dtype=float)[:, None]
    R = np.zeros((len(rates), p.shape[1]))
    first, count = np.full(R.shape, np.inf), np.zeros(R.shape)
    for row, factor in enumerate(Jumper(BETS[direction]).factors(p), 1):
        R = (R + 1.0) * factor
        rings = thresholds <= R
        first = np.where(rings, np.minimum(first, row), first)
        count += rings
        R[rings] = 0.0
    return first, count


def fit_scores(cache: Path, name: str, draw: Callable[[], dict[str, Any]]) -> dict[str, Floats]:
    """Scores of a model, from the cache or from a fit to what `draw` gives: "train" (X, y), and X of other rows."""
    path = cache / f"{name}.npz"
    if not path.exists():
        rows = draw()
        reg = DensityRegressor(epochs=60, random_state=0, n_threads=1, verbose=False).fit(*rows.pop("train"))
        cache.mkdir(parents=True, exist_ok=True)
        scores = {part: reg.score_samples(X) for part, X in rows.items()}
        np.savez(path, reference=reg.held_out_levels_, **scores)
    return dict(np.load(path))


def shift_scores(args: argparse.Namespace, name: str) -> dict[str, Floats]:
    """Scores of one natural shift: "home" rows that the model has never seen, and "away" rows of the other side."""

    def draw() -> dict[str, Any]:
        data = load_natural_shift(name, args.data_dir, max_rows=10**9)
        order = np.random.default_rng(0).permutation(len(data.train.X))
        train, others = order[:MODEL_ROWS], order[MODEL_ROWS:]
        home = np.concatenate([data.tests["in distribution"].X, data.train.X[others]])
        rows = data.train.X[train], data.train.y[train]
        return {"train": rows, "home": home, "away": data.tests["shifted"].X}

    return fit_scores(args.cache, f"shift-{name}", draw)


# -- false alarms -------------------------------------------------------------------------------------------------


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


# -- changes ------------------------------------------------------------------------------------------------------


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


# -- rows that depend on their neighbours ---------------------------------------------------------------------------


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


def speed(_: argparse.Namespace) -> list[dict[str, Any]]:
    """Time for each row, with and without columns, in one batch and one by one; size of the state."""
    rng = np.random.default_rng(0)
    result = []
    for columns in (0, 10):
        X = rng.normal(size=(200_000, columns)) if columns else None
        for rows, batch in ((200_000, 200_000), (2_000, 1)):
            alarm = Alarm(rng.normal(size=1_000))
            alarm.update_scores(rng.normal(size=300), columns=None if X is None else X[:300])
            scores = rng.normal(size=rows)
            started = time.process_time()
            for start in range(0, rows, batch):
                part = slice(start, start + batch)
                alarm.update_scores(scores[part], columns=None if X is None else X[part])
            each = 1e6 * (time.process_time() - started) / rows
            size = len(json.dumps(alarm.state)) / 1e3
            result.append(
                {"columns": columns, "rows at once": batch, "microseconds for a row": each, "state, kB": size}
            )
    return result


# -- output ---------------------------------------------------------------------------------------------------------

PARTS = {part.__name__: part for part in (fixed, false, fresh, workers, wine, shifts, order, speed)}


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as a Markdown table."""
    heads = list(dict.fromkeys(name for row in rows for name in row))
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(_text(row.get(name)) for name in heads)} |" for row in rows]
    return "\n".join(lines)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        # A median delay, and the share of streams in which the change was found, if not all.
        found = "" if value["found"] == 1.0 else f" ({value['found']:.0%})"
        delay = value["median delay"]
        return f"{'-' if delay is None or math.isinf(delay) else f'{delay:.0f}'}{found}"
    return (
        f"{value:,.0f}"
        if isinstance(value, float) and 1_000 <= value < math.inf
        else f"{value:.4g}"
        if isinstance(value, float)
        else str(value)
    )


def main() -> None:
    """Print the tables, and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cache", type=Path, default=Path("alarm-scores"))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--streams", type=int, default=1_000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results = json.loads(args.out.read_text()) if args.out and args.out.exists() else {}
    for name in args.parts:
        started = time.perf_counter()
        results[name] = PARTS[name](args)
        print(f"\n{name} ({time.perf_counter() - started:.0f} s)\n\n{table(results[name])}", flush=True)
        if args.out:
            args.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
