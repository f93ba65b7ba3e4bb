"""Scorers for scikit-learn that judge mean and standard deviation together.

The one file that imports private names of scikit-learn's scorers; nothing public takes a scorer that asks for more than
`predict(X)`, or gives one a name.
"""

from __future__ import annotations

__all__ = ["make_scorer", "register_scorers"]

import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics._scorer import _SCORERS, _BaseScorer
from sklearn.utils._param_validation import StrOptions

from density_regression.metrics.scores import crps, nll


def make_scorer(metric: Callable[..., float], *, greater_is_better: bool = True, **kwargs: Any) -> Any:
    """Make a scorer for scikit-learn from a metric of (y_true, mean, std).

    As ``sklearn.metrics.make_scorer``, but the estimator is asked for its standard deviation, too, by
    ``predict(X, return_std=True)``. Any regressor here will do, alone or last in a pipeline, and others that have it,
    such as ``GaussianProcessRegressor``. A search in scikit-learn is scored by its best estimator. Metrics judge the
    Normal with that mean and standard deviation, also where a method's own law is another (`own_dist`).

    Parameters
    ----------
    metric : callable
        Called as ``metric(y_true, mean, std, **kwargs)``, each array of shape (n, k), and with ``sample_weight`` if
        it takes that and some are given. `nll`, `crps` and `interval_score`, for example.
    greater_is_better : bool, default=True
        Whether high is good; otherwise the scorer returns the negative of the metric.
    **kwargs
        Further arguments of the metric.

    Returns
    -------
    scorer : callable
        For the parameter ``scoring`` of scikit-learn; called as ``scorer(estimator, X, y)``. With metadata routing
        enabled, a regressor in a pipeline must ask for what it is passed: ``set_predict_request(return_std=True)``.

    Examples
    --------
    >>> from sklearn.model_selection import cross_validate
    >>> from density_regression import DensityRegressor, metrics
    >>> from density_regression.datasets import make_cubic
    >>> scoring = {
    ...     "neg_crps": metrics.make_scorer(metrics.crps, greater_is_better=False),
    ...     "coverage": metrics.make_scorer(metrics.coverage, level=0.9),
    ... }
    >>> X, y = make_cubic(n=100, random_state=0)
    >>> scores = cross_validate(DensityRegressor(epochs=5, random_state=0), X, y, scoring=scoring, cv=2)
    >>> scores["test_neg_crps"].shape
    (2,)
    """
    if not callable(metric):
        raise ValueError(f"metric must be a function of (y_true, mean, std), such as metrics.nll, got {metric!r}.")
    return _PredictiveScorer(metric, 1 if greater_is_better else -1, kwargs)


def register_scorers() -> None:
    """Let scikit-learn know the names "neg_nll" and "neg_crps": ``scoring="neg_nll"`` then works everywhere.

    They are negative, as scikit-learn maximises scores: the mean negative log-likelihood in nats, and the CRPS in the
    target's units, of the Normal that ``predict(X, return_std=True)`` gives. Call it once, before the first use; it
    changes scikit-learn for the whole process, which importing this package does not. Processes that scikit-learn
    starts (``n_jobs``) take the scorers along, but do not know the names: a search inside a cross-validation there
    needs a scorer made by `make_scorer`.

    Examples
    --------
    >>> from sklearn.model_selection import cross_validate
    >>> from density_regression import DensityRegressor, metrics
    >>> from density_regression.datasets import make_cubic
    >>> metrics.register_scorers()
    >>> X, y = make_cubic(n=100, random_state=0)
    >>> reg = DensityRegressor(epochs=5, random_state=0)
    >>> sorted(cross_validate(reg, X, y, scoring=["neg_nll", "neg_crps", "r2"], cv=2))
    ['fit_time', 'score_time', 'test_neg_crps', 'test_neg_nll', 'test_r2']
    """
    _SCORERS.update(SCORERS)
    for names in _names_taken():
        names.update(SCORERS)


class _PredictiveScorer(_BaseScorer):
    """A scorer of what `predict(X, return_std=True)` returns."""

    def _score(self, method_caller: Any, estimator: Any, X: ArrayLike, y_true: ArrayLike, **kwargs: Any) -> float:
        arrays = (_columns(part) for part in (y_true, *_mean_and_std(estimator, X)))
        return float(self._sign * self._score_func(*arrays, **self._kwargs, **kwargs))


SCORERS: Final = {
    "neg_nll": make_scorer(nll, greater_is_better=False),
    "neg_crps": make_scorer(crps, greater_is_better=False),
}
"""What `register_scorers` registers."""


def _mean_and_std(estimator: Any, X: ArrayLike) -> tuple[ArrayLike, ArrayLike]:
    # A search predicts by its best estimator, and passes nothing on but X.
    estimator = getattr(estimator, "best_estimator_", estimator)
    name = type(estimator).__name__
    needed = (
        f"A score of mean and std needs predict(X, return_std=True) to return both, which {name} does not. Regressors "
        "of density_regression do, also last in a pipeline; a TransformedTargetRegressor does not: give y as it is."
    )
    try:
        predicted = estimator.predict(X, return_std=True)
    except (TypeError, AttributeError) as error:
        # Not fitted, or with a bad parameter: scikit-learn's own errors, which say so.
        if isinstance(error, ValueError):
            raise
        raise ValueError(f"{needed} ({type(error).__name__}: {error})") from error
    if not (isinstance(predicted, tuple) and len(predicted) == 2):
        raise ValueError(needed)
    return predicted


def _columns(values: ArrayLike) -> NDArray[Any]:
    """Values of shape (n,) or (n, k) as (n, k): a single target may be either."""
    array = np.asarray(values)
    return array[:, np.newaxis] if array.ndim == 1 else array


def _names_taken() -> Iterator[set[str]]:
    """The names that functions and classes of scikit-learn allow for `scoring`, looked up when they were imported."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "sklearn"]
    for part in [part for module in modules for part in vars(module).values()]:
        if isinstance(part, FunctionType | type):
            constraints = vars(part).get("_skl_parameter_constraints") or vars(part).get("_parameter_constraints")
            for constraint in (constraints or {}).get("scoring", ()):
                if isinstance(constraint, StrOptions) and "neg_mean_squared_error" in constraint.options:
                    yield constraint.options
