"""Run the examples, and write a page of the gallery for each: `.venv/bin/python docs/gallery.py [NAME ...]`.

An example is a script of cells. A cell begins with `# %%`; comment lines at its beginning are Markdown, the rest is
code. A docstring at the top, or else the first cell, has the title. The page shows text, code, what each cell prints,
and its figures, whose labels (`num=`) are their descriptions.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

DOCS = Path(__file__).parent
EXAMPLES = DOCS.parent / "examples"
PAGES = DOCS / "examples"
IMAGES = DOCS / "images" / "examples"
LARGEST = 100_000  # bytes of an image
GROUPS = {
    "First steps": ("cubic", "diabetes", "conformal", "grid_search"),
    "Networks of your own": ("own_encoder", "tiny_depth", "three_steps", "paper_demo"),
    "In use": ("weather_window", "shift_alarm", "raw_columns_onnx", "mlflow_tracking", "skpro_interface"),
}


class Cell(NamedTuple):
    """Markdown, then code, either of which may be empty; and the line of the example where the code begins."""

    text: str
    code: str
    line: int


def cells(source: str) -> list[Cell]:
    """Cells of an example; the first has the title."""
    found: list[Cell] = []
    top = ast.get_docstring(ast.parse(source))
    parts = re.split(r"^# %%.*\n", source, flags=re.MULTILINE)
    line = 1
    if top is not None:
        title, _, rest = top.partition("\n")
        found.append(Cell(f"# {title}\n{rest}".strip(), "", 1))
    for number, part in enumerate(parts):
        if number:
            comment = re.match(r"(?:#.*\n)*", part)
            text = comment[0] if comment else ""
            code = part[len(text) :]
            begins = line + text.count("\n") + len(code) - len(code.lstrip("\n"))
            found.append(Cell(re.sub(r"^# ?", "", text, flags=re.MULTILINE).strip(), code.strip("\n"), begins))
        line += part.count("\n") + 1
    return [cell for cell in found if cell.text or cell.code]


def title(source: str) -> str:
    return cells(source)[0].text.splitlines()[0].removeprefix("# ")


def chunks(cell: Cell) -> list[str]:
    """What a page shows of a cell besides its output."""
    return [part for part in (cell.text, f"```python\n{cell.code}\n```" if cell.code else "") if part]


def header(name: str) -> str:
    """Searching finds the guides, and the gallery; its pages would crowd them out."""
    says = f"<!-- Written by docs/gallery.py from examples/{name}.py: change that, then run `make gallery`. -->"
    return f"---\nsearch:\n  exclude: true\n---\n\n{says}"


def write_page(name: str) -> None:
    """Run an example in an empty folder, and write its page and figures."""
    import matplotlib.pyplot as plt

    path = EXAMPLES / f"{name}.py"
    plt.switch_backend("agg")
    plt.rcParams.update(plt.rcParamsDefault)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    page, figures = [header(name)], 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*non-interactive.*")
        for cell in cells(path.read_text(encoding="utf-8")):
            page += chunks(cell)
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile("\n" * (cell.line - 1) + cell.code, str(path), "exec"), namespace)
            if printed.getvalue():
                page.append(f"```text\n{printed.getvalue().rstrip()}\n```")
            if "plt.show()" in cell.code:
                for number in plt.get_fignums():
                    figures += 1
                    page.append(_save(plt.figure(number), f"{name}-{figures}"))
                plt.close("all")
    page.append(f"The whole example is `examples/{name}.py` of the source.")
    PAGES.mkdir(exist_ok=True)
    (PAGES / f"{name.replace('_', '-')}.md").write_text("\n\n".join(page) + "\n", encoding="utf-8")


def _save(figure: Any, name: str) -> str:
    """Write a figure, and return the Markdown that shows it."""
    label = figure.get_label()
    if not label:
        raise ValueError(f"Figure {name} has no description: give plt.subplots a num='What it shows'.")
    IMAGES.mkdir(parents=True, exist_ok=True)
    figure.savefig(drawn := io.BytesIO(), dpi=100, facecolor="white")
    # 256 colours are enough, and a third of the size.
    Image.open(drawn).convert("RGB").quantize(dither=Image.Dither.NONE).save(IMAGES / f"{name}.png", optimize=True)
    if (size := (IMAGES / f"{name}.png").stat().st_size) > LARGEST:
        raise ValueError(f"Figure {name} has {size:,} bytes, more than {LARGEST:,}: make it smaller.")
    return f"![{label}](../images/examples/{name}.png)"


def index() -> str:
    """The page with all examples, each with its first figure."""
    page = [
        "<!-- Written by docs/gallery.py. -->",
        "# Examples",
        "Each runs within a minute on one core, from generated data or data that come with scikit-learn. The tests\n"
        "run them; those of MLflow and skpro where these are installed. Code, output and figures are those of\n"
        "`examples/` in the source, whose files open as notebooks in editors that know `# %%` cells.",
    ]
    for group, names in GROUPS.items():
        page += [f"## {group}", '<div class="grid cards" markdown>']
        for name in names:
            headline, _, rest = title((EXAMPLES / f"{name}.py").read_text(encoding="utf-8")).partition(": ")
            target = f"{name.replace('_', '-')}.md"
            image = f"[![{headline}](../images/examples/{name}-1.png){{ loading=lazy }}]({target})"
            says = f"\n\n    {rest[0].upper()}{rest[1:]}" if rest else ""
            page.append(f"-   **[{headline}]({target})**{says}\n\n    {image}")
        page.append("</div>")
    return "\n\n".join(page) + "\n"


def main(names: list[str]) -> None:
    os.environ.setdefault("COLUMNS", "100")
    listed = [name for group in GROUPS.values() for name in group]
    for name in names or listed:
        print(name, file=sys.stderr)
        try:
            write_page(name)
        except ModuleNotFoundError as error:
            print(f"{name} was not run, and its page stays as it was: {error}.", file=sys.stderr)
    (PAGES / "index.md").write_text(index(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
