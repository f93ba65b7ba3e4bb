"""Report of the depth experiment: tables and figures from its records and images."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np

from density_regression import metrics
from density_regression.experiments.depth.bench import EPSILONS
from density_regression.experiments.depth.figures import Drawing, Runs, curve_drawings, mean_std, panel_drawings
from density_regression.experiments.records import Record, read_records
from density_regression.experiments.report.document import EMPTY, Picture, ResultTable, Section, TableCell, plus_minus
from density_regression.experiments.report.markdown import markdown
from density_regression.experiments.report.names import in_order
from density_regression.experiments.report.tables import commits_of
from density_regression.experiments.significance import mean_and_sd
from density_regression.io.files import write_whole

__all__ = ["write_depth_report"]

INDOOR: Final = "NYU Depth v2, labelled set (795 training, 218 test images)"
OUTDOOR: Final = "KITTI, 72 crops of 24 frames (stand-in for ApolloScape)"

ATTRIBUTION: Final = (
    "Rooms: NYU Depth v2 (Silberman et al., 2012). Streets: KITTI (Geiger et al., 2013), CC BY-NC-SA 3.0. First seed."
)

ATTACKS: Final = {"own": "the method's own loss", "common": "another network's loss, the same for all methods of a run"}
SETS: Final = {
    "Test": ("test",),
    "Corrupted": tuple(f"own {epsilon}" for epsilon in EPSILONS),
    "Outdoors": ("outdoor",),
}
"""Column groups of the main table, and the test sets that each averages."""

SHORT_LABELS: Final = {"nll": "NLL", "rmse": "RMSE", "cal": "Cal", "sharpness_sd": "Sharp", "crps": "CRPS"}

_COST_NOTE: Final = (
    "Larger std outdoors: share of (outdoor, indoor) pairs of images in which the outdoor one has the larger mean "
    "standard deviation, ties counted half. AUROC: the same of minus the mean log-density, where a method has one."
)
_RESCALED_NOTE: Final = (
    "Standard deviations times the factor that maximises the likelihood of images held out from training; RMSE is as "
    "before. Corrupted as in the main table."
)

Measure = Callable[[Record], float | None]


class ColumnSpec(NamedTuple):
    """A column of a table: label, its value in a record, which mean is best, and how mean and sd are written."""

    label: str
    measure: Measure
    better: Literal["lower", "higher", "neither"] = "lower"
    text: Callable[[float, float], str] = plus_minus


def write_depth_report(results: Path, out: Path) -> list[Path]:
    """Write ``report.md`` to the folder `out`, and its figures to ``figures`` in it; returns their paths, page first.

    `results` is a folder with `depth.jsonl` and, for pictures, `panels/*.npz`.
    """
    records = [one for one in read_records(results / "depth.jsonl") if one["suite"] == "depth" and "tests" in one]
    if not records:
        raise ValueError(f"{results / 'depth.jsonl'} holds no depth results; run `density-regression bench depth`.")
    methods = in_order((record["method"] for record in records), "method")
    runs = {name: [record for record in records if record["method"] == name] for name in methods}
    panels, curves = panel_drawings(results / "panels"), curve_drawings(runs)
    (out / "figures").mkdir(parents=True, exist_ok=True)
    for drawing in (*panels, *curves):
        drawing.write(out / "figures" / drawing.name)
    sections = [Section("Tables", tables=_tables(runs)), Section("Curves", pictures=_pictures(curves))]
    if panels:
        sections.append(Section("Pictures", (ATTRIBUTION,), pictures=_pictures(panels)))
    page = Section("Depth from one image", _introduction(runs), sections=tuple(sections))
    write_whole(out / "report.md", markdown(page).encode())
    return [out / "report.md", *(out / "figures" / drawing.name for drawing in (*panels, *curves))]


def _pictures(drawings: list[Drawing]) -> tuple[Picture, ...]:
    """Pictures without content, as Markdown only names their files."""
    return tuple(Picture(drawing.name, b"", drawing.alt) for drawing in drawings)


def _introduction(runs: Runs) -> tuple[str, ...]:
    records = [record for own in runs.values() for record in own]
    devices = sorted({str(record.get("device", "an unknown device")) for record in records})
    counts = {method: len(own) for method, own in runs.items()}
    same = len(set(counts.values())) == 1
    seeds = f"{max(counts.values())}" if same else ", ".join(f"{method} {count}" for method, count in counts.items())
    pixels = max(test["pixels"] for record in records for test in record["tests"].values())
    return (
        f"Trained and tested on {INDOOR}; outdoors is {OUTDOOR}. Corrupted images are test images that the fast "
        f"gradient sign method moved by ε = {', '.join(map(str, EPSILONS))} of the range from 0 to 1.",
        f"{len(records)} fits, seeds of each method: {seeds}. Code of {', '.join(commits_of(records))}, "
        f"on {', '.join(devices)}. At most {pixels:,} pixels of each set count; RMSE and CRPS are in metres, sharpness "
        "(root mean variance) in standard deviations of the training depths.",
        f"Figures are the mean{'' if max(counts.values()) == 1 else ' ± standard deviation'} over seeds. Bold: the "
        "best mean of a column, by means alone; nothing was tested, and few seeds cannot show that a small difference "
        "is real. Sharpness and mean standard deviation are not bold, as they are no virtue alone.",
    )


def _tables(runs: Runs) -> tuple[ResultTable, ...]:
    main = [column for label, sets in SETS.items() for column in _metric_columns(label, sets, SHORT_LABELS)]
    common = _metric_columns("", [f"common {epsilon}" for epsilon in EPSILONS], SHORT_LABELS)
    rescaled = [
        column
        for label, sets in SETS.items()
        for column in _metric_columns(label, sets, ("nll", "cal", "crps"), "_rescaled")
    ]
    factor = ColumnSpec("Factor", lambda record: record.get("scale"), "neither")
    cost = [
        ColumnSpec("Larger std outdoors", lambda record: _outdoor_auroc(record, "image_std", 1), "higher"),
        ColumnSpec("AUROC of the density", lambda record: _outdoor_auroc(record, "image_score", -1), "higher"),
        ColumnSpec("Seconds to train", lambda record: record.get("seconds")),
        ColumnSpec(
            "Parameters", lambda record: record.get("parameters"), "neither", lambda mean, _: f"{round(mean):,}"
        ),
    ]
    return (
        _table("Main results", runs, main, f"Corrupted: mean over the four ε, attack on {ATTACKS['own']}."),
        _table("Corrupted, common attack", runs, common, f"Mean over the four ε, attack on {ATTACKS['common']}."),
        _epsilon_table(runs),
        _table("Outdoors against indoors, and cost", runs, cost, _COST_NOTE),
        _table("Main results, rescaled", runs, [factor, *rescaled], _RESCALED_NOTE),
    )


def _table(title: str, runs: Runs, columns: Sequence[ColumnSpec], note: str) -> ResultTable:
    return ResultTable.of_methods(title, {column.label: _cells(runs, column) for column in columns}, (note,))


def _epsilon_table(runs: Runs) -> ResultTable:
    rows: list[tuple[TableCell, ...]] = []
    for epsilon in EPSILONS:
        columns = []
        for attack in ATTACKS:
            name, label = f"{attack} {epsilon}", attack.capitalize()
            columns += _metric_columns(label, [name], ("nll", "crps", "cal"))
            columns.append(ColumnSpec(f"{label} mean std", partial(mean_std, name=name), "neither"))
        cells = [_cells(runs, column) for column in columns]
        rows += [(TableCell(method), TableCell(f"{epsilon}"), *(own[method] for own in cells)) for method in runs]
    note = f"Own: attack on {ATTACKS['own']}. Common: on {ATTACKS['common']}. Mean std in metres. Bold within each ε."
    return ResultTable("Each ε", ("Method", "ε", *(column.label for column in columns)), tuple(rows), (note,))


def _metric_columns(label: str, sets: Sequence[str], names: Iterable[str], suffix: str = "") -> list[ColumnSpec]:
    """A column for each metric: its mean over test sets."""
    return [
        ColumnSpec(
            f"{label} {SHORT_LABELS[name]}".strip(),
            partial(_mean_metric, name=name + suffix, sets=sets),
            "neither" if name == "sharpness_sd" else "lower",
        )
        for name in names
    ]


def _mean_metric(record: Record, name: str, sets: Sequence[str]) -> float | None:
    """Mean of a metric over test sets; None if one is missing."""
    found = [record["tests"].get(each, {}).get("metrics", {}).get(name) for each in sets]
    return None if None in found else float(np.mean(found))


def _outdoor_auroc(record: Record, key: str, sign: int) -> float | None:
    """AUROC of sign times a value of each image, for outdoor against indoor test images."""
    indoor, outdoor = (record["tests"].get(name, {}).get(key) for name in ("test", "outdoor"))
    if indoor is None or outdoor is None:
        return None
    return metrics.auroc(sign * np.array(indoor), sign * np.array(outdoor))


def _cells(runs: Runs, column: ColumnSpec) -> dict[str, TableCell]:
    """Cell of each method; the best mean is bold if there are several."""
    values = {
        method: [value for record in own if (value := column.measure(record)) is not None]
        for method, own in runs.items()
    }
    found = {method: mean_and_sd(own) for method, own in values.items() if own}
    means = [mean for mean, _ in found.values()]
    choose = {"lower": min, "higher": max}.get(column.better)
    best = choose(means) if choose and len(means) > 1 else None
    cells = {method: TableCell(column.text(mean, sd), mean, mean == best) for method, (mean, sd) in found.items()}
    return dict.fromkeys(runs, EMPTY) | cells
