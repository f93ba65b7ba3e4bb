"""A fit that was interrupted goes on where it stopped."""

import copy
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from functools import partial
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
    GaussianDensity,
    KernelDensity,
    MixtureDensity,
    RadialFlowDensity,
    TrainingOptions,
    fit_density_regression,
    training,
)
from density_regression.baselines import GaussianRegressor
from density_regression.density import RobustTempering
from density_regression.encoders import Patches, UNet, WithScene
from density_regression.persistence import Checkpoints
from density_regression.scene import SceneRegression
from steps.helpers import assert_equal, batches, generator, network, state, wave

# -- interruption -----------------------------------------------------------------------------------------------------


class Stop(BaseException):
    """Ends a fit as an interrupt would."""


TABLE = (wave(80)[0].double().numpy() * 3 + 5, wave(80)[1].double().numpy()[:, 0] * 10)


def regressor(folder: Path | None, **settings: Any) -> DensityRegressor:
    return DensityRegressor(
        **{"hidden": (8,), "epochs": 3, "n_threads": 1, "random_state": 0, "checkpoint_dir": folder, **settings}
    )


def steps_run(monkeypatch: pytest.MonkeyPatch, fit: Callable[[], Any], stop_in: str | None = None) -> list[str]:
    """Names of the steps that a fit goes through; in one of them it may be stopped."""
    seen = []

    def spy(name: str, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        seen.append(name)
        if name == stop_in:
            raise Stop
        return step(*args, **kwargs)

    with monkeypatch.context() as patch:
        for name in ("pretrain", "fit_density", "refit_head"):
            patch.setattr(training, name, partial(spy, name, getattr(training, name)))
        if stop_in is None:
            fit()
        else:
            with pytest.raises(Stop):
                fit()
    return seen


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_same_predictions(got: DensityRegressor, expected: DensityRegressor) -> None:
    points = np.linspace(-20, 30, 101)[:, None]
    np.testing.assert_array_equal(got.predict(points, return_std=True), expected.predict(points, return_std=True))
    np.testing.assert_array_equal(got.score_samples(points), expected.score_samples(points))
    np.testing.assert_array_equal(got.familiarity(points), expected.familiarity(points))
    np.testing.assert_array_equal(got.decompose(points), expected.decompose(points))


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
        hidden=(8,), epochs=3, n_threads=1, random_state=0, checkpoint_dir=folder / "checkpoints"
    ).fit(X, y)
"""


def test_a_fit_killed_in_step_two_goes_on_from_step_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, array in zip(("X", "y"), TABLE, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)])
    try:
        until = time.monotonic() + 120
        while not (tmp_path / "in step 2").exists():
            assert process.poll() is None, "the fit ended before it could be killed"
            assert time.monotonic() < until, "the fit never came to step 2"
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait(30)
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
        monkeypatch.setattr(training, "MAX_CACHED_VALUES", limit)
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


def test_a_generator_is_known_by_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(random_state: np.random.RandomState) -> list[str]:
        return steps_run(monkeypatch, lambda: regressor(tmp_path, random_state=random_state).fit(*TABLE))

    source = np.random.RandomState(3)
    assert len(fit(source)) == 3
    assert fit(np.random.RandomState(3)) == []
    assert len(fit(source)) == 3, "it has moved on, and would draw another seed"


class Tanh(nn.Sequential):
    """The same weights as `MLP`, and another function of them."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(1, 8), nn.Tanh())


X, y = TABLE
OTHER_FITS: dict[str, Callable[[Path], Any]] = {
    "inputs": lambda folder: regressor(folder).fit(X + 1e-9, y),
    "targets": lambda folder: regressor(folder).fit(X, y + np.eye(len(y))[0]),
    "rows": lambda folder: regressor(folder).fit(X[1:], y[1:]),
    "weights": lambda folder: regressor(folder).fit(X, y, np.linspace(1, 2, len(y))),
    "seed": lambda folder: regressor(folder, random_state=1).fit(X, y),
    "no seed": lambda folder: regressor(folder, random_state=None).fit(X, y),
    "epochs": lambda folder: regressor(folder, epochs=4).fit(X, y),
    "rate": lambda folder: regressor(folder, learning_rate=2e-3).fit(X, y),
    "decay": lambda folder: regressor(folder, weight_decay=0.3).fit(X, y),
    "batch": lambda folder: regressor(folder, batch_size=16).fit(X, y),
    "held out": lambda folder: regressor(folder, validation_fraction=0.3).fit(X, y),
    "hidden": lambda folder: regressor(folder, hidden=(9,)).fit(X, y),
    "head": lambda folder: regressor(folder, head="natural").fit(X, y),
    "tempering": lambda folder: regressor(folder, tempering="exact").fit(X, y),
    "density": lambda folder: regressor(folder, density="gaussian").fit(X, y),
    "density's settings": lambda folder: regressor(folder, density=MixtureDensity(2)).fit(X, y),
    "encoder": lambda folder: regressor(folder, encoder=MLP(1, (8,))).fit(X, y),
    "factory": lambda folder: regressor(folder, encoder=lambda columns: MLP(columns, (8, 8))).fit(X, y),
    "another factory": lambda folder: regressor(folder, encoder=lambda columns: Tanh()).fit(X, y),
}


@pytest.mark.parametrize("fit", OTHER_FITS.values(), ids=OTHER_FITS.keys())
def test_another_fit_starts_anew(fit: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    regressor(tmp_path).fit(X, y)
    assert len(steps_run(monkeypatch, lambda: fit(tmp_path))) == 3
    assert fit(tmp_path / "elsewhere").model_.state_dict().keys() == fit(tmp_path).model_.state_dict().keys()


def test_another_encoder_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = MLP(1, (8,))
    other = Tanh()
    other.load_state_dict(plain.state_dict())
    for encoder, steps in ((plain, 3), (copy.deepcopy(plain), 0), (other, 3), (MLP(1, (8,)), 3)):
        fitted = regressor(tmp_path, encoder=encoder)
        assert len(steps_run(monkeypatch, lambda fitted=fitted: fitted.fit(X, y))) == steps


def changed(module: nn.Module, **attributes: object) -> nn.Module:
    module = copy.deepcopy(module)
    vars(module).update(attributes)
    return module


class Scaled(nn.Linear):
    """A layer with a number that neither its state nor its `repr` shows."""

    def __init__(self, factor: float) -> None:
        super().__init__(1, 8)
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * super().forward(x)


def starting_at(value: float, columns: int) -> nn.Module:
    layer = nn.Linear(columns, 8)
    nn.init.constant_(layer.weight, value)
    return layer


@pytest.mark.parametrize("estimator", [DensityRegressor, GaussianRegressor])
@pytest.mark.parametrize(
    "encoders",
    [
        [partial(starting_at, 0.1), partial(starting_at, 0.2)],
        [lambda _: Scaled(1.0), lambda _: Scaled(2.0)],
        [ORIGINAL := Scaled(1.0), changed(ORIGINAL, factor=2.0)],
        [ORIGINAL, changed(ORIGINAL, factor=torch.ones(8))],
    ],
    ids=["weights of a factory's", "number of a factory's", "number", "tensor"],
)
def test_what_an_encoder_starts_from_makes_another_fit(encoders: list[Any], estimator: Any, tmp_path: Path) -> None:
    def trains(encoder: Any) -> bool:
        settings = {"epochs": 2, "n_threads": 1, "random_state": 0, "checkpoint_dir": tmp_path}
        return estimator(encoder=encoder, **settings).fit(X, y).report_.history != []

    assert [trains(encoders[i]) for i in (0, 0, 1, 1, 0)] == [True, False, True, False, True]


def test_where_and_how_loudly_it_runs_makes_no_other_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    regressor(tmp_path).fit(X, y)
    shutil.copytree(tmp_path, tmp_path / "moved")
    same = regressor(tmp_path / "moved", verbose=False, n_threads=None, device="auto")
    assert steps_run(monkeypatch, lambda: same.fit(X, y)) == []


def test_an_interrupted_fit_among_checkpoints_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps 2 and 3 that lie in the folder belong to the fit before."""
    regressor(tmp_path, random_state=1).fit(X, y)
    steps_run(monkeypatch, lambda: regressor(tmp_path).fit(X, y), "fit_density")
    assert steps_run(monkeypatch, lambda: regressor(tmp_path).fit(X, y)) == ["fit_density", "refit_head"]


@pytest.mark.parametrize("keep", [0, 5, 100, 0.5, -1])
def test_a_truncated_checkpoint_is_ignored(keep: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = regressor(tmp_path).fit(X, y)
    path = tmp_path / "step-3.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    second = regressor(tmp_path)
    with pytest.warns(UserWarning, match=r"Ignoring the unreadable checkpoint .*step-3\.safetensors"):
        assert steps_run(monkeypatch, lambda: second.fit(X, y)) == ["refit_head"]
    assert_same_predictions(second, first)
    assert path.read_bytes() == content


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    regressor(None).fit(X, y)
    fit_density_regression(network(), batches(*wave()), options=TrainingOptions(epochs=1))
    assert files(tmp_path) == []


def test_a_fit_that_fails_leaves_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="diverged"):
        fit_density_regression(
            network(), batches(*wave()), options=TrainingOptions(3, learning_rate=1e30), checkpoint_dir=tmp_path
        )
    assert files(tmp_path) == []


def test_checkpoints_for_torch_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(model: DensityRegression, fingerprint: str = "") -> Callable[[], Any]:
        options = TrainingOptions(epochs=2)
        return lambda: fit_density_regression(
            model, batches(*wave()), options=options, checkpoint_dir=str(tmp_path), fingerprint=fingerprint
        )

    first, second = network(), network(seed=1)
    steps_run(monkeypatch, fit(first), "refit_head")
    assert steps_run(monkeypatch, fit(second)) == ["refit_head"]
    assert_equal(state(second), state(first), "encoder.")
    # The same object, which knows its density by now.
    assert steps_run(monkeypatch, fit(second)) == []
    assert len(steps_run(monkeypatch, fit(network(), "other data"))) == 3
    assert len(steps_run(monkeypatch, fit(network(width=9), "other data"))) == 3
    assert len(steps_run(monkeypatch, fit(network(width=9, density="gaussian"), "other data"))) == 3


def test_checkpoints_keep_the_furthest_step(tmp_path: Path) -> None:
    mine, other, none = Checkpoints(tmp_path, "a"), Checkpoints(tmp_path, "b"), Checkpoints(None, "a")
    assert mine.latest(3) == none.latest(3) == (0, {})
    for step in (1, 2):
        mine.save(step, {"x": torch.tensor([float(step)])})
    none.save(3, {"x": torch.zeros(1)})
    assert mine.latest(3) == (2, {"x": torch.tensor([2.0])})
    assert mine.latest(1) == (1, {"x": torch.tensor([1.0])})
    assert other.latest(3) == (0, {})
    other.save(2, {"x": torch.tensor([7.0])})
    assert mine.latest(3) == (1, {"x": torch.tensor([1.0])})
    assert files(tmp_path) == ["step-1.safetensors", "step-2.safetensors"]


def test_a_folder_is_tried_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("mine")

    def fit() -> None:
        with pytest.raises(OSError, match=r"taken cannot be made a folder"):
            regressor(tmp_path / "taken").fit(X, y)

    assert steps_run(monkeypatch, fit) == []


def test_checkpoints_of_tied_weights(tmp_path: Path) -> None:
    shared = torch.arange(4.0)
    Checkpoints(tmp_path).save(1, {"a": shared, "b": shared, "c": shared.reshape(2, 2).T})
    step, tensors = Checkpoints(tmp_path).latest(3)
    assert step == 1
    assert torch.equal(tensors["a"], tensors["b"])
    assert torch.equal(tensors["c"], shared.reshape(2, 2).T)


@pytest.mark.parametrize("change", ["nothing", "options", "density", "tempering"])
def test_a_torch_fit_resumes_only_as_it_was(change: str, tmp_path: Path) -> None:
    x = torch.linspace(-1, 1, 60)[:, None]
    batches = [(x, x**2)]

    def history(**changes: Any) -> list[float]:
        options = TrainingOptions(epochs=changes.pop("epochs", 2))
        model = DensityRegression(MLP(1, (4,)), 4, **{"density": MixtureDensity(2)} | changes)
        return fit_density_regression(model, batches, options=options, checkpoint_dir=tmp_path).history

    assert len(history()) == 2
    changes = {
        "nothing": {},
        "options": {"epochs": 3},
        "density": {"density": MixtureDensity(1)},
        "tempering": {"tempering": "exact"},
    }[change]
    assert bool(history(**changes)) == (change != "nothing")


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


def test_a_trained_encoder_is_known_by_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(encoder: nn.Module) -> list[str]:
        model = DensityRegression(encoder, 8)
        fit = partial(fit_density_regression, model, [wave()], pretrained=True, checkpoint_dir=tmp_path)
        return steps_run(monkeypatch, fit)

    encoder = MLP(1, (8,))
    mirrored = copy.deepcopy(encoder)
    with torch.no_grad():
        mirrored[0].weight.neg_()
    assert [len(steps(part)) for part in (encoder, copy.deepcopy(encoder), mirrored)] == [2, 0, 2]


def test_settings_of_a_density_within_another_make_another_fit(tmp_path: Path) -> None:
    x = torch.rand(6, 3, 8, 8, generator=generator())

    def trains(scene: int, pixels: int) -> bool:
        encoder = WithScene(UNet(width=4, levels=1), Patches(4), max_dims=scene)
        model = SceneRegression(encoder, 4, density=GaussianDensity(max_dims=pixels), tempering=RobustTempering())
        options = TrainingOptions(epochs=1)
        return fit_density_regression(model, [(x, x[:, :1])], options=options, checkpoint_dir=tmp_path).history != []

    assert [trains(*dims) for dims in ((2, 2), (2, 2), (2, 3), (3, 3))] == [True, False, True, True]


def test_a_state_that_cannot_be_kept_is_told_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(nn.Linear):
        def get_extra_state(self) -> dict[str, int]:
            return {"seen": 1}

    def fit() -> None:
        with pytest.raises(ValueError, match=r"checkpoint_dir keeps tensors, but encoder\._extra_state .* is a dict"):
            fit_density_regression(DensityRegression(Counted(1, 8), 8), [wave()], checkpoint_dir=tmp_path)

    assert steps_run(monkeypatch, fit) == []
