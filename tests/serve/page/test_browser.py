"""The page in a real browser, against a real server: see the target `browser` of the Makefile."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from density_regression import DensityRegressor
from serve.page.helpers import make_cars

AXE = Path(__file__).parents[3] / ".browser" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]

DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}

Open = Callable[..., Any]


def missing() -> str | None:
    """What the tests lack, and how to get it."""
    try:
        import playwright  # noqa: F401
    except ModuleNotFoundError:
        return "playwright is not installed: make install"
    if not os.access(CHROMIUM, os.X_OK):
        return f"there is no browser at {CHROMIUM}: make browser"
    return None if AXE.exists() else f"{AXE} is missing: make browser"


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    if (reason := missing()) is not None:
        if os.environ.get("CI"):
            pytest.fail(f"With CI set the browser must be tested, but {reason}.")
        pytest.skip(reason)


@pytest.fixture(scope="module")
def address(cars_regressor: DensityRegressor, folder: Path) -> Iterator[str]:
    """Of a server, a process of its own."""
    command = [sys.executable, "-m", "density_regression", "serve", str(folder / "cars"), "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        port = 0
        for line in server.stderr:
            said = json.loads(line)
            port = said.get("port", port)
            if said["message"] == "ready":
                break
        # Nobody reads on: the log of a few requests fits into the pipe.
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.communicate(timeout=20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Any, address: str) -> Iterator[Open]:
    """Opens the page; afterwards no request has left the server's origin, and the console is empty."""
    contexts, complaints = [], []

    def open_page(path: str = "/", allowed: str | None = None, **settings: Any) -> Any:
        context = browser.new_context(**{"viewport": DESKTOP, "locale": "en-GB", **settings})
        context.set_default_timeout(10_000)

        def is_allowed(text: str) -> bool:
            return allowed is not None and allowed in text

        contexts.append(context)
        page = context.new_page()
        # Violations of the policy are written to the console.
        page.on("console", lambda message: complaints.append(message.text) if not is_allowed(message.text) else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if not is_own(request.url) else None)
        page.goto(address + path)
        return page

    def is_own(url: str) -> bool:
        return url.startswith((f"{address}/", f"blob:{address}/"))

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def interval(page: Any) -> float:
    """Width of the interval that the page shows."""
    low, high = re.findall(r"-?[0-9.,]+", page.locator("#summary .interval").inner_text().partition(":")[2])
    return float(high.replace(",", "")) - float(low.replace(",", ""))


def settled(page: Any, words: str) -> None:
    """Wait until the answer in one line has some words."""
    page.wait_for_function("words => document.getElementById('summary').innerText.includes(words)", arg=words)


def violations(page: Any) -> list[str]:
    """What axe-core finds."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [f"{rule['id']}: {node['target']} {node['failureSummary']}" for rule in found for node in rule["nodes"]]


def test_a_slider_beyond_the_training_range_widens_the_band_and_says_unfamiliar(open_page: Open) -> None:
    page = open_page()
    settled(page, "● familiar")
    before = interval(page)
    slider = page.get_by_role("slider", name="km, slider")
    drawn = page.locator(".panel svg").first.inner_html()
    slider.focus()
    page.keyboard.press("End")
    settled(page, "▲ unfamiliar")
    assert interval(page) > 1.2 * before
    assert page.locator(".panel svg").first.inner_html() != drawn
    assert page.get_by_label("km", exact=True).input_value() == slider.get_attribute("max")
    assert slider.get_attribute("aria-valuetext").endswith(", beyond the training range")
    assert "beyond the training range" in page.locator("#n0").inner_text()
    assert "km" in page.locator(".reasons").inner_text()
    # Focus stays, the address can be kept, and those who listen are told.
    assert page.evaluate("document.activeElement.id") == "s0"
    assert f"x.km={slider.get_attribute('max')}" in page.url
    page.wait_for_function("() => document.getElementById('status').textContent.includes('unfamiliar')")
    assert re.match(r"price: mean [0-9,]+, 90 % interval .* unfamiliar\.", page.locator("#status").inner_text())
    page.get_by_role("link", name="Use it").first.click()
    settled(page, "● familiar")


def test_the_form_is_answered_at_once(open_page: Open) -> None:
    page = open_page()
    shown = page.locator("#summary").inner_text()
    page.get_by_label("km", exact=True).fill("1000")
    page.wait_for_function("before => document.getElementById('summary').innerText !== before", arg=shown)
    assert page.locator("#s0").input_value() != "0"
    page.get_by_label("town", exact=True).select_option(label="other (never seen)")
    settled(page, "▲ unfamiliar")
    page.get_by_label("town", exact=True).select_option("Ulm")
    settled(page, "● familiar")
    page.get_by_label("first registration", exact=True).fill("2040-01-01")
    settled(page, "▲ unfamiliar")
    date = page.get_by_role("slider", name="first registration, slider")
    date.focus()
    page.keyboard.press("Home")
    assert page.get_by_label("first registration", exact=True).input_value() < "2010"
    page.get_by_label("km missing").check()
    page.locator("#n0").get_by_text("no training row lacked it").wait_for()
    # A value that is given is not missing.
    page.get_by_label("km", exact=True).fill("2000")
    assert not page.get_by_label("km missing").is_checked()
    page.get_by_label("Interval").select_option("0.5")
    settled(page, "50 %:")
    page.reload()
    assert page.get_by_label("km", exact=True).input_value() == "2000"


def test_open_details_stay_open_when_a_value_changes(open_page: Open) -> None:
    page = open_page()
    page.locator("#numbers-0 summary").click()
    page.get_by_label("km", exact=True).fill("370000")
    settled(page, "▲ unfamiliar")
    assert page.locator("#numbers-0").get_attribute("open") is not None
    assert page.locator("#numbers-0 table").is_visible()
    assert page.locator("#numbers-1").get_attribute("open") is None


def test_a_server_that_does_not_answer_is_noticed(open_page: Open) -> None:
    page = open_page(allowed="ERR_FAILED")
    page.route("**/*", lambda route: route.abort())
    page.get_by_label("km", exact=True).fill("370000")
    page.locator("#summary.stale").wait_for()
    page.locator("#status", has_text="The server did not answer.").wait_for(state="attached")
    page.unroute("**/*")
    page.get_by_label("km", exact=True).fill("380000")
    settled(page, "▲ unfamiliar")
    assert page.locator("#summary.stale").count() == 0


def test_everything_can_be_done_by_keys(open_page: Open) -> None:
    page = open_page()
    order = []
    for _ in range(9):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    # As they are seen.
    assert order == ["skip", "v0", "g0", "s0", "v1", "g1", "s1", "v2", "v3"]
    page.locator("#s0").focus()
    before = float(page.get_by_label("km", exact=True).input_value())
    page.keyboard.press("ArrowRight")
    assert float(page.get_by_label("km", exact=True).input_value()) > before
    ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert ring == "solid"
    page.get_by_label("km", exact=True).focus()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("370000")
    page.keyboard.press("Enter")
    settled(page, "▲ unfamiliar")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "result"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "A"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "new cars.csv"
    frame = make_cars(6, seed=3)[0].assign(note="as it was, “quoted”")
    frame.loc[2, "km"] = 900_000
    frame.to_csv(path, index=False)
    return path


def check_scored(path: Path, table: Path, regressor: DensityRegressor) -> None:
    """Whether a file has all that was given, and what the model says."""
    given = list(csv.DictReader(table.open(encoding="utf-8", newline="")))
    scored = list(csv.DictReader(path.open(encoding="utf-8", newline="")))
    assert [{name: row[name] for name in given[0]} for row in scored] == given
    frame = make_cars(6, seed=3)[0]
    frame.loc[2, "km"] = 900_000
    assert [float(row["mean"]) for row in scored] == pytest.approx(regressor.predict(frame).tolist(), rel=1e-5)
    assert scored[2]["unfamiliar"] == "true"


def test_a_table_is_chosen_and_comes_back(open_page: Open, table: Path, cars_regressor: DensityRegressor) -> None:
    page = open_page()
    page.get_by_label("CSV file").set_input_files(table)
    with page.expect_download() as download:
        page.get_by_role("button", name="Score it").click()
    assert download.value.suggested_filename == "new cars_scored.csv"
    check_scored(download.value.path(), table, cars_regressor)
    assert re.match(r"6 rows scored, [1-6] of them unfamiliar: ", page.locator("#upload-status").inner_text())


def test_a_table_is_dropped_and_comes_back(open_page: Open, table: Path, cars_regressor: DensityRegressor) -> None:
    page = open_page()
    transfer = page.evaluate_handle(
        """([name, text]) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([text], name, {type: "text/csv"}));
            return transfer;
        }""",
        [table.name, table.read_text(encoding="utf-8")],
    )
    with page.expect_download() as download:
        page.dispatch_event("section.table", "drop", {"dataTransfer": transfer})
    check_scored(download.value.path(), table, cars_regressor)


def test_a_table_that_cannot_be_scored_is_refused_in_words(open_page: Open, tmp_path: Path) -> None:
    (tmp_path / "wrong.csv").write_text("km,power\n1,2\n", encoding="utf-8")
    page = open_page(allowed="400 (Bad Request)")
    page.get_by_label("CSV file").set_input_files(tmp_path / "wrong.csv")
    page.get_by_role("button", name="Score it").click()
    page.get_by_text("The rows lack columns").wait_for()


def test_all_of_it_works_without_scripts(open_page: Open, table: Path, cars_regressor: DensityRegressor) -> None:
    page = open_page(java_script_enabled=False)
    assert not page.locator("#s0").is_visible()
    page.get_by_label("km", exact=True).fill("370000")
    page.get_by_label("power missing").check()
    page.get_by_label("Interval").select_option("0.8")
    page.get_by_role("button", name="Show").click()
    assert "▲ unfamiliar" in page.locator("#summary").inner_text()
    assert "80 %:" in page.locator("#summary").inner_text()
    assert page.get_by_label("power missing").is_checked()
    page.get_by_label("CSV file").set_input_files(table)
    with page.expect_download() as download:
        page.get_by_role("button", name="Score it").click()
    check_scored(download.value.path(), table, cars_regressor)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_nothing_wrong(open_page: Open, scheme: str, size: dict[str, int]) -> None:
    page = open_page("/?x.km=370000&x.town=Paris&x.power=much", viewport=size, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert violations(page) == []


def test_pages_of_errors_are_as_accessible(browser: Any, address: str) -> None:
    page = browser.new_page()
    assert page.goto(f"{address}/?model=none").status == 404
    assert violations(page) == []
    page.close()


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_is_wider_than_the_screen(open_page: Open, width: int) -> None:
    page = open_page("/?x.km=370000&x.town=Paris", viewport={"width": width, "height": 800})
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # The answer stays in view.
    page.evaluate("window.scrollTo(0, 1500)")
    assert page.evaluate("document.querySelector('#summary .mean').getBoundingClientRect().top") >= 0
