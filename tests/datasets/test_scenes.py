"""Synthetic scenes: depths against rays followed step by step, seeds and bad arguments."""

from pathlib import Path

import numpy as np
import pytest
import torch

from density_regression.datasets import DepthFolder, make_scenes, read_depth, scenes


def test_files(tmp_path: Path) -> None:
    assert make_scenes(str(tmp_path / "s"), 3) == tmp_path / "s"
    data = DepthFolder(tmp_path / "s")
    assert len(data) == 3
    assert data.size == (48, 64)
    for x, y, weight in (data[i] for i in range(3)):
        assert weight.all()
        assert 0.9 < y.min() < y.max() < 8
        assert x.std() > 0.05


@pytest.mark.parametrize("seed", range(6))
def test_room_against_rays_followed_step_by_step(tmp_path: Path, seed: int) -> None:
    make_scenes(tmp_path, 1, size=(30, 41), random_state=seed)
    metres = read_depth(tmp_path / "depth" / "scene_00000.png")
    walls, boxes = scenes._random_room(np.random.default_rng(seed))
    steps = np.arange(0.5, 9, 0.002)
    met = set()
    for row in range(1, 30, 3):
        for column in range(0, 41, 2):
            ray = np.array([(column + 0.5 - 20.5) / (0.6 * 41), (row + 0.5 - 15) / (0.6 * 41), 1])
            points = steps[:, np.newaxis] * ray
            outside = ((points < walls.low) | (points > walls.high)).any(axis=1)
            within = [((points > box.low) & (points < box.high)).all(axis=1) for box in boxes]
            first = int(np.argmax(outside | np.any(within, axis=0)))
            met.add("wall" if outside[first] else "box")
            assert metres[row, column] == pytest.approx(steps[first], abs=0.002 + 1 / 512)
    assert met == {"wall", "box"}


def test_outdoor(tmp_path: Path) -> None:
    make_scenes(tmp_path, 4, outdoor=True, size=(60, 80), random_state=1)
    data = DepthFolder(tmp_path)
    for x, y, weight in (data[i] for i in range(4)):
        assert y.max() <= 80
        assert (y[0, :20] > 0).float().mean() < 0.05
        assert weight[36:].mean() == pytest.approx(1 / 3, abs=0.05)
        assert x[2, :10].mean() > x[0, :10].mean() + 0.1
        # Below posts there is a plane: 1 / depth rises in a line from the horizon down.
        rows, columns = torch.nonzero(weight[50:], as_tuple=True)
        inverse = (1 / y[0, 50:][rows, columns]).numpy()
        slope, start = np.polyfit(rows.numpy(), inverse, 1)
        np.testing.assert_allclose(inverse, start + slope * rows.numpy(), atol=1e-3)
        assert 1.5 <= 1 / (slope * 0.6 * 80) <= 1.8


@pytest.mark.parametrize("outdoor", [False, True])
def test_seed(tmp_path: Path, outdoor: bool) -> None:
    contents = []
    for i, seed in enumerate((3, 3, 4)):
        make_scenes(tmp_path / str(i), 2, size=(12, 16), outdoor=outdoor, random_state=seed)
        contents.append([path.read_bytes() for path in sorted((tmp_path / str(i)).glob("*/*"))])
    assert len(contents[0]) == 4
    assert contents[0] == contents[1]
    assert not set(contents[0]) & set(contents[2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n must be an integer"),
        ({"n": 1.5}, "n must be an integer"),
        ({"n": 1, "size": (0, 4)}, r"size must be \(height, width\)"),
    ],
)
def test_bad_arguments(tmp_path: Path, arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_scenes(tmp_path, **arguments)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
