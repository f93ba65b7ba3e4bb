"""Used cars that never were, and a view of the page for a model of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from density_regression.serve.page.asked import read_query
from density_regression.serve.page.fields import fields_of, profile_of
from density_regression.serve.page.outlook import known_coverages, look
from density_regression.serve.page.view import View
from density_regression.serve.scorer import Scorer


def make_cars(rows: int = 400, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Kilometres, power, fuel, town, first registration, whether free of accidents; and the price."""
    rng = np.random.default_rng(seed)
    age = rng.gamma(2.2, 2.6, rows).clip(0.1, 20.0)
    frame = pd.DataFrame(
        {
            "km": (age * rng.lognormal(9.4, 0.45, rows)).clip(0, 250_000).round(-2),
            "power": rng.choice([55.0, 66.0, 81.0, 96.0, 110.0, 140.0, 180.0], rows),
            "fuel": rng.choice(["petrol", "diesel", "electric"], rows, p=[0.6, 0.3, 0.1]),
            "town": rng.choice(["Ulm", "Mainz", "Kiel <b>"], rows, p=[0.5, 0.3, 0.2]),
            "first registration": pd.Timestamp("2026-10-01") - pd.to_timedelta((365.25 * age).round(), unit="D"),
            "accident-free": rng.random(rows) < 0.85,
        }
    )
    electric = (frame["fuel"] == "electric").to_numpy()
    log_price = 9.9 + 0.0055 * frame["power"] - 0.1 * age - 2e-6 * frame["km"] + 0.25 * electric
    frame.loc[rng.random(rows) < 0.1, "power"] = np.nan
    return frame, pd.Series(np.exp(log_price + rng.normal(0, 0.15, rows)).round(-1), name="price")


def view_of(scorer: Scorer, query: dict[str, str] | None = None) -> View:
    """The view of a query such as {"x.km": "5000"}."""
    profile = profile_of(scorer.bundle)
    fields = fields_of(scorer.bundle, profile)
    asked = read_query(query or {}, "cars", fields, scorer.bundle.targets, known_coverages(scorer))
    served: Any = SimpleNamespace(name="cars", version="0123456789abcdef", scorer=scorer)
    return View(served, ("cars",), profile, fields, asked, look(scorer, fields, asked))
