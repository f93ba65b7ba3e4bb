"""The pages of a report: Markdown, LaTeX and HTML, written whole or not at all."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from density_regression.experiments.report import figures, write_report
from density_regression.experiments.report.document import ResultTable, Section, TableCell, slug
from density_regression.experiments.report.figures import error_picture
from density_regression.experiments.report.html import html
from density_regression.experiments.report.latex import latex
from density_regression.experiments.report.markdown import markdown
from density_regression.experiments.report.rendering import Panels, panels_png
from experiments.helpers import NASTY, Record, fail, make, only


def test_file_names_are_safe_and_different() -> None:
    assert slug("uci", "", "wine_red") == "uci-wine_red"
    assert len({slug("é"), slug("ü"), slug("../x"), slug("x")}) == 4
    assert re.fullmatch(r"[A-Za-z0-9_-]+", slug("../é $"))
    assert slug("a" * 250 + "b") != slug("a" * 251)
    assert len(slug("a" * 251)) < 200


EXAMPLE = Section(
    f"Title {NASTY}",
    text=(NASTY,),
    tables=(
        ResultTable(
            NASTY,
            ("Method", NASTY, *"abcde"),
            (
                (
                    TableCell(NASTY),
                    TableCell("-1.2e+05 ± 3.00", -1.2e5, True, "2.64 ± 0.26"),
                    *[TableCell("1 / 2 / 3", 1.0)] * 5,
                ),
                (TableCell("plain"), TableCell("–"), *[TableCell(NASTY)] * 5),
            ),
            (NASTY,),
        ),
    ),
    sections=(Section("Hidden", tables=(ResultTable("hidden", ("a", "b"), ()),), appendix=True),),
)


def test_markdown_escapes_and_keeps_tables_whole() -> None:
    text = markdown(EXAMPLE)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {8}
    assert "**-1.2e+05 ± 3.00**<br><small>paper: 2.64 ± 0.26</small>" in text
    assert "<b>" not in text
    assert "Hidden" not in text
    assert r"x\_1 &amp; 50% &lt;b&gt;" in text
    starts = markdown(Section("t", text=("# one", "- two", "-2 is a number", "a # b")))
    assert starts.split("\n\n")[1:] == [r"\# one", r"\- two", "-2 is a number", "a # b\n"]


def test_latex_is_balanced_and_escaped() -> None:
    text = latex(EXAMPLE)
    bare = re.sub(r"\\\\|\\[{}]", "", text)
    depth = np.cumsum([{"{": 1, "}": -1}.get(letter, 0) for letter in bare])
    assert depth.min() >= 0
    assert depth[-1] == 0
    opened, closed = (sorted(re.findall(rf"\\{word}{{(\w+)}}", text)) for word in ("begin", "end"))
    assert opened == closed
    assert opened.count("tabular") == 2
    assert r"{\boldmath\textbf{$-1.2\mathrm{e}{+}05 \pm 3.00$}}" in text
    assert r"x\_1 \& 50\% \textless{}b\textgreater{}\#\$\textasciicircum{}\textasciitilde{}\{\}\textbackslash{}" in text
    assert not re.search(
        r"\\\\\n[\[*]", latex(Section("t", tables=(ResultTable("t", ("a", "b"), ((TableCell("[1] *"),) * 2,) * 2),)))
    )
    body = text.split("\n", 1)[1]
    assert not re.search(r"(?<!\\)[%#]", body)
    assert len(re.findall(r"(?<!\\)\$", body)) % 2 == 0
    for block in re.findall(r"\\toprule.*?\\bottomrule", text, re.DOTALL):
        lines = [line for line in block.splitlines() if line.endswith(r"\\")]
        assert len({len(re.findall(r"(?<!\\)&", line)) for line in lines}) == 1
    assert "Hidden" not in text


class Page(HTMLParser):
    """Collects tags with their attributes, and that each is closed in its turn."""

    VOID = ("meta", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_page(text: str) -> Page:
    page = Page(text)
    assert page.open == []
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for tag, attrs in page.tags:
        assert not any(name.startswith("on") for name in attrs)
        assert tag not in ("link", "iframe", "b")
        for name in ("src", "href"):
            value = attrs.get(name) or "#"
            assert value.startswith(("data:image/", "#"))
            assert not value.startswith("#s") or value[1:] in ids
    assert not re.search(r"https?://", text)
    return page


def test_html_escapes_and_sorts_by_numbers() -> None:
    text = html(Section("Top", sections=(EXAMPLE,)))
    page = check_page(text)
    assert 'data-value="-120000"' in text
    assert "<small>paper: 2.64 ± 0.26</small>" in text
    assert "Hidden" in text
    assert sum(tag == "button" for tag, _ in page.tags) == 7 + 2
    assert "&lt;b&gt;" in text


def whole() -> list[Record]:
    records = []
    for suite, dataset, drawn in (
        ("uci", "boston", True),
        ("uci", NASTY, False),
        ("weather", "jena_climate_2020", True),
    ):
        for method in ("Density-Regression", "Deep Ensembles", NASTY):
            records += [make(method, dataset, split, suite=suite, sample=drawn and split == 0) for split in (0, 1)]
    records[0] = fail(records[0], NASTY)
    records[2]["tests"]["test"]["sample"]["std"][0] = 1e300
    records[3]["tests"]["test"]["metrics"]["nll"] = 1e300
    return [*records, make(split="search 1", search=True), make(protocol="tuned", suite="cubic", dataset="cubic")]


def test_a_report_of_several_suites_is_whole_and_the_same_again(tmp_path: Path) -> None:
    with np.errstate(all="raise", under="ignore"):
        paths = write_report(whole(), tmp_path / "one")
    again = write_report(whole(), tmp_path / "two", test="corrected")
    assert [path.name for path in paths[:3]] == ["report.md", "report.tex", "report.html"]
    for path, other in zip(paths, again, strict=True):
        assert path.read_bytes() == other.read_bytes(), path.name
    assert sorted(paths) == sorted(path for path in (tmp_path / "one").rglob("*") if path.is_file())
    text = paths[0].read_text()
    shown = set(re.findall(r"\(figures/(\S+?)\)", text))
    assert shown == {path.name for path in paths[3:]}
    assert {path.suffix for path in paths[3:]} == {".png", ".svg"}
    assert "1.0e+300" in text
    weather = text[text.index("## Weather") :]
    assert "stand-in" in weather
    assert "<small>paper" not in weather
    assert "<small>paper" in text
    page = check_page(paths[2].read_text())
    assert sum(tag == "img" for tag, _ in page.tags) == len(shown)


def test_all_cells_failed_or_one_method_and_one_split(tmp_path: Path) -> None:
    (page, *_) = write_report([fail(make(), "out of luck")], tmp_path / "failed")
    assert "out of luck" in page.read_text()
    write_report([make(sample=True)], tmp_path / "one")
    assert (tmp_path / "one" / "figures" / "uci-paper-test-boston-errors.png").stat().st_size > 1000


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_report([make()], tmp_path)
    old = (tmp_path / "report.md").read_bytes()

    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        write_report([make("EDL")], tmp_path)
    assert (tmp_path / "report.md").read_bytes() == old
    assert not [path for path in tmp_path.rglob(".*")]


@pytest.mark.parametrize(
    ("records", "options", "message"),
    [
        ([], {}, "no results"),
        ([make(search=True)], {}, "no results"),
        ([make()], {"test": "exact"}, "test must be one of corrected, plain, got 'exact'"),
        ([make()], {"rule": "best"}, "rule must be one of"),
        ([make()], {"level": 5}, "level must lie"),
    ],
)
def test_what_is_refused(records: list[Record], options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        write_report(records, tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_the_factor_of_large_targets_leaves_the_name_of_a_method_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    record = make("Density-Regression", sample=True)
    sample = record["tests"]["test"]["sample"]
    record["tests"]["test"]["sample"] = {name: (1e7 * np.asarray(values)).tolist() for name, values in sample.items()}
    boxes: list[Bbox] = []

    def measure(rows: int, columns: int, size: tuple[float, float], draw: Any, *, share: bool = False) -> bytes:
        def draw_and_measure(figure: Figure, panels: Panels) -> None:
            draw(figure, panels)
            canvas: Any = figure.canvas
            canvas.draw()
            texts = panels[0, 0]._left_title, panels[0, 0].yaxis.get_offset_text()
            assert [text.get_text() for text in texts] == ["Density-Regression", "1e7"]
            boxes.extend(text.get_window_extent() for text in texts)

        return panels_png(rows, columns, size, draw_and_measure, share=share)

    monkeypatch.setattr(figures.rendering, "panels_png", measure)
    error_picture(only([record]), "boston")
    assert not boxes[0].overlaps(boxes[1])
