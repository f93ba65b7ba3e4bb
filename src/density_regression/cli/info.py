"""`info`: what a saved model was made from, how good it was, and where it must not be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from density_regression.cli import words
from density_regression.cli.errors import fail

__all__ = ["info"]


def info(
    model: Annotated[Path, typer.Argument(help="Folder that `fit` wrote.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")] = False,
    card: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a model card, in Markdown, for whoever uses the model.")
    ] = None,
) -> None:
    """Show what a model was made from: columns and their ranges, target, settings; and its quality on held-out rows."""
    from density_regression.cli.card import model_card
    from density_regression.cli.facts import model_facts
    from density_regression.io.files import write_whole

    try:
        facts = model_facts(model)
        if card is not None:
            write_whole(card, model_card(facts).encode())
    except (OSError, ValueError) as error:
        fail(str(error))
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    console = Console(width=None if Console().is_terminal else 120, highlight=False, markup=False)
    _show(facts, console)
    if card is not None:
        console.print(f"Model card: {card}", soft_wrap=True)


def _show(facts: dict[str, Any], console: Console) -> None:
    def line(name: str, text: str) -> None:
        console.print(f"{name + ':':<12} {text}", soft_wrap=True)

    line("Model", f"{facts['model']} ({facts['estimator']}, density-regression {facts['version']})")
    if "columns" not in facts:
        line("Settings", _settings(facts["settings"]))
        line("Size", _size(facts))
        return
    if facts["method"]:
        line("Method", facts["method"])
    _show_columns(facts["columns"], console)
    for target in facts["targets"]:
        name = target["name"] or "not named"
        line("Target", f"{name}: {words.values(target | {'kind': 'number'})}; {words.law(facts)} law")
        if quality := target.get("held_out"):
            line("Held out", f"{quality['rows']:,} rows: {_quality(quality)}")
    if facts["rows"] is None:
        console.print("An earlier version saved it, which kept neither ranges of columns nor held-out quality.")
    if facts["conformal"] is not None:
        line("Conformal", words.intervals(facts["conformal"]))
    rows = f"{facts['rows']:,} rows, " if facts["rows"] else ""
    steps = ", ".join(f"{step} {words.seconds(duration)}" for step, duration in facts["seconds"].items())
    line("Training", f"{rows}{words.counted(facts['epochs'], 'epoch')}; {steps}")
    line("Settings", _settings(facts["settings"]))
    line("Size", _size(facts))


def _show_columns(columns: list[dict[str, Any]], console: Console) -> None:
    table = Table("Column", "Kind", "Values in training", "Gaps", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_row(column["name"], column["kind"], words.values(column), words.gaps(column))
    console.print()
    console.print(table)
    console.print()


def _quality(held_out: dict[str, Any]) -> str:
    scores = f"CRPS {words.number(held_out['crps'])}, NLL {held_out['nll']:.3f}"
    return f"{words.quality(held_out)}; {scores}"


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in settings.items()) or "the defaults"


def _size(facts: dict[str, Any]) -> str:
    return f"{facts['parameters']:,} numbers, {facts['bytes'] / 1024:,.0f} KiB"
