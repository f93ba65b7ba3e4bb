"""Every method, every seed: trained on NYU, tested on NYU, on attacked images of it, and on KITTI."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from density_regression._files import write_whole
from density_regression.datasets.depth import DepthFolder
from density_regression.depth import DepthRegressor, metres
from density_regression.experiments.depth.attack import fgsm
from density_regression.experiments.depth.methods import METHODS, Trained, train, untrained
from density_regression.experiments.depth.scoring import held_out_scale, predict, score
from density_regression.experiments.provenance import provenance
from density_regression.experiments.records import Record, RecordFile
from density_regression.loop import find_device
from density_regression.persistence import read_model, write_model

__all__ = ["EPSILONS", "DepthBench", "depth_folders"]

EPSILONS: Final = (0.01, 0.02, 0.03, 0.04)
"""How far an attack moves each pixel, of a range from 0 to 1."""

FOLDERS: Final = {"train": "nyu/train", "test": "nyu/test", "outdoor": "kitti"}
"""Where the images are, under `depth` in the data folder."""

SURROGATE: Final = 1000
"""Seed of the network whose gradient makes the attack that is common to all methods."""

PANELS: Final = {"test": (0, 40, 120), "outdoor": (1, 31, 52)}
"""Images that figures show."""


def depth_folders(data_dir: str | os.PathLike[str] | None) -> dict[str, Path]:
    """The folders of training, test and outdoor images.

    Raises
    ------
    FileNotFoundError
        If one is missing, or no folder is named.
    """
    if data_dir is None:
        raise FileNotFoundError("Depth images cannot be downloaded: name their folder by --data-dir.")
    found = {name: Path(data_dir).expanduser() / "depth" / part for name, part in FOLDERS.items()}
    for path in found.values():
        if not (path / "rgb").is_dir():
            raise FileNotFoundError(f"There are no depth images in {path}: it should hold rgb/*.jpg and depth/*.png.")
    return found


class Images(NamedTuple):
    """Images (n, 3, h, w) from 0 to 1 and their depth (n, h, w) in metres, where the networks are."""

    x: Tensor
    depth: Tensor

    @classmethod
    def of(cls, folder: DepthFolder, device: torch.device) -> Images:
        """All of a folder, in memory."""
        x, depth = zip(*((image, depth) for image, depth in map(folder.load, range(len(folder)))), strict=True)
        return cls(torch.stack(x).to(device) / 255, torch.stack(depth).to(device))

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Some at a time."""
        return zip(self.x.split(size), self.depth.split(size), strict=True)


@dataclass
class DepthBench:
    """What `bench depth` runs.

    Attributes
    ----------
    data_dir : path
        Folder whose `depth` has the images.
    methods : sequence of str
        Names from `KNOWN`.
    seeds : int
        Fits of each.
    device : str
        "cpu", "cuda" or "auto".
    settings : dict
        Other settings of `DepthRegressor`, the same for every method.
    """

    data_dir: str | os.PathLike[str] | None
    methods: Sequence[str] = METHODS
    seeds: int = 3
    device: str = "auto"
    settings: dict[str, Any] = field(default_factory=dict)

    def run(self, file: RecordFile, panels: Path | None = None) -> Iterator[Record]:
        """Fit what the file lacks, and append a record of each fit; first-seed pictures go to the folder `panels`."""
        done = {(record["method"], record["seed"]) for record in file.records}
        missing = [
            (method, seed) for seed in range(self.seeds) for method in self.methods if (method, seed) not in done
        ]
        if not missing:
            return
        device = find_device(self.device)
        folders = {name: DepthFolder(path) for name, path in depth_folders(self.data_dir).items()}
        tests = {name: Images.of(folders[name], device) for name in ("test", "outdoor")}
        surrogate = self._surrogate(folders["train"], file.path.with_name("surrogate"))
        common = _attacked(surrogate, tests["test"], self._size())
        for method, seed in missing:
            regressor = self._regressor(seed)
            trained = train(method, regressor, folders["train"])
            sets = {
                "test": tests["test"],
                **_named("own", _attacked(trained, tests["test"], self._size())),
                **_named("common", common),
                "outdoor": tests["outdoor"],
            }
            record = self._record(method, seed, regressor, trained, sets, folders["train"])
            if panels is not None and seed == 0:
                _write_panels(panels / f"{method.replace(' ', '-')}.npz", trained, sets)
            file.append(record)
            yield record

    def _surrogate(self, pairs: DepthFolder, folder: Path) -> Trained:
        """The network whose gradient makes the common attack, kept in a folder.

        A GPU does not train the same network twice, and a run that goes on must go on with the same images.
        """
        regressor = self._regressor(SURROGATE)
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
        return Trained(model.eval(), center, scale, seconds=0.0)

    def _record(
        self,
        method: str,
        seed: int,
        regressor: DepthRegressor,
        trained: Trained,
        sets: dict[str, Images],
        pairs: DepthFolder,
    ) -> Record:
        held_out = Images.of(regressor.prepare(pairs)[1].folder, find_device(self.device))
        scale = held_out_scale(predict(trained, held_out.batches(self._size())))
        return {
            "suite": "depth",
            "protocol": "paper",
            "dataset": "nyu_labelled",
            "split": "0",
            "seed": seed,
            "method": method,
            **provenance(),
            "device": str(find_device(self.device).type),
            "settings": self.settings,
            "seconds": trained.seconds,
            "parameters": sum(part.numel() for part in trained.model.parameters()),
            "scale": scale,
            "target_sd": trained.scale,
            "tests": {
                name: score(predict(trained, images.batches(self._size())), scale, trained.scale)
                for name, images in sets.items()
            },
        }

    def _regressor(self, seed: int) -> DepthRegressor:
        return DepthRegressor(**{"verbose": False, **self.settings}, device=self.device, random_state=seed)

    def _size(self) -> int:
        return int(self.settings.get("batch_size", 16))


def _attacked(trained: Trained, images: Images, size: int) -> list[Images]:
    """Images attacked through a network's own loss, for each epsilon."""
    parts: list[list[Tensor]] = [[] for _ in EPSILONS]
    for x, depth in images.batches(size):
        y = (depth[:, None] - trained.center) / trained.scale
        for part, moved in zip(parts, fgsm(trained.model, x, y, (depth > 0).to(x), EPSILONS), strict=True):
            part.append(moved)
    return [Images(torch.cat(part), images.depth) for part in parts]


def _named(kind: str, attacked: list[Images]) -> dict[str, Images]:
    return {f"{kind} {epsilon}": images for epsilon, images in zip(EPSILONS, attacked, strict=True)}


def _write_panels(path: Path, trained: Trained, sets: dict[str, Images]) -> None:
    """Some images with what was predicted for them, as arrays for the figures."""
    import io

    arrays: dict[str, Any] = {}
    for name, images in sets.items():
        chosen = [i for i in PANELS["outdoor" if name == "outdoor" else "test"] if i < len(images.x)]
        x = images.x[chosen]
        with torch.inference_mode():
            mean, std = metres(trained.model, x, trained.center, trained.scale)
        arrays[f"{name}/image"] = (x.movedim(1, -1) * 255).round().byte().cpu().numpy()
        for part, values in (("depth", images.depth[chosen]), ("mean", mean), ("std", std)):
            arrays[f"{name}/{part}"] = values.cpu().numpy().astype(np.float16)
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content.getvalue())
