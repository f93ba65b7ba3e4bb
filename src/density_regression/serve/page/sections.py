"""The answer: the sections of the page beside the form."""

from __future__ import annotations

from collections.abc import Sequence

from density_regression.serve.page.explain import Verdict, reasons, rise_in_words, verdict
from density_regression.serve.page.markup import Markup, join, tag
from density_regression.serve.page.svg.bars import bar
from density_regression.serve.page.svg.density import Law, distribution
from density_regression.serve.page.svg.scale import familiarity_scale
from density_regression.serve.page.view import View
from density_regression.serve.page.words import number

__all__ = ["distribution_section", "familiarity_section", "parts_section", "summary", "table"]

SIGNS = {"familiar": "●", "unusual": "◆", "unfamiliar": "▲"}
"""A sign for each verdict, so that colour is not the only one."""

ABOUT = {
    "noise": "Targets of rows like this one differ by so much from each other. No model can know more than that.",
    "disagreement": "So much do the networks differ from which this one learnt. More training rows make it smaller.",
    "distance": "So much is added because the row lies away from the training rows: the farther, the more.",
}


def summary(view: View) -> Markup:
    """Mean, interval and verdict in one line, which stays in view."""
    found, point = view.outlook, view.outlook.point
    parts = [
        tag("span", view.target_name, class_="target-name"),
        tag("strong", view.in_units(point.mean), class_="mean"),
    ]
    if view.asked.coverage in found.intervals:
        parts.append(tag("span", f"{view.share}: {view.to(point.low, point.high)}", class_="interval"))
    if found.familiarity is not None:
        level = verdict(found.familiarity).level
        parts.append(tag("span", f"{SIGNS[level]} {level}", class_=f"level {level}"))
    return tag("p", *parts, class_="answer", data_spoken=_spoken(view))


def _spoken(view: View) -> str:
    """The same as a sentence, which is announced after a change."""
    found, point = view.outlook, view.outlook.point
    words = f"{view.target_name}: mean {view.in_units(point.mean)}"
    if view.asked.coverage in found.intervals:
        words += f", {view.share} interval {view.to(point.low, point.high)}"
    return f"{words}." if found.familiarity is None else f"{words}, {verdict(found.familiarity).level}."


def distribution_section(view: View) -> Markup:
    """The drawing of the distribution, and its numbers."""
    found, point = view.outlook, view.outlook.point
    interval = found.intervals.get(view.asked.coverage)
    target = view.target
    histogram = None if target is None else (target.edges, target.counts)
    law = Law(point.mean, found.std, view.bundle.law == "log")
    words = f"Distribution of {view.target_name}: mean {view.in_units(point.mean)}"
    if interval:
        words += f", {view.share} between {view.in_units(interval[0])} and {view.in_units(interval[1])}"
    drawn = distribution(law, interval, histogram, view.target_name, view.in_units, f"{words}.")
    rows = [("Mean", view.in_units(point.mean)), ("Standard deviation", view.in_units(found.std))]
    if law.log:
        rows.append(("Median", view.in_units(law.at(0.0))))
    rows += [(f"{100 * share:g} % interval", view.to(*ends)) for share, ends in found.intervals.items()]
    if target is not None:
        low, middle, high = (target.quantiles[i] for i in (2, 4, 6))
        rows.append(("Training rows: median", view.in_units(middle)))
        rows.append(("Training rows: middle 90 %", view.to(low, high)))
    return _section(
        "distribution",
        f"What {view.target_name} to expect",
        tag("figure", drawn, _legend(view, interval is not None), class_="drawing"),
        table(f"{view.target_name} in numbers", ("", "Value"), rows),
    )


def familiarity_section(view: View) -> Markup:
    """How familiar the row is, and which columns make it strange."""
    familiarity, density = view.outlook.familiarity, view.outlook.log_density
    heading = "How familiar the model is with such a row"
    if familiarity is None or density is None:
        return _section("familiarity", heading, tag("p", "This method does not know how familiar a row is."))
    said = verdict(familiarity)
    levels = view.bundle.levels
    least, middle = levels[len(levels) // 100], levels[len(levels) // 2]
    drawn = familiarity_scale(familiarity, least - density, f"{said.level}: {said.sentence}")
    rows = [
        ("Held-out rows that are no more familiar", f"{100 * familiarity:.3g} %"),
        ("Log-density of the row", number(density, 0.1)),
        ("Log-density, median of held-out rows", number(middle, 0.1)),
        ("Log-density, first percentile of held-out rows", number(least, 0.1)),
    ]
    return _section(
        "familiarity",
        heading,
        tag("p", f"{SIGNS[said.level]} {said.level.capitalize()}. {said.sentence}", class_=f"verdict {said.level}"),
        tag("figure", drawn, class_="drawing"),
        _reasons(view, said),
        tag("details", tag("summary", "Numbers"), table("Familiarity", ("", "Value"), rows), id="familiarity-numbers"),
    )


def parts_section(view: View) -> Markup | None:
    """Of what the standard deviation consists."""
    if not view.outlook.parts:
        return None
    largest = max(view.outlook.parts.values()) or 1.0
    # Squares of huge numbers would overflow.
    squares = {name: (part / largest) ** 2 for name, part in view.outlook.parts.items()}
    shares = {name: square / (sum(squares.values()) or 1.0) for name, square in squares.items()}
    items = [
        tag(
            "li",
            tag("p", tag("strong", name.capitalize()), f" ± {view.in_units(part)}: {100 * shares[name]:.0f} %"),
            bar(shares[name]),
            tag("p", ABOUT[name], class_="note"),
        )
        for name, part in view.outlook.parts.items()
    ]
    lead = f"The variance of {view.target_name}, the square of ± {view.in_units(view.outlook.std)}, has three parts."
    return _section("parts", "Why it is not known better", tag("p", lead), tag("ul", *items, class_="shares"))


def table(caption: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Markup:
    """A table whose first column names its rows."""
    head = tag("tr", *(tag("th", each, scope="col") if each else tag("td") for each in heads))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    return tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))


def _section(name: str, heading: str, *parts: Markup | None) -> Markup:
    return tag(
        "section", tag("h2", heading, id=f"{name}-heading"), *parts, aria_labelledby=f"{name}-heading", class_=name
    )


def _legend(view: View, has_interval: bool) -> Markup:
    """What is drawn, each after a sample of it."""
    law = "log-normal" if view.bundle.law == "log" else "Normal"
    items = [tag("span", _sample("curve"), f"{law} law of the prediction")]
    if has_interval:
        kind = "conformal interval" if view.bundle.interval == "conformal" else "interval"
        items.append(tag("span", _sample("area"), f"{view.share} {kind}"))
    if view.profile is not None:
        items.append(tag("span", _sample("target"), f"{view.profile.rows:,} training rows, to a scale of their own"))
    return tag("figcaption", *items, class_="legend")


def _sample(class_: str) -> Markup:
    shape = tag("rect", x=1.0, y=1.0, width=18.0, height=10.0, class_=class_)
    if class_ == "curve":
        shape = tag("line", x1=0.0, x2=20.0, y1=6.0, y2=6.0, class_=class_)
    return tag("svg", shape, viewBox="0 0 20 12", class_="sample", aria_hidden="true")


def _reasons(view: View, said: Verdict) -> Markup | None:
    """The columns that make a row strange, with links to their typical values."""
    found = reasons(view.fields, view.asked, view.outlook)
    if said.level == "familiar":
        return None
    if not found:
        return tag("p", "No single column makes it so: it is how they go together.")
    items = [
        tag(
            "li",
            tag("code", reason.field.label),
            f" {reason.words}. {rise_in_words(reason)} ",
            tag("a", "Use it", href=view.asked.address(view.fields, {reason.field.name: reason.field.typical})),
        )
        for reason in found
    ]
    return join([tag("p", "What makes it so:"), tag("ol", *items, class_="reasons")])
