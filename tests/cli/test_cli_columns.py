"""Commands on models of tables with text, dates and gaps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from density_regression import DensityRegressor
from density_regression.cli import app


def test_export_and_compare_on_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=60), "town": rng.choice(["Ulm", "Bonn"], 60), "day": "2024-01-01"})
    frame["day"] = (pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, 60), unit="D")).strftime(
        "%Y-%m-%d"
    )
    DensityRegressor(hidden=(8,), epochs=2, random_state=0).fit(frame, frame["size"]).save(tmp_path / "model")
    frame.assign(town=["Rome", None] * 30, price=1.0).to_csv(tmp_path / "rows.csv", index=False)
    command = [
        "export",
        str(tmp_path / "model"),
        "--out",
        str(tmp_path / "m.onnx"),
        "--rows",
        str(tmp_path / "rows.csv"),
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "differs from torch by" in result.output
    assert "rows.csv a mean moves by" in result.output.replace("\n", "")
    frame.drop(columns="town").to_csv(tmp_path / "rows.csv", index=False)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "X lacks the column 'town'" in result.output
