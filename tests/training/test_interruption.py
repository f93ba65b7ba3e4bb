"""A fit that was interrupted goes on where it stopped."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from density_regression import (
    MLP,
    DensityRegression,
    DensityRegressor,
    KernelDensity,
    RadialFlowDensity,
    TrainingOptions,
    fit_density_regression,
)
from density_regression.training import algorithm
from density_regression.training import batches as batches_module
from training.checkpoint_helpers import TABLE, assert_same_predictions, files, kill_when_there, regressor, steps_run
from training.helpers import assert_equal, batches, generator, network, state, wave

KILLED = """
    import sys, time
    from pathlib import Path

    import numpy as np
    import torch

    from density_regression import DensityRegressor, MixtureDensity

    folder = Path(sys.argv[1])
    torch.set_num_threads(1)


    def wait(*args):
        (folder / "in step 2").touch()
        time.sleep(600)


    MixtureDensity._fit = wait
    X, y = np.load(folder / "X.npy"), np.load(folder / "y.npy")
    DensityRegressor(
        hidden=(8,), epochs=3, members=0, n_threads=1, random_state=0, checkpoint_dir=folder / "checkpoints"
    ).fit(X, y)
"""


def test_a_fit_killed_in_step_two_goes_on_from_step_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, array in zip(("X", "y"), TABLE, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
    kill_when_there(KILLED, tmp_path, tmp_path / "in step 2")
    folder = tmp_path / "checkpoints"
    assert files(folder) == ["step-1.safetensors"]
    resumed = regressor(folder)
    assert steps_run(monkeypatch, lambda: resumed.fit(*TABLE)) == ["fit_density", "refit_head"]
    assert resumed.report_.seconds["pretrain"] < resumed.report_.seconds["refit_head"]
    assert_same_predictions(resumed, regressor(None).fit(*TABLE))


@pytest.mark.parametrize("limit", [None, 8 * 20], ids=["cached", "streamed"])
@pytest.mark.parametrize("density", ["mixture", RadialFlowDensity(layers=2, epochs=2)], ids=["mixture", "flow"])
@pytest.mark.parametrize("stop_in", ["fit_density", "refit_head"])
def test_an_interrupted_fit_ends_as_an_uninterrupted_one(
    stop_in: str, density: Any, limit: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limit is not None:
        monkeypatch.setattr(batches_module, "MAX_CACHED_VALUES", limit)
    done = ["pretrain", "fit_density", "refit_head"]
    resumed = regressor(tmp_path, density=density)
    seen = steps_run(monkeypatch, lambda: resumed.fit(*TABLE), stop_in)
    assert seen == done[: done.index(stop_in) + 1]
    assert files(tmp_path) == [f"step-{step}.safetensors" for step in range(1, len(seen))]
    assert steps_run(monkeypatch, lambda: resumed.fit(*TABLE)) == done[done.index(stop_in) :]
    assert_same_predictions(resumed, regressor(None, density=density).fit(*TABLE))


def test_a_finished_fit_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder that behaves differently in training shows whether the model is ready to predict."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(1, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.ReLU())
    first, second = (regressor(tmp_path, encoder=encoder) for _ in range(2))
    assert len(steps_run(monkeypatch, lambda: first.fit(*TABLE))) == 3
    assert steps_run(monkeypatch, lambda: second.fit(*TABLE)) == []
    assert not second.model_.training
    assert_same_predictions(second, first)
    assert second.report_.history == []


def test_networks_that_learn_the_reach_draw_the_same_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout draws in step 1, which a fit that goes on from a checkpoint leaves out."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Dropout(0.5))
    probes: list[dict[str, torch.Tensor]] = []

    def choose(model: Any, held_out: Any, own: Sequence[DensityRegression], hidings: Any) -> None:
        probes.extend(state(probe) for probe in own)

    monkeypatch.setattr(algorithm, "choose_reach", choose)
    rows = wave(120)[0].double().numpy(), wave(120)[1].double().numpy()[:, 0]
    for _ in range(2):
        regressor(tmp_path, encoder=encoder).fit(*rows)
    assert len(probes) == 8
    for first, second in zip(probes[:4], probes[4:], strict=True):
        assert_equal(second, first, "")


def test_a_finished_fit_is_read_back_from_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    encoder = MLP(1, (8,))

    def fit(held_out: Any = None, trained: bool = True) -> Callable[[], Any]:
        if not trained:
            return lambda: regressor(tmp_path, encoder=encoder).fit(*TABLE)
        settings = {"checkpoint_dir": tmp_path, "random_state": 0}
        return lambda: DensityRegressor.from_trained(encoder, *TABLE, held_out=held_out, **settings)

    assert steps_run(monkeypatch, fit(), "refit_head") == ["fit_density", "refit_head"]
    assert steps_run(monkeypatch, fit()) == ["refit_head"]
    assert steps_run(monkeypatch, fit()) == []
    # Other rows held out, or the same network to be trained further, make another fit.
    assert steps_run(monkeypatch, fit((TABLE[0][:20], TABLE[1][:20]))) == ["fit_density", "refit_head"]
    assert steps_run(monkeypatch, fit((TABLE[0][:20], TABLE[1][:20]))) == []
    assert steps_run(monkeypatch, fit((TABLE[0][:20], TABLE[1][20:40]))) == ["fit_density", "refit_head"]
    assert len(steps_run(monkeypatch, fit(trained=False))) == 3


def test_a_fit_without_a_seed_goes_on_as_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = regressor(tmp_path, random_state=None), regressor(tmp_path, random_state=None)
    steps_run(monkeypatch, lambda: first.fit(*TABLE), "refit_head")
    assert steps_run(monkeypatch, lambda: second.fit(*TABLE)) == ["refit_head"]
    elsewhere = regressor(tmp_path / "elsewhere", random_state=None).fit(*TABLE)
    assert_same_predictions(second, elsewhere)


def test_held_out_rows_in_random_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What step 2 sees of them must not depend on how often step 1 went through them."""

    def fit(model: DensityRegression) -> Callable[[], Any]:
        held_out = batches(*wave(seed=10), seed=3)
        options = TrainingOptions(epochs=2)
        return lambda: fit_density_regression(
            model, batches(*wave(), seed=2), held_out, options=options, checkpoint_dir=tmp_path
        )

    first, second = (network(density=KernelDensity(max_rows=20)) for _ in range(2))
    fit(first)()
    for step in (2, 3):
        (tmp_path / f"step-{step}.safetensors").unlink()
    assert steps_run(monkeypatch, fit(second)) == ["fit_density", "refit_head"]
    assert_equal(state(second), state(first), "")


LOADERS: dict[str, Callable[[TensorDataset], DataLoader[Any]]] = {
    "torch's generator": lambda rows: DataLoader(rows, 32, shuffle=True),
    "its own generator": lambda rows: DataLoader(rows, 32, shuffle=True, generator=generator(2)),
    "its sampler's": lambda rows: DataLoader(rows, 32, sampler=RandomSampler(rows, generator=generator(2))),
}


@pytest.mark.parametrize("stop_in", ["fit_density", "refit_head"])
@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS.keys())
def test_an_interrupted_fit_of_a_loader_ends_as_an_uninterrupted_one(
    load: Callable[[TensorDataset], DataLoader[Any]], stop_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps 2 and 3 see rows in an order of their own, whatever step 1 has drawn."""

    def fit(folder: Path, model: DensityRegression) -> Callable[[], Any]:
        train, held_out = (load(TensorDataset(*wave(seed=seed))) for seed in (0, 10))
        torch.manual_seed(0)
        options = TrainingOptions(epochs=3, average=2.0, smoothness=0.02)
        return lambda: fit_density_regression(model, train, held_out, options=options, checkpoint_dir=folder)

    first, second, third = (network(density=KernelDensity(max_rows=20)) for _ in range(3))
    with torch.random.fork_rng():
        fit(tmp_path / "uninterrupted", first)()
        steps_run(monkeypatch, fit(tmp_path / "interrupted", second), stop_in)
        fit(tmp_path / "interrupted", third)()
    assert_equal(state(third), state(first), "")
