"""What a fitted regressor knows that an alarm begins with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from density_regression.serve.alarm.rows import scores_of

__all__ = ["known_of", "references"]


def references(*parts: ArrayLike | None) -> list[list[float]]:
    """References as lists, empty where there is none."""
    return [[] if part is None else scores_of(part, "reference").tolist() for part in parts]


def known_of(regressor: Any) -> dict[str, Any]:
    """Parameters of `Alarm` that follow from a regressor."""
    conformal = getattr(regressor, "conformal_", None)
    scores = None if conformal is None or conformal.weights is not None else np.asarray(conformal.scores)
    names = getattr(regressor, "feature_names_in_", None)
    return {
        "reference": getattr(regressor, "held_out_levels_", None),
        "error_reference": scores[:, 0] if scores is not None and scores.shape[1] == 1 else None,
        "profile": getattr(regressor, "profile_", None),
        "names": None if names is None else [str(name) for name in names],
    }
