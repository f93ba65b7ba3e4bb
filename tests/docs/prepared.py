"""What pages take as given, for their hidden blocks: `flats()` writes two tables, `model()` a model of the first."""

from __future__ import annotations

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from density_regression.cli import app


def flats(rows: int = 150, new: int = 30) -> pd.DataFrame:
    """Write flats.csv and new.csv, which has a strange row, and return the latter: text, dates, gaps and a price."""
    rng, n = np.random.default_rng(0), rows + new
    size, year = rng.gamma(9, 8, n).round(1), rng.integers(1900, 2024, n).astype(float)
    town = rng.choice(np.array(["Ulm", "Bonn", "Kiel"]), n, p=[0.5, 0.3, 0.2])
    sold = pd.Timestamp("2022-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    level = pd.Series(town).map({"Ulm": 1.2, "Bonn": 1.0, "Kiel": 0.8}) * (1 + (year - 1900) / 400)
    price = (2500 * level * size * np.exp(0.15 * rng.normal(size=n))).round(-2)
    year[rng.random(n) < 0.1] = np.nan
    columns = {"size": size, "year": year, "town": town, "balcony": rng.random(n) < 0.4, "sold": sold.strftime("%F")}
    table = pd.DataFrame(columns).assign(price=price)
    table.loc[rows + 3, "size"] = 900.0
    table[:rows].to_csv("flats.csv", index=False)
    table[rows:].to_csv("new.csv", index=False)
    return table[rows:]


def model(*options: str) -> None:
    """Fit flats.csv in a moment, into the folder `model`."""
    fit = ["fit", "flats.csv", "--target", "price", "--positive", "--conformal", "0.1", "--epochs", "5", *options]
    result = CliRunner().invoke(app, fit)
    assert result.exit_code == 0, result.output
