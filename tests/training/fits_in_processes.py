"""Fits that one process and several make alike, and what starts several; run as a script, one of these processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from density_regression import DensityRegression, DensityRegressor, TrainingOptions, fit_density_regression
from density_regression.datasets import DepthFolder
from density_regression.vision.depth import DepthRegressor
from training.helpers import generator, wave


def table(devices: int, **settings: Any) -> dict[str, Tensor]:
    """The default for tables, with a teacher, on weighted rows that divide into unequal batches."""
    x, y = wave(203)
    weight = torch.rand(203, generator=generator(5)) + 0.1
    usual = {"hidden": (16,), "epochs": 3, "members": 3, "n_threads": 1, "random_state": 0, "verbose": False}
    regressor = DensityRegressor(**usual | settings, devices=devices)
    regressor.fit(x.numpy(), y.numpy()[:, 0], weight.numpy())
    points = torch.linspace(-3, 3, 50)[:, None].numpy()
    mean, std = regressor.predict(points, return_std=True)
    losses = {"history": regressor.report_.history, "train_history": regressor.report_.train_history}
    found = {"mean": mean, "std": std, "score": regressor.score_samples(points), **losses}
    return {name: torch.as_tensor(value) for name, value in found.items()} | _state(regressor.model_)


def _rows(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs (n, 3), and a target (n, 1) with much noise: features are then far from collinear."""
    x = torch.randn(n, 3, generator=generator(seed))
    return x, x[:, :1] + 0.5 * x[:, 1:2] * x[:, 2:] + 0.5 * torch.randn(n, 1, generator=generator(seed + 1))


class _Encoder(nn.Module):
    """A network with batch norm, and a layer that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(x)
        return features


def own_encoder(devices: int, folder: Path | None = None) -> dict[str, Tensor]:
    """An encoder of one's own on the batches of a loader; of three rows in the last one."""
    # No bias before a batch norm, which would cancel it: its gradient is nothing but rounding.
    torch.manual_seed(0)
    encoder = _Encoder()
    model = DensityRegression(encoder, 3)
    train, held_out = (DataLoader(TensorDataset(*_rows(99, seed)), 32, shuffle=True) for seed in (0, 10))
    options = TrainingOptions(epochs=3, average=1.0, smoothness=0.02, devices=devices)
    report = fit_density_regression(model, train, held_out, options=options, checkpoint_dir=folder, verbose=False)
    law = model(_rows(50, 20)[0])
    return {"history": torch.tensor(report.history), "mean": law.mean, "std": law.stddev} | _state(model)


def depth(devices: int, folder: Path) -> dict[str, Tensor]:
    """Depth of small scenes.

    Without smoothness: a sign that rounding flips moves a pixel the other way, and 3e-7 in the loss of one process then
    makes 0.015 in the depth, instead of 0.0001.
    """
    settings: dict[str, Any] = {
        "width": 4,
        "levels": 2,
        "epochs": 6,
        "batch_size": 5,
        "learning_rate": 0.01,
        "smoothness": 0.0,
    }
    regressor = DepthRegressor(**settings, device="cpu", devices=devices, verbose=False).fit(folder)
    images = torch.stack([DepthFolder(folder).load(i)[0] for i in range(3)])
    mean, std = regressor.predict(images)[:2]
    return {"mean": torch.from_numpy(mean), "std": torch.from_numpy(std)} | _trained(regressor.model_)


def _trained(model: DensityRegression) -> dict[str, Tensor]:
    """Weights that step 1 trained; those of later steps may be ill-conditioned where the predictions are not."""
    state = model.encoder.state_dict()
    return {name: value.clone() for name, value in state.items() if "density" not in name}


def _state(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def start(code: list[str], processes: int = 2, **environment: str) -> list[subprocess.Popen[str]]:
    """Start processes of one fit, as torchrun does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    tests = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    usual = {**os.environ, "PYTHONPATH": tests, "OMP_NUM_THREADS": "1", "GROUP_RANK": "0", **environment}
    usual |= {name: str(value) for name, value in shared.items()}
    return [
        subprocess.Popen(
            [sys.executable, *code],
            env={**usual, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]


def fits(devices: int, scenes: Path) -> dict[str, dict[str, Tensor]]:
    """All of them."""
    return {"table": table(devices), "own encoder": own_encoder(devices), "depth": depth(devices, scenes)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.save(fits(2, Path(sys.argv[1])), Path(sys.argv[2]) / f"{os.environ['RANK']}.pt")
