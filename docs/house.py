"""Draw the package's folders and who imports whom, from the imports themselves: python docs/house.py > docs/house.svg.

Rows and columns are the layers of the contract in pyproject.toml, from top to bottom. A dot says that the folder of its
row imports from that of its column. A layer imports only from layers below it, so all dots lie right of the diagonal.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "density_regression"
PACKAGE = SOURCE.name
ROW, LEFT, TEXT, COLUMN = 30, 20, 640, 30


def rooms() -> list[str]:
    """Folders and modules in the order of the contract."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    return [room for layer in layers for room in layer.split(" | ") if not room.startswith("__")]


def purpose(room: str) -> str:
    """First line of a folder's or module's docstring."""
    folder = SOURCE / room / "__init__.py"
    path = folder if folder.exists() else SOURCE / f"{room}.py"
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()[0].rstrip(".")


def imports() -> set[tuple[str, str]]:
    """Pairs of rooms of which the first imports from the second."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    pairs = set()
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            names = [name.split(".")[1] for name in (module, other) if "." in name]
            if len(set(names)) == 2:
                pairs.add((names[0], names[1]))
    return pairs


def draw() -> str:
    names = rooms()
    pairs = imports()
    top = 120
    width, height = LEFT + TEXT + COLUMN * len(names) + 20, top + ROW * len(names) + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="13" role="img">',
        "<title>Folders of the package and their imports</title>",
        "<style>text{fill:#222}.row{fill:#f3f4f6}.name{font-weight:bold}.dot{fill:#2563eb}.self{fill:#d1d5db}"
        "@media(prefers-color-scheme:dark){text{fill:#e5e7eb}.row{fill:#1f2937}.dot{fill:#60a5fa}.self{fill:#4b5563}}"
        "</style>",
    ]
    for i, name in enumerate(names):
        x = LEFT + TEXT + COLUMN * i + COLUMN / 2
        parts.append(f'<text transform="translate({x + 4},{top - 10}) rotate(-60)">{name}</text>')
    for i, name in enumerate(names):
        y = top + ROW * i
        parts.append(f'<rect class="row" x="{LEFT - 8}" y="{y + 2}" width="{width - LEFT}" height="{ROW - 4}" rx="4"/>')
        parts.append(f'<text class="name" x="{LEFT}" y="{y + 20}">{name}</text>')
        parts.append(f'<text x="{LEFT + 110}" y="{y + 20}">{escape(purpose(name))}</text>')
        for j, other in enumerate(names):
            x = LEFT + TEXT + COLUMN * j + COLUMN / 2
            if i == j:
                parts.append(f'<rect class="self" x="{x - 5}" y="{y + 10}" width="10" height="10"/>')
            elif (name, other) in pairs:
                parts.append(
                    f'<circle class="dot" cx="{x}" cy="{y + 15}" r="5"><title>{name} → {other}</title></circle>'
                )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    sys.stdout.write(draw())
