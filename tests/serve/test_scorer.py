"""A scorer says what `predict` says, and refuses what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from density_regression import DensityRegressor
from density_regression.baselines import GaussianRegressor
from density_regression.serve.bundle import current_bundle
from density_regression.serve.prepare import make_bundle
from density_regression.serve.scorer import OutOfTime, Scorer
from serve.helpers import QUICK, columns_of, odd_table, raw_table


def scorer_of(folder: Path) -> Scorer:
    prepared = current_bundle(folder)
    assert prepared is not None
    return Scorer(prepared)


def assert_same(reg: Any, scorer: Scorer, rows: Any, given: Any, coverage: float | None = None) -> None:
    found = scorer(given, coverage=coverage)
    mean, std = reg.predict(rows, return_std=True)
    low, high = reg.predict_interval(rows, 0.95 if coverage is None else coverage)
    for name, expected in (("mean", mean), ("std", std), ("low", low), ("high", high)):
        assert found[name].shape == expected.shape
        # The ends of an interval are the mean and two standard deviations.
        tolerance = 3e-5 if name in ("low", "high") else 1e-5
        assert (np.abs(found[name] - expected) <= tolerance * np.maximum(np.abs(expected), std)).all(), name
    np.testing.assert_allclose(found["log_density"], reg.score_samples(rows), rtol=1e-5, atol=5e-5)
    assert np.abs(found["familiarity"] - reg.familiarity(rows)).max() < 2.01 / len(reg.held_out_levels_)
    parts = reg.decompose(rows)
    for name in ("noise", "disagreement", "distance"):
        own = parts.aleatoric if name == "noise" else getattr(parts, name)
        assert np.abs((found[name] / std) ** 2 - (own / std) ** 2).max() < 3e-5, name


def test_numbers(numbers: DensityRegressor, folder: Path) -> None:
    scorer, X = scorer_of(folder / "numbers"), 5.0 * np.random.default_rng(1).normal(size=(100, 2))
    assert_same(numbers, scorer, X, X)
    assert_same(numbers, scorer, X, X.tolist())
    assert_same(numbers, scorer, X, {"1": X[:, 1].tolist(), "0": X[:, 0], "more": ["ignored"]})
    assert_same(numbers, scorer, X[:1], X[:1], 0.5)


def test_text_dates_and_gaps(raw: DensityRegressor, folder: Path) -> None:
    scorer = scorer_of(folder / "raw")
    for frame in (raw_table(50, seed=3)[0], odd_table(), odd_table().head(1)):
        assert_same(raw, scorer, frame, columns_of(frame))
        assert_same(raw, scorer, frame, columns_of(frame), 0.8)


def test_many_rows_are_scored_in_blocks(numbers: DensityRegressor, folder: Path) -> None:
    scorer, X = scorer_of(folder / "numbers"), np.random.default_rng(2).normal(size=(8200, 2))
    assert_same(numbers, scorer, X, X)
    with pytest.raises(OutOfTime):
        scorer(X, deadline=0.0)


def test_log_normal_law(tmp_path: Path) -> None:
    """Far away its moments are e to the power of hundreds: their logarithms are the same."""
    frame, target = raw_table()
    reg = DensityRegressor(**QUICK, target="log").fit(frame, target)
    reg.save(tmp_path / "log")
    make_bundle(tmp_path / "log")
    found = scorer_of(tmp_path / "log")(columns_of(odd_table()), coverage=0.8)
    expected = [*reg.predict(odd_table(), return_std=True), *reg.predict_interval(odd_table(), 0.8)]
    for name, values in zip(("mean", "std", "low", "high"), expected, strict=True):
        logs = np.log(values)
        assert (np.abs(np.log(found[name]) - logs) <= 1e-5 * np.maximum(np.abs(logs), 1.0)).all(), name
    shares = sum((found[name] / found["std"]) ** 2 for name in ("noise", "disagreement", "distance"))
    np.testing.assert_allclose(shares, 1.0, atol=1e-5)


def test_several_targets_and_named_numbers(tmp_path: Path) -> None:
    frame = raw_table()[0][["size", "old"]]
    targets = np.column_stack([frame["size"], -frame["old"].astype(float)])
    reg = DensityRegressor(**QUICK).fit(frame, targets)
    reg.save(tmp_path / "two")
    make_bundle(tmp_path / "two")
    scorer = scorer_of(tmp_path / "two")
    assert scorer.bundle.named
    assert_same(reg, scorer, frame, columns_of(frame))


def test_array_with_gaps(tmp_path: Path) -> None:
    """Columns without names that are all numbers, some missing, are one input."""
    X = np.random.default_rng(0).normal(size=(100, 2))
    X[::5, 1] = np.nan
    reg = DensityRegressor(**QUICK).fit(X, X[:, 0])
    reg.save(tmp_path / "gaps")
    make_bundle(tmp_path / "gaps")
    scorer = scorer_of(tmp_path / "gaps")
    assert scorer.bundle.as_one
    assert_same(reg, scorer, X, X)
    assert_same(reg, scorer, X[:6], [[a, None if np.isnan(b) else b] for a, b in X[:6].tolist()])


def test_named_numbers_with_gaps(tmp_path: Path) -> None:
    """Each column is an input of its own, in whatever form the rows come."""
    frame = raw_table()[0][["size", "rooms"]]
    reg = DensityRegressor(**QUICK).fit(frame, frame["size"])
    reg.save(tmp_path / "gaps")
    make_bundle(tmp_path / "gaps")
    scorer = scorer_of(tmp_path / "gaps")
    full = frame.dropna().head(5)
    assert not scorer.bundle.as_one
    assert_same(reg, scorer, full, full.to_numpy().tolist())
    assert_same(reg, scorer, full, full.to_numpy())
    assert_same(reg, scorer, frame, columns_of(frame))


def test_a_row_is_as_familiar_as_itself(numbers: DensityRegressor, folder: Path) -> None:
    """Of rows with a level of their own the most familiar has 1."""
    scorer, X = scorer_of(folder / "numbers"), np.random.default_rng(3).normal(size=(20, 2))
    scorer._levels = np.sort(scorer(X)["log_density"])
    found = scorer(X)["familiarity"]
    np.testing.assert_allclose(np.sort(found), np.arange(1, 21) / 20)


def test_another_method(tmp_path: Path) -> None:
    """One without a density has mean, std and intervals."""
    X = np.random.default_rng(0).normal(size=(100, 2))
    reg = GaussianRegressor(**QUICK).fit(X, X[:, 0])
    reg.save(tmp_path / "other")
    make_bundle(tmp_path / "other")
    scorer = scorer_of(tmp_path / "other")
    assert scorer.outputs == ("mean", "std", "low", "high")
    np.testing.assert_allclose(scorer(X)["low"], reg.predict_interval(X)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"town": None}, "'town' is not a list"),
        ({"size": ["a"]}, "'size' has 'a' \\(row 0\\), but numbers in training: give numbers"),
        ({"size": [1e999]}, "'size' contains infinity \\(row 0\\)"),
        ({"size": [10**400]}, "'size' has a whole number that no float64 holds"),
        ({"size": [[1.0]]}, "'size' holds a list"),
        ({"size": [1.0, 2.0]}, "different numbers of rows, \\[1, 2\\]"),
        ({"day": ["2022-02-30"]}, "'day' has '2022-02-30' \\(row 0\\), but dates in training: give such as"),
        ({"clock": ["25:00"]}, "'clock' has '25:00' \\(row 0\\), but times"),
        ({"town": [{"a": 1}]}, "'town' holds a dict"),
        ({name: [] for name in raw_table(1)[0]}, "no rows"),
    ],
)
def test_what_is_refused(change: dict[str, Any], message: str, raw: DensityRegressor, folder: Path) -> None:
    rows = columns_of(raw_table(1)[0]) | change
    with pytest.raises(ValueError, match=message):
        scorer_of(folder / "raw")(rows)


def test_what_numbers_alone_refuse(numbers: DensityRegressor, folder: Path) -> None:
    scorer = scorer_of(folder / "numbers")
    for rows, message in (
        ([[1.0, None]], "'1' is empty in row 0, and rows to fit to had no gaps: give a number"),
        ({"0": [1.0, 2.0], "1": ["a", "b"]}, "'1' has 'a' \\(row 0\\), but numbers in training"),
        (np.ones((2, 3)), "shape \\(2, 3\\), but the model reads 2 columns"),
        ([[1.0, 2.0], [1.0]], "A row has 1 values, but the model reads 2 columns"),
        ({"0": [1.0]}, "lack column '1', which the model reads: add it"),
    ):
        with pytest.raises(ValueError, match=message):
            scorer(rows)


def test_coverages(raw: DensityRegressor, folder: Path) -> None:
    """Those that conformal rows do not allow are refused, with the highest that they do."""
    scorer, rows = scorer_of(folder / "raw"), columns_of(raw_table(3)[0])
    for coverage, message in ((0.999, "ask for 0.984 or less"), (1.0, "strictly between"), ("0.9", "strictly between")):
        with pytest.raises(ValueError, match=message):
            scorer(rows, coverage=coverage)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no output 'low2': the model gives mean, std"):
        scorer(rows, outputs=["low2"])
    assert list(scorer(rows, outputs=["std", "familiarity"])) == ["std", "familiarity"]


def test_few_and_weighted_conformal_rows(tmp_path: Path) -> None:
    """With few rows the usual coverage is lower; what weights depend on the graph does not say: no interval."""
    X = np.random.default_rng(0).normal(size=(200, 2))
    reg = DensityRegressor(**QUICK).fit(X, X[:, 0])
    reg.conformalize(X[:12], X[:12, 0]).save(tmp_path / "few")
    make_bundle(tmp_path / "few")
    scorer = scorer_of(tmp_path / "few")
    assert scorer.coverage == 0.9
    np.testing.assert_allclose(scorer(X)["high"], reg.predict_interval(X, 0.9)[1], rtol=1e-5, atol=1e-5)
    reg.conformalize(X, X[:, 0], shifted=X + 0.3).save(tmp_path / "weighted")
    make_bundle(tmp_path / "weighted")
    scorer = scorer_of(tmp_path / "weighted")
    assert "low" not in scorer.outputs
    with pytest.raises(ValueError, match="depend on the density of each row"):
        scorer.half_width(0.9)


def test_no_torch_in_the_process(numbers: DensityRegressor, raw: DensityRegressor, folder: Path) -> None:
    """Nor scikit-learn, scipy or pandas: they take seconds to import, and here they cannot be, as if not installed."""
    rows = {name: json.dumps(columns_of(raw_table(3)[0])) for name in ("raw",)}
    code = f"""
import json, sys
training = ("torch", "sklearn", "scipy", "pandas", "safetensors", "matplotlib", "joblib", "lightning_fabric", "psutil")
sys.modules |= dict.fromkeys(training)
from pathlib import Path
from density_regression.cli import app
from density_regression.serve.app import create_app
from density_regression.serve.settings import Settings
import density_regression.serve.run
app = create_app(Settings(models=(Path({str(folder / "numbers")!r}), Path({str(folder / "raw")!r}))))
app.state.models.get("numbers").scorer([[1.0, 2.0]])
app.state.models.get("raw").scorer(json.loads({rows["raw"]!r}))
print("served")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "served", result.stderr
