"""What if: the prediction along each column, all others as asked."""

from __future__ import annotations

from density_regression.serve.page.markup import Markup, tag
from density_regression.serve.page.outlook import Sweep
from density_regression.serve.page.sections import table
from density_regression.serve.page.svg.bands import along_a_line, along_categories, category, common_range
from density_regression.serve.page.values import in_words
from density_regression.serve.page.view import View

__all__ = ["what_if_section"]

ROWS = 9
"""Rows of the table of a column of numbers, which is drawn at more values."""


def what_if_section(view: View) -> Markup | None:
    """A drawing for each column, all to the same scale of the target."""
    sweeps = view.outlook.sweeps
    if not sweeps:
        return None
    band = f" and {view.share} interval" if view.outlook.intervals else ""
    lead = (
        f"Mean{band} of {view.target_name} along each column, all other values as they are. The training range is "
        "shaded; the ring is the present value."
    )
    more = len([part for part in view.fields if part.span or not part.on_a_line]) - len(sweeps)
    heights = common_range(sweeps, view.outlook.point)
    return tag(
        "section",
        tag("h2", "What if", id="what-if-heading"),
        tag("p", lead),
        tag("p", f"The first {len(sweeps)} columns; there are {more} more.") if more > 0 else None,
        tag("div", *(_panel(view, i, sweep, heights) for i, sweep in enumerate(sweeps)), class_="panels"),
        aria_labelledby="what-if-heading",
        class_="what-if",
    )


def _panel(view: View, place: int, sweep: Sweep, heights: tuple[float, float]) -> Markup:
    name, value = sweep.field.label, view.asked.row[sweep.field.name]
    if sweep.field.on_a_line:
        label = f"{view.target_name} along {name}, from {_words(sweep, 0)} to {_words(sweep, -1)}"
        drawn = along_a_line(sweep, view.outlook.point, value, heights, label)
    else:
        drawn = along_categories(sweep, value, heights, f"{view.target_name} for each value of {name}")
    now = f"now {in_words(sweep.field, value)}"
    if sweep.field.is_beyond(value):
        now = f"▲ {now}, beyond the training range"
    return tag(
        "figure",
        tag("figcaption", tag("h3", name), tag("span", now, class_="note")),
        drawn,
        tag(
            "details",
            tag("summary", "Numbers", tag("span", f" of {name}", class_="for-ears")),
            _numbers(view, sweep),
            id=f"numbers-{place}",
        ),
        class_="panel",
    )


def _words(sweep: Sweep, place: int) -> str:
    return in_words(sweep.field, sweep.values[place])


def _numbers(view: View, sweep: Sweep) -> Markup:
    pairs = list(zip(sweep.values, sweep.points, strict=True))
    if sweep.field.on_a_line:
        pairs = pairs[:: max(1, (len(pairs) - 1) // (ROWS - 1))]
    heads = (sweep.field.label, "Mean", f"{view.share} interval")[: 3 if view.outlook.intervals else 2]
    rows = []
    for value, point in pairs:
        said = in_words(sweep.field, value) if sweep.field.on_a_line else category(sweep, value)
        beyond = " ▲" if sweep.field.is_beyond(value) else ""
        cells = (said + beyond, view.in_units(point.mean), view.to(point.low, point.low))
        rows.append(cells[: len(heads)])
    return table(f"{view.target_name} along {sweep.field.label}; ▲ is beyond the training range", heads, rows)
