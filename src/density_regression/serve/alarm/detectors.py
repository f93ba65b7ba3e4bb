"""When to ring: evidence against uniform p-values, and its threshold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from density_regression.serve.alarm.betting import Jumper
from density_regression.serve.alarm.ranks import Floats

__all__ = ["Detector", "Evidence", "ShiryaevRoberts", "Stretch", "Ville"]


class Evidence:
    """Evidence against uniform p-values, as a natural logarithm, and the threshold at which the alarm rings."""

    start = -math.inf

    def __init__(self, log_threshold: float) -> None:
        self.log_threshold = log_threshold
        self.log_value = self.start

    def advance(self, factors: Sequence[float]) -> list[float]:
        """Log-evidence after each factor (n,) of the capital, up to the first that reaches the threshold."""
        values = []
        for factor in factors:
            self.log_value = self._after(math.log(factor))
            values.append(self.log_value)
            if self.rings:
                break
        return values

    @property
    def rings(self) -> bool:
        """Whether the threshold is reached."""
        return self.log_value >= self.log_threshold

    def restart(self) -> None:
        """Forget all evidence."""
        self.log_value = self.start

    def _after(self, log_factor: float) -> float:
        raise NotImplementedError


class ShiryaevRoberts(Evidence):
    """The Shiryaev-Roberts e-detector: ``R <- (R + 1) b`` for each factor b (Shin, Ramdas & Rinaldo, 2024).

    R sums the capitals of gamblers of whom one begins at each p-value. While p-values are uniform, each adds 1 to the
    expected R, and each alarm takes away at least the threshold, as R begins anew. So n p-values have at most
    n / threshold alarms on average.
    """

    def _after(self, log_factor: float) -> float:
        # log(R + 1), for a large R too, and for none.
        value = self.log_value
        more = math.log1p(math.exp(value)) if value < 0 else value + math.log1p(math.exp(-value))
        return more + log_factor


class Ville(Evidence):
    """The capital of one gambler, who began at the first p-value: the product of the factors.

    While p-values are uniform it ever reaches a threshold t with a probability of at most 1 / t (Ville, 1939). But the
    capital shrinks in the meantime, so that a late change is found late.
    """

    start = 0.0

    def _after(self, log_factor: float) -> float:
        return self.log_value + log_factor


class Stretch(NamedTuple):
    """P-values in a row, of which the last may ring: where they end, log-evidence after each, whether it rings."""

    stop: int
    log_values: list[float]
    rings: bool


class Detector:
    """A jumper and the evidence that its capital is."""

    def __init__(self, jumper: Jumper, evidence: Evidence) -> None:
        self.jumper, self.evidence = jumper, evidence

    def update(self, p_values: Floats) -> Iterator[Stretch]:
        """Stretches of p-values (n,), each but the last of which ends with an alarm."""
        factors = self.jumper.factors(p_values.tolist())
        start = 0
        while start < len(factors):
            values = self.evidence.advance(factors[start:])
            start += len(values)
            rings = self.evidence.rings
            yield Stretch(start, values, rings)
            if rings:
                self.evidence.restart()

    def to_json(self) -> dict[str, Any]:
        """All that later alarms depend on, beside the settings."""
        value = self.evidence.log_value
        return {"shares": self.jumper.shares, "log_evidence": value if math.isfinite(value) else None}

    def take(self, saved: dict[str, Any]) -> None:
        """Undo `to_json`."""
        shares = [float(share) for share in saved["shares"]]
        if len(shares) != len(self.jumper.bets) or not 0.999 < sum(shares) < 1.001 or min(shares) < 0:
            raise ValueError("the shares of the bets do not sum to 1")
        self.jumper.shares = shares
        value = saved["log_evidence"]
        self.evidence.log_value = self.evidence.start if value is None else float(value)
