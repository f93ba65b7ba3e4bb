"""The depth data set: pairs it reads and leaves out, crops, augmentation, subsets and late imports."""

import os
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from density_regression.datasets import DepthFolder, depth, write_depth

CODES = np.array([[0, 256, 640], [65535, 1, 128]], dtype=np.uint16)
REAL = Path(os.environ.get("DENSITY_REGRESSION_DATA") or "nowhere", "depth")


def save(folder: Path, name: str, codes: np.ndarray, suffix: str = ".png") -> None:
    """A pair whose red and green are the two bytes of the depth."""
    for part in ("rgb", "depth"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    colours = np.stack([codes >> 8, codes & 255, np.zeros_like(codes)], axis=-1).astype(np.uint8)
    Image.fromarray(colours).save(folder / "rgb" / f"{name}{suffix}")
    Image.fromarray(codes).save(folder / "depth" / f"{name}.png")


def some_codes(shape: tuple[int, int] = (6, 8), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 65536, shape).astype(np.uint16)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed, name in enumerate("bca"):
        save(tmp_path, name, some_codes(seed=seed))
    return tmp_path


@pytest.mark.parametrize("cache", [True, False])
def test_pairs(folder: Path, cache: bool) -> None:
    data = DepthFolder(str(folder), cache=cache)
    assert len(data) == 3
    assert data.pairs[0] == ("a", folder / "rgb" / "a.png", folder / "depth" / "a.png")
    assert [name for name, _, _ in data.pairs] == ["a", "b", "c"]
    image, metres = data.load(0)
    codes = some_codes(seed=2)
    assert (image.dtype, metres.dtype) == (torch.uint8, torch.float32)
    np.testing.assert_array_equal(metres, codes / 256)
    np.testing.assert_array_equal(image[0], codes >> 8)
    x, y, weight = data[0]
    torch.testing.assert_close(x, image.float() / 255)
    torch.testing.assert_close(y, metres[None])
    assert weight.shape == (6, 8)
    assert weight.all()
    assert len(list(data)) == 3  # type: ignore[arg-type]
    assert "3 of 6 x 8, augment=False" in repr(data)


def test_cache_needs_no_files(folder: Path) -> None:
    kept, read = DepthFolder(folder), DepthFolder(folder, cache=False)
    (folder / "rgb" / "a.png").unlink()
    kept[0]
    with pytest.raises(ValueError, match=r"a\.png cannot be read"):
        read[0]


def test_items_are_copies(folder: Path) -> None:
    data = DepthFolder(folder)
    for changed in data.load(0) + data[0]:
        changed.zero_()
    assert data[0][1].all()
    assert data[0][0].any()


def test_missing_depth_weighs_nothing(tmp_path: Path) -> None:
    save(tmp_path, "a", CODES)
    _, y, weight = DepthFolder(tmp_path)[0]
    np.testing.assert_array_equal(weight, [[0, 1, 1], [1, 1, 1]])
    np.testing.assert_array_equal(y[0], CODES / 256)


def test_suffixes(tmp_path: Path) -> None:
    for name, suffix in (("a", ".jpg"), ("b", ".JPEG"), ("c", ".PNG"), (".d", ".png")):
        save(tmp_path, name, some_codes(), suffix)
    (tmp_path / "depth" / "c.png").rename(tmp_path / "depth" / "c.PNG")
    (tmp_path / "rgb" / "notes.txt").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = DepthFolder(tmp_path)
    assert [image.name for _, image, _ in data.pairs] == ["a.jpg", "b.JPEG", "c.PNG"]


def test_no_folders(tmp_path: Path) -> None:
    (tmp_path / "rgb").mkdir()
    with pytest.raises(ValueError, match=r"no folder .*depth: expected pairs of rgb/NAME\.jpg"):
        DepthFolder(tmp_path)


def test_no_pairs(tmp_path: Path) -> None:
    save(tmp_path, "a", CODES)
    (tmp_path / "depth" / "a.png").rename(tmp_path / "depth" / "b.png")
    with pytest.raises(ValueError, match=r"no pairs of rgb/NAME\.jpg .* and depth/NAME\.png"):
        DepthFolder(tmp_path)


def test_two_images_of_one_name(folder: Path) -> None:
    save(folder, "a", some_codes(), ".jpg")
    with pytest.raises(ValueError, match=r"a\.jpg and .*a\.png have one name"):
        DepthFolder(folder)


def test_files_without_partner(folder: Path) -> None:
    for name in "defg":
        save(folder, name, CODES)
        (folder / ("rgb" if name == "g" else "depth") / f"{name}.png").unlink()
    with pytest.warns(UserWarning, match="partner") as caught:
        data = DepthFolder(folder)
    assert len(data) == 3
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert "4 files" in str(caught[0].message)
    assert str(caught[0].message).endswith("left out: depth/g, rgb/d, rgb/e, ...")


@pytest.mark.parametrize(
    ("name", "damage", "reason"),
    [
        ("rgb/a.png", lambda path: path.write_bytes(path.read_bytes()[:80]), r"rgb/a\.png cannot be read"),
        ("depth/a.png", lambda path: path.write_bytes(b"nothing"), r"depth/a\.png cannot be read"),
        ("depth/a.png", lambda path: Image.new("L", (8, 6), 5).save(path), r"depth/a\.png must be grey, of 16"),
        ("depth/a.png", lambda path: write_depth(path, np.ones((8, 6))), r"one size, got \(6, 8\) and \(8, 6\)"),
        ("depth/a.png", lambda path: write_depth(path, np.zeros((6, 8))), "no pixel with a depth"),
    ],
)
def test_unusable_pair_is_left_out(folder: Path, name: str, damage: object, reason: str) -> None:
    damage(folder / name)  # type: ignore[operator]
    with pytest.warns(UserWarning, match=f"The pair a is left out: .*{reason}") as caught:
        data = DepthFolder(folder)
    assert len(caught) == 1
    assert [name for name, _, _ in data.pairs] == ["b", "c"]
    assert len([data[i] for i in range(2)]) == 2
    for other in ("b", "c"):
        (folder / "rgb" / f"{other}.png").write_bytes(b"")
    with pytest.warns(UserWarning, match="left out"), pytest.raises(ValueError, match="can be used; the warnings"):
        DepthFolder(folder)


def test_sizes(folder: Path) -> None:
    save(folder, "d", some_codes((9, 5)))
    with pytest.raises(ValueError, match=r"have 2 sizes: give crop=\(h, w\), at most \(6, 5\)"):
        DepthFolder(folder)
    with pytest.raises(ValueError, match=r"crop=\(7, 5\) must be no larger .* at most \(6, 5\)"):
        DepthFolder(folder, crop=(7, 5))
    data = DepthFolder(folder, crop=[4, 3])
    x, y, weight = data[3]
    assert (x.shape, y.shape, weight.shape) == ((3, 4, 3), (1, 4, 3), (4, 3))
    np.testing.assert_array_equal(y[0], data.load(3)[1][2:6, 1:4])


@pytest.mark.parametrize("crop", [3, (3,), (0, 3), (2.5, 3), (3, 3, 3)])
def test_bad_crop(folder: Path, crop: object) -> None:
    with pytest.raises(ValueError, match=r"crop must be \(height, width\)"):
        DepthFolder(folder, crop=crop)  # type: ignore[arg-type]


def test_augmentation_keeps_image_and_depth_together(tmp_path: Path) -> None:
    # Green is the row and red the column, below 100 so that no change of colour clips; so is the depth.
    rows, columns = np.indices((10, 12))
    codes = (rows * 256 + columns).astype(np.uint16) * 8 + 1
    save(tmp_path, "a", codes)
    Image.fromarray(np.stack([columns * 8, rows * 8, 50 + 0 * rows], -1).astype(np.uint8)).save(
        tmp_path / "rgb" / "a.png"
    )
    data = DepthFolder(tmp_path, augment=True, crop=(4, 5))
    torch.manual_seed(0)
    corners, flips, colours = set(), [], []
    for _ in range(400):
        x, y, _ = data[0]
        there = ((y[0] * 256 - 1) / 8).round().long()
        row, column = there // 256, there % 256
        top, left = int(row.min()), int(column.min())
        assert torch.equal(row, torch.arange(top, top + 4)[:, None].expand(4, 5))
        # A line, whatever the contrast and the brightness: the steps of colour follow those of the place.
        for channel, place in ((0, column), (1, row)):
            slope = (x[channel] * place).mean() - x[channel].mean() * place.float().mean()
            slope = slope / place.float().var(correction=0)
            line = x[channel].mean() + slope * (place - place.float().mean())
            inside = (x[channel] > 0).all()
            assert slope > 0
            assert not inside or torch.allclose(x[channel], line, atol=1e-5)
        assert 0 <= x.min() <= x.max() <= 1
        corners.add((top, left))
        flips.append(bool(column[0, 0] > column[0, 1]))
        colours.append(float(x[2].mean()))
    assert corners == {(top, left) for top in range(7) for left in range(8)}
    # Four standard deviations of a fair coin.
    assert abs(np.mean(flips) - 0.5) < 4 * 0.5 / 20
    assert np.std(colours) > 0.01


def test_colour_range() -> None:
    torch.manual_seed(0)
    # Around its mean of 0.5, an image of 0.4 and 0.6 has its brightness and contrast read off.
    varied = torch.stack([depth._jitter_colours(torch.tensor([[[0.4, 0.6]]])) for _ in range(500)]).reshape(-1, 2)
    brightness = varied.mean(1) / 0.5
    contrast = (varied[:, 1] - varied[:, 0]) / 0.2 / brightness
    for factor in (brightness, contrast):
        assert 0.8 <= factor.min() + 1e-5 < 0.82
        assert 1.18 < factor.max() - 1e-5 <= 1.2


def test_augmentation_follows_the_seed(folder: Path) -> None:
    data = DepthFolder(folder, augment=True, crop=(3, 3))
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        draws.append(torch.stack([data[0][0] for _ in range(4)]))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


@pytest.mark.parametrize("cache", [True, False])
def test_subset(folder: Path, cache: bool) -> None:
    data = DepthFolder(folder, augment=True, cache=cache)
    part = data.subset(torch.tensor([2, 0]), augment=False)
    assert [name for name, _, _ in part.pairs] == ["c", "a"]
    assert torch.equal(part.load(1)[1], data.load(0)[1])
    assert part._cached == [] or part._cached[1] is data._cached[0]
    assert (data.augment, part.augment, part.subset([0]).augment) == (True, False, False)
    assert len(data) == 3
    assert torch.equal(part[0][1][0], part.load(0)[1])
    assert len(data.subset(range(-1, 1))) == 2


@pytest.mark.parametrize("indices", [[], [0.5], [True, False, True], [[0]]])
def test_bad_indices(folder: Path, indices: list[int]) -> None:
    with pytest.raises(ValueError, match="indices must be one or more integers"):
        DepthFolder(folder).subset(indices)


@pytest.mark.parametrize("index", [3, -4])
def test_indices_out_of_range(folder: Path, index: int) -> None:
    with pytest.raises(ValueError, match="indices must be below 3"):
        DepthFolder(folder).subset([index])


def test_loader(folder: Path) -> None:
    batches = list(DataLoader(DepthFolder(folder, augment=True, crop=(4, 5)), batch_size=2, shuffle=True))
    assert [tuple(part.shape for part in batch) for batch in batches] == [
        ((n, 3, 4, 5), (n, 1, 4, 5), (n, 4, 5)) for n in (2, 1)
    ]


@pytest.mark.skipif(not REAL.is_dir(), reason="DENSITY_REGRESSION_DATA does not name a folder with depth")
@pytest.mark.parametrize(
    ("name", "pairs", "deepest"), [("nyu/train", 795, 9.99), ("nyu/test", 218, 9.99), ("kitti", 72, 80.0)]
)
def test_real_folder(name: str, pairs: int, deepest: float) -> None:
    data = DepthFolder(REAL / name)
    assert len(data) == pairs
    assert data.size == (128, 160)
    for i in (0, pairs // 2, pairs - 1):
        _, y, weight = data[i]
        assert 1 < y.max() < deepest
        # Lidar leaves holes, the indoor maps have none.
        assert weight.any()
        assert bool(weight.all()) == (name != "kitti")


def test_without_pillow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r"needs PIL, .* density-regression\[depth\]"):
        DepthFolder(folder)
