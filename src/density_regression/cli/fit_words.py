"""What `fit` says at the end, for machines and in words."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from density_regression.cli import words
from density_regression.cli.facts import model_facts

if TYPE_CHECKING:
    from density_regression.cli.training_rows import Roles, TrainingTable

__all__ = ["as_record", "in_words"]


def as_record(rows: TrainingTable, roles: Roles, data: Path, out: Path) -> dict[str, Any]:
    """The facts of a model just saved, and what was read."""
    return {
        "data": str(data),
        "rows_read": rows.read,
        "rows_without_target": {"count": rows.dropped, "first_row": rows.first_dropped},
        "held_out_by": {"time": roles.time, "group": roles.group},
        **model_facts(out),
    }


def in_words(record: dict[str, Any]) -> str:
    """The same for people, and what to type next."""
    # Why has been said before the training began.
    left_out = [column["name"] for column in record["columns"] if column["kind"] == "left out"]
    without = f"; left out: {', '.join(left_out)}" if left_out else ""
    lines = [f"Columns: {words.kinds(record['columns'])}{without}."]
    law = f", {words.law(record)} law" if record["law"] != "identity" else ""
    duration = words.seconds(sum(record["seconds"].values()))
    lines.append(f"Fitted {record['estimator']}{law} to {record['rows']:,} rows in {duration}.")
    lines += [line for target in record["targets"] if (line := _quality(target, record))]
    if record["conformal"] is not None:
        lines.append(words.intervals(record["conformal"]))
    model = shlex.quote(record["model"])
    lines += [
        f"Model: {record['model']}",
        "",
        "Next, with rows in NEW.csv that the model has not seen:",
        f"  density-regression info {model}",
        f"  density-regression evaluate {model} NEW.csv",
        f"  density-regression predict {model} NEW.csv --out predictions.csv",
    ]
    return "\n".join(lines)


def _quality(target: dict[str, Any], record: dict[str, Any]) -> str:
    if (held_out := target["held_out"]) is None:
        return ""
    by, rows = record["held_out_by"], f"{held_out['rows']:,}"
    which = f"{rows} held-out rows"
    if by["time"] is not None:
        which = f"the last {rows} rows by {by['time']}, held out,"
    elif by["group"] is not None:
        which += f", whole groups of {by['group']},"
    of = f" ({target['name']})" if len(record["targets"]) > 1 else ""
    return f"On {which}{of}: {words.quality(held_out)}.".replace(",:", ":")
