"""The pictures of docs/guides/page.md, of a model of used cars that never were: python docs/page_images.py."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from playwright.sync_api import sync_playwright

from density_regression import DensityRegressor

IMAGES = Path(__file__).parent / "images"
USUAL, FAR = "/", "/?x.power=280&x.km=300000"
PICTURES = {
    "page-desktop-light": (FAR, {"width": 1280, "height": 1000}, "light"),
    "page-desktop-dark": (USUAL, {"width": 1280, "height": 1000}, "dark"),
    "page-phone-light": (USUAL, {"width": 390, "height": 844}, "light"),
    "page-phone-dark": (FAR, {"width": 390, "height": 844}, "dark"),
}


def make_cars(rows: int = 3000) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(0)
    age = rng.gamma(2.2, 2.6, rows).clip(0.1, 18.0)
    fuel = rng.choice(["petrol", "diesel", "electric", "hybrid"], rows, p=[0.52, 0.3, 0.1, 0.08])
    frame = pd.DataFrame(
        {
            "km": (age * rng.lognormal(9.4, 0.5, rows)).clip(100, 240_000).round(-2),
            "power": rng.choice(np.arange(50, 200, 5.0), rows),
            "fuel": fuel,
            "town": rng.choice(["Ulm", "Mainz", "Kiel", "Jena", "Trier"], rows, p=[0.34, 0.26, 0.2, 0.12, 0.08]),
            "first registration": pd.Timestamp("2026-10-01") - pd.to_timedelta((365.25 * age).round(), unit="D"),
            "accident-free": rng.random(rows) < 0.85,
        }
    )
    plus = np.select([fuel == "electric", fuel == "hybrid"], [0.25, 0.18], 0.0) + 0.12 * frame["accident-free"]
    log_price = 9.6 + 0.006 * frame["power"] - 0.09 * age - 4e-6 * frame["km"] + plus
    frame.loc[rng.random(rows) < 0.03, "power"] = np.nan
    return frame, pd.Series(np.exp(log_price + rng.normal(0, 0.1 + 0.012 * age)).round(-1), name="price")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        DensityRegressor(target="log", random_state=0, n_threads=1).fit(*make_cars()).save(f"{folder}/cars")
        command = [sys.executable, "-m", "density_regression", "serve", f"{folder}/cars", "--port", "0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            try:
                take_pictures(port_of(server))
            finally:
                server.terminate()


def port_of(server: subprocess.Popen[str]) -> int:
    assert server.stderr is not None
    port = 0
    for line in server.stderr:
        said = json.loads(line)
        port = said.get("port", port)
        if said["message"] == "ready":
            break
    return port


def take_pictures(port: int) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (path, size, scheme) in PICTURES.items():
            page = browser.new_page(viewport=size, color_scheme=scheme, locale="en-GB")
            page.goto(f"http://127.0.0.1:{port}{path}")
            picture = Image.open(BytesIO(page.screenshot(full_page=True))).convert("RGB")
            # Few colours: a third of the bytes, and nobody sees it.
            few = picture.quantize(128, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
            few.save(IMAGES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
