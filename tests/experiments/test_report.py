"""The report: which records make which tables, and what is bold."""

import numpy as np
import pytest

from density_regression.experiments.report.comparison import (
    ComparisonOptions,
    outcome,
    rank_table,
    ranks_of,
    win_cell,
    win_table,
)
from density_regression.experiments.report.document import EMPTY, TableCell, compact, plus_minus
from density_regression.experiments.report.grouping import groups_of, results_of
from density_regression.experiments.report.markdown import markdown
from density_regression.experiments.report.names import in_order
from density_regression.experiments.report.paper import paper_result
from density_regression.experiments.report.sections import build_report
from density_regression.experiments.report.tables import appendix_table, cost_tables, failure_table, main_tables
from density_regression.experiments.significance import mean_and_sd
from experiments.helpers import NOISE, SETS, Record, about, bold, cells, column, fail, make, only


@pytest.mark.parametrize(
    ("mean", "sd", "text"),
    [
        (2.644, 0.2561, "2.64 ± 0.26"),
        (-0.9621, 0.0731, "-0.962 ± 0.073"),
        (123.4, 5.67, "123 ± 6"),
        (1.234e5, 2.0, "1.2e+05 ± 2.00"),
        (1e300, 3e299, "1.0e+300 ± 3.0e+299"),
        (0.0013, 5.2, "0.00 ± 5.20"),
        (4.4e-5, 1.2e-6, "4.4e-05 ± 1.2e-06"),
        (0.0, 0.0, "0 ± 0"),
        (2.5, float("nan"), "2.50"),
    ],
)
def test_numbers_stay_short(mean: float, sd: float, text: str) -> None:
    assert plus_minus(mean, sd) == text


def test_compact_keeps_three_digits() -> None:
    assert [compact(value) for value in (1.2345, 12.345, 123.45, 9999.0, 12345.0, 0.00012)] == [
        "1.23",
        "12.3",
        "123",
        "9999",
        "1.2e+04",
        "1.2e-04",
    ]


def test_mean_and_sd_of_huge_values() -> None:
    mean, sd = mean_and_sd([1e300, 3e300])
    assert mean == pytest.approx(2e300)
    assert sd == pytest.approx(np.sqrt(2) * 1e300)
    assert mean_and_sd([1.0, 2.0, 4.0]) == pytest.approx((7 / 3, np.std([1, 2, 4], ddof=1)))
    assert np.isnan(mean_and_sd([3.0])[1])
    assert mean_and_sd([0.0, 0.0]) == (0, 0)


def test_names_come_in_the_usual_order() -> None:
    found = in_order(["Zed", "Deep Ensembles", "Gaussian", "alpha", "Gaussian", "Density-Regression"], "method")
    assert found == ["Density-Regression", "Gaussian", "Deep Ensembles", "alpha", "Zed"]
    assert in_order(["rmse", "mae", "nll"], "metric") == ["nll", "rmse", "mae"]


def test_the_papers_figures_where_the_data_are_the_same() -> None:
    assert paper_result("uci", "paper", "boston", "test", "Gaussian", "nll") == "2.64 ± 0.26"
    assert paper_result("uci", "paper", "boston", "test", "Deep Ensembles", "nll") == "2.30 ± 0.07"
    assert paper_result("uci", "paper", "wine_red", "test", "Density-Regression", "sharpness_sd") == "1.16 ± 0.00"
    assert paper_result("wine", "paper", "wine_red", "wine_red", "Density-Regression", "cal") == "0.68 ± 0.02"
    assert paper_result("wine", "paper", "wine_red", "wine_white", "Density-Regression", "cal") == "0.43 ± 0.20"


@pytest.mark.parametrize(
    "place",
    [
        ("uci", "tuned", "boston", "test", "Gaussian", "nll"),
        ("uci", "paper", "boston", "test", "Deterministic", "nll"),
        ("uci", "paper", "boston", "test", "NatPN", "nll"),
        ("uci", "paper", "boston", "test", "Gaussian", "crps"),
        ("uci", "paper", "year_partial_90feat", "test", "Gaussian", "nll"),
        ("uci", "paper", "time-series", "test", "Gaussian", "nll"),
        ("uci-shift", "paper", "boston", "test", "Gaussian", "nll"),
        ("weather", "paper", "time-series", "time-series", "Gaussian", "nll"),
        ("wine", "paper", "wine_red", "test", "Gaussian", "nll"),
    ],
)
def test_no_figure_of_the_paper_elsewhere(place: tuple[str, str, str, str, str, str]) -> None:
    assert paper_result(*place) == ""


def test_a_table_shows_means_over_common_splits_and_the_papers_figure() -> None:
    records = column({"Gaussian": [1.0, 2.0, 6.0], "Quantile": [5.0, 7.0]})
    (table,) = main_tables(only(records), ComparisonOptions())
    found = cells(table, "NLL")
    assert found["Gaussian"].text == "1.50 ± 0.71"
    assert found["Gaussian"].paper == "2.64 ± 0.26"
    assert found["Quantile"].value == 6
    assert any("2 of 3 (missing: Quantile)" in note for note in table.notes)
    assert any("our Gaussian" in note for note in table.notes)


def test_data_sets_are_columns_where_there_are_several() -> None:
    records = [make(method, dataset, split) for method in ("EDL", "SNGP") for dataset in ("b", "a") for split in (0, 1)]
    tables = main_tables(only([*records, make("DUE", "a", 0), make("DUE", "a", 1)]), ComparisonOptions())
    assert [table.title for table in tables][:2] == ["NLL", "RMSE"]
    assert tables[0].header == ("Method", "a", "b")
    assert [row[0].text for row in tables[0].rows] == ["EDL", "SNGP", "DUE"]
    assert cells(tables[0], "b")["DUE"].text == "–"
    assert tables[0].notes == ("Over 2 splits.",)
    assert not any("paper" in note for note in tables[0].notes)


def test_bold_is_best_and_tied() -> None:
    values = {"Gaussian": about(1.0), "Quantile": about(1.001, -1), "EDL": about(2.0)}
    assert bold(column(values), "NLL") == {"Gaussian", "Quantile"}


@pytest.mark.parametrize(
    ("name", "label", "values", "best"),
    [
        ("auroc_std", "AUROC of std", {"Gaussian": 0.9, "EDL": 0.6}, "Gaussian"),
        ("coverage_95", "Coverage of 95 % intervals", {"Gaussian": 0.995, "EDL": 0.85, "DUE": 0.95}, "DUE"),
        ("rmse", "RMSE", {"Gaussian": 0.9, "EDL": 0.6}, "EDL"),
    ],
)
def test_which_way_is_better(name: str, label: str, values: dict[str, float], best: str) -> None:
    records = column({method: about(value) for method, value in values.items()}, name)
    assert bold(records, label) == {best}


def test_sharpness_is_bold_only_among_the_calibrated_and_only_by_that_rule() -> None:
    cal = {"Gaussian": 0.1, "EDL": 0.1, "DUE": 5.0}
    sharp = {"Gaussian": 0.5, "EDL": 0.4, "DUE": 0.1}
    records = [
        make(method, split=split, metrics={"cal": cal[method], "sharpness_sd": sharp[method] + NOISE[split]})
        for method in cal
        for split in range(6)
    ]
    label = "Sharpness (training sd)"
    assert bold(records, label) == set()
    assert bold(records, label, ComparisonOptions(rule="calibration-first")) == {"EDL"}


def test_nothing_is_bold_where_nothing_is_compared() -> None:
    assert bold(column({"Gaussian": about(1.0)}), "NLL") == set()
    assert bold(column({"Gaussian": [1.0], "EDL": [2.0]}), "NLL") == set()
    (table,) = main_tables(only(column({"Gaussian": [1.0], "EDL": [2.0]})), ComparisonOptions())
    assert any("nothing is tested" in note for note in table.notes)


def test_the_test_is_that_of_the_options_and_knows_the_share_of_test_rows() -> None:
    edge = [0.8 + sign for sign in (1.0, -1.0) * 5]
    records = column({"Gaussian": [0.0] * 10, "EDL": edge})
    assert only(records).scores("boston", "nll").test_to_train == pytest.approx(10 / 90)
    assert bold(records, "NLL") == {"Gaussian", "EDL"}
    assert bold(records, "NLL", ComparisonOptions(test="plain")) == {"Gaussian"}
    assert bold(records, "NLL", ComparisonOptions(test="plain", level=0.01)) == {"Gaussian", "EDL"}
    # Data that are drawn anew for each seed do not overlap.
    fresh = groups_of(results_of(column({"Gaussian": [0.0] * 10, "EDL": edge}, suite="cubic", dataset="cubic")))[0]
    assert fresh.scores("cubic", "nll").test_to_train == 0


def test_shifted_sets_use_the_overlap_of_the_first() -> None:
    records = [make(method, "wine_red", split, suite="wine") for method in ("EDL", "DUE") for split in (0, 1)]
    for record in records:
        record["tests"]["wine_white"]["rows"] = 5000
    red, white = groups_of(results_of(records))
    assert (red.test_set, red.shifted, white.test_set, white.shifted) == ("wine_red", False, "wine_white", True)
    assert white.scores("wine_red", "nll").test_to_train == pytest.approx(10 / 90)


def test_huge_values_are_shown_and_lose() -> None:
    values = {"Gaussian": about(1.0), "EDL": [1e300, 1e300, 9e299, 1e300, 1e300, 1e300]}
    with np.errstate(all="raise"):
        assert bold(column(values), "NLL") == {"Gaussian"}
        (table,) = main_tables(only(column(values)), ComparisonOptions())
    assert cells(table, "NLL")["EDL"].text == "9.8e+299 ± 4.1e+298"


def test_the_last_record_of_a_cell_counts_and_searches_do_not() -> None:
    old, new = make(metrics={"nll": 1.0}), make(metrics={"nll": 2.0})
    (kept,) = results_of([old, new, make(split="search 0", search=True)])
    assert kept is new
    assert results_of([new, fail(old)]) == [new]
    assert results_of([fail(old), new]) == [new]


def test_fits_of_one_split_from_several_seeds_are_no_further_splits() -> None:
    rng = np.random.default_rng(0)
    records = [
        make(method, split=split, metrics={"nll": float(split + seed + rng.normal())}, seed=seed)
        for method in ("Gaussian", "EDL")
        for split in range(4)
        for seed in range(3)
    ]
    scores = only(records).scores("boston", "nll")
    assert scores.splits == scores.total == 4
    means = [np.mean([r["tests"]["test"]["metrics"]["nll"] for r in records[3 * i : 3 * i + 3]]) for i in range(8)]
    np.testing.assert_allclose(scores.values["Gaussian"], means[:4])
    np.testing.assert_allclose(scores.values["EDL"], means[4:])
    # A fit that another method lacks counts for neither.
    scores = only(records[:-1]).scores("boston", "nll")
    assert scores.splits == 4
    np.testing.assert_allclose(scores.values["Gaussian"][:3], means[:3])
    assert scores.values["Gaussian"][3] != pytest.approx(means[3])
    (table,) = main_tables(only(records[:-1]), ComparisonOptions())
    assert any("NLL 4 of 4 (seeds missing: EDL)" in note for note in table.notes)


def test_wins_are_told_by_the_splits_that_the_two_have() -> None:
    records = [make("Density-Regression", split=i, metrics={"nll": 1.0 + 0.01 * i}) for i in range(5)]
    records += [make("Deep Ensembles", split=i, metrics={"nll": 2.0 + 0.011 * i}) for i in range(5)]
    group = only([*records, make("DUE", split=0)])
    assert win_cell(group, "Deep Ensembles", "nll", ComparisonOptions()).text == "1 / 0 / 0"
    assert win_cell(group, "DUE", "nll", ComparisonOptions()) == EMPTY


def test_shifted_is_what_no_record_has_first() -> None:
    def moved(record: Record, names: dict[str, str]) -> Record:
        return record | {"tests": {names[name]: entry for name, entry in record["tests"].items()}}

    first, second = SETS["weather"]
    records = [make(suite="weather"), moved(make(suite="weather", dataset="other"), {first: "other", second: second})]
    assert [(group.test_set, group.shifted) for group in groups_of(records)] == [
        (first, False),
        (second, True),
        ("other", False),
    ]


def test_several_commits_are_named() -> None:
    records = [make(), make("EDL", commit="bbb")]
    (table,) = main_tables(only(records), ComparisonOptions())
    assert any("aaa, bbb" in note for note in table.notes)
    (table,) = main_tables(only(records[:1]), ComparisonOptions())
    assert not any("commit" in note for note in table.notes)


def test_data_that_changed_are_named() -> None:
    records = [make(), make(data="1"), make("EDL", data="2"), make("EDL", "yacht", data="3")]
    (table, *_) = main_tables(only(records), ComparisonOptions())
    assert "Records of data that changed in between: boston." in table.notes
    (table, *_) = main_tables(only(records[1:2]), ComparisonOptions())
    assert not any("changed" in note for note in table.notes)


def test_settings_that_differ_between_splits_are_named() -> None:
    records = [make(split=split, settings={"epochs": 40}) for split in range(2)]
    other = [make("EDL", split=split, settings={"epochs": epochs}) for split, epochs in enumerate((40, 50))]
    (table,) = main_tables(only([*records, *other]), ComparisonOptions())
    assert "Not all splits were fitted with the same settings: EDL on boston." in table.notes
    (table,) = main_tables(only(records), ComparisonOptions())
    assert not any("settings" in note for note in table.notes)


def test_failed_cells_are_listed_and_left_out() -> None:
    records = [
        make(split=0),
        fail(make(split=1), "no\nroom " + "x" * 300),
        fail(make(split=2), "no\nroom " + "x" * 300),
    ]
    assert only(records).scores("boston", "nll").splits == 1
    table = failure_table(records)
    assert table is not None
    ((method, dataset, splits, message),) = table.rows
    assert (method.text, dataset.text, splits.text) == ("Gaussian", "boston", "1, 2")
    assert message.text.startswith("no room xxx")
    assert len(message.text) == 160
    assert failure_table([make()]) is None


def test_gaps_and_tails_are_apart_and_genuine_gaps_again() -> None:
    genuine = {"gap:A": True, "gap:B": False, "tail:A": True, "tail:B": True}
    records = [
        make(method, split=split, suite="uci-shift", genuine=real, metrics={"nll": float(real)})
        for method in ("EDL", "DUE")
        for split, real in genuine.items()
    ]
    groups = groups_of(results_of(records))
    assert [group.part for group in groups] == ["gap", "gap, genuine only", "tail"]
    assert [group.scores("boston", "nll").values["EDL"].mean() for group in groups] == [0.5, 1, 1]
    report = markdown(build_report(results_of(records), ComparisonOptions()))
    assert "boston 1 of 2" in report
    assert "### Gaps, genuine only" in report


def crossed(values: dict[str, dict[str, float]]) -> list[Record]:
    return [
        make(method, dataset, split, metrics={"nll": value + NOISE[split]})
        for dataset, own in values.items()
        for method, value in own.items()
        for split in range(6)
    ]


def test_ranks_over_data_sets() -> None:
    values = {
        "a": {"Gaussian": 1.0, "EDL": 2.0, "DUE": 3.0},
        "b": {"Gaussian": 1.0, "EDL": 3.0, "DUE": 2.0},
        "c": {"Gaussian": 1.0, "EDL": 2.0, "DUE": 3.0},
    }
    ranked = ranks_of(only(crossed(values)), "nll", ComparisonOptions())
    assert ranked is not None
    assert dict(zip(ranked.methods, ranked.ranks, strict=True)) == pytest.approx(
        {"Gaussian": 1, "EDL": 7 / 3, "DUE": 8 / 3}
    )
    table = rank_table([ranked])
    assert cells(table, "NLL")["Gaussian"] == TableCell("1.00", 1.0, bold=True)
    assert "3 data sets" in table.notes[0]


def test_ranks_leave_out_what_costs_least() -> None:
    whole = dict.fromkeys(("Gaussian", "EDL", "SNGP"), 1.0)
    few = ranks_of(only(crossed({"a": whole | {"DUE": 2.0}, "b": whole, "c": whole})), "nll", ComparisonOptions())
    assert few is not None
    assert (few.methods, few.datasets) == (("Gaussian", "EDL", "SNGP"), ("a", "b", "c"))
    many = whole | {"DUE": 2.0}
    rest = ranks_of(only(crossed({"a": many, "b": many, "c": many, "d": whole})), "nll", ComparisonOptions())
    assert rest is not None
    assert (len(rest.methods), rest.datasets) == (4, ("a", "b", "c"))
    assert ranks_of(only(crossed({"a": whole})), "nll", ComparisonOptions()) is None
    assert ranks_of(only(crossed({"a": {"EDL": 1.0}, "b": {"EDL": 1.0}})), "nll", ComparisonOptions()) is None


def test_wins_ties_and_losses() -> None:
    ours = {"Density-Regression": 1.0}
    values = {"a": ours | {"EDL": 2.0}, "b": ours | {"EDL": 0.5}, "c": ours | {"EDL": 1.0}, "d": ours | {"EDL": 3.0}}
    table = win_table(only(crossed(values)), ComparisonOptions())
    assert table is not None
    assert cells(table, "NLL")["EDL"][:2] == ("2 / 1 / 1", 1.0)
    assert win_table(only([make("EDL")]), ComparisonOptions()) is None
    assert win_table(only([make("Density-Regression")]), ComparisonOptions()) is None


def test_outcome_of_huge_scores() -> None:
    small, huge = np.array([1.0, 2.0, 3.0]), np.array([1.7e308, 1.6e308, 1.7e308])
    assert outcome(small, huge, 0.1, ComparisonOptions()) == 1
    assert outcome(huge, -huge, 0.1, ComparisonOptions()) == -1
    assert outcome(small, small, 0.1, ComparisonOptions()) == 0


def test_cost_is_a_ratio_to_the_gaussian_network() -> None:
    slow = make("Deep Ensembles", seconds={"fit": 6.0, "predict": 0.05}, parameters=5000)
    (table,) = cost_tables(only([make(), slow]))
    assert [cell.text for cell in table.rows[1]] == [
        "Deep Ensembles",
        "6.00 (× 4.00)",
        "0.0500 (× 5.00)",
        "5,000 (× 5.00)",
    ]
    (alone,) = cost_tables(only([slow]))
    assert alone.rows[0][1].text == "6.00"
    assert not any("bold" in note for note in alone.notes)


def test_the_appendix_has_every_other_metric() -> None:
    records = [make(method, dataset, metrics={"new_one": 4.0}) for method in ("EDL", "DUE") for dataset in ("a", "b")]
    table = appendix_table(only(records), ComparisonOptions())
    assert table.header == ("Method", "Data set", "MAE", "R²", "new_one")
    assert [row[1].text for row in table.rows] == ["a", "a", "b", "b"]
    assert not any(cells(table, "new_one")[method].bold for method in ("EDL", "DUE"))
