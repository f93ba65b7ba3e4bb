"""The two peers that train networks: an ensemble by torch-uncertainty, and laplace-torch on a trained network.

Both have the network and the budget of this project's: two layers of 100, AdamW with its default learning rate, which
falls along a cosine, `EPOCHS` epochs, the same batch size, and 15 % of the rows held out, whose loss says which weights
are kept. Weight decay and clipping are those of the project's own ensemble.
"""

from __future__ import annotations

import copy
import logging
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from density_regression.baselines import DeepEnsembleRegressor
from density_regression.nn.encoders import MLP
from density_regression.tabular.table import TrainingRows, split_rows
from density_regression.training.batches import TensorBatches
from density_regression.training.loop import optimise

Floats = NDArray[np.float64]

EPOCHS = 50
"""Of every network, this project's too."""

DEFAULTS = DeepEnsembleRegressor(epochs=EPOCHS)
"""Where the rest of the budget is read."""

CHUNK = 8192
"""Rows of a batch that is only looked at."""


class EnsembleOfFive:
    """torch-uncertainty's deep ensemble of Gaussian MLPs, each trained by its routine and Lightning's trainer."""

    def __init__(self, seed: int) -> None:
        _import_torchvision()
        self.seed = seed

    def fit(self, X: Floats, y: Floats) -> None:
        from torch_uncertainty.methods import deep_ensembles
        from torch_uncertainty.models.mlp import mlp

        train, held_out = _tables(X, y, self.seed)
        members = []
        for i in range(DEFAULTS.n_members):
            torch.manual_seed(1000 * self.seed + i)
            network = mlp(X.shape[1], 1, list(DEFAULTS.hidden), dist_family="normal")
            members.append(_trained_by_lightning(network, train, held_out))
        self.ensemble = deep_ensembles(members, task="regression", probabilistic=True).eval()

    @torch.inference_mode()
    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        """Moments of the mixture; the package's own routine averages the members' standard deviations instead."""
        law = self.ensemble(_float32(X))
        means, stds = (law[part].reshape(DEFAULTS.n_members, len(X)).double() for part in ("loc", "scale"))
        variance = stds.square().mean(0) + means.var(0, correction=0)
        return means.mean(0).numpy(), variance.sqrt().numpy()


def _trained_by_lightning(network: nn.Module, train: TrainingRows, held_out: TrainingRows) -> nn.Module:
    from lightning.pytorch import Callback, Trainer
    from lightning.pytorch.callbacks import EarlyStopping
    from torch_uncertainty.losses import DistributionNLLLoss
    from torch_uncertainty.routines import RegressionRoutine

    class KeepBest(Callback):
        """Keeps the weights with the best held-out loss, in memory: checkpoints on disk would cost it time."""

        best, state = float("inf"), copy.deepcopy(network.state_dict())

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            loss = float(trainer.callback_metrics[LOSS])
            if loss < self.best:
                self.best, self.state = loss, copy.deepcopy(network.state_dict())

    batches = _batches(train)
    options = DEFAULTS._options(0, train.x.shape[1])
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, DEFAULTS.epochs * len(batches))
    routine = RegressionRoutine(
        network,
        output_dim=1,
        loss=DistributionNLLLoss(),
        dist_family="normal",
        optim_recipe={"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}},
    )
    keep = KeepBest()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # It recommends workers for the loaders, which rows in memory do not need.
        warnings.simplefilter("ignore")
        trainer = Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=DEFAULTS.epochs,
            gradient_clip_val=options.gradient_clip,
            callbacks=[keep, EarlyStopping(LOSS, patience=DEFAULTS.patience or DEFAULTS.epochs)],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(routine, batches, _looked_at(held_out))
    network.load_state_dict(keep.state)
    return network


LOSS = "val/reg/NLL"
"""What torch-uncertainty calls the held-out loss."""


class LastLayerLaplace:
    """laplace-torch on the last layer of an MLP trained by squared error, full Hessian.

    Prior precision and noise maximise the marginal likelihood, as in the package's example of regression.
    """

    def __init__(self, seed: int) -> None:
        _import_torchvision()
        self.seed = seed

    def fit(self, X: Floats, y: Floats) -> None:
        from laplace import Laplace

        train, held_out = _tables(X, y, self.seed)
        torch.manual_seed(self.seed)
        network = nn.Sequential(*MLP(X.shape[1], DEFAULTS.hidden), nn.Linear(DEFAULTS.hidden[-1], 1))
        shuffle = torch.Generator().manual_seed(self.seed)
        batches = TensorBatches(*train, DEFAULTS._batch_size(len(train.x)), shuffle)
        options = DEFAULTS._options(self.seed, X.shape[1])
        optimise(SquaredError(network), batches, TensorBatches(*held_out, CHUNK), options)
        network.eval()
        self.laplace = Laplace(network, "regression", subset_of_weights="last_layer", hessian_structure="full")
        self.laplace.fit(DataLoader(TensorDataset(train.x, train.y), CHUNK))
        log_prior, log_noise = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
        optimiser = torch.optim.Adam([log_prior, log_noise], lr=0.1)
        for _ in range(300):
            optimiser.zero_grad()
            loss = -self.laplace.log_marginal_likelihood(log_prior.exp(), log_noise.exp())
            loss.backward()
            optimiser.step()

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        """Mean of the function, and the root of its variance plus the noise's."""
        parts = [self.laplace(chunk) for chunk in _float32(X).split(CHUNK)]
        mean = torch.cat([mean.detach().flatten() for mean, _ in parts]).double()
        variance = torch.cat([variance.detach().flatten() for _, variance in parts]).double()
        noise = self.laplace.sigma_noise.detach().double().square()
        return mean.numpy(), (variance + noise).sqrt().numpy()


class SquaredError(nn.Module):
    """The loss of a network, as `optimise` wants it; no row has a weight here."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return nn.functional.mse_loss(self.network(x), y)


def _tables(X: Floats, y: Floats, seed: int) -> tuple[TrainingRows, TrainingRows]:
    """Rows to train on, and those to hold out."""
    parts = split_rows(len(y), DEFAULTS.validation_fraction, seed)
    train, held_out = (
        TrainingRows(_float32(X[rows]), _float32(y[rows, None]), torch.ones(len(rows), dtype=torch.float32))
        for rows in parts
    )
    return train, held_out


def _batches(table: TrainingRows) -> Any:
    """Shuffled batches, each fetched as a whole, so that the loader is not what takes the time."""
    dataset = TensorDataset(table.x, table.y[:, 0])
    sampler = BatchSampler(RandomSampler(dataset), DEFAULTS._batch_size(len(table.x)), drop_last=False)
    return DataLoader(dataset, sampler=sampler, batch_size=None)


def _looked_at(table: TrainingRows) -> Any:
    return DataLoader(TensorDataset(table.x, table.y[:, 0]), batch_size=CHUNK)


def _float32(values: Floats) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _import_torchvision() -> None:
    """Import torchvision, which both peers ask for and nobody here uses.

    Only a CUDA build of it may be at hand, whose compiled part a CPU build of torch cannot load; its import then fails
    for want of two operators. Their names are enough for it.
    """
    try:
        import torchvision
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision  # noqa: F401
