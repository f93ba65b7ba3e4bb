"""Comparison over data sets: which count, by which figure, and what the report says of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from density_regression.experiments.report.comparison import ComparisonOptions
from density_regression.experiments.report.document import ResultTable
from density_regression.experiments.report.grouping import Group, groups_of
from density_regression.experiments.report.html import html
from density_regression.experiments.report.latex import latex
from density_regression.experiments.report.markdown import markdown
from density_regression.experiments.report.names import metric
from density_regression.experiments.report.over_datasets import OverDatasets, over_datasets
from density_regression.experiments.report.sections import build_report
from experiments.helpers import Record, cells, make

OURS = "Density-Regression"
SETS = [f"set {number}" for number in range(6)]


def records(values: dict[str, list[dict[str, float]]], suite: str = "uci") -> list[Record]:
    """Two splits of each data set, about the metrics of each method on it."""
    return [
        make(method, dataset, split, suite=suite, metrics={key: value + step for key, value in own.items()})
        for method, sets in values.items()
        for dataset, own in zip(SETS, sets, strict=False)
        for split, step in enumerate((-0.001, 0.001))
    ]


def compared(values: dict[str, list[dict[str, float]]]) -> OverDatasets:
    found = over_datasets(group(values), ComparisonOptions())
    assert found is not None
    return found


def group(values: dict[str, list[dict[str, float]]]) -> Group:
    (only,) = groups_of(records(values))
    return only


def table(found: OverDatasets, title: str) -> ResultTable:
    (only,) = (one for one in found.tables if one.title == title)
    return only


WINS = f"Data sets on which {OURS} is better than each method"


def test_each_data_set_counts_once() -> None:
    ours = [{"nll": 1.0} for _ in SETS]
    better = [{"nll": 2.0 + number} for number in range(6)]
    mixed = [{"nll": 1.0 + 0.1 * number * (-1) ** number} for number in range(6)]
    found = compared({OURS: ours, "Gaussian": better, "Quantile": mixed})
    shown = cells(table(found, WINS), "NLL")
    assert shown["Gaussian"].text == "6 of 6, p = 0.0312"
    # Differences 0, 0.1, -0.2, 0.3, -0.4, 0.5: negative ranks sum to 6, as or less do those of 13 of 32 patterns.
    assert shown["Quantile"].text == "2 of 6, p = 0.812"
    assert OURS not in shown
    assert not shown["Quantile"].bold


def test_bold_is_significant_after_holms_correction() -> None:
    ours = [{"nll": 1.0} for _ in SETS]
    better = [{"nll": 2.0 + number} for number in range(6)]
    alone = compared({OURS: ours, "Gaussian": better})
    assert cells(table(alone, WINS), "NLL")["Gaussian"].bold
    both = compared({OURS: ours, "Gaussian": better, "EDL": better})
    assert not cells(table(both, WINS), "NLL")["Gaussian"].bold
    worse = compared({OURS: better, "Gaussian": ours})
    cell = cells(table(worse, WINS), "NLL")["Gaussian"]
    assert (cell.text, cell.bold) == ("0 of 6, p = 0.0312, worse", False)


def test_units_do_not_decide() -> None:
    units = [10.0**number for number in range(6)]
    ratios = [2.0, 0.5, 3.0, 4.0, 5.0, 0.9]
    ours = [{"crps": unit, "rmse": unit} for unit in units]
    theirs = [{"crps": unit * ratio, "rmse": unit * ratio} for unit, ratio in zip(units, ratios, strict=True)]
    shown = table(compared({OURS: ours, "Gaussian": theirs}), WINS)
    # By their ratios, ranks are 2.5 (tied with 0.5, but for the steps), 2.5, 4, 5, 6 and 1, worse in two.
    for label in ("CRPS", "RMSE"):
        text = cells(shown, label)["Gaussian"].text
        assert text.startswith("4 of 6, p = ")
        assert 0.15 < float(text.split()[-1]) < 0.25


def test_only_the_others_are_rescaled() -> None:
    ours = [{"nll": 1.0, "nll_rescaled": -9.0} for _ in SETS]
    theirs = [{"nll": 5.0, "nll_rescaled": 0.5} for _ in SETS]
    found = compared({OURS: ours, "Gaussian": theirs})
    assert cells(table(found, WINS), "NLL")["Gaussian"].text.startswith("6 of 6")
    rescaled = table(found, f"{WINS}, the others rescaled")
    assert cells(rescaled, "NLL")["Gaussian"].text.startswith("0 of 6")
    ranks = cells(table(found, "Mean rank over data sets, the others rescaled"), "NLL")
    assert {method: cell.text for method, cell in ranks.items()} == {OURS: "2.00", "Gaussian": "1.00"}
    assert [(one.metric, one.rescaled) for one in found.ranks if one.metric == "nll"] == [("nll", False), ("nll", True)]


def test_data_sets_that_one_lacks_are_left_out() -> None:
    ours = [{"nll": 1.0} for _ in SETS]
    found = compared({OURS: ours, "Gaussian": [{"nll": 2.0}] * 6, "EDL": [{"nll": 2.0}] * 3})
    shown = cells(table(found, WINS), "NLL")
    assert shown["Gaussian"].text.startswith("6 of 6")
    assert shown["EDL"].text == "3 of 3, p = 0.250"


def test_means_over_data_sets() -> None:
    ours = [{"std_factor": factor, "auroc_std": 0.5 + number / 10} for number, factor in enumerate((0.5, 2.0) * 3)]
    found = compared({OURS: ours, "Gaussian": ours})
    shown = table(found, "Mean over data sets")
    assert cells(shown, "AUROC of std")[OURS].value == pytest.approx(0.75)
    assert cells(shown, "Standard-deviation factor")[OURS].value == pytest.approx(1.0, abs=1e-3)


def test_a_factor_of_two_is_as_far_as_one_half() -> None:
    np.testing.assert_allclose(metric("std_factor").score(np.array([0.5, 1.0, 2.0])), math.log(2) * np.array([1, 0, 1]))


def test_few_data_sets_are_not_compared_this_way() -> None:
    values = {OURS: [{"nll": 1.0}] * 4, "Gaussian": [{"nll": 2.0}] * 4}
    assert over_datasets(group(values), ComparisonOptions()) is None
    section = build_report(records(values), ComparisonOptions())
    assert "Over data sets" not in markdown(section)
    assert "Mean rank over data sets" in markdown(section)


def test_the_pages_have_it() -> None:
    values = {
        name: [{"nll": 1.0 + place + number, "nll_rescaled": 1.0 + place} for number in range(6)]
        for place, name in enumerate((OURS, "Gaussian", "EDL"))
    }
    section = build_report(records(values, suite="wine"), ComparisonOptions())
    for page in (markdown(section), latex(section), html(section)):
        assert page.count("Over data sets") >= 2
        assert "6 of 6, p = 0.0312" in page
        assert "signed-rank" in page
    names = [picture.name for picture in section.all_pictures() if picture.name.endswith("ranks.svg")]
    assert "wine-paper-wine_white-nll-ranks.svg" in names
    assert "wine-paper-wine_white-nll-rescaled-ranks.svg" in names
    assert len(names) == len(set(names))
