"""Verdict on an evaluation in words: accuracy, calibration, whether errors follow predictions, and strange rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from density_regression.experiments.evaluation.bins import UNFAMILIAR, ErrorBin
from density_regression.experiments.evaluation.evaluation import Evaluation, FamiliarityQuality
from density_regression.experiments.evaluation.totals import IntervalQuality
from density_regression.experiments.evaluation.words import count, number, percent
from density_regression.experiments.report.document import Point

__all__ = ["verdict"]

TOLERANCE: Final = 0.02
"""Distance of a coverage from the one asked for that counts as none, whatever the number of rows."""

ERRORS: Final = 2.5
"""Distance in standard errors up to which it may be chance."""

LARGER: Final = 1.25
"""Ratio of errors from which on they are called larger."""

BIAS: Final = 0.2
"""Mean error, as a share of the root mean squared one, from which on predictions are called too high or too low."""

LEAST_CORRELATION: Final = 0.1
"""Rank correlation of errors and standard deviations below which these say nothing."""

LEVEL: Final = 0.9


def verdict(of: Evaluation) -> list[Point]:
    """What the evaluation says, in the order of a reader's questions."""
    return [_accuracy(of), _calibration(of), _ranking(of), *_strange(of)]


def _accuracy(of: Evaluation) -> Point:
    rmse, r2, bias = (of.metrics[name] for name in ("rmse", "r2", "bias"))
    parts = [f"RMSE {number(rmse, 3)}; predictions explain {percent(max(r2, 0.0))} of the variance."]
    poor = r2 <= 0
    if r2 <= 0:
        parts = [f"RMSE {number(rmse, 3)}: the mean of these targets would predict as well or better (R² {r2:.2f})."]
    before = of.model.held_out.get("rmse", math.nan)
    if before > 0:
        ratio = rmse / before
        poor |= ratio > LARGER
        how = "about as large as" if 1 / LARGER <= ratio <= LARGER else f"{number(ratio, 2)} times as large as"
        parts.append(f"Errors are {how} on the rows held out in training (RMSE {number(before, 3)}).")
    if abs(bias) > max(BIAS * rmse, ERRORS * rmse / math.sqrt(of.rows)):
        poor = True
        parts.append(f"Predictions are too {'low' if bias > 0 else 'high'} by {number(abs(bias), 3)} on average.")
    return Point(" ".join(parts), "Accuracy", "poor" if poor else "good")


def _calibration(of: Evaluation) -> Point:
    used = of.conformal if _at(of.conformal) else of.intervals
    one = _at(used)
    assert one is not None
    kind = "conformal 90 % intervals" if used is of.conformal else "90 % intervals"
    hold = f"{kind} hold {percent(one.coverage)} of the targets"
    side = _side(one.coverage, of.rows)
    if not side:
        return Point(f"Calibrated: {hold}.", "Calibration", "good")
    parts = [f"{hold[0].upper()}{hold[1:]}: too {side}."]
    if used is of.conformal:
        parts.append(
            "They were promised for rows like those of `conformalize`, and these differ: give it rows like these, or "
            "inputs from here as `shifted`."
        )
    else:
        parts.append("`conformalize` on rows like these would mend that, on average over rows.")
    if side == "narrow" and of.familiarity is not None:
        parts += _where_narrow(of, of.familiarity)
    return Point(" ".join(parts), "Calibration", "poor")


def _where_narrow(of: Evaluation, found: FamiliarityQuality) -> Iterator[str]:
    """Whether the intervals miss strange rows or familiar ones."""
    familiar, strange = found.familiar, found.unfamiliar
    if familiar is None:
        yield "All rows are strange to the model: fit it on rows like these."
    elif strange and not _side(familiar.inside, familiar.rows):
        yield (
            f"On the {count(familiar.rows, 'familiar row')} they hold {percent(familiar.inside)}: what they miss is "
            f"among the {count(strange, 'strange one')}. Fit on rows like those."
        )
    elif of.model.held_out and not _side(of.model.held_out["coverage"], int(of.model.held_out["rows"])):
        yield (
            f"On the rows held out in training they held {percent(of.model.held_out['coverage'])}, and here "
            f"{percent(familiar.inside)} on familiar rows: what targets depend on has changed, or is not among the "
            "columns of the model. Fit on new rows."
        )


def _ranking(of: Evaluation) -> Point:
    topic = "Error and std"
    if len(of.by_std) < 2:
        same = "The standard deviation is about the same for all rows: it does not tell good predictions from bad ones."
        return Point(same, topic, "note")
    low, high, spearman = of.by_std[0], of.by_std[-1], of.metrics["spearman"]
    ratio = high.rmse / low.rmse if low.rmse > 0 else math.inf
    where = (
        f"RMSE {number(low.rmse, 3)} where it is smallest ({count(low.rows)}), {number(high.rmse, 3)} where it is "
        f"largest ({count(high.rows)}); rank correlation {spearman:.2f}."
    )
    if ratio < LARGER or spearman < LEAST_CORRELATION:
        return Point(f"The standard deviation hardly says where errors are large: {where}", topic, "poor")
    text = f"Errors are larger where the standard deviation is: {where}"
    if math.isfinite(high.std) and not 0.5 <= high.rmse / high.std <= 2:
        less = "larger" if high.rmse > high.std else "smaller"
        text += f" Where it is largest, errors are {less} than predicted ({number(high.std, 3)})."
    return Point(text, topic, "good")


def _strange(of: Evaluation) -> Iterator[Point]:
    topic, found = "Strange rows", of.familiarity
    if found is None:
        yield Point("This method has no notion of familiarity.", topic, "note")
        return
    share = found.unfamiliar / of.rows
    usual = UNFAMILIAR + max(0.01, ERRORS * math.sqrt(UNFAMILIAR * (1 - UNFAMILIAR) / of.rows))
    parts = [
        f"{percent(share)} of the rows are strange (familiarity below 0.01; of rows like those of training 1 % would "
        "be)."
    ]
    if found.unfamiliar and found.familiar is not None:
        parts.append(_compared(found.bins[0], found.familiar))
    yield Point(" ".join(parts), topic, "good" if share <= usual else "poor")
    if found.unfamiliar:
        yield Point(" ".join(_in_common(found)), "What they have in common", "note")


def _in_common(found: FamiliarityQuality) -> Iterator[str]:
    if found.traits:
        yield found.traits[0].sentence()
    else:
        yield "No single column sets them apart from the others."
    strange, others = found.outside
    if strange > 0:
        beside = "" if math.isnan(others) else f"; of the others {percent(others)}"
        yield f"{percent(strange)} of them have a value that no training row had, in some column{beside}."
    elif not found.traits:
        yield "It is the combination of values that is unusual."


def _compared(strange: ErrorBin, familiar: ErrorBin) -> str:
    """Errors of strange rows beside those of the others."""
    ratio = strange.rmse / familiar.rmse if familiar.rmse > 0 else math.inf
    wider = strange.std / familiar.std
    return (
        f"Their RMSE is {number(ratio, 2)} times that of the others, and their standard deviation {number(wider, 2)} "
        f"times; 90 % intervals hold {percent(strange.inside)} of them."
    )


def _side(coverage: float, rows: int) -> str:
    """Whether 90 % intervals are too "narrow" or too "wide"; empty if neither."""
    allowed = max(TOLERANCE, ERRORS * math.sqrt(LEVEL * (1 - LEVEL) / rows))
    if abs(coverage - LEVEL) <= allowed:
        return ""
    return "narrow" if coverage < LEVEL else "wide"


def _at(intervals: tuple[IntervalQuality, ...]) -> IntervalQuality | None:
    return next((one for one in intervals if one.level == LEVEL), None)
