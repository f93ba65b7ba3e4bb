"""Imports of optional dependencies."""

import importlib
from typing import Any

__all__ = ["import_extra"]


def import_extra(module: str, *, needed_by: str, extra: str) -> Any:
    """Import a module of an optional dependency; if it is missing, the error names the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        message = f"{needed_by} needs {package}, which is not installed: pip install density-regression[{extra}]"
        raise ImportError(message) from error
