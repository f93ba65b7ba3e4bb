"""The pages of the gallery are those of the examples as they are now."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from docs.blocks import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def gallery() -> ModuleType:
    pytest.importorskip("PIL")
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "docs" / "gallery.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_page_has_the_text_and_code_of_the_example(example: Path, gallery: ModuleType) -> None:
    page = (ROOT / "docs" / "examples" / f"{example.stem.replace('_', '-')}.md").read_text(encoding="utf-8")
    found = gallery.cells(example.read_text(encoding="utf-8"))
    expected = [gallery.header(example.stem), *(chunk for cell in found for chunk in gallery.chunks(cell))]
    shown = re.sub(r"\n*```text\n.*?\n```$|\n*^!\[.*\]\(.*\)$", "", page, flags=re.DOTALL | re.MULTILINE)
    assert shown.strip().startswith("\n\n".join(expected)), "Run `make gallery`."
    assert found[0].text.startswith("# ")
    assert "**What you learn:**" in found[0].text
    assert "**How to read the figure:**" in found[0].text


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_page_has_described_figures_and_output(example: Path) -> None:
    folder = ROOT / "docs" / "examples"
    page = (folder / f"{example.stem.replace('_', '-')}.md").read_text(encoding="utf-8")
    figures = re.findall(r"^!\[(.*)\]\((.*)\)$", page, flags=re.MULTILINE)
    assert figures
    assert "```text\n" in page
    for label, target in figures:
        assert len(label.split()) > 3
        assert (folder / target).stat().st_size <= 100_000


def test_code_is_compiled_with_the_lines_of_the_example(gallery: ModuleType) -> None:
    for example in EXAMPLES:
        source = example.read_text(encoding="utf-8")
        lines = source.splitlines()
        for cell in gallery.cells(source):
            first = cell.code.splitlines()[:1]
            assert [lines[cell.line - 1]] == first or not first


def test_the_index_lists_every_example_and_nothing_is_left_over(gallery: ModuleType) -> None:
    folder = ROOT / "docs" / "examples"
    assert (folder / "index.md").read_text(encoding="utf-8") == gallery.index()
    listed = [name for group in gallery.GROUPS.values() for name in group]
    assert sorted(listed) == [path.stem for path in EXAMPLES]
    pages = {path.name for path in folder.glob("*.md")} - {"index.md"}
    assert pages == {f"{name.replace('_', '-')}.md" for name in listed}
    shown = set(re.findall(r"images/examples/([\w-]+\.png)", "".join(path.read_text() for path in folder.glob("*.md"))))
    assert {path.name for path in (ROOT / "docs" / "images" / "examples").iterdir()} == shown
