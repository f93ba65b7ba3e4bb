"""Natural Posterior Networks: the density of the features says how far a prior about a Normal is updated."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, ClassVar, Final, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from density_regression._numeric import LARGE
from density_regression.base import About, Settings
from density_regression.baselines.gaussian import split_moments
from density_regression.baselines.student import NormalInverseGamma, StudentBaseline, StudentRegressor
from density_regression.batches import Batches, on_device
from density_regression.density import FlowDensity, RadialFlowDensity
from density_regression.density._tail import continue_radially, trusted_radius
from density_regression.density.radial import RadialFlow

__all__ = ["NaturalPosteriorNetwork", "NaturalPosteriorRegressor"]

FLOWS: Final = ("radial", "realnvp", "maf", "nsf")

RANGES: Final = {
    "latent": (1, 1024),
    "layers": (1, 64),
    "prior_scale": (1e-6, 1e6),
    "prior_evidence": (1e-3, 1e6),
    "entropy": (0, 1e6),
}
"""Least and largest value of each number: float32 overflows at others, or a saved model asks for all memory."""

LOG_EVIDENCE_LIMIT: Final = 50.0
"""Largest |log n|, so that in float32 n is finite and not zero."""


class NaturalPosteriorNetwork(StudentBaseline):
    r"""A Normal-inverse-gamma prior, updated by as much evidence as the density allows (Charpentier et al., 2022).

    A linear map takes the features to z (H coordinates); a second one takes z to a Normal, whose E y and E y^2 are
    :math:`\chi`; a flow gives the density p(z), and with it the evidence :math:`n = (4 \pi)^{H / 2}\, p(z)`, one for
    all targets. The prior counts as `prior_evidence` rows of mean 0 and standard deviation `prior_scale`, and

    .. math:: n' = n_0 + n, \qquad \chi' = (n_0 \chi_0 + n \chi) / n', \qquad v = \chi'_2 - \chi_1'^2

    give the belief mean :math:`\chi'_1`, nu = n', alpha = 1 + n'/2 and beta = n' v / 2. The authors have alpha = n'/2;
    with one more the variance of the prediction, :math:`v\, (1 + 1 / n')`, is always finite, and E sigma^2 is v itself.

    The loss is minus the expected log-likelihood under that belief, less `entropy` times the belief's entropy; early
    stopping looks at the negative log-likelihood of Student's t. Encoder, flow and head learn together; the authors
    besides train the flow alone, by its likelihood, for a few epochs before and again afterwards. As in the authors'
    code for tables z is not normalised: batch norm over a few rows with heavy tails trained far worse.

    Parameters
    ----------
    encoder, features, targets
        See `Network`.
    latent : int
        Number H of coordinates of z, up to 1,024.
    flow : {"radial", "realnvp", "maf", "nsf"}
        Radial flow as in the paper, or one of zuko's (`pip install density-regression[flow]`).
    layers : int
        Number of the flow's transformations, up to 64.
    prior_scale : float
        Standard deviation of the prior's Normal, in units of the scaled target; 10 is the authors'.
    prior_evidence : float
        How many rows the prior counts for.
    entropy : float
        Weight of the entropy in the loss.
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
        for (name, (low, high)), value in zip(RANGES.items(), numbers, strict=True):
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
        self.linear = nn.Linear(latent, 2 * targets)
        with torch.no_grad():
            # Begin at unit variance for every row, that of the standardised target.
            self.linear.weight[targets:].zero_()
            self.linear.bias[targets:].zero_()
        self.register_buffer("radius", torch.tensor(LARGE))

    def log_density(self, x: Tensor) -> Tensor:
        """log p(z), in nats, of shape (batch,) or (batch, ...)."""
        features = self.encode(x)
        log_density = self._log_density(self._latent(self.rows(features)))
        return self.positions(log_density[:, None], features).squeeze(1)

    def row_belief(self, z: Tensor) -> NormalInverseGamma:
        """The posterior belief, each part (n, k), at features `z` (n, features)."""
        latent = self._latent(z)
        # Under autocast the product is in half precision; the exponentials that follow need more.
        mean, log_std = split_moments(self.linear(latent).to(self.linear.weight.dtype))
        log_evidence = self._log_density(latent) + self.log_budget
        evidence = log_evidence.clamp(-LOG_EVIDENCE_LIMIT, LOG_EVIDENCE_LIMIT).exp()[:, None]
        return self._update(mean, log_std, evidence)

    def row_losses(self, z: Tensor, y: Tensor) -> Tensor:
        """Loss (n,), averaged over targets; out of training the negative log-likelihood of Student's t."""
        belief = self.row_belief(z)
        if not self.training:
            return belief.nll(y).mean(1)
        return -(belief.expected_log_likelihood(y) + self.entropy * belief.entropy()).mean(1)

    @torch.no_grad()
    def finish(self, train: Batches, held_out: Batches) -> None:
        """Note how far the training rows reach: the flow is believed to twice that, and a tail falls beyond."""
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
        # As a difference of E y^2 and (E y)^2 the variance would drown in rounding.
        variance = new * torch.exp(2.0 * log_std) + old * self.prior_scale**2 + new * old * mean.square()
        total = total.expand_as(mean)
        return NormalInverseGamma(new * mean, total, 1.0 + 0.5 * total, 0.5 * total * variance)

    def _latent(self, z: Tensor) -> Tensor:
        latent: Tensor = self.project(z).to(self.project.weight.dtype)
        return latent.clamp(-LARGE, LARGE)

    def _log_density(self, latent: Tensor) -> Tensor:
        return continue_radially(self._flow_log_prob, latent, self.radius)

    def _flow_log_prob(self, latent: Tensor) -> Tensor:
        flow = self.flow if isinstance(self.flow, RadialFlow) else self.flow()
        log_prob: Tensor = flow.log_prob(latent)
        return log_prob


class NaturalPosteriorRegressor(StudentRegressor):
    """A prior about each row's Normal, updated by the evidence that a density of the features allows.

    Far from the training data there is no evidence, and the prediction is that of the prior: mean and standard
    deviation of the training targets, the latter times `prior_scale` (and the root of 1 + 1 / `prior_evidence`).

    Parameters
    ----------
    latent : int
        Number of coordinates in which the density is learnt, from 1 to 1,024.
    flow : {"radial", "realnvp", "maf", "nsf"}
        The density; all but "radial" need `pip install density-regression[flow]`.
    layers : int
        Number of the flow's transformations, from 1 to 64.
    prior_scale : float
        Standard deviation of the prior's Normal, in standard deviations of the target, from 1e-6 to 1e6.
    prior_evidence : float
        How many rows the prior counts for, from 1e-3 to 1e6.
    entropy : float
        Weight of the entropy in the loss, from 0 to 1e6.
    **settings
        See `DeepRegressor`. The usual learning rate is lower than elsewhere, for the sake of the flow.

    Examples
    --------
    >>> from density_regression.baselines import NaturalPosteriorRegressor
    >>> from density_regression.datasets import make_cubic
    >>> X, y = make_cubic(n=200, random_state=0)
    >>> reg = NaturalPosteriorRegressor(epochs=5, random_state=0).fit(X, y)
    >>> near, far = reg.score_samples([[0.0], [1000.0]])
    >>> bool(near > far)
    True
    """

    about = About("NatPN", "Charpentier et al., 2022", needs_prior=True)
    usual_rate = 3e-3
    model_: NaturalPosteriorNetwork

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **StudentRegressor._parameter_constraints,
        **{name: [Interval(Integral, *RANGES[name], closed="both")] for name in ("latent", "layers")},
        **{
            name: [Interval(Real, *RANGES[name], closed="both")]
            for name in ("prior_scale", "prior_evidence", "entropy")
        },
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
        """Log-density of each row's z, log p(z) in nats, (n,): how familiar an input is.

        In float32, in which it is computed: more digits would only promise more than there are.
        """
        (log_density,) = self._apply(X, lambda x: (self.model_.log_density(x),))
        return log_density.astype(np.float32)

    def _network(self, encoder: nn.Module, features: int, targets: int) -> NaturalPosteriorNetwork:
        return NaturalPosteriorNetwork(
            encoder,
            features,
            targets,
            latent=self.latent,
            flow=self.flow,
            layers=self.layers,
            prior_scale=self.prior_scale,
            prior_evidence=self.prior_evidence,
            entropy=self.entropy,
        )
