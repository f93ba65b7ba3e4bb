"""Nodes that code the columns of a table: medians in gaps, indicators, one-hot categories, dates and their cycles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from density_regression.inference.onnx.nodes import Nodes
from density_regression.tabular.columns import Columns
from density_regression.tabular.columns.coders import NO_WAVE, CategoryColumn, DateColumn, Measured
from density_regression.tabular.columns.dates import DATE, PERIODS, TIME

__all__ = ["CodeWriter", "days_of_dates", "shares_of_times"]

EPOCH: Final = "1970-01-01"


class CodeWriter:
    """Writes the coded rows (n, C) of a table, in float64, block by block.

    Parameters
    ----------
    nodes : Nodes
        Where to write, with inputs and results in float64.
    columns : Columns
        The code.
    """

    def __init__(self, nodes: Nodes, columns: Columns) -> None:
        self._nodes = nodes
        self._columns = columns
        self._coders = [columns.coders[i] for i in columns.used]
        self._blocks: list[str] = []
        self._width = 0
        self._place: dict[tuple[int, int], int] = {}
        self._strange: list[str] = []

    def write(self, values: Sequence[str], output: str) -> None:
        """Write all; `values` (n,) are those of each column, of dates in days, NaN for gaps, of categories as text."""
        measured = {i: coder for i, coder in enumerate(self._coders) if isinstance(coder, Measured)}
        if measured:
            self._write_measured(measured, [values[i] for i in measured])
        for i, coder in enumerate(self._coders):
            if isinstance(coder, CategoryColumn):
                self._write_category(i, coder, values[i])
        nodes, order = self._nodes, [(i, j) for i, coder in enumerate(self._coders) for j in range(len(coder.codes))]
        total = nodes.add("Sum", self._strange)
        last = nodes.add("Sqrt", [nodes.add("Mul", [total, nodes.io_const(4.0 * len(self._columns.names))])])
        if not order:
            nodes.add("Identity", [last], output=output)
            return
        every = nodes.add("Concat", self._blocks, axis=1)
        own = nodes.add("Gather", [every, nodes.integers([self._place[key] for key in order])], axis=1)
        nodes.add("Concat", [own, last], axis=1, output=output)

    def _put(self, block: str, keys: Sequence[tuple[int, int] | None]) -> None:
        """Note that the columns of a block are these codes, each by its column and its number there."""
        self._place |= {key: self._width + i for i, key in enumerate(keys) if key is not None}
        self._width += len(keys)
        self._blocks.append(block)

    def _write_measured(self, measured: dict[int, Measured], values: Sequence[str]) -> None:
        """Numbers and days, all at once."""
        nodes, coders = self._nodes, list(measured.values())
        together = nodes.add("Concat", [self._upright(value) for value in values], axis=1)
        is_gap = nodes.add("IsNaN", [together])
        medians = nodes.io_const([[coder.median for coder in coders]])
        filled, gaps = nodes.add("Where", [is_gap, medians, together]), nodes.add("Cast", [is_gap], to=nodes.double)
        self._put(filled, [None if coder.constant else (i, 0) for i, coder in measured.items()])
        self._put(gaps, [(i, len(coder.codes) - 1) if coder.gaps else None for i, coder in measured.items()])
        never = np.array([[coder.never] for coder in coders])
        unseen = never * np.array([[not coder.gaps] for coder in coders])
        self._strange.append(nodes.add("MatMul", [gaps, nodes.io_const(unseen)]))
        constant = np.array([[coder.constant] for coder in coders])
        if constant.any():
            away = nodes.add("Abs", [nodes.add("Sub", [filled, medians])])
            tolerance = nodes.io_const([[coder.tolerance for coder in coders]])
            moved = nodes.add("And", [nodes.add("Greater", [away, tolerance]), nodes.add("Not", [is_gap])])
            moved = nodes.add("Cast", [moved], to=nodes.double)
            self._strange.append(nodes.add("MatMul", [moved, nodes.io_const(never * constant)]))
        cycles = [
            (place, i, j, PERIODS[cycle])
            for place, (i, coder) in enumerate(measured.items())
            if isinstance(coder, DateColumn)
            for j, cycle in enumerate(coder.cycles)
        ]
        if cycles:
            self._write_cycles(filled, cycles)

    def _write_cycles(self, filled: str, cycles: Sequence[tuple[int, int, int, float]]) -> None:
        """Sine and cosine of cycles of dates, each by its place in `filled`, its column, number there, and period."""
        nodes = self._nodes
        places, columns, numbers, periods = zip(*cycles, strict=True)
        days = nodes.add("Gather", [filled, nodes.integers(places)], axis=1)
        turns = nodes.add("Div", [days, nodes.io_const([periods])])
        angle = nodes.add("Sub", [turns, nodes.add("Floor", [turns])])
        angle = nodes.add("Mul", [angle, nodes.io_const(2.0 * np.pi)])
        for op, shift in (("Sin", 1), ("Cos", 2)):
            wave = nodes.add(op, [angle])
            small = nodes.add("Less", [nodes.add("Abs", [wave]), nodes.io_const(NO_WAVE)])
            wave = nodes.add("Where", [small, nodes.io_const(0.0), wave])
            self._put(wave, [(i, 2 * j + shift) for i, j in zip(columns, numbers, strict=True)])

    def _write_category(self, column: int, coder: CategoryColumn, value: str) -> None:
        """A number for each known value, and what it stands for."""
        rare, missing, new = (len(coder.values) + i for i in range(3))
        known = {**dict.fromkeys(coder.rare, rare), **{text: i for i, text in enumerate(coder.values)}, "": missing}
        nodes = self._nodes
        number = nodes.add(
            "LabelEncoder",
            [value],
            domain="ai.onnx.ml",
            keys_strings=list(known),
            values_int64s=list(known.values()),
            default_int64=new,
        )
        strange = np.zeros((new + 1, 1))
        strange[new] = coder.new
        strange[missing] = 0.0 if coder.gaps else coder.never
        self._strange.append(nodes.add("Gather", [nodes.io_const(strange), number]))
        if coder.codes:
            code = np.zeros((new + 1, len(coder.codes)))
            code[: len(coder.values), : len(coder.values)] = np.eye(len(coder.values))
            if coder.rare:
                code[[rare, new], rare] = 1.0
            if coder.gaps:
                code[missing, -1] = 1.0
            block = nodes.add("Gather", [nodes.io_const(code), number])
            self._put(block, [(column, j) for j in range(len(coder.codes))])

    def _upright(self, value: str) -> str:
        return self._nodes.add("Unsqueeze", [value, self._nodes.integers([1])])


def days_of_dates(nodes: Nodes, text: str) -> str:
    """Days since 1970 began (n,) of dates in ISO form, NaN for all other text."""
    valid = nodes.add("RegexFullMatch", [text], pattern=DATE)
    text = nodes.add("Where", [valid, text, nodes.text(EPOCH)])
    # Text is split after a separator was appended, so that there are parts enough in every row.
    before, after = _parts(nodes, text, "T", 2)
    date, after_blank = _parts(nodes, before, " ", 2)
    clock, _ = _parts(nodes, nodes.add("StringConcat", [after, after_blank]), "Z", 2)
    clock, plus = _parts(nodes, clock, "+", 2)
    clock, minus = _parts(nodes, clock, "-", 2)
    ahead, behind = (_share_of_day(nodes, part) for part in (plus, minus))
    share = nodes.add("Sub", [nodes.add("Add", [_share_of_day(nodes, clock), behind]), ahead])
    days = nodes.add("Add", [_day_of_calendar(nodes, date), share])
    return nodes.add("Where", [valid, days, nodes.io_const(np.nan)])


def shares_of_times(nodes: Nodes, text: str) -> str:
    """Shares of a day (n,) of times such as 22:20, NaN for all other text."""
    valid = nodes.add("RegexFullMatch", [text], pattern=TIME)
    share = _share_of_day(nodes, nodes.add("Where", [valid, text, nodes.text("")]))
    return nodes.add("Where", [valid, share, nodes.io_const(np.nan)])


def _parts(nodes: Nodes, text: str, separator: str, count: int) -> list[str]:
    """The first parts (n,) of text between separators; "" if there are fewer."""
    longer = nodes.add("StringConcat", [text, nodes.text(separator * (count - 1))])
    split = nodes.add_first("StringSplit", [longer], 2, delimiter=separator)
    return [nodes.add("Gather", [split, nodes.integers(i)], axis=1) for i in range(count)]


def _share_of_day(nodes: Nodes, clock: str) -> str:
    """Share of a day (n,) of h:m or h:m:s; 0 of nothing."""
    terms = []
    for part, seconds in zip(_parts(nodes, clock, ":", 3), (3600.0, 60.0, 1.0), strict=True):
        nothing = nodes.add("Equal", [part, nodes.text("")])
        number = nodes.add("Cast", [nodes.add("Where", [nothing, nodes.text("0"), part])], to=nodes.double)
        terms.append(nodes.add("Mul", [number, nodes.io_const(seconds)]))
    return nodes.add("Div", [nodes.add("Sum", terms), nodes.io_const(86400.0)])


def _day_of_calendar(nodes: Nodes, date: str) -> str:
    """Days from 1970-01-01 to the dates y-m-d, by Hinnant's `days_from_civil`: years begin in March."""

    def constant(value: float) -> str:
        return nodes.io_const(float(value))

    def floor_div(value: str, size: float) -> str:
        return nodes.add("Floor", [nodes.add("Div", [value, constant(size)])])

    year, month, day = (nodes.add("Cast", [part], to=nodes.double) for part in _parts(nodes, date, "-", 3))
    early = nodes.add("Cast", [nodes.add("Less", [month, constant(3)])], to=nodes.double)
    year = nodes.add("Sub", [year, early])
    month = nodes.add("Sum", [month, constant(-3), nodes.add("Mul", [early, constant(12)])])
    of_year = floor_div(nodes.add("Add", [nodes.add("Mul", [month, constant(153)]), constant(2)]), 5)
    whole = nodes.add("Mul", [year, constant(365)])
    leap_days = [floor_div(year, 4), floor_div(year, 400)]
    none = nodes.add("Neg", [floor_div(year, 100)])
    # Of 1970-01-01 the rest of the sum is 719469: the day counts from 1.
    return nodes.add("Sum", [whole, *leap_days, none, of_year, day, constant(-719469)])
