"""Tables and models to learn a reach from."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from density_regression import DensityRegressor
from density_regression.nn.model import DensityRegression
from density_regression.nn.runtime import TrainingOptions
from density_regression.tabular.table import TrainingRows
from density_regression.training.algorithm import fit_density_regression
from density_regression.training.batches import TensorBatches
from density_regression.training.reach import PROBES, Hiding, hide_rows

QUICK = {"hidden": (16,), "epochs": 30, "members": 0, "n_threads": 1, "verbose": False, "random_state": 0}


def table(n: int, seed: int = 0, columns: int = 1) -> TrainingRows:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, columns, generator=generator) * 4 - 2
    y = x[:, :1].pow(3) + 0.1 * torch.randn(n, 1, generator=generator)
    return TrainingRows(x, y / 3, torch.ones(n))


def on_inputs(columns: int = 1, **settings: Any) -> DensityRegression:
    """A model whose features are its inputs."""
    return DensityRegression(nn.Identity(), columns, **settings)


def trained(rows: TrainingRows, held_out: TrainingRows, **settings: Any) -> DensityRegression:
    model = on_inputs(rows.x.shape[1], **settings)
    settings = {"options": TrainingOptions(epochs=5), "scale_targets": False, "verbose": False}
    fit_density_regression(model, TensorBatches(*rows, 32), TensorBatches(*held_out, 1000), **settings)
    return model


def hidings_of(model: DensityRegression, train: TrainingRows, held_out: TrainingRows, seed: int = 0) -> list[Hiding]:
    """What `hide_rows` hides, as tables with names."""
    hidings = hide_rows(model, train, held_out, PROBES, seed)
    return [Hiding(*(TrainingRows(*rows) for rows in hiding)) for hiding in hidings]


def learnt(regressor: DensityRegressor) -> float:
    return float(regressor.model_.tempering.learnt_reach)
