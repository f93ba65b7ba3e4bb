"""Which cells of a column are best, and whether one method wins against another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from density_regression.experiments.report.grouping import Column, FloatArray, Group
from density_regression.experiments.report.names import metric
from density_regression.experiments.significance import Test, paired_p_value, tied_with_best

__all__ = ["Options", "Rule", "bold", "outcome"]

Rule = Literal["separate", "calibration-first"]


@dataclass(frozen=True)
class Options:
    """How methods are compared.

    Attributes
    ----------
    test : {"corrected", "plain"}
        The resampled t-test that knows of overlapping training sets, or the paper's.
    rule : {"separate", "calibration-first"}
        Sharpness is never bold, or bold among those tied in calibration, as in the paper's depth table.
    level : float
        A p-value below it is significant.
    """

    test: Test = "corrected"
    rule: Rule = "separate"
    level: float = 0.05

    def __post_init__(self) -> None:
        """Refuse what is unknown."""
        for name, allowed in (("test", get_args(Test)), ("rule", get_args(Rule))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}.")
        if not 0 < self.level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, got {self.level!r}; 0.05 is usual.")


def bold(group: Group, dataset: str, name: str, column: Column, options: Options) -> set[str]:
    """Methods that are best in a column or tied with the best; none where nothing can be compared."""
    known = metric(name)
    if known.better == "unknown" or (known.better == "width" and options.rule == "separate"):
        return set()
    values = column.values
    if known.better == "width":
        calibrated = bold(group, dataset, "cal", group.scores(dataset, "cal"), options)
        values = {method: own for method, own in values.items() if method in calibrated}
    if column.splits < 2 or len(column.values) < 2:
        return set()
    scores = {method: known.score(own) for method, own in values.items()}
    return tied_with_best(scores, column.test_to_train, options.level, options.test)


def outcome(ours: FloatArray, theirs: FloatArray, test_to_train: float, options: Options) -> int:
    """1 if our scores (lower is better) are significantly better, -1 if worse, else 0."""
    if paired_p_value(ours, theirs, test_to_train, options.test) >= options.level:
        return 0
    # Halves, as the difference of two huge scores is no float.
    return -int(np.sign(np.mean((ours / 2 - theirs / 2) / len(ours))))
