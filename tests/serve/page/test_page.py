from __future__ import annotations

import itertools
import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from density_regression.serve.page.fields import fields_of
from density_regression.serve.page.layout import asset, message_page, whole_page
from density_regression.serve.page.outlook import look
from density_regression.serve.page.view import View
from density_regression.serve.scorer import Scorer
from serve.helpers import Client
from serve.page.helpers import view_of

FAR = {"x.km": "370000", "x.town": "Paris", "gap.power": "1"}


class Page(HTMLParser):
    """Elements of a page with their attributes, and its text."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [
            attributes
            for name, attributes in self.elements
            if name == tag and all(attributes.get(key) == value for key, value in wanted.items())
        ]


def page_of(view: View) -> Page:
    return Page(whole_page(view))


@pytest.mark.parametrize("query", [{}, FAR, {"x.km": "wide"}], ids=["usual", "far", "wrong"])
def test_names_and_references_fit(cars: Scorer, query: dict[str, str]) -> None:
    page = page_of(view_of(cars, query))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for name in ("for", "list", "aria-describedby", "aria-labelledby"):
        for _, attributes in page.elements:
            assert attributes.get(name, ids[0]) in ids
    labelled = {attributes["for"] for attributes in page.all("label") if "for" in attributes}
    boxes = [box for tag in ("input", "select") for box in page.all(tag)]
    unnamed = [box for box in boxes if box.get("type") not in ("hidden", "checkbox") and box.get("id") not in labelled]
    assert all(box.get("aria-label") for box in unnamed)


def test_nothing_needs_more_than_the_policy_allows(cars: Scorer) -> None:
    page = page_of(view_of(cars, FAR))
    for tag, attributes in page.elements:
        assert not any(name == "style" or name.startswith("on") for name in attributes)
        for name in ("href", "src", "action"):
            assert re.match(r"/(?!/)|#", attributes.get(name) or "/")
        assert tag not in ("style", "iframe", "object")
    assert page.all("script") == [{"src": "/page/page.js", "defer": None}]


def test_texts_of_users_and_models_are_escaped(cars: Scorer) -> None:
    evil = "<img src=x onerror=alert(1)>"
    content = whole_page(view_of(cars, {"x.town": evil, "x.km": evil}))
    assert evil not in content
    assert "Kiel &lt;b&gt;" in content
    assert "<b>" not in content
    assert "<img" not in message_page(evil)


def test_the_form_has_the_columns_with_what_was_given(cars: Scorer) -> None:
    page = page_of(view_of(cars, FAR))
    [km] = page.all("input", name="x.km")
    assert (km["type"], km["step"], km["value"]) == ("number", "any", "370000")
    assert page.all("input", name="x.first registration")[0]["type"] == "date"
    [slider] = page.all("input", type="range", id="s0")
    low, high = float(slider["data-low"] or 0), float(slider["data-high"] or 0)
    assert float(slider["min"] or 0) < low < high < float(slider["max"] or 0)
    assert slider["aria-label"] == "km, slider"
    # What a form sends twice would be two values.
    assert all("name" not in box for box in page.all("input", type="range"))
    assert "checked" in page.all("input", name="gap.power")[0]
    assert "checked" not in page.all("input", name="gap.km")[0]
    chosen = [option["value"] for option in page.all("option") if "selected" in option]
    assert chosen == ["petrol", "Paris", "true", "0.9"]


def test_sliders_begin_and_end_at_steps(cars: Scorer) -> None:
    for slider in page_of(view_of(cars)).all("input", type="range"):
        step = float(slider["step"] or 0)
        assert 50 <= (float(slider["max"] or 0) - float(slider["min"] or 0)) / step <= 1000
        for name in ("min", "max", "value"):
            assert float(slider[name] or 0) / step == pytest.approx(round(float(slider[name] or 0) / step), abs=1e-6)


def test_the_page_says_unfamiliar_and_why(cars: Scorer) -> None:
    usual, far = page_of(view_of(cars)).text, page_of(view_of(cars, FAR)).text
    assert "Like the training rows" in usual
    assert "● familiar" in usual
    assert "▲ unfamiliar" in far
    assert "treat with caution" in far
    assert "km = 370,000 is beyond the training range" in far
    assert "beyond the training range" in far


def test_every_drawing_has_a_name_and_its_numbers_beside_it(cars: Scorer) -> None:
    view = view_of(cars)
    page = page_of(view)
    drawings = page.all("svg", role="img")
    assert len(drawings) == 2 + len(view.fields)
    assert all(drawing["aria-label"] for drawing in drawings)
    assert len(page.all("table")) == len(drawings)


def test_what_cannot_be_read_is_said_at_the_top_and_at_the_input(cars: Scorer) -> None:
    page = page_of(view_of(cars, {"x.km": "wide"}))
    assert page.all("div", role="alert")
    assert page.all("input", name="x.km")[0]["aria-invalid"] == "true"
    assert "'wide' is not a number." in page.text


def test_a_model_without_a_profile_has_a_page_without_ranges(cars: Scorer) -> None:
    view = view_of(cars)
    bundle = replace(cars.bundle, profile=None)
    scorer = SimpleNamespace(bundle=bundle, outputs=cars.outputs, half_width=cars.half_width)
    fields = fields_of(bundle, None)
    served = SimpleNamespace(name="old", version="1", scorer=scorer)
    old = View(served, ("old",), None, fields, view.asked, look(cars, fields, view.asked))
    page = page_of(old)
    assert not page.all("input", type="range")
    assert "training:" not in page.text
    assert len(page.all("select", name="x.fuel")) == 1
    assert not page.all("rect", **{"class": "target"})


def test_the_server_has_the_page_and_what_it_loads(client: Client) -> None:
    answer = client("/?model=raw&x.town=Rom")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'; ")
    assert "unsafe" not in policy
    for attributes in [*Page(answer.body.decode()).all("link"), *Page(answer.body.decode()).all("script")]:
        path = attributes.get("href") or attributes.get("src") or ""
        file = client(path)
        assert (file.status, file.body) == (200, asset(path.rpartition("/")[2]).encode())


def test_models_can_be_chosen(client: Client) -> None:
    assert b"column 0" in client("/").body
    page = Page(client("/?model=raw").body.decode())
    assert [option["value"] for option in page.all("option")[:2]] == ["numbers", "raw"]
    missing = client("/?model=none")
    assert missing.status == 404
    assert "There is no model" in Page(missing.body.decode()).text
    assert client("/page/none.css").status == 404


VALUES = [
    "",
    "0",
    "1e308",
    "-1e308",
    "5e-324",
    "1e15",
    "1e-9",
    "nan",
    "0001-01-01",
    "9999-12-31T23:59",
    "24:00",
    "\0",
    "😀" * 500,
]


def test_no_value_breaks_the_page(cars: Scorer) -> None:
    for text, gap in itertools.product(VALUES, ("", "1")):
        query = {f"x.{part.name}": text for part in cars.bundle.inputs} | {"gap.power": gap}
        content = whole_page(view_of(cars, query))
        assert not re.search(r'="[^"]*\b(nan|inf)\b[^"]*"', content.replace(text, "") if text else content)


# -- colours ------------------------------------------------------------------------------------------------------

PAIRS = [
    ("text", "back", 4.5), ("text", "card", 4.5), ("faint", "back", 4.5), ("faint", "card", 4.5), ("ink", "card", 4.5),
    ("ink", "back", 4.5), ("card", "ink", 4.5), ("warn", "card", 4.5), ("warn", "wash", 4.5), ("odd", "odd-wash", 4.5),
    ("calm", "calm-wash", 4.5), ("edge", "card", 3.0), ("ink", "area", 3.0), ("ink", "training", 3.0),
    ("training-edge", "card", 3.0), ("text", "training", 4.5), ("text", "area", 4.5), ("ink", "target", 3.0),
]  # fmt: skip


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    colour = colour if len(colour) == 7 else "#" + "".join(2 * digit for digit in colour[1:])
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("front", "back", "least"), PAIRS)
def test_colours_stand_out_from_their_ground(scheme: str, front: str, back: str, least: float) -> None:
    light, dark = re.findall(r":root \{(.*?)\}", asset("page.css"), re.DOTALL)[:2]
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+)", light if scheme == "light" else dark))
    high, low = sorted((luminance(colours[front]), luminance(colours[back])), reverse=True)
    assert (high + 0.05) / (low + 0.05) >= least
