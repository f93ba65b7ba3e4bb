"""The site builds without a warning, its links lead somewhere, phones show it whole, and searching finds the page."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from docs.links import broken

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
PHONE = {"width": 390, "height": 844}
ON_PHONE = ["", "start/", "guides/calibration/", "guides/comparing/", "results/standing/", "reference/"]

QUESTIONS = {
    "negative interval": "guides/positive-targets/",
    "unfamiliar": "guides/commands/",
    "categorical": "guides/tables/",
    "GPU": "guides/training/",
    "missing values": "guides/tables/",
    "pickle": "guides/training/",
    "confidence interval": "guides/conformal/",
    "too narrow": "guides/calibration/",
    "save load": "guides/training/",
    "time series": "guides/time-series/",
    "outlier": "guides/commands/",
    "hyperparameters": "guides/tuning/",
    "docker": "guides/serving/",
}
"""What a user types, and the page that answers."""

RESULTS = """() => {
    const links = [];
    const walk = root => {
        if (root !== document) links.push(...[...root.querySelectorAll("a[href]")].map(a => a.getAttribute("href")));
        for (const element of root.querySelectorAll("*")) if (element.shadowRoot) walk(element.shadowRoot);
    };
    walk(document);
    return links;
}"""
"""Addresses of the results; the search is in a shadow tree."""


def need(what: str, there: bool) -> None:
    if not there and os.environ.get("CI"):
        pytest.fail(f"With CI set the site must be tested, but there is no {what}.")
    if not there:
        pytest.skip(f"There is no {what}.")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the checkout."""
    need("zensical: make install", importlib.util.find_spec("zensical") is not None)
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    (folder / "src").symlink_to(ROOT / "src")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    build = [sys.executable, "-m", "zensical", "build", "--strict"]
    environment = os.environ | {"NO_COLOR": "1"}
    done = subprocess.run(build, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def browser(address: str) -> Iterator[Any]:
    found = importlib.util.find_spec("playwright") is not None and os.access(CHROMIUM, os.X_OK)
    need("browser: make browser", found)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if f": {page}\n" not in menu and f"- {page}\n" not in menu] == []


def test_an_own_encoder_takes_twenty_lines() -> None:
    page = (ROOT / "docs" / "guides" / "encoder.md").read_text(encoding="utf-8")
    section = page.partition("## In twenty lines")[2].partition("```python\n")[2].partition("```")[0]
    assert "fit_density_regression(model" in section
    assert len([line for line in section.splitlines() if line]) <= 20


def test_links_lead_somewhere(site: Path) -> None:
    assert list(broken(site)) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "index.html").write_text('<a href="page/#here">a</a> <a href="page/#there">b</a> <img src="no.png">')
    (tmp_path / "page" / "index.html").write_text(
        '<h1 id="here"></h1><a href="../">c</a> <a href="https://other">d</a>'
    )
    assert list(broken(tmp_path)) == ["index.html: page/#there", "index.html: no.png"]


def test_phones_show_pages_whole(browser: Any, address: str) -> None:
    """No page is wider than a phone, in light or dark, and none loads anything from elsewhere."""
    elsewhere: list[str] = []
    for scheme in ("light", "dark"):
        context = browser.new_context(viewport=PHONE, color_scheme=scheme)
        page = context.new_page()
        page.on("request", lambda request: request.url.startswith(address) or elsewhere.append(request.url))
        for path in ON_PHONE:
            page.goto(address + path)
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], (path, scheme)
        context.close()
    assert elsewhere == []


def test_searching_finds_the_page(browser: Any, address: str) -> None:
    page = browser.new_page()
    page.goto(address)
    for _ in range(10):  # until the page listens
        page.keyboard.press("Control+k")
        page.wait_for_timeout(1000)
        if page.evaluate("document.activeElement.shadowRoot !== null"):
            break
    missed = {}
    for words, wanted in QUESTIONS.items():
        page.keyboard.press("Control+a")
        page.keyboard.type(words)
        found: list[str] = []
        for _ in range(50):  # until the results are those of the new words
            page.wait_for_timeout(100)
            found = [link.partition(address)[2] or link for link in page.evaluate(RESULTS)]
            if found and all(f"h={words.replace(' ', '+')}" in link for link in found):
                break
        pages = list(dict.fromkeys(link.partition("?")[0] for link in found))
        if wanted not in pages[:5]:
            missed[words] = pages[:5]
    assert missed == {}
