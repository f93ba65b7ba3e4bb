"""The report's sections, put together from its tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from density_regression.experiments.records import Record
from density_regression.experiments.report.cost import cost_tables
from density_regression.experiments.report.document import Cell, Picture, Section, Table
from density_regression.experiments.report.figures import (
    calibration_picture,
    error_picture,
    fan_picture,
    rank_picture,
)
from density_regression.experiments.report.grouping import Group, groups_of
from density_regression.experiments.report.judging import Options
from density_regression.experiments.report.names import RANKED, in_order, metric, suite_title
from density_regression.experiments.report.ranking import OURS, RIVAL, rank_table, ranks_of, win_table, wins
from density_regression.experiments.report.tables import appendix_table, commits_of, failures, main_tables
from density_regression.experiments.report.versus import LEGEND, versus_tables

__all__ = ["build"]

TITLE: Final = "Results of the benchmark"
SERIES: Final = ("weather", "stations")
NO_FIGURES: Final = ("cubic",)
STAND_IN: Final = "jena_climate_2020"

_TESTS: Final = {
    "corrected": "the corrected resampled t-test of Nadeau and Bengio, which allows for training sets that overlap",
    "plain": "the ordinary paired t-test, as in the paper, which takes splits for independent",
}
_RULES: Final = {
    "separate": "Sharpness is not bold, as it is no virtue alone.",
    "calibration-first": "Sharpness is bold only among the methods tied in calibration.",
}
_ABOUT: Final = {
    "cubic": "Data are drawn anew for each seed, so the test needs no correction.",
    "weather": (
        "Only the seed of the fit differs from split to split: the test speaks of these rows alone, and needs no "
        "correction."
    ),
    "stations": (
        "Only the seed of the fit differs from split to split: the test speaks of these rows alone, and needs no "
        "correction."
    ),
}


def build(records: Sequence[Record], options: Options) -> Section:
    """The whole report as one section."""
    by_chapter: dict[tuple[str, str], list[Record]] = {}
    for suite in in_order((record["suite"] for record in records), "suite"):
        own = [record for record in records if record["suite"] == suite]
        for protocol in in_order((record["protocol"] for record in own), "protocol"):
            by_chapter[suite, protocol] = [record for record in own if record["protocol"] == protocol]
    groups = {place: groups_of(own) for place, own in by_chapter.items()}
    chapters = [_chapter(place, own, groups[place], options) for place, own in by_chapter.items()]
    every = [group for own in groups.values() for group in own]
    appendix = Section("Appendix: all other metrics", sections=tuple(_appendix(every, options)), appendix=True)
    parts = (_reading(records, options), *_summary(every, options), *chapters)
    return Section(TITLE, sections=(*parts, appendix) if appendix.sections else parts)


def _reading(records: Sequence[Record], options: Options) -> Section:
    failed = sum("error" in record for record in records)
    commits = commits_of(records)
    return Section(
        "How to read it",
        text=(
            f"{len(records)} cells, {failed} of them failed. Code of {', '.join(commits)}.",
            "Figures are mean ± standard deviation over splits, in the target's units where they have one; only "
            "splits that all methods of a table have count. NLL and the rest are those of the Normal with the "
            "method's mean and standard deviation; “own law” is a method's own distribution, where it has another.",
            f"Bold: the best mean, and every method that is not significantly worse, by {_TESTS[options.test]} "
            f"(level {options.level:g}, Holm's correction over the comparisons of a column). Lower is better, but "
            "for R², AUROC and Spearman; of coverage, nearer to its level. A method with one very bad split has so "
            "large a standard deviation that it may tie with the best: look at both. "
            f"{_RULES[options.rule]}",
            LEGEND,
        ),
    )


def _summary(groups: list[Group], options: Options) -> list[Section]:
    rows = []
    for group in groups:
        cells = [wins(group, RIVAL, name, options) for name in RANKED]
        if any(cell.value is not None for cell in cells):
            sets = len(group.datasets)
            rows.append((Cell(f"{_chapter_title(group)}: {_group_title(group)}"), Cell(f"{sets}", sets), *cells))
    if not rows:
        return []
    header = ("Experiment", "Data sets", *(metric(name).label for name in RANKED))
    note = "Wins / ties / losses over data sets; a difference counts if it is significant in the data set by itself."
    return [Section("Summary", tables=(Table(f"{OURS} against {RIVAL}", header, tuple(rows), (note,)),))]


def _chapter(place: tuple[str, str], records: list[Record], groups: list[Group], options: Options) -> Section:
    sections = [_group_section(group, options) for group in groups]
    if groups:
        whole = Group(*place, "", groups[0].test_set, False, tuple(r for r in records if "tests" in r))
        sections.append(
            Section(
                "Cost",
                text=(
                    "Wall-clock seconds of the machine that ran the benchmark, which other fits may have shared. Fits "
                    "of one shape were computed together; the seconds of one are its share, less than alone.",
                ),
                tables=cost_tables(whole),
            )
        )
    if place[0] not in NO_FIGURES:
        sections += _figure_sections(groups)
    failed = failures(records)
    if failed is not None:
        sections.append(Section("Failed cells", tables=(failed,)))
    suite, protocol = place
    text = (_ABOUT[suite],) if suite in _ABOUT else ()
    if any(record["dataset"] == STAND_IN for record in records):
        text = (f"{STAND_IN} is a stand-in for the paper's weather data (2009-2016).", *text)
    return Section(_title(suite, protocol), text=text, sections=tuple(sections))


def _group_section(group: Group, options: Options) -> Section:
    tables = list(main_tables(group, options))
    pictures: list[Picture] = []
    ranked = [one for name in RANKED if (one := ranks_of(group, name, options)) is not None]
    if ranked:
        tables.append(rank_table(ranked))
        pictures = [rank_picture(group, one) for one in ranked if len(one.methods) > 2]
    if len(group.datasets) > 1 and (table := win_table(group, options)) is not None:
        tables.append(table)
    tables += versus_tables(group)
    return Section(_group_title(group), text=_genuine(group), tables=tuple(tables), pictures=tuple(pictures))


def _figure_sections(groups: list[Group]) -> list[Section]:
    whole = [group for group in groups if "," not in group.part]
    sections = []
    for dataset in in_order((name for group in whole for name in group.datasets), "dataset"):
        own = [group for group in whole if dataset in group.datasets]
        pictures = [fan_picture(own, dataset)] if own[0].suite in SERIES else []
        for group in own:
            pictures.append(calibration_picture(group, dataset))
            # There a sample is the gap of a single feature, which says little of the data set.
            if group.suite != "uci-shift":
                pictures.append(error_picture(group, dataset))
        drawn = tuple(picture for picture in pictures if picture is not None)
        if drawn:
            sections.append(Section(f"Figures: {dataset}", pictures=drawn))
    return sections


def _appendix(groups: list[Group], options: Options) -> list[Section]:
    found = [(group, appendix_table(group, options)) for group in groups]
    return [
        Section(f"{_chapter_title(group)}: {_group_title(group)}", tables=(table,))
        for group, table in found
        if len(table.header) > 2
    ]


def _genuine(group: Group) -> tuple[str, ...]:
    if group.suite != "uci-shift" or "," in group.part:
        return ()
    counts = []
    for dataset in group.datasets:
        own = (record for record in group.records if record["dataset"] == dataset)
        splits = {record["split"]: bool(record.get("genuine")) for record in own}
        counts.append(f"{dataset} {sum(splits.values())} of {len(splits)}")
    return (f"Genuine, in that no test value of the feature occurs in training: {', '.join(counts)}.",)


def _title(suite: str, protocol: str) -> str:
    return f"{suite_title(suite)} (protocol: {protocol})"


def _chapter_title(group: Group) -> str:
    return _title(group.suite, group.protocol)


def _group_title(group: Group) -> str:
    if group.part:
        kind, _, rest = group.part.partition(",")
        return {"gap": "Gaps", "tail": "Tails"}.get(kind, kind) + (f",{rest}" if rest else "")
    if group.test_set == "test":
        return "Test rows"
    return f"{group.test_set} ({'shifted' if group.shifted else 'in distribution'})"
