"""Depth benchmark: methods trained on NYU, tested on NYU, on attacked images of it, and on KITTI."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from density_regression.datasets.depth import DepthFolder
from density_regression.experiments.depth.attack import fgsm
from density_regression.experiments.depth.methods import METHODS, Trained, train, untrained
from density_regression.experiments.depth.scoring import Pixels, predict, score
from density_regression.experiments.provenance import provenance
from density_regression.experiments.records import FitKey, Record, RecordFile
from density_regression.experiments.scoring import std_factor
from density_regression.io.files import write_whole
from density_regression.io.store import read_model, write_model
from density_regression.nn.runtime import find_device
from density_regression.vision.depth import DepthRegressor, metres

__all__ = ["EPSILONS", "DepthBench", "depth_folders"]

EPSILONS: Final = (0.01, 0.02, 0.03, 0.04)
"""Change of each pixel by an attack; pixels range from 0 to 1."""

FOLDERS: Final = {"train": "nyu/train", "test": "nyu/test", "outdoor": "kitti"}
"""Folders of the images, under `depth` in the data folder."""

SURROGATE_SEED: Final = 1000
"""Seed of the network whose gradient makes the attack that is common to all methods."""

PANEL_IMAGES: Final = {"test": (0, 40, 120), "outdoor": (1, 31, 52)}
"""Numbers of the images shown in figures."""


def depth_folders(data_dir: str | os.PathLike[str] | None) -> dict[str, Path]:
    """Folders of training, test and outdoor images; a FileNotFoundError if one is missing."""
    if data_dir is None:
        raise FileNotFoundError("Depth images cannot be downloaded: name their folder by --data-dir.")
    found = {name: Path(data_dir).expanduser() / "depth" / part for name, part in FOLDERS.items()}
    for path in found.values():
        if not (path / "rgb").is_dir():
            raise FileNotFoundError(f"There are no depth images in {path}: it should hold rgb/*.jpg and depth/*.png.")
    return found


class Images(NamedTuple):
    """Images (n, 3, h, w) from 0 to 1 and their depth (n, h, w) in metres, on the device of the networks."""

    x: Tensor
    depth: Tensor

    @classmethod
    def of(cls, folder: DepthFolder, device: torch.device) -> Images:
        """All images of a folder, in memory."""
        x, depth = zip(*map(folder.load, range(len(folder))), strict=True)
        return cls(torch.stack(x).to(device) / 255, torch.stack(depth).to(device))

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and depths, `size` at a time."""
        return zip(self.x.split(size), self.depth.split(size), strict=True)


@dataclass
class DepthBench:
    """What `bench depth` runs: each of `methods` (names in `KNOWN`) from the seeds 0 to `seeds` - 1.

    `settings` are further parameters of `DepthRegressor`, the same for every method.
    """

    data_dir: str | os.PathLike[str] | None
    methods: Sequence[str] = METHODS
    seeds: int = 3
    device: str = "auto"
    settings: dict[str, Any] = field(default_factory=dict)

    def run(self, file: RecordFile, panels: Path | None = None) -> Iterator[Record]:
        """Run the fits that the file lacks, and append their records; pictures of seed 0 go to the folder `panels`."""
        done = {(record["method"], record["seed"]) for record in file.records}
        missing = [
            (method, seed) for seed in range(self.seeds) for method in self.methods if (method, seed) not in done
        ]
        if not missing:
            return
        device = find_device(self.device)
        folders = {name: DepthFolder(path) for name, path in depth_folders(self.data_dir).items()}
        test, outdoor = (Images.of(folders[name], device) for name in ("test", "outdoor"))
        common = self._attacked("common", self._surrogate(folders["train"], file.path.with_name("surrogate")), test)
        for method, seed in missing:
            regressor = self._regressor(seed)
            trained = train(method, regressor, folders["train"])
            sets = {"test": test, **self._attacked("own", trained, test), **common, "outdoor": outdoor}
            held_out = self._predict(trained, Images.of(regressor.prepare(folders["train"])[1].folder, device))
            scale = std_factor(held_out.truth, held_out.mean, held_out.std)
            record: Record = {
                **FitKey("depth", "paper", "nyu_labelled", "0", seed, method)._asdict(),
                **provenance(),
                "device": device.type,
                "settings": self.settings,
                "seconds": trained.seconds,
                "parameters": sum(part.numel() for part in trained.model.parameters()),
                "scale": scale,
                "target_sd": trained.scale,
                "tests": {
                    name: score(self._predict(trained, images), scale, trained.scale) for name, images in sets.items()
                },
            }
            if panels is not None and seed == 0:
                _write_panels(panels / f"{method.replace(' ', '-')}.npz", trained, sets)
            file.append(record)
            yield record

    def _surrogate(self, pairs: DepthFolder, folder: Path) -> Trained:
        """Network whose gradient makes the common attack, kept in a folder.

        A GPU does not train the same network twice, and a continued run must use the same attacked images.
        """
        regressor = self._regressor(SURROGATE_SEED)
        if not folder.exists():
            trained = train("Gaussian", regressor, pairs)
            scaling = [trained.center, trained.scale]
            write_model(folder, {"settings": self.settings, "scaling": scaling}, trained.model.state_dict())
            return trained
        config, tensors = read_model(folder)
        if config["settings"] != self.settings:
            raise ValueError(f"{folder} holds a network with other settings; write the results to another folder.")
        model = untrained("Gaussian", regressor)
        model.load_state_dict(tensors)
        center, scale = config["scaling"]
        return Trained(model.eval(), center, scale, 0.0)

    def _attacked(self, kind: str, trained: Trained, images: Images) -> dict[str, Images]:
        """Test sets of images attacked through a network's own loss, one for each epsilon."""
        parts: list[list[Tensor]] = []
        for x, depth in images.batches(self._batch_size):
            y = (depth[:, None] - trained.center) / trained.scale
            parts.append(fgsm(trained.model, x, y, (depth > 0).to(x), EPSILONS))
        return {
            f"{kind} {epsilon}": Images(torch.cat(moved), images.depth)
            for epsilon, moved in zip(EPSILONS, zip(*parts, strict=True), strict=True)
        }

    def _predict(self, trained: Trained, images: Images) -> Pixels:
        return predict(trained, images.batches(self._batch_size))

    def _regressor(self, seed: int) -> DepthRegressor:
        return DepthRegressor(**{"verbose": False, **self.settings}, device=self.device, random_state=seed)

    @property
    def _batch_size(self) -> int:
        return int(self.settings.get("batch_size", 16))


def _write_panels(path: Path, trained: Trained, sets: dict[str, Images]) -> None:
    """Write some images and their predictions as arrays for the figures."""
    arrays: dict[str, Any] = {}
    for name, images in sets.items():
        chosen = [i for i in PANEL_IMAGES["outdoor" if name == "outdoor" else "test"] if i < len(images.x)]
        x = images.x[chosen]
        with torch.inference_mode():
            mean, std = metres(trained.model, x, trained.center, trained.scale)
        arrays[f"{name}/image"] = (x.movedim(1, -1) * 255).round().byte().cpu().numpy()
        for part, values in (("depth", images.depth[chosen]), ("mean", mean), ("std", std)):
            arrays[f"{name}/{part}"] = values.cpu().numpy().astype(np.float16)
    content = BytesIO()
    np.savez_compressed(content, **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content.getvalue())
