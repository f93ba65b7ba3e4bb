"""Bets against uniform p-values: the simple jumper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

__all__ = ["BETS", "Direction", "Jumper"]

Direction = Literal["unfamiliar", "changed"]

BETS: Final[dict[Direction, tuple[float, ...]]] = {"unfamiliar": (-1.0, 0.0), "changed": (-1.0, 0.0, 1.0)}
"""Bets that profit from small p-values alone, and from small or large ones."""


class Jumper:
    """The simple jumper (Vovk et al., 2021): a gambler whose capital grows where p-values are not uniform.

    A bet e multiplies its capital by ``1 + e (p - 1/2)``. Before each p-value the share `rate` of the capital is
    distributed anew over all bets, so that the best bet may change.

    Parameters
    ----------
    bets : sequence of float
        Each between -2 and 2.
    rate : float
        Share that jumps, J.
    """

    def __init__(self, bets: Sequence[float], *, rate: float = 0.01) -> None:
        self.bets = tuple(map(float, bets))
        self.rate = float(rate)
        self.shares: list[Any] = [1.0 / len(bets)] * len(bets)

    def factors(self, p_values: Iterable[Any]) -> list[Any]:
        """By what each p-value multiplies the capital: expected to be 1 if p-values are uniform, whatever came before.

        A p-value may also be an array, of one value for each of several gamblers.
        """
        bets, shares = self.bets, self.shares
        kept, moved = 1.0 - self.rate, self.rate / len(bets)
        factors = []
        for p in p_values:
            excess = p - 0.5
            capital = [(kept * share + moved) * (1.0 + bet * excess) for share, bet in zip(shares, bets, strict=True)]
            factor = sum(capital)
            shares = [part / factor for part in capital]
            factors.append(factor)
        self.shares = shares
        return factors
