"""The models of a server by name, and how new ones are taken up."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from density_regression.io.store import CONFIG, InvalidModelError
from density_regression.serve.answers import Refusal
from density_regression.serve.bundle import Prepared, model_name, prepare
from density_regression.serve.scorer import Scorer
from density_regression.serve.settings import Settings

__all__ = ["Models", "Served", "by_name"]

log = logging.getLogger(__name__)

Stamp = tuple[int, ...] | None
"""What tells one `model.json` from another, without reading it; None if there is none."""


@dataclass(frozen=True)
class Served:
    """A model as it is served: a request keeps one of these until it is answered, whatever is put in its place.

    Attributes
    ----------
    name : str
        Of the model.
    scorer : Scorer
        Its predictions.
    since : float
        When it was taken up, in seconds since 1970.
    """

    name: str
    scorer: Scorer
    since: float

    @property
    def version(self) -> str:
        """The first 16 digits of its checksum."""
        return self.scorer.bundle.version


@dataclass
class Models:
    """The models of a server, each replaced as a whole.

    Attributes
    ----------
    draining : bool
        Whether the server is about to end, and takes no new connections.
    taken_up, refused : Counter
        New models since the start, by name.
    """

    settings: Settings
    draining: bool = False
    taken_up: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    _served: dict[str, Served] = field(default_factory=dict)
    _folders: dict[str, Path] = field(default_factory=dict)
    _stamps: dict[str, Stamp] = field(default_factory=dict)

    def load(self) -> None:
        """Prepare and load all models; raises the first error."""
        self._folders = by_name(self.settings.models)
        for name, folder in self._folders.items():
            self._stamps[name] = _stamp(folder)
            self._served[name] = self._loaded(name, prepare(folder))

    @property
    def all(self) -> list[Served]:
        """All models."""
        return list(self._served.values())

    def get(self, name: str, version: str | None = None) -> Served:
        """A model by its name; a `Refusal` if there is none, or none of this version."""
        served = self._served.get(name)
        if served is None:
            raise Refusal(404, f"There is no model {name!r:.140}: there is {', '.join(self._served)}.")
        if version is not None and version != served.version:
            raise Refusal(404, f"Model {name!r} has no version {version!r:.40}: it has {served.version!r}.")
        return served

    def the_only(self) -> Served:
        """The model of a server that has one; a `Refusal` if there are several."""
        if len(self._served) > 1:
            names = ", ".join(self._served)
            raise Refusal(400, f"There are several models: ask for /models/NAME/invocations, of {names}.")
        return next(iter(self._served.values()))

    async def watch(self) -> None:
        """Look at the folders again and again, for ever."""
        while True:
            await asyncio.sleep(self.settings.reload_every)
            for name in list(self._folders):
                await self.look(name)

    async def look(self, name: str) -> None:
        """Take up the model of this name if it is another than before; keep the old one if the new one is broken."""
        folder = self._folders[name]
        stamp = _stamp(folder)
        if stamp == self._stamps[name]:
            return
        try:
            served = await asyncio.to_thread(lambda: self._loaded(name, prepare(folder)))
        except Exception as error:
            reason = error if isinstance(error, InvalidModelError | OSError) else type(error).__name__
            log.error("model refused", extra={"model": name, "reason": str(reason), "kept": self._served[name].version})
            self.refused[name] += 1
        else:
            before, self._served[name] = self._served[name].version, served
            log.info("model taken up", extra={"model": name, "version": served.version, "before": before})
            self.taken_up[name] += 1
        # One that changed meanwhile is looked at again.
        self._stamps[name] = stamp

    def _loaded(self, name: str, prepared: Prepared) -> Served:
        scorer = Scorer(prepared, self.settings.threads)
        return Served(name, scorer, time.time())


def by_name(folders: Iterable[Path]) -> dict[str, Path]:
    """Folders by the names of their models; a `ValueError` if two have the same."""
    found: dict[str, Path] = {}
    for folder in folders:
        if (name := model_name(folder)) in found:
            raise ValueError(f"Two models are named {name!r}, {found[name]} and {folder}: rename a folder.")
        found[name] = folder
    return found


def _stamp(folder: Path) -> Stamp:
    try:
        status = (folder / CONFIG).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev
