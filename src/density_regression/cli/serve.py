"""`serve`: answer requests for predictions over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from density_regression.cli.errors import fail

__all__ = ["serve"]


def serve(
    models: Annotated[list[Path], typer.Argument(help="Folders that `save` wrote; each is served under its name.")],
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for all of this machine's.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 for any free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes that share the port.")] = 1,
    token_file: Annotated[
        Path | None, typer.Option(help="File with a token that requests must send: Authorization: Bearer TOKEN.")
    ] = None,
    max_body: Annotated[float, typer.Option(min=0.001, max=1024, help="Largest body of a request, in MiB.")] = 16.0,
    max_rows: Annotated[int, typer.Option(min=1, help="Most rows of a request.")] = 100_000,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds in which a request must arrive and be scored.")] = 30,
    reload_every: Annotated[
        float, typer.Option(min=0, help="Seconds between two looks for a new model in each folder; 0 for never.")
    ] = 10,
    threads: Annotated[int, typer.Option(min=1, max=256, help="Threads for one request.")] = 1,
    false_alarms_per: Annotated[
        float,
        typer.Option(min=0, metavar="ROWS", help="Rows in which the alarm may ring falsely once on average; 0: none."),
    ] = 100_000,
    alarm_state: Annotated[
        Path | None, typer.Option(help="Folder that keeps the alarms' states, so that the next start goes on.")
    ] = None,
    log_requests: Annotated[bool, typer.Option(help="Log a line for each request, without its data.")] = True,
    prepare_only: Annotated[
        bool, typer.Option("--prepare-only", help="Prepare the models for a machine without torch, and exit.")
    ] = False,
) -> None:
    """Serve saved models: Open Inference Protocol, MLflow's /invocations, /metrics; /docs lists all.

    A model is prepared when it is first served, by a process of its own: written as ONNX, beside the model or into the
    user's cache. The server itself needs no torch.
    """
    try:
        if prepare_only:
            from density_regression.serve.bundle import prepare

            for model in models:
                prepare(model)
            return
        from density_regression.io.store import check_writable
        from density_regression.serve.run import bind, run
        from density_regression.serve.settings import Settings

        if alarm_state is not None:
            check_writable(alarm_state)
        settings = Settings(
            models=tuple(models),
            token=None if token_file is None else _token(token_file),
            max_body=int(max_body * 2**20),
            max_rows=max_rows,
            timeout=timeout,
            reload_every=reload_every,
            threads=threads,
            false_alarms_per=false_alarms_per,
            alarm_folder=alarm_state,
            log_requests=log_requests,
        )
        run(settings, bind(host, port, shared=workers > 1), workers)
    except ModuleNotFoundError as error:
        fail(f"Serving needs {error.name}, which is not installed: pip install density-regression[serve]")
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        fail(str(error))


def _token(path: Path) -> str:
    token = path.read_text(encoding="utf-8").strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"{path} must hold a token: one line of letters, digits and signs, without blanks.")
    return token
