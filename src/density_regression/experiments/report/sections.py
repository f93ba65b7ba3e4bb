"""Sections of the report, assembled from its tables and figures."""

from collections.abc import Sequence
from typing import Final

from density_regression.experiments.records import Record
from density_regression.experiments.report import comparison, figures, tables
from density_regression.experiments.report.comparison import WIN_NOTE, ComparisonOptions, Ranks
from density_regression.experiments.report.document import Picture, ResultTable, Section, TableCell
from density_regression.experiments.report.grouping import Group, groups_of
from density_regression.experiments.report.head_to_head import LEGEND, MAIN_RIVAL, head_to_head_tables
from density_regression.experiments.report.names import OURS, RANKED, SUITE_TITLES, in_order, metric
from density_regression.experiments.report.over_datasets import EXPLANATION, OverDatasets, over_datasets

__all__ = ["build_report"]

TIME_SERIES: Final = ("weather", "stations")
STAND_IN: Final = "jena_climate_2020"

_TESTS: Final = {
    "corrected": "the corrected resampled t-test of Nadeau and Bengio, which allows for training sets that overlap",
    "plain": "the ordinary paired t-test, as in the paper, which takes splits for independent",
}
_RULES: Final = {
    "separate": "Sharpness is not bold, as it is no virtue alone.",
    "calibration-first": "Sharpness is bold only among the methods tied in calibration.",
}
_SUITE_NOTES: Final = {
    "cubic": "Data are drawn anew for each seed, so the test needs no correction.",
    "shift": "A split draws its training rows, and a tenth of their side as the test in distribution; the shifted rows "
    "are the same for every split. Tests within a data set speak of its shift; those over data sets of others too.",
    "compare": "Splits are the folds: rows at random, whole groups, or blocks of time of which each is tested by what "
    "came before. CRPS and coverage are those of the Normal law with the method's mean and standard deviation, of the "
    "log-normal law where the logarithm was learnt, and of learnt quantiles.",
} | dict.fromkeys(
    TIME_SERIES,
    "Only the seed of the fit differs from split to split: the test speaks of these rows alone, and needs no "
    "correction.",
)
_COST_NOTE: Final = (
    "Wall-clock seconds of the machine that ran the benchmark, which other fits may have shared. Fits of one shape "
    "were computed together; the seconds of one are its share, less than alone."
)


def build_report(records: Sequence[Record], options: ComparisonOptions) -> Section:
    """The whole report: a chapter for each suite and protocol, between a summary and an appendix."""
    chapters: list[Section] = []
    groups: list[Group] = []
    for suite in in_order((record["suite"] for record in records), "suite"):
        of_suite = [record for record in records if record["suite"] == suite]
        for protocol in in_order((record["protocol"] for record in of_suite), "protocol"):
            own = [record for record in of_suite if record["protocol"] == protocol]
            groups += (found := groups_of(own))
            chapters.append(_chapter(suite, protocol, own, found, options))
    sections = [_introduction(records, options), *_summary(groups, options), *chapters]
    appendix = _appendix(groups, options)
    if appendix:
        sections.append(Section("Appendix: all other metrics", sections=appendix, appendix=True))
    return Section("Results of the benchmark", sections=tuple(sections))


def _introduction(records: Sequence[Record], options: ComparisonOptions) -> Section:
    failed = sum("error" in record for record in records)
    return Section(
        "How to read it",
        text=(
            f"{len(records)} cells, {failed} of them failed. Code of {', '.join(tables.commits_of(records))}.",
            "Figures are mean ± standard deviation over splits, in the target's units where they have one; only "
            "splits that all methods of a table have count. NLL and the rest are those of the Normal with the "
            "method's mean and standard deviation; “own law” is a method's own distribution, where it has another.",
            f"Bold: the best mean, and every method that is not significantly worse, by {_TESTS[options.test]} "
            f"(level {options.level:g}, Holm's correction over the comparisons of a column). Lower is better, but "
            "for R², AUROC and Spearman; of coverage, nearer to its level, and of the "
            "standard-deviation factor, nearer to 1. A method with one very bad split has so "
            "large a standard deviation that it may tie with the best: look at both. "
            f"{_RULES[options.rule]}",
            LEGEND,
        ),
    )


def _summary(groups: list[Group], options: ComparisonOptions) -> list[Section]:
    rows = []
    for group in groups:
        cells = [comparison.win_cell(group, MAIN_RIVAL, name, options) for name in RANKED]
        if any(cell.value is not None for cell in cells):
            sets = len(group.datasets)
            rows.append((TableCell(_full_title(group)), TableCell(f"{sets}", sets), *cells))
    if not rows:
        return []
    header = ("Experiment", "Data sets", *(metric(name).label for name in RANKED))
    table = ResultTable(f"{OURS} against {MAIN_RIVAL}", header, tuple(rows), (WIN_NOTE,))
    return [Section("Summary", tables=(table,))]


def _chapter(
    suite: str, protocol: str, records: list[Record], groups: list[Group], options: ComparisonOptions
) -> Section:
    sections = [_group_section(group, options) for group in groups]
    if groups:
        whole = Group(suite, protocol, "", groups[0].test_set, False, tuple(r for r in records if "tests" in r))
        sections.append(Section("Cost", (_COST_NOTE,), tables.cost_tables(whole)))
    if suite != "cubic":
        sections += _figure_sections(groups)
    failed = tables.failure_table(records)
    if failed is not None:
        sections.append(Section("Failed cells", tables=(failed,)))
    text = [_SUITE_NOTES[suite]] if suite in _SUITE_NOTES else []
    if any(record["dataset"] == STAND_IN for record in records):
        text.insert(0, f"{STAND_IN} is a stand-in for the paper's weather data (2009-2016).")
    return Section(_chapter_title(suite, protocol), tuple(text), sections=tuple(sections))


def _group_section(group: Group, options: ComparisonOptions) -> Section:
    content = tables.main_tables(group, options)
    compared = over_datasets(group, options)
    ranked = []
    if compared is None:
        found = [comparison.ranks_of(group, name, options) for name in RANKED]
        ranked = [ranks for ranks in found if ranks is not None]
    if ranked:
        content.append(comparison.rank_table(ranked))
    if len(group.datasets) > 1 and (wins := comparison.win_table(group, options)) is not None:
        content.append(wins)
    content += head_to_head_tables(group)
    inner = [] if compared is None else [_over_datasets_section(group, compared)]
    return Section(
        _group_title(group), _genuine_note(group), tuple(content), _rank_pictures(group, ranked), tuple(inner)
    )


def _over_datasets_section(group: Group, compared: OverDatasets) -> Section:
    pictures = _rank_pictures(group, compared.ranks)
    return Section("Over data sets", (EXPLANATION,), tuple(compared.tables), pictures)


def _rank_pictures(group: Group, ranked: list[Ranks]) -> tuple[Picture, ...]:
    return tuple(figures.rank_picture(group, ranks) for ranks in ranked if len(ranks.methods) > 2)


def _figure_sections(groups: list[Group]) -> list[Section]:
    whole = [group for group in groups if "," not in group.part]
    sections = []
    for dataset in in_order((name for group in whole for name in group.datasets), "dataset"):
        own = [group for group in whole if dataset in group.datasets]
        pictures = [figures.fan_picture(own, dataset)] if own[0].suite in TIME_SERIES else []
        for group in own:
            pictures.append(figures.calibration_picture(group, dataset))
            # The sample of a gap or tail shows a single feature, not the data set.
            if group.suite != "uci-shift":
                pictures.append(figures.error_picture(group, dataset))
        if any(pictures):
            sections.append(Section(f"Figures: {dataset}", pictures=tuple(filter(None, pictures))))
    return sections


def _appendix(groups: list[Group], options: ComparisonOptions) -> tuple[Section, ...]:
    found = [(group, tables.appendix_table(group, options)) for group in groups]
    return tuple(Section(_full_title(group), tables=(table,)) for group, table in found if len(table.header) > 2)


def _genuine_note(group: Group) -> tuple[str, ...]:
    if group.suite != "uci-shift" or "," in group.part:
        return ()
    counts = []
    for dataset, methods in group.runs.items():
        splits = {run[0]: bool(record.get("genuine")) for runs in methods.values() for run, record in runs.items()}
        counts.append(f"{dataset} {sum(splits.values())} of {len(splits)}")
    return (f"Genuine, in that no test value of the feature occurs in training: {', '.join(counts)}.",)


def _chapter_title(suite: str, protocol: str) -> str:
    return f"{SUITE_TITLES.get(suite, suite)} (protocol: {protocol})"


def _group_title(group: Group) -> str:
    if group.part:
        kind, _, rest = group.part.partition(",")
        return {"gap": "Gaps", "tail": "Tails"}.get(kind, kind) + (f",{rest}" if rest else "")
    if group.test_set == "test":
        return "Test rows"
    if group.suite == "shift":
        return group.test_set.capitalize()
    return f"{group.test_set} ({'shifted' if group.shifted else 'in distribution'})"


def _full_title(group: Group) -> str:
    return f"{_chapter_title(group.suite, group.protocol)}: {_group_title(group)}"
