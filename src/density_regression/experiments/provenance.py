"""Commit and versions of the code that made a result."""

import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["provenance"]


@cache
def provenance() -> dict[str, Any]:
    """Commit, if the package runs from a git checkout, and versions of the main packages."""
    packages = ("density-regression", "torch", "numpy", "scikit-learn")
    versions = {"python": platform.python_version(), **{name: version(name) for name in packages}}
    return {"commit": _commit(), "versions": versions}


def _commit() -> str | None:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        if not git("ls-files", Path(__file__).name):
            # Installed inside the checkout of another project.
            return None
        changed = git("status", "--porcelain", "--", "..")
        return git("rev-parse", "--short=12", "HEAD") + ("+changed" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None
