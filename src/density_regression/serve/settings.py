"""Settings of a server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """What a server serves, to whom, and its limits.

    Attributes
    ----------
    models : tuple of Path
        Folders that `save` wrote. A model's name is that of its folder.
    token : str or None
        Bearer token that every request but those for `/healthz` and `/readyz` must have.
    max_body : int
        Largest body of a request, in bytes.
    max_rows : int
        Most rows of a request.
    timeout : float
        Seconds that a request may take: half a minute to arrive, and as long to be answered.
    reload_every : float
        Seconds between two looks at the folders for new models; 0 for never.
    threads : int
        Threads of ONNX Runtime for one request.
    false_alarms_per : float
        Rows in which an alarm may ring falsely once, on average; 0 for no alarm.
    alarm_folder : Path or None
        Where the states of the alarms are kept.
    log_requests : bool
        Whether to log a line for each request.
    worker : int
        Number of the process, of several.
    exchange : Path or None
        Folder in which several processes leave their counts for each other.
    """

    models: tuple[Path, ...]
    token: str | None = None
    max_body: int = 16 * 2**20
    max_rows: int = 100_000
    timeout: float = 30.0
    reload_every: float = 10.0
    threads: int = 1
    false_alarms_per: float = 100_000
    alarm_folder: Path | None = None
    log_requests: bool = True
    worker: int = 0
    exchange: Path | None = None
