"""What the benchmarks share: turns, and the name of the machine."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch

from density_regression.experiments.provenance import provenance


def machine() -> dict[str, Any]:
    """What the figures were measured on, and by what."""
    cpus = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in cpus.read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "threads used": torch.get_num_threads(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "commit": provenance()["commit"],
    }


def by_turns(functions: Sequence[Callable[[], object]], rounds: int, block: int = 1) -> list[float]:
    """Median seconds of a call of each, in blocks by turns, so that a noisy machine disturbs all alike."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, own in zip(functions, times, strict=True):
            function()
            start = time.perf_counter()
            for _ in range(block):
                function()
            own.append((time.perf_counter() - start) / block)
    return [statistics.median(own) for own in times]


def finish(figures: dict[str, Any], path: Path | None) -> None:
    """Print figures, and write them to a file if there is one."""
    print(json.dumps(figures, indent=2))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=2) + "\n")
