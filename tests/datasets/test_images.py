"""Images and depth maps: reading what was written, formats of Pillow, and damaged files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from density_regression.datasets import read_depth, read_image, write_depth

CODES = np.array([[0, 256, 640], [65535, 1, 128]], dtype=np.uint16)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An image and a depth map, both of noise."""
    rng = np.random.default_rng(0)
    pixels = {"rgb": rng.integers(0, 256, (6, 8, 3), np.uint8), "depth": rng.integers(1, 65536, (6, 8), np.uint16)}
    for part, values in pixels.items():
        (tmp_path / part).mkdir()
        Image.fromarray(values).save(tmp_path / part / "a.png")
    return tmp_path


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "new" / "depth.png"
    codes = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    write_depth(path, torch.from_numpy(codes.astype(np.float32) / 256))
    metres = read_depth(path)
    assert metres.dtype == torch.float32
    np.testing.assert_array_equal(metres.numpy(), codes / 256)
    assert [file.name for file in path.parent.iterdir()] == ["depth.png"]


def test_rounding(tmp_path: Path) -> None:
    write_depth(tmp_path / "d.png", [[0, 1e-9, 1.4 / 256], [1.6 / 256, 255.999, 1e9]])
    np.testing.assert_array_equal(read_depth(tmp_path / "d.png") * 256, [[0, 1, 1], [2, 65535, 65535]])


@pytest.mark.parametrize(
    ("metres", "message"),
    [
        ([[1.0, float("nan")]], "must be finite"),
        ([[float("inf")]], "must be finite"),
        ([[-1.0]], "at least 0"),
        ([1.0], r"of shape \(h, w\), got \(1,\)"),
        (np.zeros((0, 3)), r"of shape \(h, w\)"),
    ],
)
def test_write_refuses(tmp_path: Path, metres: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write_depth(tmp_path / "d.png", metres)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("mode", "stored"), [("I;16", "<u2"), ("I;16B", ">u2"), ("I", "<i4")])
def test_modes_of_sixteen_bits(tmp_path: Path, mode: str, stored: str) -> None:
    path = tmp_path / "d.tif"
    Image.frombytes(mode, (3, 2), CODES.astype(stored).tobytes()).save(path)
    with Image.open(path) as image:
        assert image.mode == mode
    np.testing.assert_array_equal(read_depth(path), CODES / 256)


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGB", "RGBA"])
def test_other_modes_are_no_depth(tmp_path: Path, mode: str) -> None:
    Image.new(mode, (3, 2)).save(tmp_path / "d.png")
    with pytest.raises(ValueError, match=rf"d\.png must be grey, of 16 bits, got Pillow's mode '{mode}'"):
        read_depth(tmp_path / "d.png")


@pytest.mark.parametrize("value", [-1, 65536])
def test_values_beyond_sixteen_bits(tmp_path: Path, value: int) -> None:
    Image.new("I", (3, 2), value).save(tmp_path / "d.tif")
    with pytest.raises(ValueError, match=rf"d\.tif must hold values of 16 bits, got {value} to {value}"):
        read_depth(tmp_path / "d.tif")


@pytest.mark.parametrize(("mode", "colour"), [("RGB", (9, 8, 7)), ("RGBA", (9, 8, 7, 0)), ("L", 9), ("P", 0)])
def test_images_become_rgb(tmp_path: Path, mode: str, colour: object) -> None:
    Image.new(mode, (3, 2), colour).save(tmp_path / "i.png")  # type: ignore[arg-type]
    image = read_image(tmp_path / "i.png")
    assert image.dtype == torch.uint8
    assert image.shape == (3, 2, 3)
    assert image[:, 1, 2].tolist() == {"L": [9, 9, 9], "P": [0, 0, 0]}.get(mode, [9, 8, 7])


@pytest.mark.parametrize("read", [read_image, read_depth])
def test_images_are_upright(tmp_path: Path, read: Callable[[Path], torch.Tensor]) -> None:
    """A phone held upright stores what it sees lying on its side, and says so."""
    stored = CODES if read is read_depth else np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    Image.fromarray(stored).save(tmp_path / "plain.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # Orientation: to be turned by a quarter, clockwise.
    Image.fromarray(stored).save(tmp_path / "turned.png", exif=exif)
    expected = read(tmp_path / "plain.png").rot90(-1, (-2, -1))
    assert torch.equal(read(tmp_path / "turned.png"), expected)


def test_depth_is_no_image(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.png must be an image of 8 bits a colour"):
        read_image(folder / "depth" / "a.png")


@pytest.mark.parametrize("read", [read_image, read_depth])
@pytest.mark.parametrize("kept", [None, 0.0, 0.3, 0.7])
def test_damaged(folder: Path, read: object, kept: float | None) -> None:
    path = folder / ("rgb" if read is read_image else "depth") / "a.png"
    content = path.read_bytes()
    path.unlink()
    if kept is not None:
        path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(ValueError, match=r"a\.png cannot be read as an image"):
        read(path)  # type: ignore[operator]
