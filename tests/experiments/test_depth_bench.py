"""The depth experiment, small: six methods on made scenes, attacked, recorded, and run on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from density_regression.baselines.gaussian import GaussianNetwork
from density_regression.cli import app
from density_regression.datasets import make_scenes
from density_regression.datasets.depth import DepthFolder
from density_regression.experiments.depth import bench, methods
from density_regression.experiments.depth.attack import fgsm
from density_regression.experiments.depth.bench import EPSILONS, DepthBench, depth_folders
from density_regression.experiments.depth.methods import METHODS
from density_regression.experiments.records import Record, RecordFile
from density_regression.nn.encoders import UNet
from density_regression.vision.depth import DepthRegressor

SMALL = {"width": 4, "levels": 2, "epochs": 2, "batch_size": 8}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for part, n, outdoor in (("nyu/train", 16, False), ("nyu/test", 4, False), ("kitti", 4, True)):
        make_scenes(folder / "depth" / part, n, size=(24, 32), outdoor=outdoor, random_state=n)
    return folder


@pytest.fixture(scope="module")
def records(data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    folder = tmp_path_factory.mktemp("results")
    with RecordFile(folder / "depth.jsonl") as file:
        return list(DepthBench(data, seeds=1, device="cpu", settings=SMALL).run(file, folder / "panels"))


def test_every_method_is_scored_on_every_set(records: list[Record]) -> None:
    assert [record["method"] for record in records] == list(METHODS)
    attacks = [f"{kind} {epsilon}" for kind in ("own", "common") for epsilon in EPSILONS]
    for record in records:
        assert list(record["tests"]) == ["test", *attacks, "outdoor"]
        for test in record["tests"].values():
            assert np.isfinite(list(test["metrics"].values())).all()
            assert test["metrics"]["rmse"] >= test["metrics"]["mae"]
            assert len(test["image_std"]) == 4
        assert (record["tests"]["test"]["image_score"] is None) == (record["method"] != "Density-Regression")
    counted = {record["method"]: record["parameters"] for record in records}
    assert counted["Deep Ensembles"] == 5 * counted["Gaussian"]
    assert counted["Density-Regression"] == counted["Gaussian"]


def test_a_run_goes_on_where_it_was(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "depth.jsonl"
    with RecordFile(path) as file:
        first = next(DepthBench(data, ("Gaussian", "EDL"), 1, "cpu", SMALL).run(file))
    with RecordFile(path) as file:
        rest = list(DepthBench(data, ("Gaussian", "EDL"), 1, "cpu", SMALL).run(file))
    assert (first["method"], [record["method"] for record in rest]) == ("Gaussian", ["EDL"])
    with RecordFile(path) as file:
        assert list(DepthBench(data, ("Gaussian", "EDL"), 1, "cpu", SMALL).run(file)) == []


def test_a_run_goes_on_with_the_same_attack(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for name in ("first", "second"):
        with RecordFile(tmp_path / f"{name}.jsonl") as file:
            runs.append(next(DepthBench(data, ("Gaussian",), 1, "cpu", SMALL).run(file)))
        # Were it trained again, it would be another network.
        monkeypatch.setattr(bench, "SURROGATE_SEED", 7)
    assert runs[0]["tests"]["common 0.04"] == runs[1]["tests"]["common 0.04"]
    with RecordFile(tmp_path / "third.jsonl") as file, pytest.raises(ValueError, match="other settings"):
        next(DepthBench(data, ("Gaussian",), 1, "cpu", {**SMALL, "epochs": 1}).run(file))


def test_the_attack_raises_the_loss_by_no_more_than_epsilon() -> None:
    torch.manual_seed(0)
    model = GaussianNetwork(UNet(width=4, levels=2), 4).eval()
    x, y = torch.rand(3, 3, 16, 20), torch.randn(3, 1, 16, 20)
    weight = (torch.rand(3, 16, 20) < 0.5).float()
    clean, near, far = fgsm(model, x, y, weight, (0.0, 0.01, 0.04))
    assert torch.equal(clean, x)
    for moved, epsilon in ((near, 0.01), (far, 0.04)):
        assert (moved - x).abs().max() <= epsilon + 1e-6
        assert 0 <= moved.min() <= moved.max() <= 1
        with torch.no_grad():
            assert model.loss(moved, y, weight) > model.loss(x, y, weight)
    # Pixels without depth say nothing about where to go.
    other = torch.where(weight[:, None] > 0, y, 1e3)
    assert torch.equal(fgsm(model, x, other, weight, (0.02,))[0], fgsm(model, x, y, weight, (0.02,))[0])


def test_missing_images_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no depth images in"):
        depth_folders(tmp_path)
    with pytest.raises(FileNotFoundError, match="--data-dir"):
        depth_folders(None)
    result = CliRunner().invoke(app, ["bench", "depth", "--data-dir", str(tmp_path), "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert not (tmp_path / "depth.jsonl").exists()
    result = CliRunner().invoke(app, ["bench", "depth", "--methods", "SNGP"])
    assert result.exit_code == 2


@pytest.mark.parametrize(("method", "smooth"), [("Gaussian", False), ("Gaussian (smooth)", True)])
def test_rivals_are_trained_smooth_if_their_name_says_so(
    data: Path, monkeypatch: pytest.MonkeyPatch, method: str, smooth: bool
) -> None:
    seen = []
    monkeypatch.setattr(methods, "fit_baseline", lambda *args, options, **kwargs: seen.append(options))
    regressor = DepthRegressor(**SMALL, smoothness=0.07, device="cpu", verbose=False)
    trained = methods.train(method, regressor, DepthFolder(depth_folders(data)["train"]))
    assert isinstance(trained.model, GaussianNetwork)
    assert [options.smoothness for options in seen] == [0.07 if smooth else 0.0]
