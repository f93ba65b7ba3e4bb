"""Processes that fit one model together: how they were started, and what they tell each other."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, TypeVar

import torch
from torch import Tensor

__all__ = ["ALONE", "LostProcessError", "Processes", "is_launched", "join", "local_rank", "lost_processes"]

T = TypeVar("T")

LONGEST_STEP: Final = timedelta(days=1)
"""For which the others wait while the first process alone computes; one that has died is noticed at once."""

LOST: Final = re.compile(r"gloo|NCCL|Connection (closed|reset|refused)|Broken pipe|Timed out", re.IGNORECASE)
"""What errors say when another process cannot be reached."""


class LostProcessError(RuntimeError):
    """Another process of a fit has ended or cannot be reached."""


class Processes:
    """The processes of a fit, as one of them sees them.

    Parameters
    ----------
    rank, size : int
        Number of this process, from 0, and of all.
    group : torch.distributed.ProcessGroup, optional
        By which they tell each other objects, over gloo.

    Examples
    --------
    >>> import torch
    >>> second = Processes(1, 3)
    >>> second.take(torch.arange(8))
    tensor([1, 4, 7])
    """

    def __init__(self, rank: int, size: int, group: Any = None) -> None:
        self.rank = rank
        self.size = size
        self._group = group

    @property
    def first(self) -> bool:
        """Whether this is the process that alone writes files, shows progress and runs what is not parallel."""
        return self.rank == 0

    def take(self, values: Tensor, dim: int = 0) -> Tensor:
        """The rows of a batch that this process computes: every `size`-th one."""
        if self.size == 1:
            return values
        own = [slice(None)] * dim + [slice(self.rank, None, self.size)]
        return values[tuple(own)]

    def sum(self, value: Tensor) -> Tensor:
        """Sum of a tensor over all processes; without a gradient."""
        if self.size == 1:
            return value
        value = value.detach().clone()
        torch.distributed.all_reduce(value)
        return value

    def mean(self, value: Tensor) -> Tensor:
        """Mean of a tensor over all processes; without a gradient."""
        return value if self.size == 1 else self.sum(value) / self.size

    def from_first(self, compute: Callable[[], T]) -> T:
        """What the first process computes, told to all; if it fails, all do."""
        if self.size == 1:
            return compute()
        found: list[Any] = [None, None]
        if self.first:
            try:
                found[0] = compute()
            except BaseException as error:
                self._tell([None, f"{error}" or type(error).__name__])
                raise
        self._tell(found)
        if found[1] is not None:
            raise LostProcessError(f"The first process failed: {found[1]}")
        return found[0]  # type: ignore[no-any-return]

    def _tell(self, objects: list[Any]) -> None:
        torch.distributed.broadcast_object_list(objects, src=0, group=self._group)


ALONE: Final = Processes(0, 1)
"""A fit of one process."""


class _Joined:
    """The processes that this one has joined."""

    processes: Processes | None = None


def is_launched() -> bool:
    """Whether this process is one of several that torchrun, or a command, has started."""
    return {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()


def local_rank() -> int:
    """Number of this process on its machine, from 0."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def join(devices: int, num_nodes: int, kind: str = "cpu") -> Processes:
    """The processes on `num_nodes` machines with so many `devices` each, of the kind "cpu" or "cuda".

    The first call connects them: all must make it.
    """
    size = devices * num_nodes
    if size == 1:
        return ALONE
    asked = f"devices={devices}" + (f" and num_nodes={num_nodes}" if num_nodes > 1 else "")
    if not is_launched():
        raise ValueError(
            f"{asked} need {size} processes, but this one was started alone: start the script by torchrun "
            f"{f'--nnodes {num_nodes} ' if num_nodes > 1 else ''}--nproc-per-node {devices}, or use the command, "
            f"density-regression fit --devices {devices}."
        )
    found, here = int(os.environ["WORLD_SIZE"]), int(os.environ.get("LOCAL_WORLD_SIZE", devices))
    if (found, here) != (size, devices):
        raise ValueError(
            f"{asked} need {size} processes, {devices} on each machine, but {found} were started, {here} on this one: "
            f"give devices={here} and num_nodes={found // here}."
        )
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        raise ValueError(f"{asked} need torch.distributed with gloo, which this build of torch lacks.")
    if _Joined.processes is None:
        _Joined.processes = _connected(kind)
    return _Joined.processes


def _connected(kind: str) -> Processes:
    distributed = torch.distributed
    if not distributed.is_initialized():
        if kind == "cuda":
            torch.cuda.set_device(local_rank() % torch.cuda.device_count())
        distributed.init_process_group("nccl" if kind == "cuda" else "gloo")
    # Also beside NCCL: a process that waits for another over gloo notices its end at once.
    group = distributed.new_group(backend="gloo", timeout=LONGEST_STEP)
    return Processes(distributed.get_rank(), distributed.get_world_size(), group)


@contextmanager
def lost_processes(processes: Processes, checkpoint_dir: object) -> Iterator[None]:
    """Say in one line that another process has ended, and how to go on."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if processes.size == 1 or isinstance(error, LostProcessError):
            raise
        if not (isinstance(error, torch.distributed.DistError) or LOST.search(str(error))):
            raise
        hint = "give a checkpoint_dir, from which the same fit goes on"
        if checkpoint_dir is not None:
            hint = f"start all of them again: the fit goes on from what is in {checkpoint_dir}"
        # Without the line of gloo's source that it begins with, and its advice.
        reason = re.sub(r"^\[[^\]]*\]\s*", "", str(error).splitlines()[0]).split(". ")[0]
        raise LostProcessError(
            f"Process {processes.rank + 1} of {processes.size} has lost another one, which was killed or has failed "
            f"({reason}); {hint}."
        ) from error
