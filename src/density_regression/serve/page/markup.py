"""HTML and SVG as text in which everything is escaped, unless it is `Markup` already."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

__all__ = ["Markup", "join", "tag"]

SHAPES: Final = frozenset({"circle", "line", "path", "polygon", "polyline", "rect"})
"""Elements of SVG without content: inside of it they must be closed."""

EMPTY: Final = SHAPES | {"br", "img", "input", "link", "meta"}
"""All elements without content."""


class Markup(str):
    """Text that is HTML: `tag` makes it, and does not escape it again."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: str | float | None) -> Markup:
    """An element: `tag("a", "R & D", href="/?x=1")`.

    Parameters
    ----------
    name : str
        Of the element.
    *children : str or None
        Its content: text, which is escaped, or `Markup`. None is left out.
    **attributes : str, float, bool or None
        `class_` is class, and other underscores are hyphens: `aria_label`. True stands alone; False and None are left
        out. Numbers are rounded to hundredths.

    Examples
    --------
    >>> tag("p", "5 < 6", tag("br"), class_="hint", hidden=True)
    '<p class="hint" hidden>5 &lt; 6<br></p>'
    """
    opened = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in EMPTY:
        return Markup(f"<{name}{opened}{'/' * (name in SHAPES)}>")
    return Markup(f"<{name}{opened}>{join(children)}</{name}>")


def join(parts: Iterable[str | None]) -> Markup:
    """Parts one after the other, escaped unless they are `Markup`."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts if part is not None))


def _attribute(name: str, value: str | float) -> str:
    name = name.rstrip("_").replace("_", "-")
    if isinstance(value, bool):
        return f" {name}" if value else ""
    text = escape(value) if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
    return f' {name}="{text}"'
