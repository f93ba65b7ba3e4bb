"""Links of a built site: which of them lead nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

BASE = "http://site/"


class Found(NamedTuple):
    """What a page links to, and where in it a link may lead."""

    links: list[str]
    anchors: set[str]


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found = Found([], set())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.found.anchors.update(value for name in ("id", "name") if (value := values.get(name)))
        self.found.links.extend(value for name in ("href", "src") if (value := values.get(name)) is not None)


@cache
def read(page: Path) -> Found:
    parser = _Parser()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.found


def broken(site: Path) -> Iterator[str]:
    """Internal links without a file, or without the anchor, as "page: link"."""
    for page in sorted(site.rglob("*.html")):
        where = urljoin(BASE, page.relative_to(site).as_posix())
        for link in read(page).links:
            address, anchor = urldefrag(urljoin(where, link))
            if urlsplit(address).scheme in {"http", "https"} and not address.startswith(BASE):
                continue
            target = site / unquote(urlsplit(address).path.lstrip("/"))
            target = target / "index.html" if target.is_dir() else target
            lost = not target.exists() or (target.suffix == ".html" and anchor and anchor not in read(target).anchors)
            if lost and urlsplit(address).scheme not in {"mailto", "data", "javascript"}:
                yield f"{page.relative_to(site)}: {link}"
