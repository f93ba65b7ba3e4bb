"""Depth from images: what is learnt, what is unknown, what has no influence, and errors."""

from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from density_regression import CSVLogger, DensityRegressor, InvalidModelError
from density_regression import load as load_estimator
from density_regression.datasets import DepthFolder, make_scenes
from density_regression.io.store import read_model, write_model
from density_regression.nn.model import DensityRegression
from density_regression.nn.network import Features
from density_regression.tabular.table import split_rows
from density_regression.training import algorithm, pretraining
from density_regression.training.algorithm import fit_density
from density_regression.vision.batches import DepthBatches
from density_regression.vision.depth import DepthMaps, DepthRegressor

SIZE = (24, 32)


class Scenes(NamedTuple):
    """Folders of made-up scenes: rooms to learn from, other rooms, and streets."""

    train: Path
    indoor: Path
    outdoor: Path


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Scenes:
    folder = tmp_path_factory.mktemp("scenes")
    return Scenes(
        make_scenes(folder / "train", 40, size=SIZE),
        make_scenes(folder / "indoor", 10, size=SIZE, random_state=1),
        make_scenes(folder / "outdoor", 10, size=SIZE, outdoor=True, random_state=1),
    )


@pytest.fixture(scope="module")
def fitted(scenes: Scenes) -> DepthRegressor:
    """Do not refit or change it."""
    return regressor(width=8, epochs=12, batch_size=8).fit(scenes.train)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight small scenes, of whose pixels most have no depth."""
    return make_scenes(tmp_path_factory.mktemp("few"), 8, size=(14, 18), outdoor=True)


def regressor(**settings: Any) -> DepthRegressor:
    return DepthRegressor(**{"width": 4, "levels": 2, "epochs": 2, "device": "cpu", "verbose": False, **settings})


def load(folder: Path) -> tuple[Tensor, np.ndarray]:
    """Images (n, 3, h, w) and depths (n, h, w) of a folder."""
    pairs = DepthFolder(folder)
    images, depths = zip(*map(pairs.load, range(len(pairs))), strict=True)
    return torch.stack(images), torch.stack(depths).numpy()


def assert_same(got: DepthMaps, expected: DepthMaps) -> None:
    for part, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(part, other)


def test_learns(fitted: DepthRegressor, scenes: Scenes) -> None:
    x, depth = load(scenes.indoor)
    mean, std, score = fitted.predict(x)
    assert mean.shape == std.shape == depth.shape
    assert score.shape == (10,)
    known = load(scenes.train)[1]
    baseline = np.sqrt(np.square(depth - known.mean()).mean())
    assert np.sqrt(np.square(depth - mean).mean()) < 0.9 * baseline
    # The uncertainty is of the size of the error.
    assert 0.5 < np.sqrt(np.square((depth - mean) / std).mean()) < 2


def test_scaling_is_that_of_the_training_images_in_metres(fitted: DepthRegressor, scenes: Scenes) -> None:
    depths = load(scenes.train)[1]
    # One in ten is held out.
    assert fitted.center_ == pytest.approx(depths.mean(), rel=0.05)
    assert fitted.scale_ == pytest.approx(depths.std(), rel=0.1)
    assert set(fitted.report_.seconds) >= {"pretrain", "fit_density", "refit_head"}
    assert len(fitted.report_.history) == 12


def test_callbacks_are_told_of_each_epoch_and_not_saved(few: Path, tmp_path: Path) -> None:
    reg = regressor(callbacks=[CSVLogger(tmp_path / "losses.csv")]).fit(few)
    lines = (tmp_path / "losses.csv").read_text().splitlines()
    losses = zip(reg.report_.train_history, reg.report_.history, strict=True)
    assert lines[1:3] == [f"pretrain,{i},{train},{held_out}" for i, (train, held_out) in enumerate(losses, start=1)]
    reg.save(tmp_path / "model")
    assert DepthRegressor.load(tmp_path / "model").callbacks is None


def test_streets_are_unknown(fitted: DepthRegressor, scenes: Scenes) -> None:
    indoor, outdoor = (fitted.predict(load(folder)[0]) for folder in (scenes.indoor, scenes.outdoor))
    wider = indoor.std.mean((1, 2))[:, None] < outdoor.std.mean((1, 2))
    less_likely = indoor.score[:, None] > outdoor.score
    assert wider.mean() > 0.95
    assert less_likely.mean() > 0.95


def test_pixels_without_depth_have_no_influence(few: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, depth = load(few)
    assert 0.5 < (depth == 0).mean() < 1
    plain = regressor().fit(few)
    batches = DepthBatches.__iter__

    def changed(self: DepthBatches) -> Any:
        for image, y, weight in batches(self):
            assert ((y * self.scale + self.center).abs() < 1e-4).eq(weight[:, None] == 0).all()
            yield image, torch.where(weight[:, None] == 0, 50.0, y), weight

    monkeypatch.setattr(DepthBatches, "__iter__", changed)
    other = regressor().fit(few)
    assert other.center_ == plain.center_ == pytest.approx(depth[depth > 0].mean(), rel=0.2)
    assert_same(other.predict(x), plain.predict(x))


def test_the_seed_decides(few: Path) -> None:
    x = load(few)[0]
    first, second, other = (regressor(random_state=seed).fit(few).predict(x) for seed in (3, 3, 4))
    assert_same(first, second)
    assert not np.allclose(first.mean, other.mean)


@pytest.mark.parametrize("cache", [True, False], ids=["held", "read"])
@pytest.mark.parametrize("stop_in", ["fit_density", "refit_head"])
def test_an_interrupted_fit_ends_as_an_uninterrupted_one(
    stop_in: str, cache: bool, few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(BaseException):
        pass

    def stop(*args: Any, **kwargs: Any) -> None:
        raise Stop

    pairs = DepthFolder(few, cache=cache)
    whole = regressor(batch_size=3).fit(pairs)
    with monkeypatch.context() as patch:
        patch.setattr(algorithm, stop_in, stop)
        with pytest.raises(Stop):
            regressor(batch_size=3, checkpoint_dir=tmp_path).fit(pairs)
    resumed = regressor(batch_size=3, checkpoint_dir=tmp_path).fit(pairs)
    assert resumed.report_.history == []
    assert_same(resumed.predict(load(few)[0]), whole.predict(load(few)[0]))
    # Of another fit, they are not used.
    assert regressor(batch_size=3, checkpoint_dir=tmp_path, epochs=1).fit(pairs).report_.history != []


def test_checkpoints_of_other_images_are_not_used(few: Path, tmp_path: Path) -> None:
    def trains(pairs: DepthFolder) -> bool:
        return regressor(epochs=1, checkpoint_dir=tmp_path / "steps").fit(pairs).report_.history != []

    pairs = DepthFolder(few)
    assert trains(pairs)
    assert not trains(DepthFolder(few))
    assert trains(DepthFolder(few, crop=(12, 16)))
    # The same depths, and in another order the same images.
    other = make_scenes(tmp_path / "other", 8, size=(14, 18), outdoor=True)
    for image in (other / "rgb").iterdir():
        Image.effect_noise((18, 14), 80).convert("RGB").save(image)
    assert trains(DepthFolder(other))
    assert trains(pairs.subset(range(7, -1, -1)))


@pytest.mark.parametrize("stop_in", ["pretrain", "refit_head"])
def test_an_interrupted_fit_leaves_the_model_as_it_was(
    stop_in: str, few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    x = load(few)[0]
    model, new = regressor().fit(few), regressor()
    before, scaling = model.predict(x), (model.center_, model.scale_)
    monkeypatch.setattr(pretraining if stop_in == "pretrain" else algorithm, stop_in, stop)
    model.width = 6
    for one in (model, new):
        with pytest.raises(KeyboardInterrupt):
            one.fit(DepthFolder(few).subset(range(4)))
    with pytest.raises(ValueError, match="call fit first"):
        new.save(tmp_path)
    assert (model.center_, model.scale_) == scaling
    assert_same(model.predict(x), before)
    model.save(tmp_path)
    assert_same(DepthRegressor.load(tmp_path, device="cpu").predict(x), before)


def test_the_callers_generator_is_left_alone(few: Path) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    regressor(epochs=1).fit(few)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("size", [(1, 1), (5, 40), (25, 33)])
def test_images_of_any_size(fitted: DepthRegressor, size: tuple[int, int]) -> None:
    mean, std, score = fitted.predict(torch.rand(2, 3, *size))
    assert mean.shape == std.shape == (2, *size)
    assert all(np.isfinite(part).all() for part in (mean, std, score))


def test_strange_images_give_numbers(fitted: DepthRegressor) -> None:
    noise = torch.rand(1, 3, *SIZE, generator=torch.Generator().manual_seed(0))
    mean, std, score = fitted.predict(torch.cat([torch.zeros_like(noise), torch.ones_like(noise), noise]))
    assert all(np.isfinite(part).all() for part in (mean, std, score))
    assert (std > 0).all()


def test_what_may_be_given(fitted: DepthRegressor, scenes: Scenes) -> None:
    x = load(scenes.indoor)[0][:2]
    maps = fitted.predict(x)
    assert_same(fitted.predict(x.numpy()), maps)
    assert_same(fitted.predict(x / 255), maps)
    np.testing.assert_allclose(fitted.predict((x / 255).double().numpy()).mean, maps.mean, rtol=1e-5)
    np.testing.assert_allclose(fitted.predict(x[0]).mean, maps.mean[:1], rtol=1e-4)


def test_what_the_caller_set_for_tensors_of_their_own_changes_nothing(few: Path, tmp_path: Path) -> None:
    x = load(few)[0][:2]
    expected = regressor(epochs=1).fit(few).predict(x)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), torch.device("meta"):
            model = regressor(epochs=1).fit(few)
            model.save(tmp_path / "model")
            assert_same(model.predict(x), expected)
            assert_same(DepthRegressor.load(tmp_path / "model", device="cpu").predict(x), expected)
    finally:
        torch.set_default_dtype(torch.float32)


def test_arrays_of_other_libraries(fitted: DepthRegressor, scenes: Scenes) -> None:
    """Pillow's cannot be written to, and OpenCV's, from BGR to RGB, run backwards."""
    path = next((scenes.indoor / "rgb").iterdir())
    with Image.open(path) as image:
        pillow = np.asarray(image).transpose(2, 0, 1)
    assert not pillow.flags.writeable
    backwards = pillow[::-1].copy()[::-1]
    expected = fitted.predict(torch.from_numpy(pillow.copy()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(fitted.predict(pillow), expected)
        assert_same(fitted.predict(backwards), expected)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(8, 8), "Expected images of shape"),
        (torch.zeros(8, 8, 3), "Expected images of shape"),
        (torch.zeros(2, 1, 8, 8), "Expected images of shape"),
        (torch.zeros(1, 1, 3, 8, 8), "Expected images of shape"),
        (torch.zeros(0, 3, 8, 8), "Expected images of shape"),
        (torch.zeros(3, 8, 0), "Expected images of shape"),
        (torch.full((3, 8, 8), torch.nan), "uint8, or numbers from 0 to 1"),
        (torch.full((3, 8, 8), torch.inf), "uint8, or numbers from 0 to 1"),
        (torch.full((3, 8, 8), 255.0), "uint8, or numbers from 0 to 1"),
        (torch.full((3, 8, 8), -0.1), "uint8, or numbers from 0 to 1"),
        (np.full((3, 8, 8), 200), "uint8, or numbers from 0 to 1"),
    ],
)
def test_bad_images(fitted: DepthRegressor, images: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted.predict(images)


def test_too_few_images(few: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="At least 3 images are needed"):
        regressor().fit(DepthFolder(few).subset([0, 1]))
    with pytest.raises(ValueError, match="There is no folder"):
        regressor().fit(tmp_path)
    for name in ("epochs", "batch_size"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1"):
            regressor(**{name: 0}).fit(few)
    for fraction in (0.0, 1.0):
        with pytest.raises(ValueError, match="validation_fraction must lie between 0 and 1"):
            regressor(validation_fraction=fraction).fit(few)
    assert regressor(epochs=1).fit(DepthFolder(few).subset([0, 1, 2])).predict(load(few)[0]).mean.shape == (8, 14, 18)


def test_no_more_levels_than_pixels(few: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each doubles the channels: nine of them would take more memory than there is."""
    monkeypatch.setattr(DepthRegressor, "build", lambda self: pytest.fail("It was built."))
    for levels in (4, 9, 10**12):
        with pytest.raises(ValueError, match=f"levels must be at most 3 for images of 14 x 18 pixels.*got {levels}"):
            regressor(levels=levels).fit(few)


def test_not_fitted(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="call fit first"):
        regressor().save(tmp_path / "model")
    with pytest.raises(ValueError, match="call fit first"):
        regressor().predict(torch.zeros(3, 8, 8))
    assert not list(tmp_path.iterdir())


class TestSaving:
    def test_round_trip(self, fitted: DepthRegressor, scenes: Scenes, tmp_path: Path) -> None:
        fitted.save(tmp_path)
        loaded = DepthRegressor.load(tmp_path, device="cpu")
        x = load(scenes.outdoor)[0]
        assert_same(loaded.predict(x), fitted.predict(x))
        assert (loaded.width, loaded.levels, loaded.epochs) == (8, 2, 12)
        assert loaded.report_.seconds == fitted.report_.seconds

    def test_copies_and_pickles(self, fitted: DepthRegressor, scenes: Scenes) -> None:
        x = load(scenes.indoor)[0][:2]
        for other in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
            assert_same(other.predict(x), fitted.predict(x))

    def test_is_no_table(self, fitted: DepthRegressor, tmp_path: Path) -> None:
        fitted.save(tmp_path)
        with pytest.raises(InvalidModelError, match=r"DepthRegressor\.load"):
            load_estimator(tmp_path)

    def test_another_estimator(self, tmp_path: Path) -> None:
        X = np.linspace(-1, 1, 40)[:, None]
        DensityRegressor(hidden=(4,), epochs=1, n_threads=1, random_state=0).fit(X, X[:, 0]).save(tmp_path)
        with pytest.raises(InvalidModelError, match="holds a DensityRegressor, not a DepthRegressor"):
            DepthRegressor.load(tmp_path)

    @pytest.mark.parametrize("name", ["model.json", "weights-*.safetensors"])
    @pytest.mark.parametrize("kept", [0.0, 0.5])
    def test_truncated(self, fitted: DepthRegressor, tmp_path: Path, name: str, kept: float) -> None:
        fitted.save(tmp_path)
        (path,) = tmp_path.glob(name)
        content = path.read_bytes()
        path.write_bytes(content[: int(kept * len(content))])
        with pytest.raises(InvalidModelError, match="truncated"):
            DepthRegressor.load(tmp_path)

    def test_never_trained(self, fitted: DepthRegressor, tmp_path: Path) -> None:
        """Whole files, of a model whose density was never fitted."""
        fitted.save(tmp_path)
        config, _ = read_model(tmp_path)
        parts = ("format", "weights", "weights_sha256", "sha256")
        write_model(tmp_path, {key: config[key] for key in config if key not in parts}, fitted.build().state_dict())
        with pytest.raises(InvalidModelError, match="does not hold a depth model"):
            DepthRegressor.load(tmp_path, device="cpu")

    def test_no_model(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="No model in"):
            DepthRegressor.load(tmp_path)


def test_density_and_head_see_the_images_as_they_are(scenes: Scenes, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def spy(model: DensityRegression, train: Features, *args: Any, **kwargs: Any) -> None:
        seen.append(train.z[:, -1])
        fit_density(model, train, *args, **kwargs)

    monkeypatch.setattr(algorithm, "fit_density", spy)
    model = regressor(batch_size=8).fit(scenes.train)
    pairs = DepthFolder(scenes.train)
    kept, _ = split_rows(len(pairs), model.validation_fraction, model.random_state)
    with torch.no_grad():
        expected = model.model_.encoder.features_and_log_density(torch.stack([pairs[int(i)][0] for i in kept]))[1]
    torch.testing.assert_close(seen[0].unique(), expected.unique(), rtol=1e-3, atol=1e-2)
