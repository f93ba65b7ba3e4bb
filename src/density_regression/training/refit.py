"""Step 3 of Algorithm 1: the head again, with the density in place."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import torch
from torch import Tensor, nn

from density_regression.nn.heads import Head, Moments, gaussian_losses, weighted_mean
from density_regression.nn.model import DensityRegression
from density_regression.nn.network import Features

if TYPE_CHECKING:
    from density_regression.training.progress import Monitor

__all__ = ["REFIT_ROUNDS", "mean_loss", "refit_head"]

REFIT_ROUNDS: Final = 10
REFIT_PATIENCE: Final = 3
"""Most rounds of step 3, and rounds without a better held-out loss after which it ends."""

TAUGHT_DETAIL: Final = 0.9
"""Share that is kept of what a head with disagreement says of the noise of single rows, in place of a learnt one."""


def refit_head(
    model: DensityRegression,
    train: Features,
    held_out: Features,
    progress: Monitor | None = None,
    *,
    rounds: int = REFIT_ROUNDS,
) -> None:
    """Step 3: the head again, with the density in place (`method:2nd-optimization`); the rest stays as it is.

    Full-batch L-BFGS on cached features; the round with the best held-out loss is kept, the start included. With fewer
    rows than features there are no rounds: the likelihood has no maximum. Nor are there for a head with disagreement,
    of which targets say nothing, and which keeps `TAUGHT_DETAIL` of its detail. The bounds of s and the offset are
    learnt in any case.
    """
    taught = model.head.disagreement
    rounds = rounds if len(train.z) > model.head.features and not taught else 0
    if progress is not None:
        progress.step("3/3 head", rounds)
    with torch.no_grad():
        rows = _Rows(train, model.tempered(train.z)).double()
        held = _Rows(held_out, model.tempered(held_out.z)).double()
    head = copy.deepcopy(model.head).double().requires_grad_()
    if rows.log_density is not None and not taught:
        # The density's level goes into the offset: as a change of s it would overflow the natural mean.
        head.offset.fill_(-(rows.features.weight @ rows.log_density) / rows.features.weight.sum())
    best, best_loss = _finished(head, rows, held)
    waited = 0
    for number, _ in enumerate(islice(_lbfgs_rounds(head, rows), rounds), start=1):
        candidate, loss = _finished(head, rows, held)
        if progress is not None:
            with torch.no_grad():
                train_loss = mean_loss(candidate(rows.features.z, rows.log_density), rows.features)
            progress.round("refit_head", number, train_loss, None if held_out is train else loss, loss)
        if loss < best_loss:
            best, best_loss, waited = candidate, loss, 0
        else:
            waited += 1
        if waited == REFIT_PATIENCE:
            break
    model.head.load_state_dict(best.state_dict())
    with torch.no_grad():
        moments = model.row_moments(held_out.z)
    if not (math.isfinite(best_loss) and all(part.isfinite().all() for part in moments)):
        raise ValueError("Training diverged: the head overflows. Scale the inputs and targets, or lower learning_rate.")


def mean_loss(moments: Moments, rows: Features) -> Tensor:
    """Mean Gaussian negative log-likelihood of rows, in nats."""
    return weighted_mean(gaussian_losses(moments, rows.y), rows.weight)


class _Rows(NamedTuple):
    """Features and their tempered log-density (n,), as step 3 sees them."""

    features: Features
    log_density: Tensor | None

    def double(self) -> _Rows:
        log_density = None if self.log_density is None else self.log_density.double()
        return _Rows(Features(*(part.double() for part in self.features)), log_density)


def _lbfgs_rounds(head: Head, rows: _Rows) -> Iterator[None]:
    """Rounds of five iterations of L-BFGS on the mean loss of a head, without end."""
    optimizer = torch.optim.LBFGS(
        head.parameters(), max_iter=5, history_size=20, line_search_fn="strong_wolfe", tolerance_grad=1e-6
    )
    seen: Tensor | None = None
    loss = torch.tensor(math.inf)

    def closure() -> Tensor:
        nonlocal seen, loss
        here = nn.utils.parameters_to_vector(head.parameters()).detach()
        # A round begins where the last one ended: loss and gradient are known.
        if seen is None or not torch.equal(here, seen):
            optimizer.zero_grad()
            loss = mean_loss(head(rows.features.z, rows.log_density), rows.features)
            loss.backward()
            seen = here
        return loss

    while True:
        optimizer.step(closure)
        yield


@torch.no_grad()
def _finished(head: Head, rows: _Rows, held: _Rows) -> tuple[Head, float]:
    """A copy of the head with its bounds and offset set, and its held-out loss (infinite if it is not a number)."""
    head = copy.deepcopy(head)
    head.bound_log_precision(rows.features.z, rows.features.weight)
    if head.disagreement:
        head.shrink_log_precision(TAUGHT_DETAIL, held.features.z, held.features.weight)
    moments = head.calibrate(held.features.z, held.features.y, held.log_density, held.features.weight)
    loss = mean_loss(moments, held.features).item()
    return head, loss if math.isfinite(loss) else math.inf
