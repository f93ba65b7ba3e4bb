"""Scores over batches against the plain functions of all rows at once."""

import copy
import importlib
import math
import pickle
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score
from torch import Tensor

from density_regression import metrics

torchmetrics = pytest.importorskip("torchmetrics", reason="the extra metrics is not installed")
from density_regression.metrics import accumulate  # noqa: E402

Plain = Callable[..., float]
ROWS = ("y_true", "mean", "std")


def point(metric: Plain) -> Plain:
    return lambda y_true, mean, std: metric(y_true, mean)


PAIRS: dict[str, tuple[Callable[[], torchmetrics.Metric], Plain]] = {
    "NLL": (accumulate.NLL, metrics.nll),
    "RMSE": (accumulate.RMSE, point(metrics.rmse)),
    "MAE": (accumulate.MAE, point(metrics.mae)),
    "R2": (accumulate.R2, point(metrics.r2)),
    "CRPS": (accumulate.CRPS, metrics.crps),
    "Sharpness": (accumulate.Sharpness, lambda y_true, mean, std: metrics.sharpness(std)),
    "Sharpness in units": (
        partial(accumulate.Sharpness, unit=2.5),
        lambda y_true, mean, std: metrics.sharpness(std, unit=2.5),
    ),
    "Coverage": (accumulate.Coverage, metrics.coverage),
    "Coverage at a half": (partial(accumulate.Coverage, level=0.5), partial(metrics.coverage, level=0.5)),
    "IntervalScore": (accumulate.IntervalScore, metrics.interval_score),
    "IntervalScore at a half": (
        partial(accumulate.IntervalScore, level=0.5),
        partial(metrics.interval_score, level=0.5),
    ),
    "CalibrationError": (accumulate.CalibrationError, metrics.calibration_error),
    "CalibrationError at 7": (
        partial(accumulate.CalibrationError, levels=7),
        partial(metrics.calibration_error, levels=7),
    ),
    "MiscalibrationArea": (accumulate.MiscalibrationArea, metrics.miscalibration_area),
    "MiscalibrationArea at 7": (
        partial(accumulate.MiscalibrationArea, levels=7),
        partial(metrics.miscalibration_area, levels=7),
    ),
}


@pytest.fixture(params=list(PAIRS), ids=list(PAIRS))
def pair(request: pytest.FixtureRequest) -> tuple[torchmetrics.Metric, Plain]:
    make, plain = PAIRS[request.param]
    return make(), plain


def forecast(n: int = 101, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(2.0, 1.0, size=n), rng.uniform(0.2, 3.0, size=n)
    rows = (mean + 1.5 * std * rng.normal(size=n), mean, std)
    return tuple(torch.tensor(array, dtype=dtype) for array in rows)  # type: ignore[return-value]


def batches(rows: tuple[Tensor, ...], sizes: tuple[int, ...] = (1, 50, 13, 37)) -> list[list[Tensor]]:
    return [list(batch) for batch in zip(*(tensor.split(sizes) for tensor in rows), strict=True)]


def close(value: float) -> object:
    return pytest.approx(value, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_unequal_batches_give_the_score_of_all_rows(
    pair: tuple[torchmetrics.Metric, Plain], dtype: torch.dtype
) -> None:
    metric, plain = pair
    rows = forecast(dtype=dtype)
    for batch in batches(rows):
        metric.update(*batch)
    result = metric.compute()
    assert result.shape == ()
    assert result.dtype == torch.float64
    assert result.item() == close(plain(*(tensor.double().numpy() for tensor in rows)))


def test_forward_gives_the_score_of_the_batch_and_keeps_the_rest(pair: tuple[torchmetrics.Metric, Plain]) -> None:
    metric, plain = pair
    rows = forecast()
    for batch in batches(rows, (30, 70, 1)):
        assert metric(*batch).item() == close(plain(*(tensor.numpy() for tensor in batch)))
    assert metric.compute().item() == close(plain(*(tensor.numpy() for tensor in rows)))


def test_reset_forgets(pair: tuple[torchmetrics.Metric, Plain]) -> None:
    metric, plain = pair
    metric.update(*forecast(seed=1))
    metric.reset()
    rows = forecast(seed=2)
    metric.update(*rows)
    assert metric.compute().item() == close(plain(*(tensor.numpy() for tensor in rows)))


def test_masked_entries_do_not_count(pair: tuple[torchmetrics.Metric, Plain]) -> None:
    metric, plain = pair
    rows = tuple(tensor[:100].reshape(5, 4, 5).clone() for tensor in forecast())
    mask = torch.rand(5, 4, 5, generator=torch.Generator().manual_seed(0)) < 0.6
    mask[0] = False
    kept = [tensor[mask].numpy() for tensor in rows]
    for tensor, junk in zip(rows, (math.nan, math.inf, -1.0), strict=True):
        tensor[~mask] = junk
    for index in range(5):
        metric.update(*(tensor[index] for tensor in rows), mask=mask[index])
    assert metric.compute().item() == close(plain(*kept))


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (2, 1, 3, 4)])
def test_any_shape_counts_every_entry(pair: tuple[torchmetrics.Metric, Plain], shape: tuple[int, ...]) -> None:
    metric, plain = pair
    rows = forecast(math.prod(shape))
    metric.update(*(tensor.reshape(shape) for tensor in rows))
    assert metric.compute().item() == close(plain(*(tensor.numpy() for tensor in rows)))


@pytest.mark.parametrize(
    "rows",
    [
        ([0.1, 0.1, 0.1], [0.1, 0.1, 0.1], [1.0, 1.0, 1.0]),
        ([0.1, 0.1, 0.1], [0.1, 0.2, 0.1], [1.0, 1e-8, 1e8]),
        ([-1e150, 1e150, 0.0], [0.0, 0.0, 0.0], [1e150, 1e150, 1e150]),
    ],
    ids=["no error", "constant target", "huge"],
)
def test_degenerate_rows(pair: tuple[torchmetrics.Metric, Plain], rows: tuple[list[float], ...]) -> None:
    metric, plain = pair
    for index in range(3):
        metric.update(*(torch.tensor(column[index], dtype=torch.float64) for column in rows))
    assert metric.compute().item() == close(plain(*rows))


def test_hopeless_targets_do_not_count_at_level_zero() -> None:
    metric = accumulate.CalibrationError(levels=3)
    rows = [torch.tensor([value], dtype=torch.float64) for value in (-1e300, 0.0, 1e-300)]
    metric.update(*rows)
    assert metric.compute().item() == close(metrics.calibration_error(*(row.numpy() for row in rows), levels=3))


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_nothing_gives_nan(pair: tuple[torchmetrics.Metric, Plain]) -> None:
    metric, _ = pair
    assert math.isnan(metric.compute())
    metric.reset()
    assert math.isnan(metric(*forecast(4), mask=torch.zeros(4, dtype=torch.bool)))


def test_memory_is_fixed(pair: tuple[torchmetrics.Metric, Plain]) -> None:
    metric, _ = pair
    metric.update(*forecast(2))
    sizes = {name: state.shape for name, state in metric.metric_state.items()}
    metric.update(*forecast(500))
    for name, state in metric.metric_state.items():
        assert state.shape == sizes[name]
        assert state.dtype == torch.float64


def test_copies_and_pickles(pair: tuple[torchmetrics.Metric, Plain]) -> None:
    metric, plain = pair
    rows = forecast()
    first, second = batches(rows, (60, 41))
    metric.update(*first)
    for other in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        other.update(*second)
        assert other.compute().item() == close(plain(*(tensor.numpy() for tensor in rows)))


def test_two_metrics_merge(pair: tuple[torchmetrics.Metric, Plain]) -> None:
    metric, plain = pair
    other = copy.deepcopy(metric)
    rows = forecast()
    first, second = batches(rows, (60, 41))
    metric.update(*first)
    other.update(*second)
    metric.merge_state(other)
    assert metric.compute().item() == close(plain(*(tensor.numpy() for tensor in rows)))


def test_a_collection_takes_them_all() -> None:
    rows = forecast()
    collection = torchmetrics.MetricCollection([getattr(accumulate, name)() for name in accumulate.__all__])
    for batch in batches(rows):
        collection.update(*batch)
    result = collection.compute()
    assert set(result) == set(accumulate.__all__)
    for name, value in result.items():
        assert value.item() == close(PAIRS[name][1](*(tensor.numpy() for tensor in rows)))


def test_gradients_are_not_kept() -> None:
    metric = accumulate.NLL()
    y_true, mean, std = forecast(5)
    metric.update(y_true, mean.requires_grad_(), std)
    assert not metric.compute().requires_grad


# R2, which has columns and must not lose the spread of a distant target


def test_r2_of_columns() -> None:
    rows = [tensor[:100].reshape(50, 2) * torch.tensor([1.0, 1e6]) for tensor in forecast()]
    metric = accumulate.R2(columns=2)
    for batch in batches(tuple(rows), (1, 30, 19)):
        metric.update(*batch)
    assert metric.compute().item() == pytest.approx(r2_score(rows[0], rows[1]), rel=1e-9)
    assert metric.compute().item() == pytest.approx(metrics.r2(rows[0].numpy(), rows[1].numpy()), rel=1e-9)


def test_r2_of_columns_with_a_mask_and_more_dimensions() -> None:
    rows = [tensor[:96].reshape(4, 8, 3) for tensor in forecast()]
    mask = torch.rand(4, 8, 3, generator=torch.Generator().manual_seed(1)) < 0.5
    metric = accumulate.R2(columns=3)
    for index in range(4):
        metric.update(*(tensor[index] for tensor in rows), mask=mask[index])
    columns = [[tensor[..., k][mask[..., k]].numpy() for tensor in rows] for k in range(3)]
    expected = np.mean([metrics.r2(y_true, mean) for y_true, mean, _ in columns])
    assert metric.compute().item() == pytest.approx(expected, rel=1e-9)


def test_r2_far_from_zero() -> None:
    y_true, mean, std = forecast()
    metric = accumulate.R2()
    for batch in batches((y_true + 1e8, mean + 1e8, std)):
        metric(*batch)
    assert metric.compute().item() == pytest.approx(metrics.r2(y_true.numpy(), mean.numpy()), rel=1e-6)


def test_r2_refuses_other_columns() -> None:
    for shape in ((3,), (4, 3), ()):
        with pytest.raises(ValueError, match="y_true must have 2 columns"):
            accumulate.R2(columns=2).update(*(torch.ones(shape) for _ in ROWS))
    with pytest.raises(ValueError, match="columns must be an integer of at least 1"):
        accumulate.R2(columns=0)


# Input to refuse


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_values(pair: tuple[torchmetrics.Metric, Plain], index: int, bad: float) -> None:
    rows = [tensor.clone() for tensor in forecast(3)]
    rows[index][1] = bad
    with pytest.raises(ValueError, match=f"{ROWS[index]} has 1 NaN or infinite values out of 3"):
        pair[0].update(*rows)


@pytest.mark.parametrize("bad", [0.0, -1.0])
def test_std_must_be_positive(pair: tuple[torchmetrics.Metric, Plain], bad: float) -> None:
    y_true, mean, std = forecast(3)
    std[1] = bad
    with pytest.raises(ValueError, match="std must be positive, got 1 values <= 0"):
        pair[0].update(y_true, mean, std)


def test_shapes_and_masks_must_agree(pair: tuple[torchmetrics.Metric, Plain]) -> None:
    metric, _ = pair
    y_true, mean, std = forecast(3)
    with pytest.raises(ValueError, match="mean must have the shape of y_true"):
        metric.update(y_true, mean[:1], std)
    with pytest.raises(ValueError, match="std must have the shape of y_true"):
        metric.update(y_true, mean, std[:, None])
    with pytest.raises(ValueError, match="mask must have the shape of y_true"):
        metric.update(y_true, mean, std, mask=torch.ones(1, dtype=torch.bool))
    with pytest.raises(ValueError, match="mask must be of dtype bool"):
        metric.update(y_true, mean, std, mask=torch.ones(3))


def test_options_are_checked() -> None:
    for make in (accumulate.Coverage, accumulate.IntervalScore):
        with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
            make(level=1.0)
    for make in (accumulate.CalibrationError, accumulate.MiscalibrationArea):
        with pytest.raises(ValueError, match="levels must be an integer of at least 2"):
            make(levels=1)
    with pytest.raises(ValueError, match="unit must be positive"):
        accumulate.Sharpness(unit=0.0)


# Without torchmetrics


def test_without_torchmetrics_the_error_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "density_regression.metrics.accumulate"
    for module in [module for module in sys.modules if module.startswith(name)]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    with pytest.raises(ImportError, match=rf"{name} needs torchmetrics, .* density-regression\[metrics\]"):
        importlib.import_module(name)
