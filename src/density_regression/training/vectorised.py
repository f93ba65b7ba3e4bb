"""Several networks of one shape as one computation: the members' weights stacked, their inputs side by side."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Self

import torch
from torch import Tensor, nn

from density_regression.nn.density.base import bound_features
from density_regression.nn.encoders import PiecewiseEmbedding, WithInputs, beside, embed
from density_regression.nn.heads import Head, gaussian_losses, weighted_mean
from density_regression.nn.model import DensityRegression
from density_regression.nn.runtime import kept_draws, may_draw
from density_regression.training.batches import Batches, TensorBatches, on_device

__all__ = ["MappedLoss", "Stacked", "StackedLoss", "StackedNetworkLoss", "can_train", "stack", "stacked_loss"]

ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus, nn.Identity)
"""Elementwise modules, of which one serves all members."""


class Stacked(nn.Module):
    """M modules of one shape, from inputs (M, n, ...) to outputs (M, n, ...); every tensor it holds begins with M."""

    def member_state(self, member: int) -> dict[str, Tensor]:
        """State of one of the modules."""
        return {name: value[member] for name, value in self.state_dict().items()}


class _Linear(Stacked):
    """M linear layers as one batched product."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.register_parameter("bias", None)
        for name, _ in layers[0].named_parameters():
            values = [getattr(layer, name) for layer in layers]
            self.register_parameter(name, _parameter(torch.stack(values), values[0]))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.transpose(1, 2)
        return torch.bmm(x, weight) if self.bias is None else torch.baddbmm(self.bias[:, None], x, weight)


class _Sequence(Stacked):
    """M sequences of layers, each stacked."""

    def __init__(self, parts: dict[str, nn.Module]) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: Tensor) -> Tensor:
        for part in self._modules.values():
            x = part(x) if part is not None else x
        return x


class _WithInputs(Stacked):
    """M encoders, stacked, with their inputs beside their features."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        return beside(self.encoder(x), x)


class _Embedding(Stacked):
    """M embeddings with equally many bins."""

    column: Tensor
    low: Tensor
    slope: Tensor
    mean: Tensor

    def __init__(self, embeddings: Sequence[nn.Module]) -> None:
        super().__init__()
        for name, _ in embeddings[0].named_buffers():
            values = torch.stack([embedding.get_buffer(name) for embedding in embeddings])
            self.register_buffer(name, values)

    def forward(self, x: Tensor) -> Tensor:
        of_bin = x.gather(2, self.column[:, None].expand(-1, x.shape[1], -1))
        return embed(x, of_bin, self.low[:, None], self.slope[:, None], self.mean[:, None])


class _Mapped(Stacked):
    """M modules of any kind, of one input or several, through `torch.vmap`."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        # In a tuple, so that it is not a submodule: only its code is run.
        self._code = (modules[0],)
        self.draws = may_draw(modules[0])
        saved = modules[0].state_dict()
        # A name with a dot cannot be registered.
        for name, value in modules[0].named_parameters():
            values = torch.stack([module.get_parameter(name) for module in modules])
            self.register_parameter(name.replace(".", "/"), _parameter(values, value))
        for name, _ in modules[0].named_buffers():
            values = torch.stack([module.get_buffer(name) for module in modules])
            self.register_buffer(name.replace(".", "/"), values, persistent=name in saved)

    def forward(self, *inputs: Tensor) -> Tensor:
        self._code[0].train(self.training)
        state = {name.replace("/", "."): value for name, value in (*self.named_parameters(), *self.named_buffers())}

        def member(state: dict[str, Tensor], *inputs: Tensor) -> Tensor:
            output: Tensor = torch.func.functional_call(self._code[0], state, inputs)
            return output

        outputs: Tensor = torch.vmap(member, randomness="different")(state, *inputs)
        return outputs

    def one_by_one(self, *inputs: Tensor) -> Tensor:
        """The same without vmap."""
        self._code[0].train(self.training)
        members = range(len(inputs[0]))
        parts = [(self.member_state(i), tuple(part[i] for part in inputs)) for i in members]
        return torch.stack([torch.func.functional_call(self._code[0], state, part) for state, part in parts])

    def member_state(self, member: int) -> dict[str, Tensor]:
        return {name.replace("/", "."): value for name, value in super().member_state(member).items()}


class StackedLoss(nn.Module, ABC):
    """Losses (M,) of M objectives as one computation, for `optimise`; batches hold one for each of them."""

    @abstractmethod
    def unstack(self) -> None:
        """Give the objectives what was learnt."""


class MappedLoss(StackedLoss):
    """Objectives of any kind, through `torch.vmap`.

    Parameters
    ----------
    objectives : sequence of modules
        Of one kind and shape, from a batch (x, y, weight) to a loss.
    """

    def __init__(self, objectives: Sequence[nn.Module]) -> None:
        super().__init__()
        # Not parts of this module: they get its weights at the end.
        self._objectives = tuple(objectives)
        self._losses = _Mapped(objectives)
        self._maps_evaluation = True

    @classmethod
    def of(cls, objectives: Sequence[nn.Module]) -> MappedLoss | None:
        """The objectives as one; None if they hold what must be run one by one."""
        return cls(objectives) if _can_be_mapped(objectives[0]) and _alike(objectives) else None

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Loss of each, (M,)."""
        if self.training:
            return self._map(x, y, weight)
        if self._maps_evaluation:
            try:
                return self._map(x, y, weight)
            except RuntimeError:
                # What looks at a number, such as its seed, cannot be mapped; it is seen once an epoch.
                self._maps_evaluation = False
        return self._losses.one_by_one(x, y, weight)

    def _map(self, *batch: Tensor) -> Tensor:
        losses: Tensor = self._losses(*batch)
        return losses

    def unstack(self) -> None:
        """Give the objectives what was learnt."""
        for i, objective in enumerate(self._objectives):
            objective.load_state_dict(self._losses.member_state(i))


class StackedNetworkLoss(StackedLoss):
    """Losses of networks that are an encoder and a linear layer, both stacked: twice as fast as `MappedLoss`.

    `row_losses`, which holds `linear`, gives losses (M, n) from features (M, n, D) and targets (M, n, k).
    """

    def __init__(
        self, networks: Sequence[tuple[nn.Module, nn.Linear]], encoder: Stacked, linear: Stacked, row_losses: nn.Module
    ) -> None:
        super().__init__()
        # Not parts of this module: they get its weights at the end.
        self._networks = tuple(networks)
        self.encoder = encoder
        self.linear = linear
        self.row_losses = row_losses
        self.targets = networks[0][1].out_features // 2

    @classmethod
    def of(
        cls, networks: Sequence[tuple[nn.Module, nn.Linear]], row_losses: Callable[[Stacked], nn.Module]
    ) -> Self | None:
        """The networks as one, with `row_losses` of the stacked linear layer; None if they cannot be stacked."""
        encoder, linear = (stack(parts) for parts in zip(*networks, strict=True))
        return None if encoder is None or linear is None else cls(networks, encoder, linear, row_losses(linear))

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Mean loss of each network, (M,), on a batch for all with weight (n,), or on one for each with (M, n)."""
        if weight.ndim == 1:
            x, y, weight = (part.expand(len(self._networks), *part.shape) for part in (x, y, weight))
        z = bound_features(self.encoder(x))
        expected = (*z.shape[:2], self.targets, *z.shape[3:])
        if y.shape != expected:
            raise ValueError(f"Targets have shape {tuple(y.shape[1:])}, the model predicts {expected[1:]}.")
        losses = self.row_losses(_rows(z), _rows(y))
        return weighted_mean(losses, weight.repeat_interleave(z.shape[3:].numel(), dim=1) if z.ndim > 3 else weight)

    def unstack(self) -> None:
        """Give the networks what was learnt."""
        for i, (encoder, linear) in enumerate(self._networks):
            encoder.load_state_dict(self.encoder.member_state(i))
            linear.load_state_dict(self.linear.member_state(i))


def _rows(values: Tensor) -> Tensor:
    """From (M, batch, d, ...) to (M, n, d): one row for every position."""
    return values if values.ndim == 3 else values.movedim(2, -1).flatten(1, -2)


class _StackedHeadLosses(nn.Module):
    """Losses (M, n) of M heads as one, with a stacked linear layer and buffers (M, 1, k)."""

    def __init__(self, head: Head, linear: Stacked, members: int) -> None:
        super().__init__()
        self.head = copy.deepcopy(head)
        self.head.linear = linear  # type: ignore[assignment]
        for name, buffer in self.head.named_buffers():
            setattr(self.head, name, buffer.expand(members, 1, -1).clone())

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        return gaussian_losses(self.head.unbounded(z), y)


def stacked_loss(models: Sequence[DensityRegression]) -> StackedNetworkLoss | None:
    """Losses (M,) of models for tables; None if their encoders cannot be stacked."""
    networks = [(model.encoder, model.head.linear) for model in models]
    return StackedNetworkLoss.of(networks, lambda linear: _StackedHeadLosses(models[0].head, linear, len(models)))


def can_train(together: nn.Module, batches: Batches) -> bool:
    """Whether a stacked loss can be computed and differentiated, which a batch is tried for."""
    with nullcontext() if isinstance(batches, TensorBatches) else kept_draws():
        batch = next(iter(batches), None)
    if batch is None:
        return True
    if len(batch) > 2 and batch[2].ndim > 1 and batch[2].shape[:2] != batch[1].shape[:2]:
        # Weights of positions, (batch, ...), would be taken for those of several networks, (M, batch).
        return False
    device = next(together.parameters()).device
    try:
        with kept_draws() if may_draw(together) else nullcontext():
            copy.deepcopy(together).train()(*on_device(batch, device)).sum().backward()
    except RuntimeError:
        return False
    return True


def stack(modules: Sequence[nn.Module]) -> Stacked | None:
    """Stack modules of one shape; None where they must be run one by one, as those with running statistics.

    Linear layers and sequences of them become batched products, several times faster than what `torch.vmap`, which
    takes nearly every other module, makes of them.
    """
    if _repeats_itself(modules[0]) or not _alike(modules):
        return None
    plain = _stack_plain(modules)
    if isinstance(plain, Stacked):
        return plain
    return _Mapped(modules) if _can_be_mapped(modules[0]) else None


def _alike(modules: Sequence[nn.Module]) -> bool:
    """Whether modules differ in their state alone: nothing else of all but the first is looked at."""
    first, *others = ([_shape(part) for part in module.named_modules()] for module in modules)
    return all(_same(first, other) for other in others)


def _shape(named: tuple[str, nn.Module]) -> dict[str, object]:
    """Kind and place of a part, the shapes of its state, and what it holds beside: numbers, names and tensors."""
    name, part = named
    state = {**part._parameters, **part._buffers}
    shapes = {key: (tuple(value.shape), value.requires_grad) for key, value in state.items() if value is not None}
    kinds = (bool, int, float, str, tuple, Tensor)
    held = {key: value for key, value in vars(part).items() if isinstance(value, kinds) and key != "training"}
    return {**held, "": (name, type(part).__name__, shapes)}


def _same(one: object, other: object) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    return one is other or bool(one == other)


def _repeats_itself(module: nn.Module) -> bool:
    """Whether one layer is in two places: stacked, it would become two."""
    names = [name for name, _ in module.named_parameters(remove_duplicate=False)]
    return len(names) > len(list(module.parameters()))


def _can_be_mapped(module: nn.Module) -> bool:
    """Whether vmap can be asked: running statistics are written while training, which it cannot do for each apart."""
    statistics = any(getattr(part, "track_running_stats", False) for part in module.modules())
    return not (statistics or _repeats_itself(module))


def _stack_plain(modules: Sequence[nn.Module]) -> nn.Module | None:
    first = modules[0]
    if first._forward_hooks or first._forward_pre_hooks:
        return None
    if type(first) is nn.Linear and first._parameters.keys() == {"weight", "bias"}:
        return _Linear(modules)
    if type(first) in ELEMENTWISE:
        return first
    if isinstance(first, nn.Sequential) and type(first).forward is nn.Sequential.forward:
        parts = {name: _stack_plain([module.get_submodule(name) for module in modules]) for name in first._modules}
        return _Sequence(parts) if all(part is not None for part in parts.values()) else None  # type: ignore[arg-type]
    if type(first) is WithInputs:
        inner = _stack_plain([module.get_submodule("encoder") for module in modules])
        return None if inner is None else _WithInputs(inner)
    return _Embedding(modules) if type(first) is PiecewiseEmbedding else None


def _parameter(stacked: Tensor, like: Tensor) -> nn.Parameter:
    """Stacked values as a parameter, frozen where one member's is."""
    return nn.Parameter(stacked.detach(), requires_grad=like.requires_grad)
