"""The figures of "How it works" are drawn by scripts, and no page lacks one; `make figures` draws all of them."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
FIGURES, IMAGES = ROOT / "docs" / "figures", ROOT / "docs" / "images" / "how"
SCRIPTS = {path.stem: path for path in FIGURES.glob("*.py") if path.stem != "drawing"}


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the scripts draw to."""
    before = set(sys.modules)
    monkeypatch.setenv("FIGURES", str(tmp_path))
    monkeypatch.syspath_prepend(FIGURES)
    yield tmp_path
    # Their names are common, such as `rivals`.
    for name in {"drawing", *SCRIPTS} & (set(sys.modules) - before):
        del sys.modules[name]


@pytest.mark.parametrize("name", ["family", "rivals"])
def test_the_quickest_scripts_draw_what_is_committed(drawn: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    runpy.run_path(str(SCRIPTS[name]), run_name="__main__")
    (path,) = drawn.glob("*.svg")
    committed = ElementTree.parse(IMAGES / path.name).getroot()
    assert ElementTree.parse(path).getroot().attrib["viewBox"] == committed.attrib["viewBox"]
    assert path.stat().st_size < 150_000


@pytest.mark.parametrize("name", sorted(SCRIPTS.keys() - {"family", "rivals"}))
def test_scripts_name_the_committed_figures(drawn: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    runpy.run_path(str(SCRIPTS[name]), run_name=name)
    names = re.findall(r'save\(\w+(?:\(.*\))?, "(\w+)"\)', SCRIPTS[name].read_text(encoding="utf-8"))
    assert names
    assert [figure for figure in names if not (IMAGES / f"{figure}.svg").exists()] == []


def test_every_committed_figure_is_small_shown_and_drawn_by_a_script() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "how").glob("*.md"))
    code = "".join(path.read_text(encoding="utf-8") for path in SCRIPTS.values())
    for image in IMAGES.iterdir():
        assert image.stat().st_size < 150_000
        assert f"../images/how/{image.name})" in pages
        assert f', "{image.stem}")' in code


def test_make_figures_runs_every_script() -> None:
    (listed,) = re.findall(r"for script in (.*); do", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert set(listed.split()) == SCRIPTS.keys()
