"""What else a process does with torch: it changes no fit and no prediction, and a fit changes nothing of it."""

from __future__ import annotations

import copy
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from density_regression import (
    DensityRegression,
    TrainingOptions,
    baselines,
    fit_density_regression,
    fit_together,
    load,
    methods,
)
from density_regression.baselines import GaussianNetwork, fit_baseline
from density_regression.nn import runtime
from density_regression.nn.runtime import taking_turns
from density_regression.training import loop
from estimators.helpers import moments, quick

METHODS = {method.estimator.__name__: method.estimator for method in methods()}


@contextmanager
def surroundings(seed: int) -> Iterator[None]:
    """Half precision, another device and another seed; the generator stays as it is."""
    with torch.autocast("cpu", torch.bfloat16), torch.device("meta"), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        before = torch.get_rng_state()
        yield
        assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", METHODS)
def test_surroundings_have_no_influence_on_a_method(name: str, cubic) -> None:
    """In half precision it would train to a loss far above that of the mean alone, without an error."""
    reg = METHODS[name](hidden=(16,), epochs=2, n_threads=1, random_state=0, verbose=False)
    expected = moments(reg.fit(*cubic), cubic.X)
    with surroundings(1):
        np.testing.assert_array_equal(moments(reg, cubic.X), expected)
        reg.fit(*cubic)
    np.testing.assert_array_equal(moments(reg, cubic.X), expected)


def test_nor_on_fits_made_together_and_saved(cubic, tmp_path) -> None:
    regressors = [quick(epochs=2), quick(epochs=2)]
    fit_together(regressors, [cubic, cubic])
    expected = moments(regressors[0], cubic.X)
    with surroundings(2):
        fit_together(regressors, [cubic, cubic])
        regressors[0].save(tmp_path)
        found = load(tmp_path)
    for reg in (*regressors, found):
        np.testing.assert_array_equal(moments(reg, cubic.X), expected)


def test_nor_on_mixed_precision(cubic) -> None:
    """An autocast around another keeps the weights that the inner one has cast, also after they have changed."""
    reg = quick(epochs=3, precision="bf16-mixed").fit(*cubic)
    expected = moments(reg, cubic.X)
    assert not np.array_equal(moments(quick(epochs=3).fit(*cubic), cubic.X), expected)
    with surroundings(4):
        reg.fit(*cubic)
    np.testing.assert_array_equal(moments(reg, cubic.X), expected)


def test_nor_on_exports(fitted, tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    with surroundings(3):
        assert fitted.to_onnx(tmp_path / "model.onnx") < 1e-4


@pytest.mark.parametrize(
    ("network", "fit"), [(DensityRegression, fit_density_regression), (GaussianNetwork, fit_baseline)]
)
def test_modules_are_trained_without_the_autocast_around_them(network, fit) -> None:
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    batches = DataLoader(TensorDataset(x, x[:, :1]), 20)
    torch.manual_seed(0)
    models = [network(nn.Linear(2, 4), features=4) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    fit(models[0], batches, options=TrainingOptions(epochs=3), verbose=False)
    with torch.autocast("cpu", torch.bfloat16):
        fit(models[1], batches, options=TrainingOptions(epochs=3), verbose=False)
    torch.testing.assert_close(models[1](x).mean, models[0](x).mean, rtol=0, atol=0)


# -- what other threads see -------------------------------------------------------------------------------------


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """States of torch's generator whenever a training begins."""
    found = []
    adamw = loop._adamw

    def noting(*args: object) -> torch.optim.AdamW:
        found.append(torch.get_rng_state())
        return adamw(*args)

    monkeypatch.setattr(loop, "_adamw", noting)
    return found


def test_training_that_draws_nothing_leaves_the_generator_to_others(cubic, states) -> None:
    """It is the process's: another thread would draw the same numbers again in every fit."""
    before = torch.get_rng_state()
    for name in ("DensityRegressor", "GaussianRegressor", "DeepEnsembleRegressor"):
        METHODS[name](hidden=(16,), epochs=1, n_threads=1, random_state=0, verbose=False).fit(*cubic)
    fit_together([quick(epochs=1, members=0), quick(epochs=1, members=0)], [cubic, cubic])
    # Of ours, once more for the networks that it learns from, or, without these, for those that teach the reach.
    assert len(states) == 2 + 1 + 1 + 2
    assert all(torch.equal(state, before) for state in states)


class Own(nn.Linear):
    """A layer whose code nobody knows."""


def hooked() -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda *args: torch.rand(2))
    return layer


@pytest.mark.parametrize(
    ("network", "draws"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.ReLU()), False),
        (DensityRegression(nn.Linear(2, 4), features=4), False),
        (nn.LSTM(2, 2), False),
        (nn.LSTM(2, 2, num_layers=2, dropout=0.1), True),
        (nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)), True),
        (nn.Sequential(Own(2, 2)), True),
        (hooked(), True),
        (nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2)), True),
        (baselines.DropoutNetwork(nn.Linear(2, 4), 4), True),
        (baselines.BayesianNetwork(nn.Linear(2, 4), 4), True),
    ],
)
def test_networks_that_may_draw(network: nn.Module, draws: bool) -> None:
    assert runtime.may_draw(network) is draws


def test_the_usual_type_is_not_set_again(cubic, monkeypatch) -> None:
    def changed(dtype: torch.dtype) -> None:
        raise AssertionError(dtype)

    monkeypatch.setattr(torch, "set_default_dtype", changed)
    quick(epochs=1).fit(*cubic)


# -- processes --------------------------------------------------------------------------------------------------


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def in_a_fork(function: Callable[[], None], seconds: float = 30.0) -> int:
    """Exit status of a forked process; it is ended if it hangs."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            function()
            status = 0
        finally:
            os._exit(status)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize("n_threads", [None, 2])
@pytest.mark.usefixtures("two_threads")
def test_a_forked_process_predicts_with_one_thread(fitted, n_threads: int | None) -> None:
    """With several it would wait forever for those that the fork left behind."""
    reg = copy.copy(fitted).set_params(n_threads=n_threads)
    X = np.linspace(-4, 4, 8192)[:, None]
    expected = moments(reg, X)

    def predict() -> None:
        with pytest.warns(RuntimeWarning, match=r"process was forked.*n_threads=1"):
            found = moments(reg, X)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        assert torch.get_num_threads() == 2
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            moments(reg, X)

    assert in_a_fork(predict) == 0
    assert not runtime._Process.forked


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_process_forked_while_another_thread_fits_does_not_wait_for_it() -> None:
    fitting, over = threading.Event(), threading.Event()

    def fit() -> None:
        with taking_turns():
            fitting.set()
            over.wait()

    thread = threading.Thread(target=fit)
    thread.start()
    fitting.wait()

    def turn() -> None:
        with taking_turns():
            pass

    try:
        assert in_a_fork(turn, seconds=5.0) == 0
    finally:
        over.set()
        thread.join()
