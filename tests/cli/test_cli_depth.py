"""`fit` and `predict` for depth, as people type them."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from PIL import Image
from typer.testing import CliRunner

from density_regression.cli import app
from density_regression.cli.fit_depth import fit_depth
from density_regression.datasets import make_scenes, read_depth, read_image
from density_regression.vision.depth import DepthRegressor

QUICK = ["--task", "depth", "--epochs", "1", "--width", "2", "--levels", "1", "--device", "cpu"]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "120", "TERM": "dumb"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scenes, and a model of them."""
    folder = tmp_path_factory.mktemp("depth")
    make_scenes(folder / "scenes", 6, size=(16, 20))
    result = run("fit", folder / "scenes", *QUICK, "--seed", "3", "--smoothness", "0.01", "--out", folder / "model")
    assert result.exit_code == 0, result.output
    assert " s. Model: " in result.output
    assert str(folder / "model") in result.output
    return folder


def predict(folder: Path, out: Path, *images: Path) -> Result:
    return run("predict", folder / "model", *images, "--task", "depth", "--device", "cpu", "--out", out)


def test_fit_then_predict(folder: Path, tmp_path: Path) -> None:
    first, second = folder / "scenes" / "rgb" / "scene_00000.jpg", tmp_path / "other.png"
    Image.effect_noise((31, 13), 80).convert("RGB").save(second)
    result = predict(folder, tmp_path / "new" / "out", first, second)
    assert result.exit_code == 0, result.output
    out = tmp_path / "new" / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        f"{name}{part}.png" for name in ("other", "scene_00000") for part in ("-depth", "-std", "")
    ]
    lines = result.output.splitlines()
    model = DepthRegressor.load(folder / "model", device="cpu")
    assert (model.width, model.levels, model.epochs, model.random_state, model.smoothness) == (2, 1, 1, 3, 0.01)
    for line, path in zip(lines, (first, second), strict=True):
        mean, std, score = (part[0] for part in model.predict(read_image(path)))
        assert line == f"{path.name}: depth {mean.mean():.2f} m, std {std.mean():.2f} m, score {score:.1f}"
        np.testing.assert_allclose(read_depth(out / f"{path.stem}-depth.png"), mean.clip(1 / 256), atol=0.51 / 256)
        # What is above the largest code is written as that.
        kept = std.clip(1 / 256, 65535 / 256)
        np.testing.assert_allclose(read_depth(out / f"{path.stem}-std.png"), kept, atol=0.51 / 256)
        with Image.open(out / f"{path.stem}.png") as panel:
            assert panel.width > 2 * panel.height > 300


def test_unreadable_images_are_named_and_the_others_done(folder: Path, tmp_path: Path) -> None:
    good = folder / "scenes" / "rgb" / "scene_00001.jpg"
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(good.read_bytes()[:200])
    result = predict(folder, tmp_path / "out", broken, tmp_path / "missing.jpg", good)
    assert result.exit_code == 1
    for path in (broken, tmp_path / "missing.jpg"):
        assert f"{path} cannot be read as an image" in result.stderr
    assert "2 of 3 images" in result.stderr
    assert result.stdout.startswith("scene_00001.jpg: depth")
    assert len(list((tmp_path / "out").iterdir())) == 3


def test_images_of_one_name(folder: Path, tmp_path: Path) -> None:
    result = predict(folder, tmp_path / "out", Path("a/x.jpg"), Path("b/x.png"), Path("y.png"))
    assert result.exit_code == 2
    assert "Several images would be written as x" in " ".join(result.output.replace("│", " ").split())
    assert not (tmp_path / "out").exists()


def test_an_image_is_not_written_over(folder: Path, tmp_path: Path) -> None:
    image = tmp_path / "holiday.png"
    Image.effect_noise((20, 16), 80).convert("RGB").save(image)
    content = image.read_bytes()
    (tmp_path / "link").symlink_to(tmp_path)
    for out in (tmp_path, tmp_path / "link"):
        result = predict(folder, out, image)
        assert result.exit_code == 2
        assert "holiday.png would be written over" in " ".join(result.output.replace("│", " ").split())
    assert image.read_bytes() == content
    assert not list(tmp_path.glob("holiday-*"))


def test_results_of_one_name(folder: Path, tmp_path: Path) -> None:
    result = predict(folder, tmp_path / "out", Path("x.jpg"), Path("x-depth.jpg"))
    assert result.exit_code == 2
    assert "Several images would be written as x-depth.png" in " ".join(result.output.replace("│", " ").split())
    assert not (tmp_path / "out").exists()


def test_no_model(folder: Path, tmp_path: Path) -> None:
    result = run("predict", tmp_path, folder / "x.jpg", "--task", "depth", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "No model in" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", [["fit", "scenes"], ["predict", "model", "a.jpg"]])
def test_tasks(command: list[str], tmp_path: Path) -> None:
    unknown = run(*command, "--task", "tables", "--out", tmp_path / "out")
    assert unknown.exit_code == 2
    assert "'tables' is not one of 'depth'" in unknown.output
    assert not (tmp_path / "out").exists()


def test_fit_asks_for_the_task(tmp_path: Path) -> None:
    missing = run("fit", "scenes", "--out", tmp_path / "out")
    assert missing.exit_code == 2
    assert "--task" in missing.output
    assert not (tmp_path / "out").exists()


def test_a_model_says_what_it_has_learnt(folder: Path, tmp_path: Path) -> None:
    image = folder / "scenes" / "rgb" / "scene_00000.jpg"
    for task in ([], ["--task", "depth"]):
        result = run("predict", folder / "model", image, *task, "--device", "cpu", "--out", tmp_path / str(len(task)))
        assert result.exit_code == 0, result.output
        assert result.output.startswith("scene_00000.jpg: depth")
    result = run("predict", folder / "model", image, "--device", "cpu")
    assert result.exit_code == 2
    assert "Name a folder" in result.output


def test_nothing_to_fit(tmp_path: Path) -> None:
    result = run("fit", tmp_path, *QUICK, "--out", tmp_path / "model")
    assert result.exit_code == 1
    assert "There is no folder" in result.stderr
    make_scenes(tmp_path, 2, size=(8, 8))
    assert "At least 3 images" in run("fit", tmp_path, *QUICK, "--out", tmp_path / "model").stderr


def test_a_file_is_no_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    result = run("fit", folder / "scenes", *QUICK, "--out", tmp_path / "taken")
    assert result.exit_code == 2
    assert "cannot be made a folder" in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize("option", ["--out", "--checkpoint-dir"])
@pytest.mark.parametrize("unusable", ["a file", "not writable"])
def test_folders_are_tried_before_training(
    option: str, unusable: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("trained first")

    monkeypatch.setattr(DepthRegressor, "fit", refuse)
    # Which even root cannot write to.
    taken = Path("/proc/self")
    if unusable == "a file":
        taken = tmp_path / "taken"
        taken.write_text("mine")
    elif not taken.exists():
        pytest.skip("There is no /proc here.")
    folders = {"--out": tmp_path / "model", "--checkpoint-dir": tmp_path / "steps"} | {option: taken}
    result = run("fit", folder / "scenes", *QUICK, *(part for pair in folders.items() for part in pair))
    assert result.exit_code == 2
    assert option in result.output
    assert "cannot be made a folder" in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize("kept", [True, False])
def test_interrupted(folder: Path, tmp_path: Path, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DepthRegressor, "fit", interrupt)
    checkpoints = ["--checkpoint-dir", tmp_path / "steps"] if kept else []
    result = run("fit", folder / "scenes", *QUICK, "--out", tmp_path / "model", *checkpoints)
    assert result.exit_code == 130
    assert "the same command goes on" in result.stderr
    assert ("give --checkpoint-dir" in result.stderr) is not kept
    assert not list((tmp_path / "model").iterdir())


def test_checkpoints(folder: Path, tmp_path: Path) -> None:
    command = ["fit", folder / "scenes", *QUICK, "--checkpoint-dir", tmp_path / "steps", "--out"]
    for name in ("a", "b"):
        assert run(*command, tmp_path / name).exit_code == 0
    assert len(list((tmp_path / "steps").iterdir())) == 3
    weights = [next((tmp_path / name).glob("*.safetensors")).name for name in ("a", "b")]
    assert weights[0] == weights[1]


def test_help_imports_nothing_slow() -> None:
    check = "import sys; from density_regression import cli; print({'torch', 'matplotlib', 'PIL'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "set()"


def test_what_is_left_out_is_as_in_python() -> None:
    typed, there = (inspect.signature(one).parameters for one in (fit_depth, DepthRegressor))
    for name in ("epochs", "batch_size", "width", "levels", "device", "workers", "checkpoint_dir"):
        assert typed[name].default == there[name].default
    assert typed["seed"].default == there["random_state"].default
