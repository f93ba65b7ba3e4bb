"""Depth: reading and writing, the data set and what it leaves out, and scenes against rays followed step by step."""

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from density_regression.datasets import DepthFolder, depth, make_scenes, read_depth, read_image, write_depth

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


class TestFiles:
    def test_round_trip(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "depth.png"
        codes = np.arange(65536, dtype=np.uint16).reshape(256, 256)
        write_depth(path, torch.from_numpy(codes.astype(np.float32) / 256))
        metres = read_depth(path)
        assert metres.dtype == torch.float32
        np.testing.assert_array_equal(metres.numpy(), codes / 256)
        assert [file.name for file in path.parent.iterdir()] == ["depth.png"]

    def test_rounding(self, tmp_path: Path) -> None:
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
    def test_write_refuses(self, tmp_path: Path, metres: object, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            write_depth(tmp_path / "d.png", metres)  # type: ignore[arg-type]
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(("mode", "stored"), [("I;16", "<u2"), ("I;16B", ">u2"), ("I", "<i4")])
    def test_modes_of_sixteen_bits(self, tmp_path: Path, mode: str, stored: str) -> None:
        path = tmp_path / "d.tif"
        Image.frombytes(mode, (3, 2), CODES.astype(stored).tobytes()).save(path)
        with Image.open(path) as image:
            assert image.mode == mode
        np.testing.assert_array_equal(read_depth(path), CODES / 256)

    @pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGB", "RGBA"])
    def test_other_modes_are_no_depth(self, tmp_path: Path, mode: str) -> None:
        Image.new(mode, (3, 2)).save(tmp_path / "d.png")
        with pytest.raises(ValueError, match=rf"d\.png must be grey, of 16 bits, got Pillow's mode '{mode}'"):
            read_depth(tmp_path / "d.png")

    @pytest.mark.parametrize("value", [-1, 65536])
    def test_values_beyond_sixteen_bits(self, tmp_path: Path, value: int) -> None:
        Image.new("I", (3, 2), value).save(tmp_path / "d.tif")
        with pytest.raises(ValueError, match=rf"d\.tif must hold values of 16 bits, got {value} to {value}"):
            read_depth(tmp_path / "d.tif")

    @pytest.mark.parametrize(("mode", "colour"), [("RGB", (9, 8, 7)), ("RGBA", (9, 8, 7, 0)), ("L", 9), ("P", 0)])
    def test_images_become_rgb(self, tmp_path: Path, mode: str, colour: object) -> None:
        Image.new(mode, (3, 2), colour).save(tmp_path / "i.png")  # type: ignore[arg-type]
        image = read_image(tmp_path / "i.png")
        assert image.dtype == torch.uint8
        assert image.shape == (3, 2, 3)
        assert image[:, 1, 2].tolist() == {"L": [9, 9, 9], "P": [0, 0, 0]}.get(mode, [9, 8, 7])

    @pytest.mark.parametrize("read", [read_image, read_depth])
    def test_images_are_upright(self, tmp_path: Path, read: Callable[[Path], torch.Tensor]) -> None:
        """A phone held upright stores what it sees lying on its side, and says so."""
        stored = CODES if read is read_depth else np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
        Image.fromarray(stored).save(tmp_path / "plain.png")
        exif = Image.Exif()
        exif[0x0112] = 6  # Orientation: to be turned by a quarter, clockwise.
        Image.fromarray(stored).save(tmp_path / "turned.png", exif=exif)
        expected = read(tmp_path / "plain.png").rot90(-1, (-2, -1))
        assert torch.equal(read(tmp_path / "turned.png"), expected)

    def test_depth_is_no_image(self, folder: Path) -> None:
        with pytest.raises(ValueError, match=r"a\.png must be an image of 8 bits a colour"):
            read_image(folder / "depth" / "a.png")

    @pytest.mark.parametrize("read", [read_image, read_depth])
    @pytest.mark.parametrize("kept", [None, 0.0, 0.3, 0.7])
    def test_damaged(self, folder: Path, read: object, kept: float | None) -> None:
        path = folder / ("rgb" if read is read_image else "depth") / "a.png"
        content = path.read_bytes()
        path.unlink()
        if kept is not None:
            path.write_bytes(content[: int(kept * len(content))])
        with pytest.raises(ValueError, match=r"a\.png cannot be read as an image"):
            read(path)  # type: ignore[operator]

    def test_without_pillow(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "PIL.Image", None)
        with pytest.raises(ImportError, match=r"needs PIL, .* density-regression\[depth\]"):
            DepthFolder(folder)

    def test_late_imports(self) -> None:
        code = (
            "import sys, density_regression.datasets as data\nassert 'torch' not in sys.modules\n"
            "data.DepthFolder\nassert 'PIL' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


class TestDepthFolder:
    @pytest.mark.parametrize("cache", [True, False])
    def test_pairs(self, folder: Path, cache: bool) -> None:
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

    def test_cache_needs_no_files(self, folder: Path) -> None:
        kept, read = DepthFolder(folder), DepthFolder(folder, cache=False)
        (folder / "rgb" / "a.png").unlink()
        kept[0]
        with pytest.raises(ValueError, match=r"a\.png cannot be read"):
            read[0]

    def test_items_are_copies(self, folder: Path) -> None:
        data = DepthFolder(folder)
        for changed in data.load(0) + data[0]:
            changed.zero_()
        assert data[0][1].all()
        assert data[0][0].any()

    def test_missing_depth_weighs_nothing(self, tmp_path: Path) -> None:
        save(tmp_path, "a", CODES)
        _, y, weight = DepthFolder(tmp_path)[0]
        np.testing.assert_array_equal(weight, [[0, 1, 1], [1, 1, 1]])
        np.testing.assert_array_equal(y[0], CODES / 256)

    def test_suffixes(self, tmp_path: Path) -> None:
        for name, suffix in (("a", ".jpg"), ("b", ".JPEG"), ("c", ".PNG"), (".d", ".png")):
            save(tmp_path, name, some_codes(), suffix)
        (tmp_path / "depth" / "c.png").rename(tmp_path / "depth" / "c.PNG")
        (tmp_path / "rgb" / "notes.txt").touch()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            data = DepthFolder(tmp_path)
        assert [image.name for _, image, _ in data.pairs] == ["a.jpg", "b.JPEG", "c.PNG"]

    def test_no_folders(self, tmp_path: Path) -> None:
        (tmp_path / "rgb").mkdir()
        with pytest.raises(ValueError, match=r"no folder .*depth: expected pairs of rgb/NAME\.jpg"):
            DepthFolder(tmp_path)

    def test_no_pairs(self, tmp_path: Path) -> None:
        save(tmp_path, "a", CODES)
        (tmp_path / "depth" / "a.png").rename(tmp_path / "depth" / "b.png")
        with pytest.raises(ValueError, match=r"no pairs of rgb/NAME\.jpg .* and depth/NAME\.png"):
            DepthFolder(tmp_path)

    def test_two_images_of_one_name(self, folder: Path) -> None:
        save(folder, "a", some_codes(), ".jpg")
        with pytest.raises(ValueError, match=r"a\.jpg and .*a\.png have one name"):
            DepthFolder(folder)

    def test_files_without_partner(self, folder: Path) -> None:
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
    def test_unusable_pair_is_left_out(self, folder: Path, name: str, damage: object, reason: str) -> None:
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

    def test_sizes(self, folder: Path) -> None:
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
    def test_bad_crop(self, folder: Path, crop: object) -> None:
        with pytest.raises(ValueError, match=r"crop must be \(height, width\)"):
            DepthFolder(folder, crop=crop)  # type: ignore[arg-type]

    def test_augmentation_keeps_image_and_depth_together(self, tmp_path: Path) -> None:
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

    def test_colour_range(self) -> None:
        torch.manual_seed(0)
        # Around its mean of 0.5, an image of 0.4 and 0.6 has its brightness and contrast read off.
        varied = torch.stack([depth._vary(torch.tensor([[[0.4, 0.6]]])) for _ in range(500)]).reshape(-1, 2)
        brightness = varied.mean(1) / 0.5
        contrast = (varied[:, 1] - varied[:, 0]) / 0.2 / brightness
        for factor in (brightness, contrast):
            assert 0.8 <= factor.min() + 1e-5 < 0.82
            assert 1.18 < factor.max() - 1e-5 <= 1.2

    def test_augmentation_follows_the_seed(self, folder: Path) -> None:
        data = DepthFolder(folder, augment=True, crop=(3, 3))
        draws = []
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            draws.append(torch.stack([data[0][0] for _ in range(4)]))
        assert torch.equal(draws[0], draws[1])
        assert not torch.equal(draws[0], draws[2])

    @pytest.mark.parametrize("cache", [True, False])
    def test_subset(self, folder: Path, cache: bool) -> None:
        data = DepthFolder(folder, augment=True, cache=cache)
        part = data.subset(torch.tensor([2, 0]), augment=False)
        assert [name for name, _, _ in part.pairs] == ["c", "a"]
        assert torch.equal(part.load(1)[1], data.load(0)[1])
        assert part._kept == [] or part._kept[1] is data._kept[0]
        assert (data.augment, part.augment, part.subset([0]).augment) == (True, False, False)
        assert len(data) == 3
        assert torch.equal(part[0][1][0], part.load(0)[1])
        assert len(data.subset(range(-1, 1))) == 2

    @pytest.mark.parametrize("indices", [[], [0.5], [True, False, True], [[0]]])
    def test_bad_indices(self, folder: Path, indices: list[int]) -> None:
        with pytest.raises(ValueError, match="indices must be one or more integers"):
            DepthFolder(folder).subset(indices)

    @pytest.mark.parametrize("index", [3, -4])
    def test_indices_out_of_range(self, folder: Path, index: int) -> None:
        with pytest.raises(ValueError, match="indices must be below 3"):
            DepthFolder(folder).subset([index])

    def test_loader(self, folder: Path) -> None:
        batches = list(DataLoader(DepthFolder(folder, augment=True, crop=(4, 5)), batch_size=2, shuffle=True))
        assert [tuple(part.shape for part in batch) for batch in batches] == [
            ((n, 3, 4, 5), (n, 1, 4, 5), (n, 4, 5)) for n in (2, 1)
        ]

    @pytest.mark.skipif(not REAL.is_dir(), reason="DENSITY_REGRESSION_DATA does not name a folder with depth")
    @pytest.mark.parametrize(
        ("name", "pairs", "deepest"), [("nyu/train", 795, 9.99), ("nyu/test", 218, 9.99), ("kitti", 72, 80.0)]
    )
    def test_real_folder(self, name: str, pairs: int, deepest: float) -> None:
        data = DepthFolder(REAL / name)
        assert len(data) == pairs
        assert data.size == (128, 160)
        for i in (0, pairs // 2, pairs - 1):
            _, y, weight = data[i]
            assert 1 < y.max() < deepest
            # Lidar leaves holes, the indoor maps have none.
            assert weight.any()
            assert bool(weight.all()) == (name != "kitti")


class TestScenes:
    def test_files(self, tmp_path: Path) -> None:
        assert make_scenes(str(tmp_path / "s"), 3) == tmp_path / "s"
        data = DepthFolder(tmp_path / "s")
        assert len(data) == 3
        assert data.size == (48, 64)
        for x, y, weight in (data[i] for i in range(3)):
            assert weight.all()
            assert 0.9 < y.min() < y.max() < 8
            assert x.std() > 0.05

    @pytest.mark.parametrize("seed", range(6))
    def test_room_against_rays_followed_step_by_step(self, tmp_path: Path, seed: int) -> None:
        make_scenes(tmp_path, 1, size=(30, 41), random_state=seed)
        metres = read_depth(tmp_path / "depth" / "scene_00000.png")
        walls, boxes = depth._room(np.random.default_rng(seed))
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

    def test_outdoor(self, tmp_path: Path) -> None:
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
    def test_seed(self, tmp_path: Path, outdoor: bool) -> None:
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
    def test_bad_arguments(self, tmp_path: Path, arguments: dict[str, int], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            make_scenes(tmp_path, **arguments)  # type: ignore[arg-type]
        assert not list(tmp_path.iterdir())
