"""Scorers for scikit-learn that judge the predicted mean and standard deviation together.

They need private names of scikit-learn: its public ones call `predict(X)` only, and register no names.
"""

__all__ = ["make_scorer", "register_scorers"]

import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from density_regression.io.sklearn_private import _SCORERS, StrOptions, _BaseScorer
from density_regression.metrics.scores import crps, nll


def make_scorer(metric: Callable[..., float], *, greater_is_better: bool = True, **kwargs: Any) -> Any:
    """Make a scorer for scikit-learn from a metric of (y_true, mean, std).

    As ``sklearn.metrics.make_scorer``, but calls ``predict(X, return_std=True)``, which all regressors of this package
    have, alone or last in a pipeline, and others such as ``GaussianProcessRegressor``. A hyper-parameter search is
    scored by its best estimator. Metrics judge the Normal with that mean and standard deviation, even if the method's
    own predictive distribution (`own_dist`) is another.

    Parameters
    ----------
    metric : callable
        Called as ``metric(y_true, mean, std, **kwargs)`` with arrays of shape (n, k), and with ``sample_weight`` if
        it is given and the metric takes it; for example `nll`, `crps` or `interval_score`.
    greater_is_better : bool, default=True
        If False, the scorer returns the negative of the metric.
    **kwargs
        Further arguments of the metric.

    Returns
    -------
    scorer : callable
        For the parameter ``scoring`` of scikit-learn; called as ``scorer(estimator, X, y)``. With metadata routing
        enabled, a regressor in a pipeline needs ``set_predict_request(return_std=True)``.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> from density_regression import DensityRegressor, metrics
    >>> from density_regression.datasets import make_cubic
    >>> X, y = make_cubic(n=100, random_state=0)
    >>> scorer = metrics.make_scorer(metrics.coverage, level=0.9)
    >>> cross_val_score(DensityRegressor(epochs=5, random_state=0), X, y, scoring=scorer, cv=2).shape
    (2,)
    """
    if not callable(metric):
        raise ValueError(f"metric must be a function of (y_true, mean, std), such as metrics.nll, got {metric!r}.")
    return _PredictiveScorer(metric, 1 if greater_is_better else -1, kwargs)


def register_scorers() -> None:
    """Register the names "neg_nll" and "neg_crps" in scikit-learn, so that ``scoring="neg_nll"`` works everywhere.

    They are negative because scikit-learn maximises scores: the mean negative log-likelihood in nats, and the CRPS in
    the target's units, of the Normal that ``predict(X, return_std=True)`` gives. The names are registered for the whole
    process, but not in worker processes (``n_jobs``): a search nested in a cross-validation there needs a scorer made
    by `make_scorer`.

    Examples
    --------
    >>> from sklearn.metrics import get_scorer_names
    >>> from density_regression import metrics
    >>> metrics.register_scorers()
    >>> "neg_nll" in get_scorer_names()
    True
    """
    _SCORERS.update(SCORERS)
    for names in _allowed_scoring_names():
        names.update(SCORERS)


class _PredictiveScorer(_BaseScorer):
    """Scorer of the mean and standard deviation that `predict(X, return_std=True)` returns."""

    def _score(self, method_caller: Any, estimator: Any, X: ArrayLike, y_true: ArrayLike, **kwargs: Any) -> float:
        arrays = (_columns(part) for part in (y_true, *_mean_and_std(estimator, X)))
        return float(self._sign * self._score_func(*arrays, **self._kwargs, **kwargs))


SCORERS: Final = {
    "neg_nll": make_scorer(nll, greater_is_better=False),
    "neg_crps": make_scorer(crps, greater_is_better=False),
}
"""What `register_scorers` registers."""


def _mean_and_std(estimator: Any, X: ArrayLike) -> tuple[ArrayLike, ArrayLike]:
    # The predict method of a search takes X only.
    estimator = getattr(estimator, "best_estimator_", estimator)
    name = type(estimator).__name__
    needed = (
        f"A score of mean and std needs predict(X, return_std=True) to return both, which {name} does not. Regressors "
        "of density_regression do, also last in a pipeline; a TransformedTargetRegressor does not: give y as it is."
    )
    try:
        predicted = estimator.predict(X, return_std=True)
    except (TypeError, AttributeError) as error:
        # scikit-learn's NotFittedError and InvalidParameterError, which say what is wrong, are also ValueErrors.
        if isinstance(error, ValueError):
            raise
        raise ValueError(f"{needed} ({type(error).__name__}: {error})") from error
    if not (isinstance(predicted, tuple) and len(predicted) == 2):
        raise ValueError(needed)
    return predicted


def _columns(values: ArrayLike) -> NDArray[Any]:
    """Reshape (n,) to (n, 1): a single target may have either shape."""
    array = np.asarray(values)
    return array[:, np.newaxis] if array.ndim == 1 else array


def _allowed_scoring_names() -> Iterator[set[str]]:
    """Sets of names that imported functions and classes of scikit-learn accept for `scoring`."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "sklearn"]
    for part in [part for module in modules for part in vars(module).values()]:
        if isinstance(part, FunctionType | type):
            constraints = vars(part).get("_skl_parameter_constraints") or vars(part).get("_parameter_constraints")
            for constraint in (constraints or {}).get("scoring", ()):
                if isinstance(constraint, StrOptions) and "neg_mean_squared_error" in constraint.options:
                    yield constraint.options
