"""`groups=`: held-out rows that are whole groups, for all eleven."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GroupKFold, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from density_regression import MLP, DensityRegressor, fit_together
from density_regression.baselines import DeterministicRegressor, GaussianRegressor
from density_regression.estimators.base import DeepRegressor
from density_regression.registry import estimators
from estimators.helpers import X20, Y20, moments, quick

SUBJECT = np.repeat(np.arange(5), 4)


def near_copies(seed: int, subjects: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Six rows of each subject, almost the same ones, and a target with an effect of the subject, of unit variance."""
    rng = np.random.default_rng(seed)
    subject = np.repeat(np.arange(subjects), 6)
    X = rng.normal(size=(subjects, 3))[subject] + rng.normal(0, 0.01, (len(subject), 3))
    return X, X[:, 0] + rng.normal(size=subjects)[subject] + rng.normal(0, 0.1, len(subject)), subject


def held_rows(reg: DeepRegressor, groups: Any, sample_weight: Any = None) -> list[float]:
    """Inputs that a fit to the twenty rows would hold out, in their own units."""
    prepared = reg._prepare(X20, Y20, sample_weight, None, groups=groups)
    x, scaling = prepared.held_out.x[:, 0].numpy(), prepared.scalings[0]
    return sorted(np.round(x * scaling.scale[0] + scaling.center[0], 4).tolist())


# -- what it is for ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [DensityRegressor, GaussianRegressor, DeterministicRegressor])
def test_standard_deviation_is_that_of_a_new_group(method: type[DeepRegressor]) -> None:
    X, y, subject = near_copies(0, 100)
    X_new, y_new, _ = near_copies(1, 200)

    def on_new_subjects(groups: np.ndarray | None) -> float:
        """Coverage, mean over seeds: those of one have few groups to learn from."""
        found = []
        for seed in range(3):
            reg = method(hidden=(50,), epochs=40, n_threads=1, verbose=False, random_state=seed)
            mean, std = reg.fit(X, y, groups=groups).predict(X_new, return_std=True)
            found.append(np.mean(np.abs(y_new - mean) < 1.645 * std))
        return float(np.mean(found))

    assert 0.83 < on_new_subjects(subject) < 0.97
    # Rows held out at random know their subjects: a network alone believes that it knows all others, and to the density
    # every other subject is strange.
    at_random = on_new_subjects(None)
    assert at_random > 0.98 if method is DensityRegressor else at_random < 0.8


# -- what is held out -------------------------------------------------------------------------------------------


def test_whole_groups_are_held_out_whatever_the_labels() -> None:
    expected = held_rows(quick(), SUBJECT)
    assert len(expected) == 4
    assert expected in [np.round(X20[subject == SUBJECT, 0], 4).tolist() for subject in range(5)]
    names = [f"subject {9 - subject}" for subject in SUBJECT]
    days = pd.Series(pd.Timestamp("2020-01-01") - pd.to_timedelta(SUBJECT, "D"), index=range(100, 120))
    for labels in (names, days, -1.5 * SUBJECT, pd.Categorical(names), [(subject, "x") for subject in SUBJECT]):
        assert held_rows(quick(), labels) == expected
    assert any(held_rows(quick(random_state=seed), SUBJECT) != expected for seed in range(1, 5))


def test_rows_without_weight_do_not_count() -> None:
    weight = np.where(SUBJECT[-1] == SUBJECT, 0.0, 1.0)
    counted = weight > 0
    weighted = quick().fit(X20, Y20, weight, groups=SUBJECT)
    without = quick().fit(X20[counted], Y20[counted], groups=SUBJECT[counted])
    np.testing.assert_array_equal(moments(weighted, X20), moments(without, X20))
    with pytest.raises(ValueError, match=r"groups has 1 group.s. in 4 rows with a positive weight"):
        quick().fit(X20, Y20, SUBJECT == 0, groups=SUBJECT)


@pytest.mark.parametrize("method", estimators().values(), ids=list(estimators()))
def test_every_method_takes_groups(method: type[DeepRegressor]) -> None:
    assert "groups" in inspect.signature(method.fit).parameters
    settings = {"hidden": (8,), "epochs": 2, "n_threads": 1, "verbose": False, "random_state": 0}
    X, y, subject = near_copies(0, 8)
    by_number = method(**settings).fit(X, y, groups=subject).predict(X)
    by_name = method(**settings).fit(X, y, groups=[f"{number}" for number in subject]).predict(X)
    np.testing.assert_array_equal(by_name, by_number)
    assert not np.array_equal(method(**settings).fit(X, y).predict(X), by_number)


# -- refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "arguments", "message"),
    [
        ({}, {"groups": SUBJECT[:-1]}, "groups has 19 labels, but X has 20 rows"),
        ({}, {"groups": [None, *SUBJECT[1:]]}, r"groups has no label in row 0 \(got None\)"),
        ({}, {"groups": np.zeros(20)}, r"groups has one group only \(0.0\)"),
        ({}, {"groups": SUBJECT, "held_out": (X20, Y20)}, "groups choose the rows to hold out, but held_out says"),
        ({"validation_fraction": 0.0}, {"groups": SUBJECT}, "but validation_fraction=0 leaves none: give one of"),
    ],
)
def test_refused(params: dict[str, Any], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(**params).fit(X20, Y20, **arguments)


# -- elsewhere --------------------------------------------------------------------------------------------------


def test_from_trained() -> None:
    encoder = MLP(1, (8,))
    by_group = DensityRegressor.from_trained(encoder, X20, Y20, groups=SUBJECT, random_state=0)
    at_random = DensityRegressor.from_trained(encoder, X20, Y20, random_state=0)
    # Five rows of twenty, or one group of four.
    assert (len(by_group.held_out_levels_), len(at_random.held_out_levels_)) == (4, 5)


@pytest.mark.parametrize("second", [SUBJECT, np.arange(20), None], ids=["one shape", "another shape", "none"])
def test_fit_together(second: np.ndarray | None) -> None:
    together, alone = ([quick(random_state=seed) for seed in range(2)] for _ in range(2))
    fit_together(together, [(X20, Y20)] * 2, groups=[SUBJECT, second])
    for one, other, groups in zip(together, alone, (SUBJECT, second), strict=True):
        np.testing.assert_allclose(moments(one, X20), moments(other.fit(X20, Y20, groups=groups), X20), rtol=1e-3)
    with pytest.raises(ValueError, match="2 tables and 2 held_outs and 1 groups do not match"):
        fit_together(together, [(X20, Y20)] * 2, groups=[SUBJECT])


def test_checkpoints_are_of_one_grouping(tmp_path: Path) -> None:
    def fingerprint(groups: Any) -> str:
        return quick(checkpoint_dir=tmp_path)._prepare(X20, Y20, None, None, groups=groups).run.fingerprint

    assert fingerprint(SUBJECT) == fingerprint([f"{subject}" for subject in SUBJECT])
    assert len({fingerprint(groups) for groups in (None, SUBJECT, SUBJECT[::-1] // 2, np.arange(20))}) == 4


def test_metadata_routing() -> None:
    """Folds by group, and within each whole groups held out, alone and last in a pipeline."""
    X, y, subject = near_copies(0, 12)
    with sklearn.config_context(enable_metadata_routing=True):
        asked = quick().set_fit_request(groups=True)
        given = {"cv": GroupKFold(3), "params": {"groups": subject}}
        actual = cross_val_predict(asked, X, y, **given)
        for train, test in GroupKFold(3).split(X, y, subject):
            fold = quick().fit(X[train], y[train], groups=subject[train])
            np.testing.assert_array_equal(actual[test], fold.predict(X[test]))
        scores = cross_validate(make_pipeline(StandardScaler(), asked), X, y, **given)
        assert np.isfinite(scores["test_score"]).all()
        not_asked = cross_val_predict(quick().set_fit_request(groups=False), X, y, **given)
        assert not np.array_equal(not_asked, actual)
        with pytest.raises(UnsetMetadataPassedError, match="groups"):
            cross_val_predict(quick(), X, y, **given)
