"""Rows that are hidden to learn the reach: the ends of random directions of the features."""

from __future__ import annotations

import pytest
import torch

from training.reach_helpers import hidings_of, table, trained


def test_hidden_rows_are_the_ends_and_no_row_is_in_two_parts() -> None:
    rows, held_out = table(300), table(100, seed=1)
    everything = torch.cat([rows.x, held_out.x])[:, 0]
    hidings = hidings_of(trained(rows, held_out), rows, held_out, seed=0)
    assert len(hidings) == 4
    for train, held, hidden in hidings:
        assert torch.equal(torch.cat([train.x, held.x, hidden.x])[:, 0].sort()[0], everything.sort()[0])
        # One dimension has one direction: the outer eighths are hidden whatever its sign.
        assert len(hidden.x) == 100
        # Of the others a fifth is held out.
        assert len(held.x) == 60
        inside = torch.cat([train.x, held.x])[:, 0]
        assert inside.min() > hidden.x[hidden.x < 0].max()
        assert inside.max() < hidden.x[hidden.x > 0].min()
        # Targets and weights stayed with their rows.
        truth = dict(zip(everything.tolist(), torch.cat([rows.y, held_out.y])[:, 0].tolist(), strict=True))
        assert all(truth[x] == y for x, y in zip(hidden.x[:, 0].tolist(), hidden.y[:, 0].tolist(), strict=True))


@pytest.mark.parametrize(("rows", "size"), [(600, 700), (2000, 800), (9500, 1200), (60_000, 3000)])
def test_large_tables_are_sampled(rows: int, size: int) -> None:
    model = trained(table(300, columns=3), table(100, seed=1, columns=3))
    hidings = hidings_of(model, table(rows, columns=3), table(100, seed=1, columns=3), seed=0)
    assert all(sum(len(part.x) for part in hiding) == size for hiding in hidings)


def test_directions_differ() -> None:
    rows, held_out = table(500, columns=3), table(300, seed=1, columns=3)
    hidings = hidings_of(trained(rows, held_out), rows, held_out, seed=0)
    chosen = [set(hiding.hidden.x[:, 0].tolist()) for hiding in hidings]
    assert all(len(a & b) < 0.9 * len(a) for i, a in enumerate(chosen) for b in chosen[:i])


def test_a_table_that_holds_out_itself_is_counted_once() -> None:
    rows = table(300)
    for train, held, hidden in hidings_of(trained(rows, rows), rows, rows, seed=0):
        assert torch.equal(torch.cat([train.x, held.x, hidden.x]).sort(0)[0], rows.x.sort(0)[0])


def test_the_seed_says_what_is_hidden_and_held_out() -> None:
    rows = table(300, columns=3)
    model = trained(rows, rows)
    one, again, other = (hidings_of(model, rows, rows, seed) for seed in (0, 0, 1))
    for part, same, different in zip(one, again, other, strict=True):
        assert all(torch.equal(a.x, b.x) for a, b in zip(part, same, strict=True))
        assert not any(torch.equal(a.x, b.x) for a, b in zip(part, different, strict=True))
        # Held out at random, not from one side.
        assert abs(part.held_out.x.mean() - part.train.x.mean()) < 0.4


def test_rows_are_hidden_by_whitened_features() -> None:
    """One column is ten times larger: as they are, its ends would be hidden along every direction."""
    rows = table(800, columns=2)
    rows = rows._replace(x=rows.x * torch.tensor([1.0, 10.0]))
    hidings = hidings_of(trained(rows, rows), rows, rows, seed=0)
    assert min(hiding.hidden.x[:, 1].abs().min() for hiding in hidings) < 5
