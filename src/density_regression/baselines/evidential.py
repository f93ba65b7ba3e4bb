"""Deep evidential regression: a network that predicts a Normal-inverse-gamma distribution."""

import math
from numbers import Real
from typing import Any, ClassVar, Final, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.baselines.normal_inverse_gamma import NormalInverseGamma, StudentTBaseline, StudentTRegressor
from density_regression.estimators.settings import About, Settings
from density_regression.io.sklearn_private import Interval

__all__ = ["EvidentialNetwork", "EvidentialRegressor"]

MIN_NU_AND_BETA: Final = 1e-6
"""Softplus of a large negative number rounds to zero, and both must be positive."""

MIN_ALPHA_MINUS_ONE: Final = 1e-2
"""At alpha = 1 the variance of Student's t is infinite."""


class EvidentialNetwork(StudentTBaseline):
    r"""Normal-inverse-gamma, its parameters linear in the features and passed through softplus (Amini et al., 2020).

    The loss is the negative log-likelihood of the predictive Student's t and, in train mode only, a penalty on
    evidence for wrong predictions, :math:`\lambda\, |y - \gamma|\, (2 \nu + \alpha)`.

    Arguments are described in `Network` and `EvidentialRegressor`.

    Examples
    --------
    >>> import torch
    >>> from density_regression import MLP, TrainingOptions
    >>> from density_regression.baselines import fit_baseline
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> model = EvidentialNetwork(MLP(1, (8,)), features=8)
    >>> rows = list(zip(x.split(10), (2 * x).split(10), strict=True))
    >>> report = fit_baseline(model, rows, options=TrainingOptions(epochs=2))
    >>> tuple(model(x).stddev.shape)
    (40, 1)
    """

    def __init__(self, encoder: nn.Module, features: int, targets: int = 1, *, regularisation: float = 0.01) -> None:
        super().__init__(encoder, features, targets)
        if not 0 <= regularisation < math.inf:
            raise ValueError(f"regularisation must be finite and not negative, got {regularisation}.")
        self.regularisation = regularisation
        self.linear = nn.Linear(features, 4 * targets)
        with torch.no_grad():
            # Start at nu = 1, alpha = 2 and beta = 1/2 for every row: the unit variance of the scaled target.
            self.linear.weight[targets:].zero_()
            start = [math.log(math.expm1(value)) for value in (1.0, 1.0, 0.5) for _ in range(targets)]
            self.linear.bias[targets:] = torch.tensor(start)

    def row_belief(self, z: Tensor) -> NormalInverseGamma:
        """The belief (gamma, nu, alpha, beta), each (n, k), at features `z` (n, features)."""
        # Under autocast the layer returns half precision, too little for logarithms.
        mean, *raw = self.linear(z).to(self.linear.weight.dtype).chunk(4, dim=-1)
        nu, excess, beta = (F.softplus(part) for part in raw)
        return NormalInverseGamma(
            mean, nu + MIN_NU_AND_BETA, 1.0 + excess + MIN_ALPHA_MINUS_ONE, beta + MIN_NU_AND_BETA
        )

    def row_losses(self, z: Tensor, y: Tensor) -> Tensor:
        """Negative log-likelihood (n,), averaged over targets, with the penalty in train mode."""
        belief = self.row_belief(z)
        losses = belief.nll(y)
        if self.training:
            losses = losses + self.regularisation * (y - belief.mean).abs() * (2.0 * belief.nu + belief.alpha)
        return losses.mean(1)


class EvidentialRegressor(StudentTRegressor):
    """Deep evidential regression: mean, noise and the evidence for both from one network.

    The evidence is learnt on training rows only; nothing makes it decrease away from them.

    Parameters
    ----------
    regularisation : float
        Weight of the penalty on evidence for wrong predictions (lambda in Amini et al., 2020), not negative.
    **settings
        See `DeepRegressor`.

    Examples
    --------
    >>> from density_regression.baselines import EvidentialRegressor
    >>> from density_regression.datasets import make_cubic
    >>> reg = EvidentialRegressor(epochs=5, random_state=0).fit(*make_cubic(n=200, random_state=0))
    >>> reg.decompose([[0.0]]).epistemic.shape
    (1,)
    >>> reg.own_dist([[0.0]]).df.shape
    torch.Size([1])
    """

    network_class = EvidentialNetwork
    about = About("EDL", "Amini et al., 2020", needs_prior=True)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **StudentTRegressor._parameter_constraints,
        "regularisation": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, *, regularisation: float = 0.01, **settings: Unpack[Settings]) -> None:
        super().__init__(**settings)
        self.regularisation = regularisation
