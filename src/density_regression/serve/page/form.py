"""The form: an input for each column, with its training range, and a slider where values lie on a line."""

from __future__ import annotations

import math

from density_regression.serve.page.asked import COVERAGES, GAP, VALUE
from density_regression.serve.page.explain import note
from density_regression.serve.page.fields import Field, Value
from density_regression.serve.page.markup import Markup, tag
from density_regression.serve.page.outlook import known_coverages, new_text
from density_regression.serve.page.values import form_text, in_words
from density_regression.serve.page.view import View
from density_regression.serve.page.words import plain, short

__all__ = ["form"]

MOST_OPTIONS = 200
"""Most values of a category to choose from, the most frequent."""

POSITIONS = 200
"""About how many positions a slider has."""


def form(view: View) -> Markup:
    """The form of a model."""
    return tag(
        "form",
        tag("h2", "Values", id="values"),
        _chooser("model", "Model", view.models, view.asked.model) if len(view.models) > 1 else _hidden(view),
        _targets(view) if len(view.target_names) > 1 else None,
        *(_field(view, i, part) for i, part in enumerate(view.fields)),
        _coverages(view),
        tag(
            "p",
            tag("button", "Show", type="submit"),
            " ",
            tag("a", "Typical values", href=f"/?model={view.asked.model}"),
            class_="buttons",
        ),
        id="form",
        action="/",
        method="get",
        aria_labelledby="values",
        autocomplete="off",
    )


def _field(view: View, place: int, part: Field) -> Markup:
    """Label, input, slider, "missing", and what is known of the training rows."""
    asked = view.asked
    value, kept = asked.row[part.name], asked.kept[part.name]
    number, wrong = f"v{place}", asked.problems.get(part.name)
    label = tag("label", part.label, for_=number, class_="name")
    if not part.on_a_line:
        return tag("div", label, _choice(part, value, place), _note(part, value, wrong, place), class_="field")
    kind = {"number": "number", "time": "time"}.get(part.kind, "date" if part.whole else "datetime-local")
    box = tag(
        "input",
        id=number,
        name=VALUE + part.name,
        type=kind,
        step="any" if part.kind == "number" else None,
        inputmode="decimal" if part.kind == "number" else None,
        value=form_text(part, kept),
        aria_describedby=f"n{place}",
        aria_invalid="true" if wrong else None,
    )
    slider = _slider(part, kept, place) if part.span is not None and part.kind != "time" else None
    missing = None
    if part.takes_gaps:
        check = tag("input", type="checkbox", name=GAP + part.name, value="1", checked=value is None, id=f"g{place}")
        missing = tag("label", check, tag("span", f"{part.label} ", class_="for-ears"), "missing", class_="gap")
    parts = [label, tag("div", box, missing, class_="line"), slider, _note(part, value, wrong, place)]
    return tag("div", *parts, class_="field", data_kind=part.kind)


def _slider(part: Field, value: Value, place: int) -> Markup:
    """A slider over the training range and half of it on either side. It needs a script, which the form does not."""
    assert part.span is not None
    assert part.ends is not None
    low, high = part.span
    step = _step((high - low) / POSITIONS, part.whole)
    first, last = math.floor(low / step) * step, math.ceil(high / step) * step
    now = value if isinstance(value, float) else 0.5 * (low + high)
    slider = tag(
        "input",
        id=f"s{place}",
        type="range",
        min=_rounded(first, step),
        max=_rounded(last, step),
        step=_rounded(step, step),
        # A value that is not given lies in the middle.
        value=_rounded(min(max(now, first), last), step) if math.isfinite(now) else None,
        list=f"t{place}",
        aria_label=f"{part.label}, slider",
        aria_valuetext=form_text(part, now),
        aria_describedby=f"n{place}",
        data_low=plain(part.ends[0]),
        data_high=plain(part.ends[1]),
        data_kind=part.kind,
    )
    ends = [tag("option", value=_rounded(end, step)) for end in dict.fromkeys(part.ends)]
    return tag("div", slider, tag("datalist", *ends, id=f"t{place}"), class_="slider")


def _choice(part: Field, value: Value, place: int) -> Markup:
    """One of the values of training, one that was never seen, or none."""
    known: list[Value] = [1.0, 0.0] if part.kind == "boolean" else list(part.values[:MOST_OPTIONS])
    if value is not None and value not in known and not part.is_new(value):
        known.append(value)
    options = [_option(part, each, _with_share(part, each), value) for each in known]
    if part.kind == "category":
        other = value if part.is_new(value) else new_text(part)
        options.append(_option(part, other, "other (never seen)", value))
    if part.takes_gaps:
        options.append(_option(part, None, "missing", value))
    return tag("select", *options, id=f"v{place}", name=VALUE + part.name, aria_describedby=f"n{place}")


def _option(part: Field, value: Value, words: str, now: Value) -> Markup:
    return tag("option", words, value=form_text(part, value), selected=value == now)


def _with_share(part: Field, value: Value) -> str:
    share = part.share(value)
    words = short(value) if isinstance(value, str) else in_words(part, value)
    return words if share is None else f"{words} ({100 * share:.2g} %)"


def _note(part: Field, value: Value, wrong: str | None, place: int) -> Markup:
    """The training range, and what is strange about the value; it changes with the value."""
    known = None
    if part.ends is not None:
        low, high = (in_words(part, end) for end in part.ends)
        known = f"training: {low}" if low == high else f"training: {low} to {high}"
    strange = f"{wrong} The typical value stands in its place." if wrong else note(part, value)
    warning = tag("strong", f"▲ {strange}", class_="warning") if strange else None
    return tag("p", known, " " if known and warning else None, warning, id=f"n{place}", class_="note", data_live=True)


def _coverages(view: View) -> Markup | None:
    known = known_coverages(view.served.scorer)
    if not known:
        return None
    names = [(f"{share:g}", f"{100 * share:g} %") for share in COVERAGES if share in known]
    return _select("coverage", "Interval", names, f"{view.asked.coverage:g}")


def _targets(view: View) -> Markup:
    names = [(str(i), name) for i, name in enumerate(view.target_names)]
    return _select("target", "Target", names, str(view.asked.target))


def _chooser(name: str, label: str, names: tuple[str, ...], now: str) -> Markup:
    return _select(name, label, [(each, each) for each in names], now)


def _select(name: str, label: str, names: list[tuple[str, str]], now: str) -> Markup:
    options = [tag("option", words, value=value, selected=value == now) for value, words in names]
    box = tag("select", *options, id=name, name=name)
    return tag("div", tag("label", label, for_=name, class_="name"), box, class_="field")


def _hidden(view: View) -> Markup:
    return tag("input", type="hidden", name="model", value=view.asked.model)


def _step(size: float, whole: bool) -> float:
    """The largest of 1, 2 or 5 times a power of ten that is not above a size; at least 1 for whole numbers."""
    power = 10.0 ** math.floor(math.log10(size)) if size > 0 else 1.0
    step = max(factor * power for factor in (1.0, 2.0, 5.0) if factor * power <= size * (1 + 1e-9) or factor == 1.0)
    return max(step, 1.0) if whole else step


def _rounded(value: float, step: float) -> str:
    """A multiple of a step without the dust of binary fractions."""
    digits = max(0, 1 - math.floor(math.log10(step)))
    return plain(round(round(value / step) * step, digits))
