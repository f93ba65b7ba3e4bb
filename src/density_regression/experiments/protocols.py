"""Hyper-parameters of each fit: the paper's, each method's defaults, or a search with an equal budget for all."""

import math
import zlib
from itertools import product
from typing import Any, Final, Literal

import numpy as np

__all__ = [
    "LARGEST_BUDGET",
    "Hyperparameters",
    "Protocol",
    "check_protocol",
    "paper_settings",
    "search_space",
    "usual_protocol",
]

Protocol = Literal["paper", "default", "tuned"]

Hyperparameters = dict[str, Any]

FIXED: Final[Hyperparameters] = {"epochs": 400, "patience": 50, "embedding": None}
"""Not searched: early stopping on held-out rows chooses the epochs, and the network is the paper's."""

SHARED_GRID: Final[dict[str, tuple[Any, ...]]] = {
    "hidden": ((50,), (100, 100)),
    "learning_rate": (1e-3, 3e-3, 1e-2),
    "weight_decay": (1e-4, 1e-2, 0.1),
}
"""Values searched for every method."""

METHOD_GRIDS: Final[dict[str, dict[str, tuple[Any, ...]]]] = {
    "Density-Regression": {"average": (2.0, 5.0, 20.0)},
    "Gaussian": {"beta": (0.0, 0.5)},
    "MC Dropout": {"dropout": (0.02, 0.05, 0.1, 0.2)},
    "MFVI-BNN": {"initial_std": (0.001, 0.01, 0.1)},
    "EDL": {"regularisation": (1e-3, 1e-2, 0.1)},
    "NatPN": {"latent": (4, 16)},
    "SNGP": {"spectral_bound": (0.95, 2.0, 6.0)},
    "DUE": {"n_inducing": (20, 100)},
    "Deep Ensembles": {"beta": (0.0, 0.5)},
}
"""Values of the main hyper-parameter of a method, where it has one."""

LARGEST_BUDGET: Final = 1 + math.prod(len(values) for values in SHARED_GRID.values())
"""Number of settings of the method with the fewest."""


def usual_protocol(suite: str) -> Protocol:
    """Protocol of a suite if none is asked for."""
    return "default" if suite == "shift" else "paper"


def check_protocol(suite: str, protocol: str) -> None:
    """Raise a ValueError if a suite has no such protocol."""
    if suite == "shift" and protocol == "paper":
        raise ValueError(
            "The protocol 'paper' does not apply to the suite 'shift', which is not in the paper: use 'default' (each "
            "method's own settings) or 'tuned'."
        )


def paper_settings(suite: str, dataset: str, method: str = "") -> Hyperparameters:
    """The paper's network, epochs and batch size; all else is the method's default, but the paper has no teacher.

    Most UCI runs of the paper have batches of one row (or two, or eight), which would take days. Batches have 32 rows
    here, and every method keeps its own learning rate, as rates chosen for single rows do not suit them.
    """
    own = {"members": 0, "weight_decay": 0.1} if method == "Density-Regression" else {}
    return _paper_network(suite, dataset) | {"embedding": None} | own


def _paper_network(suite: str, dataset: str) -> Hyperparameters:
    if suite == "cubic":
        # 5,000 updates of 128 rows: the 850 rows that are not held out make seven batches.
        return {"hidden": (100,) * 4, "epochs": 714, "batch_size": 128, "patience": None}
    if suite == "weather":
        return {"hidden": (64,), "epochs": 20, "batch_size": 32, "patience": None}
    if suite == "stations":
        # Not in the paper; thirty times the rows of a year at Jena.
        return {"hidden": (64,), "epochs": 20, "batch_size": 256, "patience": None}
    large = dataset in ("protein", "year")
    return {"hidden": (100,) if large else (50,), "epochs": 40, "batch_size": 64 if large else 32, "patience": None}


def search_space(method: str, dataset: str, budget: int) -> list[Hyperparameters]:
    """The `budget` settings to try: the method's defaults, then draws from the grid without replacement.

    The draws depend on the names alone, so that an interrupted search can be continued.
    """
    if not 1 <= budget <= LARGEST_BUDGET:
        raise ValueError(f"budget must lie between 1 and {LARGEST_BUDGET}, as many as every method has, got {budget}.")
    grid = SHARED_GRID | METHOD_GRIDS.get(method, {})
    choices = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    order = np.random.default_rng(zlib.crc32(f"{method} {dataset}".encode())).permutation(len(choices))
    return [FIXED, *(FIXED | choices[i] for i in order)][:budget]
