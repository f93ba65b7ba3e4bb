"""How networks are trained: options, device and precision, and torch's process-wide state (generators, threads)."""

import math
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Final

import torch
from torch import Tensor, nn

from density_regression.nn.processes import ALONE, join, local_rank

__all__ = [
    "PRECISIONS",
    "Trainer",
    "TrainingOptions",
    "device_of",
    "fabric_for",
    "find_device",
    "full_precision",
    "kept_draws",
    "may_draw",
    "own_draws",
    "taking_turns",
    "threads",
    "usual_torch",
]

PRECISIONS: Final = ("32-true", "16-mixed", "bf16-mixed")
"""Precisions of training, by Fabric's names: the weights stay in float32, which fitting a density needs."""

ROW_BLOCK: Final = 16
FEATURE_BLOCK: Final = 4
WHITENED_BLOCK: Final = 16
FUSED_BLOCK: Final = 8
"""Multiples to which zeros pad the rows to predict, and the columns of features beside inputs, of whitened features and
of fused products. Matrix products are computed in blocks and round otherwise at ragged edges: padded, a row gets the
same prediction, to the last bit, wherever it stands in whatever batch."""

AUTOCAST_DEVICES: Final = ("cpu", "cuda", "mps")
"""Kinds of device on which a caller may have enabled autocast."""

DETERMINISTIC_PACKAGES: Final = ("torch.nn.modules.", "density_regression.")
RANDOM_LAYERS: Final = (nn.modules.dropout._DropoutNd, nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)
"""Modules from these packages are deterministic in training, except for these classes."""


@dataclass(frozen=True)
class TrainingOptions:
    """How to train; the defaults suit tables.

    Attributes
    ----------
    epochs : int
        Most passes over the data; 0 leaves the network as it is.
    learning_rate, weight_decay : float
        Of AdamW; the rate falls to zero along a cosine.
    patience : int or None
        Stop after this many epochs without a better held-out loss; None never stops early. The best weights are kept
        in any case.
    average : float
        Epochs over which a running mean of the weights, and of the statistics of batch norm, reaches; the mean is
        evaluated and kept. 0 for none.
    smoothness : float
        Train on every batch twice: as it is, and, counted half, with each row's inputs moved by up to this along the
        sign of the loss's gradient (Goodfellow et al., 2015), so that close inputs get similar predictions. 0 for once.
    gradient_clip : float
        Largest norm of a gradient.
    device : str
        "cpu", "cuda" (or "cuda:1" and so on), or "auto" for a GPU if there is one.
    devices, num_nodes : int
        Processes on each machine, a GPU or a part of the CPU for each, and number of machines, that train the network
        together. With more than one, torchrun must have started them.
    precision : {"32-true", "16-mixed", "bf16-mixed"}
        Of the network's training, by Fabric's names.
    compile : bool
        Whether to compile the network's training (worth it for large encoders only).
    seed : int
        Seed of everything random but the network's first weights.

    Examples
    --------
    >>> options = TrainingOptions(epochs=50, device="auto")
    >>> options.epochs, options.learning_rate
    (50, 0.01)
    """

    epochs: int = 100
    learning_rate: float = 1e-2
    weight_decay: float = 0.1
    patience: int | None = 30
    average: float = 0.0
    smoothness: float = 0.0
    gradient_clip: float = 10.0
    device: str = "cpu"
    precision: str = "32-true"
    compile: bool = False
    seed: int = 0
    devices: int = 1
    num_nodes: int = 1

    def __post_init__(self) -> None:
        for name in ("epochs", "learning_rate", "weight_decay", "average", "smoothness"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ValueError(f"{name} must be at least 0 and finite, got {getattr(self, name)}.")
        for name in ("epochs", "seed", "devices", "num_nodes"):
            if not isinstance(getattr(self, name), Integral):
                raise ValueError(f"{name} must be a whole number, got {getattr(self, name)!r}.")
        for name in ("devices", "num_nodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.patience is not None and not self.patience >= 1:
            raise ValueError(f"patience must be None or at least 1, got {self.patience}.")
        if not self.gradient_clip > 0:
            raise ValueError(f"gradient_clip must be positive, got {self.gradient_clip}.")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}.")


class _Process:
    """State of this process: the lock held while fitting, and whether it was forked."""

    lock = threading.RLock()
    forked = False
    warned = False

    @classmethod
    def after_fork(cls) -> None:
        # The thread that may hold the lock exists in the parent only.
        cls.lock = threading.RLock()
        cls.forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Process.after_fork)


def find_device(name: str) -> torch.device:
    """The device of that name; "auto" is a GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.split(":")[0] not in ("cpu", "cuda"):
        lacking = " Density and head are fitted in float64, which mps lacks." if name.startswith("mps") else ""
        raise ValueError(f'device must be "cpu", "cuda" or "auto", got {name!r}.{lacking}')
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f'device is {name!r}, but there is no GPU that torch can use; set device="cpu".')
    return torch.device(name)


def device_of(options: TrainingOptions) -> torch.device:
    """The device on which this process trains: of several GPUs the one with its number."""
    device = find_device(options.device)
    if options.devices * options.num_nodes > 1 and device.type == "cuda":
        if device.index is not None:
            raise ValueError(f'device must be "cuda" for devices={options.devices}, got {options.device!r}.')
        return torch.device("cuda", local_rank() % torch.cuda.device_count())
    return device


class _Plain:
    """What is needed of Fabric to train on a CPU in full precision, without its wrappers."""

    device = torch.device("cpu")
    processes = ALONE

    def setup(self, objective: nn.Module, optimizer: Any) -> tuple[nn.Module, Any]:
        return objective, optimizer

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def unscale(self, optimizer: Any) -> None:
        """There is no scale."""

    def scale(self) -> dict[str, Tensor]:
        """There is no scale."""
        return {}

    def set_scale(self, scale: dict[str, Tensor]) -> None:
        """There is no scale."""


class _Fabric:
    """Fabric, for any device and precision, and for several processes."""

    def __init__(self, device: torch.device, options: TrainingOptions) -> None:
        # Imported late: it takes a second or two, and prediction needs none of it.
        from lightning_fabric import Fabric

        self.processes = join(options.devices, options.num_nodes, device.type)
        devices: int | list[int] = [device.index] if device.index is not None else 1
        several: dict[str, Any] = {}
        if self.processes.size > 1:
            from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
            from lightning_fabric.strategies.ddp import DDPStrategy

            # The parameters of a density, for one, are not used in step 1.
            strategy = DDPStrategy(find_unused_parameters=True)
            devices = options.devices
            several = {"strategy": strategy, "num_nodes": options.num_nodes, "plugins": [TorchElasticEnvironment()]}
        precision: Any = options.precision
        self._fabric = Fabric(accelerator=device.type, devices=devices, precision=precision, **several)
        self._fabric.launch()
        self.device = self._fabric.device
        self.setup, self.backward = self._fabric.setup, self._fabric.backward

    def unscale(self, optimizer: Any) -> None:
        """Undo the scale of gradients in half precision."""
        self._fabric.strategy.precision.unscale_gradients(optimizer.optimizer)

    def scale(self) -> dict[str, Tensor]:
        """State of that scale, by names."""
        state = self._fabric.strategy.precision.state_dict()
        return {name: torch.tensor(value) for name, value in state.items()}

    def set_scale(self, scale: dict[str, Tensor]) -> None:
        """Take back what `scale` returned."""
        self._fabric.strategy.precision.load_state_dict({name: value.item() for name, value in scale.items()})


Trainer = _Plain | _Fabric
"""Fabric, or its plain equivalent."""


def fabric_for(options: TrainingOptions) -> Trainer:
    """Fabric, or its plain equivalent on a CPU in full precision."""
    device = device_of(options)
    alone = options.devices * options.num_nodes == 1
    if alone and device.type == "cpu" and options.precision == "32-true":
        return _Plain()
    return _Fabric(device, options)


@contextmanager
def taking_turns() -> Iterator[None]:
    """Let one thread at a time fit; the others wait."""
    with _Process.lock:
        yield


@contextmanager
def own_draws() -> Iterator[Callable[[], None]]:
    """Restore torch's generators afterwards, so that a fit can seed them; yields a function that does so earlier.

    Other threads draw from the same generators, so call that function as soon as nothing is drawn, see `may_draw`.
    """
    with ExitStack() as stack:
        stack.enter_context(taking_turns())
        stack.enter_context(kept_draws())
        yield stack.close


@contextmanager
def kept_draws() -> Iterator[None]:
    """Restore torch's generators afterwards, without the lock: for what takes no time."""
    # All devices, as a seed is set on all; named, or torch warns where there are several.
    with torch.random.fork_rng(devices=range(torch.accelerator.device_count())):
        yield


def may_draw(network: nn.Module) -> bool:
    """Whether training a network may draw from torch's generator: by dropout, or by a layer of unknown kind."""
    return any(_may_draw(part) for part in network.modules())


def _may_draw(part: nn.Module) -> bool:
    known = type(part).__module__.startswith(DETERMINISTIC_PACKAGES)
    if not known or part._forward_hooks or part._forward_pre_hooks or isinstance(part, RANDOM_LAYERS):
        return True
    # Recurrent layers and attention have dropout as an attribute; our random modules set `draws`.
    return any(getattr(part, name, False) for name in ("dropout", "draws"))


@contextmanager
def usual_torch() -> Iterator[None]:
    """Build and train with torch's own defaults, whatever the caller has set: float32, gradients, CPU, no autocast.

    The default type is shared by the whole process, and is left alone if it is float32 already.
    """
    before = torch.get_default_dtype()
    with ExitStack() as stack:
        stack.enter_context(full_precision())
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if before != torch.float32:
            stack.callback(torch.set_default_dtype, before)
            torch.set_default_dtype(torch.float32)
        with torch.inference_mode(False), torch.enable_grad():
            yield


@contextmanager
def full_precision() -> Iterator[None]:
    """Disable the caller's `torch.autocast`: half precision can hold neither a density nor second-order steps."""
    with ExitStack() as stack:
        for kind in AUTOCAST_DEVICES:
            if torch.is_autocast_enabled(kind):
                # Without its cache: weights cast for mixed precision would stay in it, as they were at first.
                stack.enter_context(torch.autocast(kind, enabled=False, cache_enabled=False))
        yield


class threads:  # noqa: N801 - a context manager, and read as one
    """Let torch use this many threads within; None changes nothing.

    In a forked process one thread: a fork does not copy the parent's OpenMP threads, and several would wait for them.
    """

    def __init__(self, number: int | None) -> None:
        self.number = number

    def __enter__(self) -> None:
        if _Process.forked and (self.number or torch.get_num_threads()) > 1:
            self.number = 1
            if not _Process.warned:
                _Process.warned = True
                warnings.warn(
                    "This process was forked, and torch may hang in it with several threads: one is used. Set "
                    'n_threads=1 to say so, or start processes by "spawn" or "forkserver" to use several.',
                    RuntimeWarning,
                    stacklevel=2,
                )
        if self.number is not None:
            self._before = torch.get_num_threads()
            torch.set_num_threads(int(self.number))

    def __exit__(self, *_: object) -> None:
        if self.number is not None:
            torch.set_num_threads(self._before)
