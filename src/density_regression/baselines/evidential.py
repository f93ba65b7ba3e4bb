"""Deep evidential regression: a network that predicts a belief about a Normal, not only a Normal."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, ClassVar, Final, Unpack

import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.base import About, Settings
from density_regression.baselines.student import NormalInverseGamma, StudentBaseline, StudentRegressor

__all__ = ["EvidentialNetwork", "EvidentialRegressor"]

FLOOR: Final = 1e-6
"""Least nu and beta: softplus of a strange feature rounds to zero."""

EXCESS: Final = 1e-2
"""Least alpha - 1: at alpha = 1 the variance of Student's t is infinite."""


class EvidentialNetwork(StudentBaseline):
    r"""Normal-inverse-gamma with parameters linear in the features and through a softplus (Amini et al., 2020).

    The loss is the negative log-likelihood of the predictive Student's t and, while training only, a penalty on
    evidence where the prediction is wrong, :math:`\lambda\, |y - \gamma|\, (2 \nu + \alpha)`.

    Parameters
    ----------
    encoder, features, targets
        See `Network`.
    regularisation : float
        The lambda above, not negative.
    """

    def __init__(self, encoder: nn.Module, features: int, targets: int = 1, *, regularisation: float = 0.01) -> None:
        super().__init__(encoder, features, targets)
        if not 0 <= regularisation < math.inf:
            raise ValueError(f"regularisation must be finite and not negative, got {regularisation}.")
        self.regularisation = regularisation
        self.linear = nn.Linear(features, 4 * targets)
        with torch.no_grad():
            # Begin at nu = 1, alpha = 2 and beta = 1/2 for every row: unit variance, that of the standardised target.
            self.linear.weight[targets:].zero_()
            start = [math.log(math.expm1(value)) for value in (1.0, 1.0, 0.5) for _ in range(targets)]
            self.linear.bias[targets:] = torch.tensor(start)

    def row_belief(self, z: Tensor) -> NormalInverseGamma:
        """The belief (gamma, nu, alpha, beta), each (n, k), at features `z` (n, features)."""
        # Under autocast the product is in half precision; the logarithms that follow need more.
        mean, *raw = self.linear(z).to(self.linear.weight.dtype).chunk(4, dim=-1)
        nu, excess, beta = (F.softplus(part) for part in raw)
        return NormalInverseGamma(mean, nu + FLOOR, 1.0 + excess + EXCESS, beta + FLOOR)

    def row_losses(self, z: Tensor, y: Tensor) -> Tensor:
        """Negative log-likelihood (n,), averaged over targets, and the penalty while training."""
        belief = self.row_belief(z)
        losses = belief.nll(y)
        if self.training:
            losses = losses + self.regularisation * (y - belief.mean).abs() * (2.0 * belief.nu + belief.alpha)
        return losses.mean(1)


class EvidentialRegressor(StudentRegressor):
    """Deep evidential regression: mean, noise and the evidence for both from one network.

    The evidence is learnt on training rows alone, and nothing makes it fall away from them.

    Parameters
    ----------
    regularisation : float
        Weight of the penalty on evidence for wrong predictions, the paper's lambda, not negative.
    **settings
        See `DeepRegressor`.

    Examples
    --------
    >>> from density_regression.baselines import EvidentialRegressor
    >>> from density_regression.datasets import make_cubic
    >>> X, y = make_cubic(n=200, random_state=0)
    >>> reg = EvidentialRegressor(epochs=5, random_state=0).fit(X, y)
    >>> aleatoric, epistemic = reg.decompose(X)
    >>> reg.own_dist(X).df.shape
    torch.Size([200])
    """

    about = About("EDL", "Amini et al., 2020", needs_prior=True)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **StudentRegressor._parameter_constraints,
        "regularisation": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, *, regularisation: float = 0.01, **settings: Unpack[Settings]) -> None:
        super().__init__(**settings)
        self.regularisation = regularisation

    def _network(self, encoder: nn.Module, features: int, targets: int) -> EvidentialNetwork:
        return EvidentialNetwork(encoder, features, targets, regularisation=self.regularisation)
