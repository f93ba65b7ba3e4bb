"""How much memory this process may still take."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Final

__all__ = ["available_memory"]

CONTROL_GROUPS: Final = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
)
"""Files with the limit of a container's memory and with what it uses, and what the kernel would give up of that."""


def available_memory(root: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that can be allocated without swapping, within the limit of a container, whose files are below `root`."""
    # It comes without types.
    free = int(import_module("psutil").virtual_memory().available)
    for limit, used, cache in CONTROL_GROUPS:
        try:
            most, now = (int((root / name).read_text()) for name in (limit, used))
            lines = (root / limit).with_name("memory.stat").read_text().splitlines()
        except (OSError, ValueError):
            # There is no limit: no such file, or "max" in it.
            continue
        statistics = dict(line.split() for line in lines)
        free = min(free, most - now + int(statistics.get(cache, 0)))
    return max(free, 0)
