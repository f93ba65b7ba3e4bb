"""How much more usual an input is where inputs have shifted: a density ratio, from the model's own density."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from density_regression.tabular.table import Floats

__all__ = ["DensityRatio", "Familiarity"]

INVERSE_PENALTY: Final = 0.1
"""Inverse strength of the penalty on the tilt, of whitened coordinates, as scikit-learn has it."""

MOST_DEVIATIONS: Final = 5.0
"""Bound on the standardised log-density, which far away is large."""

LARGEST_LOG_WEIGHT: Final = 30.0


class Familiarity(NamedTuple):
    """What the model's density knows of rows: whitened features (n, q), and their log-density (n,)."""

    whitened: Floats
    log_density: Floats


@dataclass(frozen=True)
class DensityRatio:
    """Density of shifted inputs over that of the training inputs, as a function of the latter.

    w = p_shifted / p_usual = exp(a + b t + c log p(z)).

    The density of the shifted inputs is taken to be the model's own, tilted: p(z) exp(b t + c log p(z)) up to a
    constant, with the whitened features t. So it is moved (b) and widened or narrowed (c), by few parameters; the ratio
    of two densities that are learnt apart is mostly noise. A logistic regression that tells shifted inputs from usual
    ones finds b and c.

    Attributes
    ----------
    slope : array of shape (q + 1,)
        b, and c for the standardised log-density.
    offset : array of shape (1,)
        Added to the log-ratio, so that usual inputs have a mean weight of 1.
    level : array of shape (2,)
        Mean and standard deviation of the log-density of usual inputs.
    """

    slope: Floats
    offset: Floats
    level: Floats

    @classmethod
    def fit(cls, shifted: Familiarity, usual: Familiarity) -> Self:
        """Learn from shifted inputs, and from others that are like those in training but were not among them."""
        from sklearn.linear_model import LogisticRegression

        level = np.array([usual.log_density.mean(), max(usual.log_density.std(), 1e-6)])
        features = [cls._features(rows, level) for rows in (usual, shifted)]
        labels = np.repeat([0, 1], [len(part) for part in features])
        found = LogisticRegression(C=INVERSE_PENALTY, max_iter=1000).fit(np.concatenate(features), labels)
        plain = cls(found.coef_[0], np.zeros(1), level)
        return cls(plain.slope, -np.log(plain.weights(usual).mean(keepdims=True)), level)

    def weights(self, rows: Familiarity) -> Floats:
        """Weights (n,) of rows, above 0 and finite."""
        logs = self._features(rows, self.level) @ self.slope + self.offset
        return np.exp(np.clip(logs, -LARGEST_LOG_WEIGHT, LARGEST_LOG_WEIGHT))

    def tensors(self) -> dict[str, Tensor]:
        """What is learnt, to be saved."""
        return {name: torch.from_numpy(values) for name, values in vars(self).items()}

    @classmethod
    def saved(cls, tensors: dict[str, Tensor]) -> Self:
        """From `tensors`; raises a ValueError if something else was saved."""
        names = ("slope", "offset", "level")
        parts = {name: tensors[name].double().numpy() for name in names if name in tensors}
        shapes = [part.shape for part in parts.values()]
        sound = all(np.isfinite(part).all() for part in parts.values())
        if len(parts) < len(names) or len(shapes[0]) != 1 or shapes[1:] != [(1,), (2,)] or not sound:
            raise ValueError("The saved density ratio is incomplete.")
        return cls(**parts)

    @staticmethod
    def _features(rows: Familiarity, level: Floats) -> Floats:
        standardised = np.clip((rows.log_density - level[0]) / level[1], -MOST_DEVIATIONS, MOST_DEVIATIONS)
        return np.column_stack([rows.whitened, standardised])
