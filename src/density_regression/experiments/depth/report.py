"""The report of the depth experiment: tables and figures, drawn from its records and pictures alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np

from density_regression import metrics
from density_regression._files import write_whole
from density_regression.experiments.depth.bench import EPSILONS
from density_regression.experiments.depth.figures import Drawing, Runs, curve_drawings, mean_std, panel_drawings
from density_regression.experiments.records import Record, read_records
from density_regression.experiments.report.document import EMPTY, Cell, Picture, Section, Table
from density_regression.experiments.report.markdown import markdown
from density_regression.experiments.report.names import in_order
from density_regression.experiments.report.numbers import mean_and_sd, plus_minus
from density_regression.experiments.report.tables import commits_of

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
"""Columns of the main table, and the test sets whose mean each is."""

Measure = Callable[[Record], float | None]


class Column(NamedTuple):
    """A column of a table: what it is of a record, and which mean is the best."""

    label: str
    measure: Measure
    better: Literal["lower", "higher", "neither"] = "lower"
    text: Callable[[float, float], str] = plus_minus


def write_depth_report(results: Path, out: Path) -> list[Path]:
    """Write ``report.md``, and the figures that it shows to ``figures`` beside it.

    Parameters
    ----------
    results : Path
        Folder with `depth.jsonl` and, for pictures, `panels/*.npz`.
    out : Path
        Made if it is not there.

    Returns
    -------
    list of Path
        What was written, the page first.

    Raises
    ------
    FileNotFoundError
        If there are no records.
    ValueError
        If none of them is of the depth experiment.
    """
    records = [one for one in read_records(results / "depth.jsonl") if one["suite"] == "depth" and "tests" in one]
    if not records:
        raise ValueError(f"{results / 'depth.jsonl'} holds no depth results; run `density-regression bench depth`.")
    methods = in_order((record["method"] for record in records), "method")
    runs = {name: [record for record in records if record["method"] == name] for name in methods}
    pictures, curves = panel_drawings(results / "panels"), curve_drawings(runs)
    paths = [out / "figures" / drawing.name for drawing in (*pictures, *curves)]
    for drawing, path in zip((*pictures, *curves), paths, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        drawing.write(path)
    sections = (
        Section("Tables", tables=_tables(runs)),
        Section("Curves", pictures=tuple(map(_shown, curves))),
        *([Section("Pictures", (ATTRIBUTION,), pictures=tuple(map(_shown, pictures)))] if pictures else []),
    )
    page = Section("Depth from one image", text=_introduction(runs), sections=sections)
    write_whole(out / "report.md", markdown(page).encode())
    return [out / "report.md", *paths]


def _shown(drawing: Drawing) -> Picture:
    return Picture(drawing.name, b"", drawing.alt)


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


def _tables(runs: Runs) -> tuple[Table, ...]:
    main = [column for label, sets in SETS.items() for column in _scores(label, sets)]
    common = _scores("", [f"common {epsilon}" for epsilon in EPSILONS])
    rescaled = [
        Column(f"{label} {short}".strip(), _metric(f"{name}_rescaled", *sets))
        for label, sets in SETS.items()
        for short, name in (("NLL", "nll"), ("Cal", "cal"), ("CRPS", "crps"))
    ]
    factor = Column("Factor", lambda record: record.get("scale"), "neither")
    return (
        _table("Main results", runs, main, f"Corrupted: mean over the four ε, attack on {ATTACKS['own']}."),
        _table("Corrupted, common attack", runs, common, f"Mean over the four ε, attack on {ATTACKS['common']}."),
        _epsilon_table(runs),
        _table("Outdoors against indoors, and cost", runs, _cost_columns(), _COST_NOTE),
        _table("Main results, rescaled", runs, [factor, *rescaled], _RESCALED_NOTE),
    )


_COST_NOTE: Final = (
    "Larger std outdoors: share of (outdoor, indoor) pairs of images in which the outdoor one has the larger mean "
    "standard deviation, ties counted half. AUROC: the same of minus the mean log-density, where a method has one."
)
_RESCALED_NOTE: Final = (
    "Standard deviations times the factor that maximises the likelihood of images held out from training; RMSE is as "
    "before. Corrupted as in the main table."
)


def _table(title: str, runs: Runs, columns: Sequence[Column], note: str) -> Table:
    rows = tuple((Cell(method), *cells) for method, cells in _rows(runs, columns).items())
    return Table(title, ("Method", *(column.label for column in columns)), rows, (note,))


def _epsilon_table(runs: Runs) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for epsilon in EPSILONS:
        columns = [column for attack in ATTACKS for column in _epsilon_columns(attack, epsilon)]
        rows += [(Cell(method), Cell(f"{epsilon}"), *cells) for method, cells in _rows(runs, columns).items()]
    note = f"Own: attack on {ATTACKS['own']}. Common: on {ATTACKS['common']}. Mean std in metres. Bold within each ε."
    return Table("Each ε", ("Method", "ε", *(column.label for column in columns)), tuple(rows), (note,))


def _epsilon_columns(attack: str, epsilon: float) -> list[Column]:
    name, label = f"{attack} {epsilon}", attack.capitalize()
    scores = (("NLL", "nll"), ("CRPS", "crps"), ("Cal", "cal"))
    columns = [Column(f"{label} {short}", _metric(metric, name)) for short, metric in scores]
    return [*columns, Column(f"{label} mean std", lambda record: mean_std(record, name), "neither")]


def _cost_columns() -> list[Column]:
    return [
        Column("Larger std outdoors", _larger_std_outdoors, "higher"),
        Column("AUROC of the density", _density_auroc, "higher"),
        Column("Seconds to train", lambda record: record.get("seconds")),
        Column("Parameters", lambda record: record.get("parameters"), "neither", lambda mean, sd: f"{round(mean):,}"),
    ]


def _scores(label: str, sets: Sequence[str]) -> list[Column]:
    names = (("NLL", "nll"), ("RMSE", "rmse"), ("Cal", "cal"), ("Sharp", "sharpness_sd"), ("CRPS", "crps"))
    return [
        Column(f"{label} {short}".strip(), _metric(name, *sets), "neither" if short == "Sharp" else "lower")
        for short, name in names
    ]


def _metric(name: str, *sets: str) -> Measure:
    """Mean of a metric over test sets; None where one is missing."""

    def measure(record: Record) -> float | None:
        found = [record["tests"].get(each, {}).get("metrics", {}).get(name) for each in sets]
        return None if None in found else float(np.mean(found))

    return measure


def _larger_std_outdoors(record: Record) -> float | None:
    tests = record["tests"]
    if not {"test", "outdoor"} <= tests.keys():
        return None
    return metrics.auroc(tests["test"]["image_std"], tests["outdoor"]["image_std"])


def _density_auroc(record: Record) -> float | None:
    familiar, strange = (record["tests"].get(name, {}).get("image_score") for name in ("test", "outdoor"))
    return None if familiar is None or strange is None else metrics.auroc(-np.array(familiar), -np.array(strange))


def _rows(runs: Runs, columns: Sequence[Column]) -> dict[str, list[Cell]]:
    """Cells of each method; the best mean of a column that two methods have is bold."""
    rows: dict[str, list[Cell]] = {method: [] for method in runs}
    for column in columns:
        values = {method: _values(own, column.measure) for method, own in runs.items()}
        found = {method: mean_and_sd(own) for method, own in values.items() if own}
        means = [mean for mean, _ in found.values()]
        best = {"lower": min, "higher": max}.get(column.better)
        target = best(means) if best and len(means) > 1 else None
        for method, row in rows.items():
            if method not in found:
                row.append(EMPTY)
                continue
            mean, sd = found[method]
            row.append(Cell(column.text(mean, sd), mean, mean == target))
    return rows


def _values(own: Sequence[Record], measure: Measure) -> list[float]:
    return [value for record in own if (value := measure(record)) is not None]
