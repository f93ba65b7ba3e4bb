"""`fit --task depth`: train a model on a folder of images."""

from pathlib import Path

import typer

from density_regression.cli.errors import fail
from density_regression.cli.outputs import check_folders, interrupted, refuse_other
from density_regression.cli.processes import is_first, is_launched, lost, run_in_processes

__all__ = ["fit_depth"]


def fit_depth(
    folder: Path,
    *,
    out: Path,
    epochs: int = 60,
    batch_size: int = 32,
    width: int = 32,
    levels: int = 4,
    smoothness: float = 0.03,
    device: str = "auto",
    devices: int = 1,
    num_nodes: int = 1,
    seed: int = 0,
    checkpoint_dir: Path | None = None,
    workers: int = 0,
) -> None:
    """Train a model of depth on a folder of images, and save it; the options are those of `fit`."""
    if devices * num_nodes > 1 and not is_launched():
        refuse_other(out, checkpoint_dir)
        run_in_processes(devices, num_nodes, checkpoint_dir, None)
        return

    from density_regression.nn.processes import LostProcessError
    from density_regression.vision.depth import DepthRegressor

    check_folders(out, checkpoint_dir)
    refuse_other(out, checkpoint_dir)
    model = DepthRegressor(
        epochs=epochs,
        batch_size=batch_size,
        width=width,
        levels=levels,
        smoothness=smoothness,
        device=device,
        devices=devices,
        num_nodes=num_nodes,
        verbose=is_first(),
        random_state=seed,
        checkpoint_dir=checkpoint_dir,
        workers=workers,
    )
    try:
        model.fit(folder)
        if not is_first():
            return
        model.save(out)
    except KeyboardInterrupt:
        interrupted(checkpoint_dir)
    except LostProcessError as error:
        lost(error)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        # Also raised if the memory of a GPU, or a disk, is too small.
        fail(str(error))
    typer.echo(f"Fitted in {sum(model.report_.seconds.values()):.0f} s. Model: {out}")
