"""The page of an alarm: self-contained, without scripts, with a table beside each drawing."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

from density_regression.serve.alarm import Alarm
from density_regression.serve.alarm.drawing import draw_evidence
from density_regression.serve.alarm.page import alarm_page

VOID = {"meta", "line", "rect", "polyline", "polygon"}


class Reader(HTMLParser):
    """Collects tags and text, and sees that every tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def rang() -> Alarm:
    rng = np.random.default_rng(0)
    scores, X = rng.normal(size=900), rng.normal(size=(900, 2))
    scores[700:] -= 4
    X[700:, 1] += 5
    alarm = Alarm(rng.normal(size=300), false_alarms_per=10_000, targets=True, names=["age", "<b>&"])
    alarm.update_scores(scores, columns=X, errors=rng.normal(size=900))
    return alarm


def test_a_page_after_an_alarm(rang: Alarm) -> None:
    page = read(alarm_page(rang, "Alarm of <wine>"))
    text = " ".join(" ".join(page.text).split())
    assert "1 alarm in 900 rows" in text
    assert "Alarm of <wine>" in text
    assert "at most one false alarm in 10,000 rows" in text
    assert "<b>&" in text
    for title in ("Familiarity of the inputs", "Size of the errors", "Bias of the predictions"):
        assert title in text
    tags = [tag for tag, _ in page.tags]
    assert tags.count("svg") == 3
    assert tags.count("table") == 4
    assert not {"script", "img", "link", "iframe"} & set(tags)
    policies = [attrs["content"] for tag, attrs in page.tags if tag == "meta" and "http-equiv" in attrs]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert not any(
        name.startswith("on") or name in ("src", "href", "style") for _, attrs in page.tags for name in attrs
    )


def test_a_page_before_any_row() -> None:
    page = read(alarm_page(Alarm(), "Alarm"))
    text = " ".join(page.text)
    assert "No alarm in 0 rows." in text
    assert "Not watched yet" in text


def test_alarms_are_drawn_where_they_are(rang: Alarm) -> None:
    points = [(1, 0.0), (50, 2.0), (101, 9.0)]
    drawing = draw_evidence(points, 101, np.log(1000.0), (), "title")
    coordinates = drawing.split('points="')[1].split('"')[0].split()
    x, y = np.array([part.split(",") for part in coordinates], dtype=float).T
    assert (x[1] - x[0]) / (x[2] - x[0]) == pytest.approx(0.49, abs=1e-3)
    assert (y[0] - y[1]) / (y[0] - y[2]) == pytest.approx(2 / 9, abs=1e-2)
    threshold = float(drawing.split('class="threshold"')[1].split('y1="')[1].split('"')[0])
    assert (y[0] - threshold) / (y[0] - y[2]) == pytest.approx(np.log(1000) / 9, abs=1e-2)
    (report,) = rang.reports
    marked = draw_evidence(rang.history()["inputs"], 900, np.log(3e4), rang.reports, "title")
    assert f"Alarm at row {report.row:,}" in marked
    assert marked.count("<rect") == 1
