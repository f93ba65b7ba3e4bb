"""Which models learn a reach, and how the networks for it are trained."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from density_regression import DensityRegressor
from density_regression.datasets import make_cubic
from density_regression.nn.runtime import TrainingOptions
from density_regression.nn.tempering import DEFAULT_REACH, RobustTempering
from density_regression.training import algorithm
from density_regression.training.batches import TensorBatches
from density_regression.training.reach import Hiding, can_learn_reach
from training.reach_helpers import QUICK, learnt, on_inputs, table


@pytest.mark.parametrize(
    ("settings", "rows", "expected"),
    [
        ({}, 100, True),
        ({}, 99, False),
        ({"density": None}, 500, False),
        ({"tempering": "exact"}, 500, False),
        ({"tempering": RobustTempering(reach=3.0)}, 500, False),
    ],
)
def test_what_can_learn_a_reach(settings: dict[str, Any], rows: int, expected: bool) -> None:
    assert can_learn_reach(on_inputs(**settings), rows) is expected


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize(
    ("rows", "given", "expected"),
    [
        # About 200 steps of batches of 128, but at most 50 epochs, and no more of either than the caller's.
        (1000, {"epochs": 100, "patience": None}, (25, 50)),
        (1100, {"epochs": 100, "patience": 200}, (23, 50)),
        (128, {"epochs": 100, "patience": 7}, (50, 7)),
        (1000, {"epochs": 10, "patience": 30}, (10, 30)),
    ],
)
def test_training_is_short(
    rows: int, given: dict[str, Any], expected: tuple[int, int], stacked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[Any, ...]] = []

    def together(networks: Any, trains: Any, held_outs: Any, *, refit: bool = True, **how: Any) -> bool:
        # The head of step 1 will do.
        assert not refit
        told.extend(zip(networks, trains, held_outs, how.pop("seeds"), [how] * len(networks), strict=True))
        return stacked

    def alone(network: Any, train: Any, held_out: Any, **how: Any) -> None:
        # Targets are scaled already.
        assert not how["scale_targets"]
        told.append((network, train, held_out, how["options"].seed, how))

    tables = [[table(n, seed=10 * i + n) for n in (rows, 40, 30)] for i in range(2)]
    hidings = [Hiding(*parts) for parts in tables]
    probes, seeds = [on_inputs() for _ in hidings], [5, 6]
    left = iter(hidings)
    monkeypatch.setattr(algorithm, "fit_density_regressions_together", together)
    monkeypatch.setattr(algorithm, "fit_density_regression", alone)
    monkeypatch.setattr(algorithm, "hide_rows", lambda *_: [next(left)])
    monkeypatch.setattr(algorithm, "choose_reach", lambda *_: None)
    options = TrainingOptions(learning_rate=0.02, seed=1, **given)
    own = [TensorBatches(*table(9), 9)] * 2
    algorithm.learn_reach([on_inputs(), on_inputs()], own, own, [[probe] for probe in probes], options, seeds)
    # Together, if that can be; else each of them once more.
    assert len(told) == (2 if stacked else 4)
    work = list(zip(probes, hidings, seeds, strict=True))
    for (network, train, held_out, used, how), (probe, hiding, seed) in zip(
        told, work if stacked else 2 * work, strict=True
    ):
        assert network is probe
        assert used == seed
        assert not how["verbose"]
        assert (how["options"].epochs, how["options"].patience, how["options"].learning_rate) == (*expected, 0.02)
        (x, *_), *others = held_out
        assert torch.equal(x, hiding.held_out[0])
        assert not others
        assert len(train) == math.ceil(rows / 128)
        # In an order that is the seed's.
        train.rewind()
        shuffled = TensorBatches(*hiding.train, 128, torch.Generator().manual_seed(seed))
        assert all(torch.equal(a[0], b[0]) for a, b in zip(train, shuffled, strict=True))


def test_each_model_has_networks_and_rows_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    trained_at_once: list[list[Any]] = []
    chosen: list[tuple[Any, ...]] = []
    one_row = ([0.0], [0.0], [1.0])
    monkeypatch.setattr(algorithm, "hide_rows", lambda *which: [Hiding(one_row, which, i) for i in range(4)])
    monkeypatch.setattr(algorithm, "_train_probes", lambda work, options: trained_at_once.append([*work, options]))
    monkeypatch.setattr(algorithm, "choose_reach", lambda *which: chosen.append(which))
    models = [torch.nn.Identity() for _ in range(11)]
    trains, held_outs = ([SimpleNamespace(rows=f"{name} {i}") for i in range(11)] for name in ("train", "held out"))
    seeds = [100 * i for i in range(11)]
    probes = [[f"probe {i} {k}" for k in range(4)] for i in range(11)]
    algorithm.learn_reach(models, trains, held_outs, probes, TrainingOptions(epochs=3, seed=7), seeds)
    # Forty at a time.
    assert [len(part) - 1 for part in trained_at_once] == [40, 4]
    assert {part.pop() for part in trained_at_once} == {TrainingOptions(epochs=3, seed=7)}
    work = [one for part in trained_at_once for one in part]
    assert len(chosen) == 11
    for i, (model, held_out, networks, hidings) in enumerate(chosen):
        assert (model, held_out, networks) == (models[i], f"held out {i}", probes[i])
        which = (models[i], f"train {i}", f"held out {i}", 4, seeds[i])
        assert hidings == [Hiding(one_row, which, k) for k in range(4)]
        assert work[4 * i : 4 * i + 4] == [
            (network, hiding, seeds[i] + k) for k, (network, hiding) in enumerate(zip(networks, hidings, strict=True))
        ]


def test_fresh_networks_depend_on_the_seed_alone_and_differ() -> None:
    rows = table(200)
    regressor = DensityRegressor(hidden=(4,), members=0)
    model = regressor._build(regressor._encoder(1), rows)

    def fresh(seed: int) -> list[torch.Tensor]:
        torch.rand(3)
        before = torch.get_rng_state()
        networks = regressor._probes(model, rows, table(50), seed)
        assert torch.equal(torch.get_rng_state(), before)
        return [nn.utils.parameters_to_vector(network.parameters()).detach() for network in networks]

    first, again, other = fresh(0), fresh(0), fresh(1)
    assert len(first) == 4
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))
    assert not any(torch.equal(one, another) for one in first for another in other)
    assert not any(torch.equal(one, another) for i, one in enumerate(first) for another in first[:i])


@pytest.mark.parametrize(
    "settings",
    [{"tempering": "exact"}, {"tempering": "rescaled"}, {"density": None}, {"tempering": RobustTempering(reach=3.0)}],
    ids=str,
)
def test_what_has_no_reach_to_learn_trains_no_further_networks(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("networks were trained")

    monkeypatch.setattr(algorithm, "_train_probes", refuse)
    X, y = make_cubic(n=200, random_state=0)
    regressor = DensityRegressor(**QUICK, **settings).fit(X, y)
    if isinstance(settings.get("tempering"), RobustTempering):
        assert learnt(regressor) == 3.0
    with pytest.raises(AssertionError, match="networks"):
        DensityRegressor(**QUICK).fit(X, y)
    encoder = nn.Sequential(nn.Linear(1, 8), nn.ReLU())
    assert learnt(DensityRegressor.from_trained(encoder, X, y, **QUICK)) == DEFAULT_REACH
