"""`fit`: train a model on a table, or on a folder of images."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from density_regression.cli.methods import METHODS, complete_method
from density_regression.cli.tables import Decimal, Encoding, Missing, Separator, Text

__all__ = ["Task", "fit"]

Task = Literal["depth"]

ROWS, TRAINING, IMAGES = "Which columns, which rows", "Training", "Images (--task depth)"


def fit(
    data: Annotated[
        Path,
        typer.Argument(
            help="Table: CSV, TSV or Parquet, also compressed, or a folder of such files. With --task depth a folder "
            "of rgb/NAME.jpg (or .png) and depth/NAME.png."
        ),
    ],
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column to predict; may be given several times.", rich_help_panel=ROWS),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the model.")] = Path("model"),
    task: Annotated[
        Task | None, typer.Option(help="Instead of a table: the depth of every pixel from one image.")
    ] = None,
    positive: Annotated[
        bool,
        typer.Option(
            "--positive",
            help="The target is above 0, as a price is: no interval is below. The same as --law log.",
            rich_help_panel=ROWS,
        ),
    ] = False,
    law: Annotated[
        Literal["identity", "log", "auto"] | None,
        typer.Option(help="What is Normal: the target, its logarithm, or what fits better.", rich_help_panel=ROWS),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column not to use; may be given several times.", rich_help_panel=ROWS),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Hold out the last rows by this column, not random ones. It is used as others are, unless dropped.",
            rich_help_panel=ROWS,
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Hold out whole groups of rows that are alike, such as all of a patient. It is not used otherwise.",
            rich_help_panel=ROWS,
        ),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Weights of the rows. It is not used otherwise.", rich_help_panel=ROWS),
    ] = None,
    conformal: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Keep this share of the rows aside, so that intervals hold what they promise; 0.1, say.",
            rich_help_panel=ROWS,
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help=f"One of {', '.join(METHODS)}.",
            autocompletion=complete_method,
            rich_help_panel=TRAINING,
        ),
    ] = METHODS[0],
    members: Annotated[
        int | None,
        typer.Option(
            min=0, help="Networks to learn from; of DeepEnsembleRegressor, to keep.", rich_help_panel=TRAINING
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Most passes over the data: 400, of images 60, if left out.", rich_help_panel=TRAINING
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Seed of everything random.", rich_help_panel=TRAINING)
    ] = 0,
    threads: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Threads to use at most.", rich_help_panel=TRAINING)
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help='Where to train: "cpu", "cuda" or "auto". If left out cpu, for images auto.', rich_help_panel=TRAINING
        ),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes on this machine that train together: a GPU, or a part of the CPU, for each.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    num_nodes: Annotated[
        int | None,
        typer.Option(min=1, help="Machines that train together; start the command on each.", rich_help_panel=TRAINING),
    ] = None,
    checkpoint_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder from which the same command goes on if it is interrupted or killed.", rich_help_panel=TRAINING
        ),
    ] = None,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream",
            help="Train from disk, of Parquet; if left out, where the table would not fit into memory.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    missing: Missing = None,
    text: Text = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")] = False,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images in a batch; 32 if left out.", rich_help_panel=IMAGES)
    ] = None,
    width: Annotated[
        int | None, typer.Option(min=1, help="Features of every pixel; 32 if left out.", rich_help_panel=IMAGES)
    ] = None,
    levels: Annotated[
        int | None,
        typer.Option(min=1, help="Times that the U-Net halves the resolution; 4 if left out.", rich_help_panel=IMAGES),
    ] = None,
    smoothness: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="How far images are moved in training, to make it robust; 0 is more accurate, 0.03 if left out.",
            rich_help_panel=IMAGES,
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Processes that prepare images; 0 if left out.", rich_help_panel=IMAGES)
    ] = None,
) -> None:
    """Train a model on a table, and save it: intervals for every prediction, and a warning for strange rows.

    Text, dates and gaps are taken as they are. Rows without a target are left out. Part of the rows, 15 in 100, is held
    out to stop the training and to judge the model: random rows, unless --time or --group says otherwise.
    """
    shared = {
        **{"out": out, "epochs": epochs, "seed": seed, "device": device, "checkpoint_dir": checkpoint_dir},
        **{"devices": devices, "num_nodes": num_nodes},
    }
    images = {
        **{"batch_size": batch_size, "width": width, "levels": levels, "smoothness": smoothness, "workers": workers}
    }
    columns: dict[str, Any] = {"target": target, "drop": drop, "time": time, "group": group, "weight": weight}
    tables = {
        **{**columns, "law": law, "conformal": conformal, "members": members, "threads": threads, "stream": stream},
        **{"separator": separator, "decimal": decimal, "encoding": encoding, "missing": missing, "text": text},
    }
    if task == "depth":
        from density_regression.cli.fit_depth import fit_depth

        _refuse(tables | {"positive": positive or None, "json": as_json or None}, "a table, not of images")
        fit_depth(data, **_given(shared | images))
        return
    from density_regression.cli.fit_table import fit_table

    _refuse(images, "images: add --task depth")
    if not target:
        folder = " (DATA looks like a folder of images)" if (data / "rgb").is_dir() else ""
        raise typer.BadParameter(
            f"Name the column to predict, --target COLUMN; or, for a folder of images{folder}, give --task depth.",
            param_hint="--target",
        )
    if positive and law not in (None, "log"):
        raise typer.BadParameter(f"--positive means --law log, but --law {law} was given: leave one of them out.")
    fit_table(data, method=method, as_json=as_json, **_given(shared | tables | {"law": "log" if positive else law}))


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Options that were given; of others the default is the task's."""
    return {name: value for name, value in options.items() if value is not None}


def _refuse(options: dict[str, Any], whose: str) -> None:
    if given := [f"--{name.replace('_', '-')}" for name in _given(options)]:
        raise typer.BadParameter(
            f"{', '.join(given)} {'is an option' if len(given) == 1 else 'are options'} of {whose}."
        )
