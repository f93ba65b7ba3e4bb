"""All private names of scikit-learn that the package uses, so that a new release can break only this file."""

from typing import TYPE_CHECKING, Any

from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, _num_samples

if TYPE_CHECKING:
    from sklearn.metrics._scorer import _SCORERS, _BaseScorer

__all__ = [
    "_SCORERS",
    "Interval",
    "StrOptions",
    "_BaseScorer",
    "_check_sample_weight",
    "_num_samples",
    "_safe_indexing",
]


def __getattr__(name: str) -> Any:
    # Imported on first use: sklearn.metrics takes a third of a second, and estimators do not need it.
    if name in ("_SCORERS", "_BaseScorer"):
        from sklearn.metrics import _scorer

        return getattr(_scorer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
