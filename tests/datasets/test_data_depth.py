"""Folders of depth maps: on made-up images, and on the real ones where there are any."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from density_regression.datasets import DepthFolder

VARIABLE = "DENSITY_REGRESSION_DATA"
needs_data = pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"{VARIABLE} does not name the data folder")

DEPTH = np.array([[0, 256, 640], [65535, 1, 128]], dtype=np.uint16)


def write_depth(folder: Path, name: str, values: np.ndarray) -> None:
    Image.fromarray(values).save(folder / "depth" / f"{name}.png")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rgb").mkdir()
    (tmp_path / "depth").mkdir()
    for name, colour in (("b", (255, 0, 0)), ("a", (0, 0, 255))):
        Image.new("RGB", (3, 2), colour).save(tmp_path / "rgb" / f"{name}.jpg", quality=100, subsampling=0)
        write_depth(tmp_path, name, DEPTH)
    return tmp_path


def test_pairs(folder: Path) -> None:
    pairs = DepthFolder(str(folder))
    assert len(pairs) == 2
    assert pairs.names == ("a", "b")
    for i, colour in enumerate([(0, 0, 1), (1, 0, 0)]):
        rgb, depth = pairs[i]
        assert rgb.shape == (3, 2, 3)
        assert rgb.dtype == depth.dtype == np.float32
        # JPEG may miss a colour by a few steps of 255.
        np.testing.assert_allclose(rgb.mean(axis=(1, 2)), colour, atol=0.02)
        assert rgb.min() >= 0
        assert rgb.max() <= 1
        np.testing.assert_array_equal(depth, DEPTH[np.newaxis] / 256)


def test_is_a_sequence(folder: Path) -> None:
    pairs = DepthFolder(folder)
    assert [float(rgb[0].mean()) > 0.5 for rgb, _ in pairs] == [False, True]
    np.testing.assert_array_equal(pairs[-1][0], pairs[1][0])
    with pytest.raises(IndexError):
        pairs[2]


@pytest.mark.parametrize("missing", ["rgb/a.jpg", "depth/b.png"])
def test_missing_partner(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    alone = {"rgb/a.jpg": "depth/a.png", "depth/b.png": "rgb/b.jpg"}[missing]
    with pytest.raises(FileNotFoundError, match=rf"without a partner: {alone} \(1 in all\)"):
        DepthFolder(folder)


def test_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no pairs"):
        DepthFolder(tmp_path)


@pytest.mark.parametrize("name", ["rgb/a.jpg", "depth/a.png"])
@pytest.mark.parametrize("kept", [0.0, 0.6])
def test_corrupt_file(folder: Path, name: str, kept: float) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    with pytest.raises(ValueError, match=rf"{name} cannot be read as an image"):
        DepthFolder(folder)[0]


def test_unequal_sizes(folder: Path) -> None:
    write_depth(folder, "a", DEPTH.T.copy())
    with pytest.raises(ValueError, match=r"a\.jpg and .*a\.png must be of one size, got \(2, 3\) and \(3, 2\)"):
        DepthFolder(folder)[0]


def test_depth_of_eight_bits(folder: Path) -> None:
    write_depth(folder, "a", DEPTH.astype(np.uint8))
    with pytest.raises(ValueError, match=r"a\.png must be grey, of 16 bits, got uint8"):
        DepthFolder(folder)[0]


def test_grey_image(folder: Path) -> None:
    Image.new("L", (3, 2)).save(folder / "rgb" / "a.jpg")
    with pytest.raises(ValueError, match=r"a\.jpg must be a colour image"):
        DepthFolder(folder)[0]


@needs_data
@pytest.mark.parametrize(
    ("name", "pairs", "deepest"), [("nyu/train", 795, 9.99), ("nyu/test", 218, 9.99), ("kitti", 72, 80.0)]
)
def test_real_folder(name: str, pairs: int, deepest: float) -> None:
    folder = DepthFolder(Path(os.environ[VARIABLE], "depth", name))
    assert len(folder) == pairs
    for i in (0, pairs // 2, -1):
        rgb, depth = folder[i]
        assert rgb.shape == (3, 128, 160)
        assert depth.shape == (1, 128, 160)
        assert depth.min() >= 0
        assert 1 < depth.max() < deepest
        # Lidar leaves holes, the indoor maps have none.
        assert (depth == 0).any() == (name == "kitti")
