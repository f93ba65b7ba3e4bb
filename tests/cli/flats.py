"""A table of flats, and commands as people type them, for tests of commands on tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from click.testing import Result
from typer.testing import CliRunner

from density_regression.cli import app

QUICK = ("--method", "Gaussian", "--epochs", "2", "--threads", "1")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "120", "TERM": "dumb"})


def message(result: Result) -> str:
    """What was said of wrong usage: it is framed and wrapped."""
    return " ".join(result.output.replace("│", " ").split())


def flats(rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    size = rng.gamma(6, 12, rows).round(1)
    frame = pd.DataFrame(
        {
            "id": [f"A{i:03d}" for i in range(rows)],
            "size": size,
            "year": np.where(rng.random(rows) < 0.1, np.nan, rng.integers(1900, 2024, rows)),
            "town": rng.choice(np.array(["Ulm", "Bonn"]), rows),
            "balcony": rng.random(rows) < 0.4,
            "sold": (pd.Timestamp("2022-01-01") + pd.to_timedelta(rng.permutation(rows), unit="D")).strftime(
                "%Y-%m-%d"
            ),
            "price": (2500 * size * np.exp(0.15 * rng.normal(size=rows))).round(-2),
        }
    )
    frame.loc[[4, 9], "price"] = np.nan
    return frame
