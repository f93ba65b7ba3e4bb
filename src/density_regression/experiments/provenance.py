"""Which code made a result."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["provenance"]


@cache
def provenance() -> dict[str, Any]:
    """The commit, if the package runs from a checkout, and the versions that made a record."""
    packages = ("density-regression", "torch", "numpy", "scikit-learn")
    versions = {"python": platform.python_version(), **{name: version(name) for name in packages}}
    return {"commit": _commit(), "versions": versions}


def _commit() -> str | None:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        if not git("ls-files", Path(__file__).name):
            # Installed into somebody else's checkout, whose commit says nothing of ours.
            return None
        changed = git("status", "--porcelain", "--", "..")
        return git("rev-parse", "--short=12", "HEAD") + ("+changed" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None
