"""Deep Ensembles: several Gaussian networks, trained at once as one batched computation."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self, Unpack

import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn

from density_regression._numeric import tame
from density_regression._progress import StepProgress
from density_regression.base import About, Settings
from density_regression.baselines.base import Objective, mean_history
from density_regression.baselines.gaussian import GaussianNetwork, gaussian_nll, split_moments
from density_regression.baselines.sampled import Sampled, SampledRegressor
from density_regression.batches import Batches, TensorBatches
from density_regression.callbacks import Monitor
from density_regression.encoders import feature_width
from density_regression.head import Moments
from density_regression.loop import TrainingOptions, optimise, optimise_each
from density_regression.network import weighted_mean
from density_regression.stacked import Stacked, StackedLoss, can_train, stack
from density_regression.tables import Table

__all__ = ["DeepEnsembleRegressor", "EnsembleNetwork"]


class EnsembleNetwork(Sampled):
    """An equal mixture of Gaussian networks (Lakshminarayanan et al., 2017; `eq:sampling-based`).

    The members are trained together: linear layers as batched products, most other encoders through `torch.vmap`, and
    those that allow neither (running statistics, say) one after another, as are all where inputs are moved
    (`TrainingOptions.smoothness`). Each member ends as it would alone.

    Parameters
    ----------
    members : sequence of GaussianNetwork
        Of one shape, with weights drawn apart; none that is trained may belong to two of them.
    """

    def __init__(self, members: Sequence[GaussianNetwork]) -> None:
        if not members:
            raise ValueError("members must hold at least one network.")
        others = sorted({type(member).__name__ for member in members if type(member) is not GaussianNetwork})
        if others:
            # Members train by their encoders and last layers alone: what else another class does would be lost.
            raise ValueError(f"members must be of the class GaussianNetwork itself, got {', '.join(others)}.")
        learnt = [weight for member in members for weight in member.parameters() if weight.requires_grad]
        if len(set(learnt)) < len(learnt):
            raise ValueError("members must not share weights that are trained: give each an encoder of its own.")
        super().__init__(members[0].targets)
        self.members = nn.ModuleList(members)

    @property
    def networks(self) -> list[GaussianNetwork]:
        """The members, as what they are."""
        return [member for member in self.members if isinstance(member, GaussianNetwork)]

    def mixture(self) -> list[GaussianNetwork]:
        """The members."""
        return self.networks

    def scaled_member_moments(self, x: Tensor) -> Moments:
        """`member_moments` of the scaled target."""
        means, log_stds = zip(*(member.scaled_moments(x) for member in self.networks), strict=True)
        return Moments(torch.stack(means), torch.stack(log_stds))

    def scale_targets(self, center: Tensor | None, scale: Tensor | None) -> None:
        """Set mean and standard deviation (k,) of the targets, of the members too: each answers in their units."""
        super().scale_targets(center, scale)
        for member in self.networks:
            member.scale_targets(center, scale)

    def loss(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Mean loss of the members."""
        return torch.stack([member.loss(x, y, weight) for member in self.networks]).mean()

    def fit(
        self, train: Batches, held_out: Batches | None, options: TrainingOptions, progress: StepProgress
    ) -> list[float]:
        """Train the members together, or one by one where that cannot be; returns the mean of their losses."""
        # Inputs of a batch for all would be moved to where the members' losses rise in sum, not each one's own.
        together = self.stacked([self]) if options.smoothness == 0 else None
        if together is None or not self._can_train(together, train, held_out) or options.epochs == 0:
            return self._fit_one_by_one(train, held_out, options, progress)
        histories = optimise_each(together, train, held_out, options, progress, name="members")
        together.unstack()
        return mean_history(histories)

    @property
    def parts(self) -> int:
        """Each member is trained as if it were alone."""
        return len(self.members)

    @classmethod
    def stacked(cls, models: Sequence[Self]) -> _Together | None:
        """The members of all `models` as one computation; None if their encoders cannot be, or losses differ."""
        members = [member for model in models for member in model.networks]
        if len({member.beta for member in members}) > 1:
            return None
        encoder, linear = stack([member.encoder for member in members]), stack([member.linear for member in members])
        return None if encoder is None or linear is None else _Together(members, encoder, linear)

    @staticmethod
    def _can_train(together: _Together, *batches: Batches | None) -> bool:
        given = [part for part in batches if part is not None]
        # Held-out rows first, which are seldom shuffled: what is drawn for a trial is drawn in vain.
        fits = all(can_train(together, part) for part in reversed(given))
        for part in given:
            if isinstance(part, TensorBatches):
                part.rewind()
        return fits

    def _fit_one_by_one(
        self, train: Batches, held_out: Batches | None, options: TrainingOptions, progress: StepProgress
    ) -> list[float]:
        histories = []
        for i, member in enumerate(self.networks):
            own = train.alone(i) if isinstance(train, TensorBatches) else train
            name = f"member {i + 1}/{len(self.members)}"
            if isinstance(progress, Monitor):
                progress.name = f"member {i + 1}"
            histories.append(optimise(Objective(member), own, held_out, options, progress, name=name))
        return mean_history(histories)


class _Together(StackedLoss):
    """The members' losses (M,) as one computation."""

    def __init__(self, members: list[GaussianNetwork], encoder: Stacked, linear: Stacked) -> None:
        super().__init__()
        # Not parts of this module: they get its weights at the end.
        self._members = tuple(members)
        self.size = len(members)
        self.targets = members[0].targets
        self.beta = members[0].beta
        self.encoder = encoder
        self.linear = linear

    def unstack(self) -> None:
        """Give the members what was learnt."""
        for i, member in enumerate(self._members):
            member.encoder.load_state_dict(self.encoder.member_state(i))
            member.linear.load_state_dict(self.linear.member_state(i))

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Mean loss of each member, (M,).

        A batch is for all members, with weight (n,), or holds one for each, with weight (M, n).
        """
        if weight.ndim == 1:
            x, y, weight = (part.expand(self.size, *part.shape) for part in (x, y, weight))
        z = tame(self.encoder(x))
        expected = (*z.shape[:2], self.targets, *z.shape[3:])
        if y.shape != expected:
            raise ValueError(f"Targets have shape {tuple(y.shape[1:])}, the model predicts {expected[1:]}.")
        output = self.linear(_rows(z)).to(self.linear.weight.dtype)
        losses = gaussian_nll(split_moments(output), _rows(y), self.beta if self.training else 0.0)
        return weighted_mean(losses, weight.repeat_interleave(z.shape[3:].numel(), dim=1) if z.ndim > 3 else weight)


def _rows(values: Tensor) -> Tensor:
    """From (M, batch, d, ...) to (M, n, d): one row for every position."""
    return values if values.ndim == 3 else values.movedim(2, -1).flatten(1, -2)


class DeepEnsembleRegressor(SampledRegressor):
    """Several Gaussian networks that differ in their first weights and the order of rows; their mixture's moments.

    The first member is the network that `GaussianRegressor` with the same `random_state` fits.

    Parameters
    ----------
    n_members : int
        Number of networks.
    beta : float
        Exponent of beta-NLL (Seitzer et al., 2022), between 0 and 1; 0 is maximum likelihood.
    weight_decay : float
        Of AdamW; less than for `DensityRegressor`, as it makes networks agree, and so too sure, away from the data.
    **settings
        See `DeepRegressor`. An own encoder given as a module is copied for each member, and all copies but the first
        draw their weights anew, layer by layer, where a layer can and no part of it is frozen; give a function to draw
        them yourself.

    Examples
    --------
    >>> from density_regression.baselines import DeepEnsembleRegressor
    >>> from density_regression.datasets import make_cubic
    >>> X, y = make_cubic(n=200, random_state=0)
    >>> means, stds = DeepEnsembleRegressor(n_members=3, epochs=5, random_state=0).fit(X, y).predict_members(X)
    >>> means.shape
    (3, 200)
    """

    about = About("Deep Ensembles", "Lakshminarayanan et al., 2017", passes=5)
    model_: EnsembleNetwork

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SampledRegressor._parameter_constraints,
        "n_members": [Interval(Integral, 1, 1000, closed="both")],
        "beta": [Interval(Real, 0, 1, closed="both")],
    }

    def __init__(  # type: ignore[misc]
        self, *, n_members: int = 5, beta: float = 0.0, weight_decay: float = 1e-4, **settings: Unpack[Settings]
    ) -> None:
        super().__init__(weight_decay=weight_decay, **settings)
        self.n_members = n_members
        self.beta = beta

    def _build(self, encoder: nn.Module, table: Table) -> EnsembleNetwork:
        # What is drawn comes from the seed that `fit` set, and for each further member from the next one.
        seed = torch.initial_seed()
        members = [self._network(encoder, feature_width(encoder, table.x[:2]), table.y.shape[1])]
        for i in range(1, self.n_members):
            torch.manual_seed((seed + i) % 2**63)
            another = self._encoder(table.x.shape[1])
            # Asked of each: a lazy layer has no weights before its first input.
            features = feature_width(another, table.x[:2])
            if isinstance(self.encoder, nn.Module):
                another.apply(_draw_anew)
            members.append(self._network(another, features, table.y.shape[1]))
        return EnsembleNetwork(members)

    def _network(self, encoder: nn.Module, features: int, targets: int) -> GaussianNetwork:
        return GaussianNetwork(encoder, features, targets, beta=self.beta)

    def _shuffles(self, seed: int) -> list[torch.Generator]:
        return [torch.Generator().manual_seed(seed + i) for i in range(self.n_members)]


def _draw_anew(module: nn.Module) -> None:
    reset = getattr(module, "reset_parameters", None)
    own = list(module.parameters(recurse=False))
    # What is frozen was learnt elsewhere, and a layer draws all of its weights or none.
    if callable(reset) and own and all(parameter.requires_grad for parameter in own):
        reset()
