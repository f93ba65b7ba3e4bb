"""Model cards: what a model predicts, from what, how good it is, where not to use it, and how it was made."""

from __future__ import annotations

import json
from typing import Any

from density_regression.cli import words

__all__ = ["model_card"]

NO_PROFILE = "An earlier version of density-regression saved this model, which did not keep "
"""Begins the sentence about what is not known."""


def model_card(facts: dict[str, Any]) -> str:
    """A model card in Markdown, from `model_facts`."""
    if "columns" not in facts:
        return "\n".join([f"# {facts['estimator']}", "", *_how_made(facts)]) + "\n"
    names = [target["name"] or "the target" for target in facts["targets"]]
    parts = [
        [f"# Prediction of {', '.join(names)}", "", *_what(facts, names)],
        ["## From what", "", *_columns(facts)],
        ["## How good", "", *_quality(facts)],
        ["## Where not to use it", "", *_limits(facts)],
        ["## How it was made", "", *_how_made(facts)],
    ]
    return "\n".join("\n".join([*part, ""]) for part in parts)


def _what(facts: dict[str, Any], names: list[str]) -> list[str]:
    law = "a log-normal law, so it is never below 0" if facts["law"] == "log" else "a Normal law"
    given = "a mean, a standard deviation and intervals"
    lines = [f"For each row the model gives {' and '.join(names)} as {law}: {given}."]
    for target in facts["targets"]:
        if "quantiles" in target:
            low, high = (words.number(target["quantiles"][i]) for i in (2, 6))
            ends = words.values(target | {"kind": "number"})
            lines += ["", f"In training {target['name']} was {ends}; nine in ten values lay between {low} and {high}."]
    return lines


def _columns(facts: dict[str, Any]) -> list[str]:
    table = ["| column | kind | values in training | gaps |", "|---|---|---|---|"]
    for column in facts["columns"]:
        cells = (column["name"], column["kind"], words.values(column), words.gaps(column))
        table.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    if facts["rows"] is None:
        return [f"{NO_PROFILE}ranges and gaps.", "", *table]
    return [f"{facts['rows']:,} rows trained. Ranges and shares are theirs.", "", *table]


def _quality(facts: dict[str, Any]) -> list[str]:
    judged = [target for target in facts["targets"] if target.get("held_out")]
    if not judged:
        reason = "No rows were held out." if facts["rows"] else f"{NO_PROFILE}its quality on held-out rows."
        return [f"{reason} Judge it on rows of your own: `density-regression evaluate {facts['model']} ROWS`."]
    lines = ["| | held-out rows | RMSE | CRPS | NLL | in 90 % intervals |", "|---|---|---|---|---|---|"]
    for target in judged:
        held = target["held_out"]
        scores = f"{words.number(held['rmse'])} | {words.number(held['crps'])} | {held['nll']:.3f}"
        lines.append(f"| {target['name']} | {held['rows']:,} | {scores} | {words.percent(held['coverage'])} |")
    lines += [
        "",
        "RMSE and CRPS are in the target's units. These rows also stopped the training and set the scale of the "
        "standard deviation, so they flatter a little; rows that the model has never seen are the better judges.",
    ]
    if facts["conformal"] is not None:
        promise = words.intervals(facts["conformal"])
        lines += ["", f"{promise} That is on average over rows that are like these, and says nothing of strange ones."]
    return lines


def _limits(facts: dict[str, Any]) -> list[str]:
    lines = [
        "- On rows outside the ranges above, or with categories that are not among those of training: there it guesses."
    ]
    if facts["estimator"] == "DensityRegressor":
        lines.append(
            "- On rows whose `familiarity` is below 0.01: 99 in 100 held-out rows are more usual. The standard "
            "deviation grows there, but nobody has checked how well."
        )
    else:
        lines.append("- This method may not notice strange rows: compare each column with its range.")
    lines += [
        "- Where the target is made in another way than in the training data, though the columns look the same: no "
        "model can notice that without targets.",
        "- As a cause: it says what goes together, not what would happen if a column were changed.",
    ]
    return lines


def _how_made(facts: dict[str, Any]) -> list[str]:
    made = f"{facts['estimator']} of density-regression {facts['version']} (torch {facts['torch']})"
    if facts.get("method"):
        made += f": {facts['method']}"
    seconds = words.seconds(sum(facts["seconds"].values()))
    epochs = f", {words.counted(facts['epochs'], 'epoch')}" if "epochs" in facts else ""
    settings = ", ".join(f"`{name}={json.dumps(value)}`" for name, value in facts["settings"].items()) or "the defaults"
    return [
        f"- {made}.",
        f"- Trained in {seconds}{epochs}. Settings: {settings}.",
        f"- {facts['parameters']:,} numbers, {facts['bytes'] / 1024:,.0f} KiB, in `{facts['model']}`.",
    ]
