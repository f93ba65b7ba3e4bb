"""Natural Posterior Networks: a prior about each Normal, updated by evidence from a density of the features."""

import math
from numbers import Integral, Real
from typing import Any, ClassVar, Final, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from density_regression.baselines.gaussian import moments_layer, split_moments
from density_regression.baselines.normal_inverse_gamma import NormalInverseGamma, StudentTBaseline, StudentTRegressor
from density_regression.estimators.settings import About, Settings
from density_regression.io.sklearn_private import Interval, StrOptions
from density_regression.nn.density import FlowDensity, RadialFlowDensity
from density_regression.nn.density.base import FEATURE_LIMIT
from density_regression.nn.density.flow_tail import continue_radially, trusted_radius
from density_regression.nn.density.radial import RadialFlow
from density_regression.training.batches import Batches, on_device

__all__ = ["NaturalPosteriorNetwork", "NaturalPosteriorRegressor"]

FLOWS: Final = ("radial", "realnvp", "maf", "nsf")

PARAMETER_RANGES: Final = {
    "latent": (Integral, 1, 1024),
    "layers": (Integral, 1, 64),
    "prior_scale": (Real, 1e-6, 1e6),
    "prior_evidence": (Real, 1e-3, 1e6),
    "entropy": (Real, 0, 1e6),
}
"""Type, smallest and largest value of each number: others overflow float32, or exhaust the memory."""

MAX_ABS_LOG_EVIDENCE: Final = 50.0
"""Largest |log n|, so that in float32 n is finite and not zero."""


class NaturalPosteriorNetwork(StudentTBaseline):
    r"""Normal-inverse-gamma prior, updated by evidence in proportion to the density (Charpentier et al., 2022).

    A linear layer maps the features to z (H coordinates), and a second one maps z to a Normal with
    :math:`\chi = (E y, E y^2)`. A flow gives the density p(z), and with it the evidence
    :math:`n = (4 \pi)^{H / 2}\, p(z)`, shared by all targets. The prior counts as :math:`n_0` rows
    (`prior_evidence`) of mean 0 and standard deviation `prior_scale`, and

    .. math:: n' = n_0 + n, \qquad \chi' = (n_0 \chi_0 + n \chi) / n', \qquad v = \chi'_2 - \chi_1'^2

    give the belief mean :math:`\chi'_1`, nu = n', alpha = 1 + n'/2 and beta = n' v / 2. The authors have alpha = n'/2;
    with one more, the predictive variance :math:`v\, (1 + 1 / n')` is always finite, and E sigma^2 = v.

    The loss is minus the expected log-likelihood under the belief, minus `entropy` times its entropy; early stopping
    uses the negative log-likelihood of Student's t. Unlike the authors' code, the flow is not also trained alone by
    its likelihood before and after; as in their code for tables, z has no batch norm.

    Arguments are described in `Network` and `NaturalPosteriorRegressor`.

    Examples
    --------
    >>> import torch
    >>> from density_regression import MLP, TrainingOptions
    >>> from density_regression.baselines import fit_baseline
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> model = NaturalPosteriorNetwork(MLP(1, (8,)), features=8)
    >>> rows = list(zip(x.split(10), (2 * x).split(10), strict=True))
    >>> report = fit_baseline(model, rows, options=TrainingOptions(epochs=2))
    >>> tuple(model(x).stddev.shape)
    (40, 1)
    """

    radius: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        targets: int = 1,
        *,
        latent: int = 16,
        flow: str = "radial",
        layers: int = 8,
        prior_scale: float = 10.0,
        prior_evidence: float = 1.0,
        entropy: float = 1e-5,
    ) -> None:
        super().__init__(encoder, features, targets)
        numbers = (latent, layers, prior_scale, prior_evidence, entropy)
        for (name, (_, low, high)), value in zip(PARAMETER_RANGES.items(), numbers, strict=True):
            if not low <= value <= high:
                raise ValueError(f"{name} must lie between {low} and {high}, got {value}.")
        if flow not in FLOWS:
            raise ValueError(f"flow must be one of {FLOWS}, got {flow!r}.")
        self.prior_scale = prior_scale
        self.prior_evidence = prior_evidence
        self.entropy = entropy
        self.log_budget = 0.5 * latent * math.log(4 * math.pi)
        self.project = nn.Linear(features, latent)
        density = RadialFlowDensity(layers=layers) if flow == "radial" else FlowDensity(flow, transforms=layers)  # type: ignore[arg-type]
        self.flow = density._build(latent)
        self.linear = moments_layer(latent, targets)
        self.register_buffer("radius", torch.tensor(FEATURE_LIMIT))

    def log_density(self, x: Tensor) -> Tensor:
        """log p(z), in nats, of shape (batch,) or (batch, ...)."""
        features = self.encode(x)
        log_density = self._log_density(self._latent(self.rows(features)))
        return self.positions(log_density[:, None], features).squeeze(1)

    def row_belief(self, z: Tensor) -> NormalInverseGamma:
        """The posterior belief, each part (n, k), at features `z` (n, features)."""
        latent = self._latent(z)
        # Under autocast the layer returns half precision, too little for exponentials.
        mean, log_std = split_moments(self.linear(latent).to(self.linear.weight.dtype))
        log_evidence = self._log_density(latent) + self.log_budget
        evidence = log_evidence.clamp(-MAX_ABS_LOG_EVIDENCE, MAX_ABS_LOG_EVIDENCE).exp()[:, None]
        return self._update(mean, log_std, evidence)

    def row_losses(self, z: Tensor, y: Tensor) -> Tensor:
        """Loss (n,), averaged over targets; in eval mode the negative log-likelihood of Student's t."""
        belief = self.row_belief(z)
        if not self.training:
            return belief.nll(y).mean(1)
        return -(belief.expected_log_likelihood(y) + self.entropy * belief.entropy()).mean(1)

    @torch.no_grad()
    def finish(self, train: Batches, held_out: Batches) -> None:
        """Set the radius to twice that of the training rows; beyond it a Gaussian tail replaces the flow."""
        radii = []
        for batch in train:
            z, _, weight = self.flat(*on_device(batch, self.radius.device))
            if (weight > 0).any():
                radii.append(trusted_radius(self._latent(z[weight > 0])))
        if not radii:
            raise ValueError("The training batches have no rows with weight.")
        self.radius.copy_(torch.stack(radii).amax())

    def _update(self, mean: Tensor, log_std: Tensor, evidence: Tensor) -> NormalInverseGamma:
        """Belief (n, k) after `evidence` (n, 1) for the moments `mean` and `log_std` (n, k)."""
        total = evidence + self.prior_evidence
        new, old = evidence / total, self.prior_evidence / total
        # Written without the difference of E y^2 and (E y)^2, which would cancel.
        variance = new * torch.exp(2.0 * log_std) + old * self.prior_scale**2 + new * old * mean.square()
        total = total.expand_as(mean)
        return NormalInverseGamma(new * mean, total, 1.0 + 0.5 * total, 0.5 * total * variance)

    def _latent(self, z: Tensor) -> Tensor:
        latent: Tensor = self.project(z).to(self.project.weight.dtype)
        return latent.clamp(-FEATURE_LIMIT, FEATURE_LIMIT)

    def _log_density(self, latent: Tensor) -> Tensor:
        flow: Any = self.flow if isinstance(self.flow, RadialFlow) else self.flow()
        return continue_radially(flow.log_prob, latent, self.radius)


class NaturalPosteriorRegressor(StudentTRegressor):
    """Natural Posterior Network: a prior about each row's Normal, updated by evidence from a density of the features.

    Far from the training data there is no evidence, and the prediction is that of the prior: mean and standard
    deviation of the training targets, the latter times `prior_scale` (and the root of 1 + 1 / `prior_evidence`).

    Parameters
    ----------
    latent : int
        Number of coordinates in which the density is learnt, from 1 to 1,024.
    flow : {"radial", "realnvp", "maf", "nsf"}
        The density: a radial flow as in the paper, or a flow of zuko (`pip install density-regression[flow]`).
    layers : int
        Number of transformations of the flow, from 1 to 64.
    prior_scale : float
        Standard deviation of the prior's Normal, in standard deviations of the target, from 1e-6 to 1e6.
    prior_evidence : float
        Number of rows that the prior counts for, from 1e-3 to 1e6.
    entropy : float
        Weight of the entropy in the loss, from 0 to 1e6.
    **settings
        See `DeepRegressor`. The default learning rate is lower, for the flow.

    Examples
    --------
    >>> from density_regression.baselines import NaturalPosteriorRegressor
    >>> from density_regression.datasets import make_cubic
    >>> reg = NaturalPosteriorRegressor(epochs=5, random_state=0).fit(*make_cubic(n=200, random_state=0))
    >>> near, far = reg.score_samples([[0.0], [1000.0]])
    >>> bool(near > far)
    True
    """

    network_class = NaturalPosteriorNetwork
    about = About("NatPN", "Charpentier et al., 2022", needs_prior=True)
    usual_rate = 3e-3
    model_: NaturalPosteriorNetwork

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **StudentTRegressor._parameter_constraints,
        **{name: [Interval(*allowed, closed="both")] for name, allowed in PARAMETER_RANGES.items()},
        "flow": [StrOptions(set(FLOWS))],
    }

    def __init__(
        self,
        *,
        latent: int = 16,
        flow: str = "radial",
        layers: int = 8,
        prior_scale: float = 10.0,
        prior_evidence: float = 1.0,
        entropy: float = 1e-5,
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__(**settings)
        self.latent = latent
        self.flow = flow
        self.layers = layers
        self.prior_scale = prior_scale
        self.prior_evidence = prior_evidence
        self.entropy = entropy

    def score_samples(self, X: ArrayLike) -> NDArray[np.float32]:
        """Log-density log p(z) of each row, in nats, (n,), in float32: how familiar an input is."""
        (log_density,) = self._apply(X, lambda x: (self.model_.log_density(x),))
        return log_density.astype(np.float32)
