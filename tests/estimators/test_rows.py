"""What an answer does not depend on: other rows, chance, threads, how rows are given."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from density_regression import MLP, DensityRegressor, FlowDensity, GaussianDensity, fit_together, load
from density_regression.estimators import prediction
from estimators.helpers import Recording, everything, moments, quick

# -- a row's answer does not depend on its company --------------------------------------------------------------


@pytest.fixture(scope="module", params=["fitted", "fitted_two", "default_friedman", 1, 3, 5])
def in_company(request, cubic, friedman) -> tuple[DensityRegressor, np.ndarray]:
    """A regressor and rows; numbers stand for so many directions in the density, and so for odd matrix products."""
    if isinstance(request.param, str):
        reg = request.getfixturevalue(request.param)
        return reg, cubic.X if reg.n_features_in_ == 1 else friedman.X
    # The fewer directions are needed, the less is left over, and the more its rounding shows.
    density = GaussianDensity(max_dims=request.param)
    return quick(hidden=(50,), density=density, random_state=2).fit(*cubic), cubic.X


@pytest.mark.parametrize("size", [1, 3, 17, 31, 100])
def test_rows_alone_in_chunks_or_together(in_company, size: int) -> None:
    reg, X = in_company
    together = (*reg.predict(X, return_std=True), reg.score_samples(X))
    chunks = [X[start : start + size] for start in range(0, len(X), size)]
    parts = [(*reg.predict(chunk, return_std=True), reg.score_samples(chunk)) for chunk in chunks]
    mean, std, score = (np.concatenate(part) for part in zip(*parts, strict=True))
    # Sums in float32 round a little differently for another number of rows, and no more than that.
    np.testing.assert_allclose(mean, together[0], rtol=1e-6, atol=2e-6 * together[0].std(axis=0).min())
    np.testing.assert_allclose(std, together[1], rtol=1e-5)
    np.testing.assert_allclose(score, together[2], rtol=1e-6, atol=2e-5)


def test_more_rows_than_a_chunk(fitted, fitted_two, cubic, friedman, monkeypatch) -> None:
    for reg, X in ((fitted, cubic.X), (fitted_two, friedman.X)):
        expected = everything(reg, X)
        with monkeypatch.context() as patch:
            patch.setattr(prediction, "PREDICTED_ROWS", 37)
            actual = everything(reg, X)
        for new, old in zip(actual[:-1], expected[:-1], strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-4 * old.std())
        # A held-out row sits on its own level, and rounding may put it just above or just below.
        np.testing.assert_allclose(actual[-1], expected[-1], atol=1.5 / len(reg.held_out_levels_))


def test_order_of_rows_is_kept(fitted, cubic) -> None:
    order = np.random.default_rng(0).permutation(len(cubic.X))
    np.testing.assert_allclose(fitted.predict(cubic.X[order]), fitted.predict(cubic.X)[order], rtol=1e-7, atol=1e-6)


# -- randomness, threads, silence -------------------------------------------------------------------------------


def test_random_state(cubic) -> None:
    first = moments(quick(random_state=1).fit(*cubic), cubic.X)
    np.testing.assert_array_equal(moments(quick(random_state=1).fit(*cubic), cubic.X), first)
    assert not np.allclose(moments(quick(random_state=2).fit(*cubic), cubic.X), first)
    np.testing.assert_array_equal(moments(quick(random_state=np.random.RandomState(1)).fit(*cubic), cubic.X), first)


def test_refit_starts_anew(cubic) -> None:
    reg = quick().fit(*cubic)
    first = moments(reg, cubic.X)
    np.testing.assert_array_equal(moments(reg.fit(cubic.X, -cubic.y).fit(*cubic), cubic.X), first)
    drawing = quick(random_state=np.random.RandomState(0))
    first = moments(drawing.fit(*cubic), cubic.X)
    assert not np.array_equal(moments(drawing.fit(*cubic), cubic.X), first)
    undecided = quick(random_state=None)
    first = moments(undecided.fit(*cubic), cubic.X)
    assert not np.array_equal(moments(undecided.fit(*cubic), cubic.X), first)


def test_global_generators_are_left_alone(cubic) -> None:
    def states() -> list[object]:
        return [np.random.get_state()[1].tolist(), torch.get_rng_state().tolist(), random.getstate()]

    encoder = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.5))
    before = states()
    for params in ({}, {"encoder": encoder}, {"density": FlowDensity(epochs=1, transforms=1, hidden=(4,))}):
        reg = quick(**params).fit(*cubic)
        everything(reg, cubic.X)
    assert states() == before


def test_global_torch_seed_has_no_influence(cubic) -> None:
    results = []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            results.append(moments(quick(encoder=lambda inputs: MLP(inputs, (8,))).fit(*cubic), cubic.X))
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("surroundings", [torch.no_grad, torch.inference_mode])
def test_fit_where_gradients_are_off(cubic, surroundings: type) -> None:
    with surroundings():
        reg = quick().fit(*cubic)
        assert not torch.is_grad_enabled()
    np.testing.assert_array_equal(moments(reg, cubic.X), moments(quick().fit(*cubic), cubic.X))


def test_torch_of_double_precision_has_no_influence(cubic, tmp_path) -> None:
    expected = moments(quick().fit(*cubic), cubic.X)
    torch.set_default_dtype(torch.float64)
    try:
        reg, *together = (quick() for _ in range(3))
        reg.fit(*cubic).save(tmp_path)
        fit_together(together, [cubic, cubic])
        for one in (reg, load(tmp_path), *together):
            np.testing.assert_allclose(moments(one, cubic.X), expected, rtol=1e-6)
        with pytest.raises(ValueError, match="infinity"):
            quick().fit(np.full((20, 1), np.inf), np.zeros(20))
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_threads(cubic) -> None:
    before = torch.get_num_threads()
    reg = quick(encoder=Recording(), n_threads=before + 1).fit(*cubic)
    assert reg.model_.encoder.threads == {before + 1}
    assert torch.get_num_threads() == before
    reg.model_.encoder.threads.clear()
    reg.predict(cubic.X)
    assert reg.model_.encoder.threads == {before + 1}
    assert torch.get_num_threads() == before
    with pytest.raises(ValueError, match="encoder"):
        quick(encoder=nn.Flatten(0), n_threads=before + 1).fit(*cubic)
    assert torch.get_num_threads() == before
    assert quick(encoder=Recording(), n_threads=None).fit(*cubic).model_.encoder.threads == {before}


def test_fit_is_silent_without_a_terminal(cubic, capfd) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick(verbose=True).fit(*cubic).predict(cubic.X)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("members", "epochs"), [("auto", 75), (0, 100)])
def test_report(cubic, members: int | str, epochs: int) -> None:
    """With members, of the network that learns from them: three quarters of the epochs are its own."""
    report = quick(epochs=100, patience=None, members=members).fit(*cubic).report_
    assert list(report.seconds) == ["pretrain", "fit_density", "refit_head", "learn_reach"]
    assert all(seconds >= 0 for seconds in report.seconds.values())
    assert len(report.history) == epochs
    assert np.isfinite(report.history).all()


def test_early_stopping(cubic) -> None:
    history = quick(epochs=400, learning_rate=0.03, patience=3, members=0).fit(*cubic).report_.history
    assert 4 < len(history) < 400
    assert min(history) == history[-4]


def test_a_network_that_learns_from_others_is_trained_to_its_end(cubic) -> None:
    assert len(quick(epochs=100, learning_rate=0.03, patience=1).fit(*cubic).report_.history) == 75


@pytest.mark.parametrize(("rows", "held_out"), [(3, 1), (20, 5), (60, 10), (200, 30)])
def test_number_of_held_out_rows(cubic, rows: int, held_out: int) -> None:
    """A share of them, but of few rows a quarter, up to ten; with none held out, a fifth for the density."""
    reg = quick(epochs=1).fit(cubic.X[:rows], cubic.y[:rows])
    assert len(reg.held_out_levels_) == held_out


def test_two_rows_are_enough_for_a_sane_answer() -> None:
    """One row trains, and one says how sure to be: it is nothing like the first, but that is no reason for e^30."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(2, 3))
        y = X[:, 0] + 0.1 * rng.normal(size=2)
        reg = quick(random_state=seed).fit(X, y)
        std = reg.predict(X, return_std=True)[1]
        assert std.max() < 10 * y.std()
        np.testing.assert_allclose(np.hypot(*reg.decompose(X)[:2]), std, rtol=0.1)


def test_held_out_rows_keep_it_from_being_too_sure() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 10)), rng.normal(size=60)
    overfit = {"hidden": (100, 100), "epochs": 300, "patience": None, "density": None}
    sure = moments(quick(validation_fraction=0.0, **overfit).fit(X, y), X)[1]
    honest = moments(quick(validation_fraction=0.3, **overfit).fit(X, y), X)[1]
    assert np.median(sure) < 0.5 < np.median(honest)


class TestRowsToPredict:
    """Plain arrays are not looked at closely; whatever is not plain still is."""

    @pytest.fixture(scope="class")
    @classmethod
    def fitted(cls) -> DensityRegressor:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(60, 3))
        return DensityRegressor(epochs=1, hidden=(8,), verbose=False, random_state=0).fit(x, x[:, 0])

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_gaps(self, fitted: DensityRegressor, value: float) -> None:
        x = np.zeros((5, 3))
        x[3, 1] = value
        with pytest.raises(ValueError, match="contains"):
            fitted.predict(x)

    def test_numbers_whose_sum_overflows(self, fitted: DensityRegressor) -> None:
        assert np.isfinite(fitted.predict(np.full((4, 3), 1.7e308), return_std=True)).all()

    @pytest.mark.parametrize("x", [np.zeros((0, 3)), np.zeros((2, 4)), np.zeros(3), np.zeros((1, 3, 1))])
    def test_shapes(self, fitted: DensityRegressor, x: np.ndarray) -> None:
        with pytest.raises(ValueError, match=r"sample|features|dim"):
            fitted.predict(x)

    def test_arrays_of_all_kinds(self, fitted: DensityRegressor) -> None:
        x = np.random.default_rng(1).normal(size=(40, 3))
        expected = fitted.predict(x)
        read_only = x.copy()
        read_only.flags.writeable = False
        kinds = [read_only, np.asfortranarray(x), x[::-1][::-1], x.astype(">f8"), x.tolist()]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for kind in kinds:
                np.testing.assert_array_equal(fitted.predict(kind), expected)
            # A matrix product rounds a row by where it stands, so compare equal orders.
            np.testing.assert_array_equal(fitted.predict(x[::-1]), fitted.predict(x[::-1].copy()))
        np.testing.assert_allclose(fitted.predict(x.astype(np.float32)), expected, rtol=1e-4, atol=1e-5)

    def test_rows_are_left_as_they_were(self, fitted: DensityRegressor) -> None:
        x = np.random.default_rng(1).normal(size=(16, 3))
        before = x.copy()
        fitted.predict(x, return_std=True)
        np.testing.assert_array_equal(x, before)
