"""The page as a whole."""

from __future__ import annotations

from functools import cache
from importlib import resources
from string import Template

from density_regression.serve.page.alarm import Alarm, alarm_section
from density_regression.serve.page.form import form
from density_regression.serve.page.markup import Markup, join, tag
from density_regression.serve.page.sections import distribution_section, familiarity_section, parts_section, summary
from density_regression.serve.page.upload import upload_section
from density_regression.serve.page.view import View
from density_regression.serve.page.whatif import what_if_section

__all__ = ["asset", "message_page", "whole_page"]


def whole_page(view: View, alarm: Alarm | None = None) -> str:
    """The page of a model with a question, its answer, and its alarm."""
    # What has `data_live` is replaced by the script when a value changes.
    result = tag(
        "div",
        distribution_section(view),
        familiarity_section(view),
        parts_section(view),
        what_if_section(view),
        id="answers",
        data_live=True,
    )
    body = join(
        [
            tag("div", summary(view), id="summary", data_live=True),
            tag("p", id="status", role="status", class_="for-ears"),
            form(view),
            tag("div", _problems(view), result, upload_section(view), alarm_section(alarm), id="result", tabindex="-1"),
        ]
    )
    return _page(f"{view.target_name} · {view.served.name}", view.target_name, _about(view), body)


def message_page(message: str, back: str = "/") -> str:
    """A page that says why there is no other."""
    body = [tag("p", message, id="message", role="alert"), tag("p", tag("a", "Back to the form", href=back))]
    return _page(
        "Density-Regression",
        "That did not work",
        Markup(),
        tag("div", *body, id="result", class_="message", tabindex="-1"),
    )


@cache
def asset(name: str) -> str:
    """A file of this folder."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _page(title: str, heading: str, about: Markup, body: Markup) -> str:
    parts = {"title": title, "heading": heading}
    escaped = {name: join([text]) for name, text in parts.items()}
    return Template(asset("page.html")).substitute(escaped, about=about, body=body)


def _about(view: View) -> Markup:
    rows = f", {view.profile.rows:,} training rows" if view.profile else ""
    return tag("p", f"Model {view.served.name}: {view.bundle.method}, version {view.served.version}{rows}.")


def _problems(view: View) -> Markup | None:
    """What could not be read, where somebody who does not see the form finds it."""
    if not view.asked.problems:
        return None
    items = [tag("li", f"{name}: {problem}") for name, problem in view.asked.problems.items()]
    return tag(
        "div",
        tag("p", "Some values could not be read; typical ones stand in their place."),
        tag("ul", *items),
        role="alert",
        class_="problems",
    )
