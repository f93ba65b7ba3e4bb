"""Deep Ensembles: several Gaussian networks, trained as one batched computation."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self, Unpack

import torch
from torch import Tensor, nn

from density_regression.baselines.base import Objective, mean_losses
from density_regression.baselines.gaussian import GaussianNetwork, gaussian_nll, split_moments
from density_regression.baselines.mixture import MixtureBaseline, MixtureRegressor
from density_regression.estimators.settings import About, Settings
from density_regression.io.sklearn_private import Interval
from density_regression.nn.encoders import embedding_of, feature_width
from density_regression.nn.heads import Moments
from density_regression.nn.runtime import TrainingOptions
from density_regression.tabular.table import TrainingRows
from density_regression.training.batches import Batches, TensorBatches
from density_regression.training.loop import Losses, optimise
from density_regression.training.progress import Monitor
from density_regression.training.vectorised import Stacked, StackedNetworkLoss, can_train

__all__ = ["DeepEnsembleRegressor", "EnsembleNetwork"]


class EnsembleNetwork(MixtureBaseline):
    """An equal mixture of Gaussian networks (Lakshminarayanan et al., 2017; `eq:sampling-based`).

    mean = average of mean_m, var = average of std_m^2 + variance of mean_m, over members m.

    The members are trained together: linear layers as batched products, most other encoders by `torch.vmap`. They are
    trained one by one where neither is possible (batch norm, say) or `TrainingOptions.smoothness` is positive. Each
    member ends as it would alone.

    Parameters
    ----------
    members : sequence of GaussianNetwork
        Networks of one shape, initialised independently, that share no trainable weights.

    Examples
    --------
    >>> import torch
    >>> from density_regression import MLP
    >>> from density_regression.baselines import GaussianNetwork
    >>> model = EnsembleNetwork([GaussianNetwork(MLP(1, (8,)), features=8) for _ in range(3)])
    >>> tuple(model(torch.zeros(5, 1)).mean.shape)
    (5, 1)
    """

    def __init__(self, members: Sequence[GaussianNetwork]) -> None:
        if not members:
            raise ValueError("members must hold at least one network.")
        others = sorted({type(member).__name__ for member in members if type(member) is not GaussianNetwork})
        if others:
            # Stacked members are an encoder and a last layer: what a subclass adds would be ignored.
            raise ValueError(f"members must be of the class GaussianNetwork itself, got {', '.join(others)}.")
        learnt = [weight for member in members for weight in member.parameters() if weight.requires_grad]
        if len(set(learnt)) < len(learnt):
            raise ValueError("members must not share weights that are trained: give each an encoder of its own.")
        super().__init__(members[0].targets)
        self.members = nn.ModuleList(members)

    @property
    def networks(self) -> list[GaussianNetwork]:
        """The members, typed."""
        return [member for member in self.members if isinstance(member, GaussianNetwork)]

    def mixture(self) -> list[GaussianNetwork]:
        """The members."""
        return self.networks

    def scaled_member_moments(self, x: Tensor) -> Moments:
        """`member_moments` of the scaled target."""
        means, log_stds = zip(*(member.scaled_moments(x) for member in self.networks), strict=True)
        return Moments(torch.stack(means), torch.stack(log_stds))

    def scale_targets(self, center: Tensor | None, scale: Tensor | None) -> None:
        """Set mean and standard deviation (k,) of the targets, for each member too."""
        super().scale_targets(center, scale)
        for member in self.networks:
            member.scale_targets(center, scale)

    def loss(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Mean loss of the members."""
        return torch.stack([member.loss(x, y, weight) for member in self.networks]).mean()

    def fit(
        self, train: Batches, held_out: Batches | None, options: TrainingOptions, progress: Monitor | None
    ) -> Losses:
        """Train the members together, or one by one if they cannot be stacked; returns the mean of their losses."""
        # In a shared batch, smoothness would move inputs by the gradient of the summed loss, not of each member's.
        together = self.stacked_loss([self]) if options.smoothness == 0 else None
        if together is not None:
            # Held-out rows first: they are seldom shuffled, so that a failure draws no random numbers.
            given = [part for part in (held_out, train) if part is not None]
            if not all(can_train(together, part) for part in given):
                together = None
            for part in given:
                if isinstance(part, TensorBatches):
                    part.rewind()
        if together is None or options.epochs == 0:
            return self._fit_one_by_one(train, held_out, options, progress)
        histories = optimise(together, train, held_out, options, progress, name="members")
        together.unstack()
        return mean_losses(histories)

    @property
    def n_losses(self) -> int:
        """Number of members."""
        return len(self.members)

    @classmethod
    def stacked_loss(cls, models: Sequence[Self]) -> StackedNetworkLoss | None:
        """Losses of the members of all `models`; None if they cannot be stacked, or if their `beta` differ."""
        members = [member for model in models for member in model.networks]
        if len({member.beta for member in members}) > 1:
            return None
        networks = [(member.encoder, member.linear) for member in members]
        return StackedNetworkLoss.of(networks, lambda linear: _StackedGaussianLosses(linear, members[0].beta))

    def _fit_one_by_one(
        self, train: Batches, held_out: Batches | None, options: TrainingOptions, progress: Monitor | None
    ) -> Losses:
        histories: list[Losses] = []
        for i, member in enumerate(self.networks):
            own = train.alone(i) if isinstance(train, TensorBatches) else train
            name = f"member {i + 1}/{len(self.members)}"
            if progress is not None:
                progress.name = f"member {i + 1}"
            histories += optimise(Objective(member), own, held_out, options, progress, name=name)
        return mean_losses(histories)


class _StackedGaussianLosses(nn.Module):
    """Losses (M, n) of M members, from their stacked linear layer."""

    def __init__(self, linear: Stacked, beta: float) -> None:
        super().__init__()
        self.linear = linear
        self.beta = beta

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        output = self.linear(z).to(self.linear.weight.dtype)
        return gaussian_nll(split_moments(output), y, self.beta if self.training else 0.0)


class DeepEnsembleRegressor(MixtureRegressor):
    """Deep ensemble: Gaussian networks with different initial weights and orders of rows, and their equal mixture.

    The first member is the network that `GaussianRegressor` with the same `random_state` fits.

    Parameters
    ----------
    n_members : int
        Number of networks.
    beta, weight_decay : float
        See `GaussianRegressor`.
    **settings
        See `DeepRegressor`. An `encoder` given as a module is copied for each member; all copies but the first are
        initialised anew by the `reset_parameters` of their layers, except layers with frozen weights. Give a function
        to initialise them yourself.

    Examples
    --------
    >>> from density_regression.baselines import DeepEnsembleRegressor
    >>> from density_regression.datasets import make_cubic
    >>> reg = DeepEnsembleRegressor(n_members=3, epochs=5, random_state=0).fit(*make_cubic(n=200, random_state=0))
    >>> means, stds = reg.predict_members([[0.0]])
    >>> means.shape
    (3, 1)
    """

    network_class = GaussianNetwork
    about = About("Deep Ensembles", "Lakshminarayanan et al., 2017", passes=5)
    model_: EnsembleNetwork

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **MixtureRegressor._parameter_constraints,
        "n_members": [Interval(Integral, 1, 1000, closed="both")],
        "beta": [Interval(Real, 0, 1, closed="both")],
    }

    def __init__(  # type: ignore[misc]
        self, *, n_members: int = 5, beta: float = 0.0, weight_decay: float = 1e-4, **settings: Unpack[Settings]
    ) -> None:
        super().__init__(weight_decay=weight_decay, **settings)
        self.n_members = n_members
        self.beta = beta

    def _build(self, encoder: nn.Module, table: TrainingRows) -> EnsembleNetwork:
        # The first member uses the seed that `fit` set, each further member the next seed.
        seed = torch.initial_seed()
        members = [self._network(encoder, feature_width(encoder, table.x[:2]), table.y.shape[1])]
        for i in range(1, self.n_members):
            torch.manual_seed((seed + i) % 2**63)
            another = self._encoder(table.x.shape[1], embedding_of(encoder))
            # Before initialising: lazy layers have no weights until their first input.
            features = feature_width(another, table.x[:2])
            if isinstance(self.encoder, nn.Module):
                another.apply(_reset_parameters)
            members.append(self._network(another, features, table.y.shape[1]))
        return EnsembleNetwork(members)

    def _shuffles(self, seed: int) -> list[torch.Generator]:
        return [torch.Generator().manual_seed(seed + i) for i in range(self.n_members)]


def _reset_parameters(module: nn.Module) -> None:
    reset = getattr(module, "reset_parameters", None)
    own = list(module.parameters(recurse=False))
    # Frozen weights were learnt elsewhere, and a layer resets all of its weights or none.
    if callable(reset) and own and all(parameter.requires_grad for parameter in own):
        reset()
