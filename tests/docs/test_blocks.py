"""The runner of the pages: what it finds, what it runs, and what it refuses to pass over."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from density_regression.cli import app
from density_regression.nn import parts
from docs.blocks import ROOT, blocks, pages
from docs.running import run_page

PAGE = """\
# A page

```python
x = 1
```

<!-- hidden:
x += 1
-->

- In a list:

  ```python
  x *= 10
  ```

=== "A tab"

    ```python
    assert x == 20
    with open("made.txt", "w") as file:
        file.write("here")
    ```

    !!! note

        ```python
        del file
        ```

Indented, and of another program:

    make install    # not run

<!-- skip: takes a minute -->
```bash
density-regression no-such-command
density-regression nor-this
```

    $ density-regression info nothing
    WHAT IT SAYS
    $ density-regression --help
    whatever it says

And of data that a test has not:

    density-regression bench uci --data-dir data \\
        --out results

```text
no code
```
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run a text as a page, in a folder of its own."""
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")

    def run_text(text: str) -> dict[str, int]:
        page = tmp_path / "page.md"
        page.write_text(text)
        return dict(run_page(page, monkeypatch))

    return run_text


def test_blocks_are_found_wherever_they_stand() -> None:
    found = blocks(PAGE)
    assert [block.kind for block in found] == ["python"] * 5 + ["shell"] * 4 + ["text"]
    assert [block.source for block in found[:3]] == ["x = 1\n", "x += 1\n", "x *= 10\n"]
    lines = PAGE.splitlines()
    for block in (found[0], *found[2:5], *found[6:]):
        first = block.source.splitlines()[0].split("#")[0].strip()
        assert lines[block.line - 1].strip().startswith(first)
    assert found[6].why_not == "takes a minute"


def test_every_block_is_run_or_counted(run) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"density-regression info nothing failed"):
        run(PAGE)
    error = " ".join(CliRunner().invoke(app, ["info", "nothing"]).output.split())
    assert run(PAGE.replace("WHAT IT SAYS", error)) == {
        "run": 7,
        "a command of another program": 1,
        "takes a minute": 1,
        "needs the data folder": 1,
        "no code": 1,
    }
    assert Path("made.txt").read_text() == "here"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("```python\n1 / 0\n```", "line 2: this block fails"),
        ("```pyhton\n1 / 0\n```", "a block of pyhton"),
        ("```\nx = 1\n```", "a block of no language"),
        ("Text\n\n    x = 1\n", "a block of no language"),
        ("<!-- skip: slow -->\nText", "no code block"),
        ("```python\n1\n```\n<!-- skip: slow -->", "no code block"),
        ("<!-- skip: -->\n```python\n1\n```", "without a reason"),
        ("<!-- skip: one -->\n<!-- skip: two -->\n```python\n1\n```", "two for one"),
        ("    density-regression fit nothing.csv --target y", "failed"),
    ],
)
def test_nothing_is_passed_over(text: str, match: str, run) -> None:
    with pytest.raises(pytest.fail.Exception, match=match):
        run(text)


def test_a_module_is_written_and_forgotten(run) -> None:
    module = "from density_regression import GaussianDensity, register\n@register\nclass Own(GaussianDensity): ...\n"
    page = f"```python\n# own_module.py\n{module}```\n```python\nfrom own_module import Own\n```\n"
    for _ in range(2):
        assert run(page) == {"run": 2}
        assert "own_module" not in sys.modules
    assert "Own" in parts._REGISTERED  # until the test ends


def test_pages_of_the_gallery_are_left_to_the_tests_of_the_examples() -> None:
    found = pages()
    assert ROOT / "README.md" in found
    assert not [page for page in found if "examples" in page.parts]
