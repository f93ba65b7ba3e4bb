"""The alarm: scores of rows, as a model sees them, watched with a stated rate of false alarms."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Final, Self

from numpy.typing import ArrayLike

from density_regression.serve.alarm.betting import Direction
from density_regression.serve.alarm.ranks import Floats
from density_regression.serve.alarm.references import known_of, references
from density_regression.serve.alarm.report import AlarmReport, Watched
from density_regression.serve.alarm.rows import standardised, watched_scores
from density_regression.serve.alarm.settings import Settings
from density_regression.serve.alarm.state import AlarmStateError, digest, read_state, write_state
from density_regression.serve.alarm.usual import UsualColumns
from density_regression.serve.alarm.watch import Ring, Watch
from density_regression.tabular.columns.values import Values
from density_regression.tabular.profile import Profile

__all__ = ["Alarm"]

MOST_REPORTS: Final = 100
"""Most alarms of which the reports are kept, the latest."""


class Alarm:
    """An alarm for rows that a model is asked about, with a stated rate of false alarms.

    It watches how familiar the inputs are and, where targets become known, how far they are from the predictions. Each
    score gets its rank among all before it, the held-out rows of the model first of all. As long as rows are
    exchangeable, as independent ones from one source are, the ranks are independent and uniform; a gambler bets that
    they are not, and the alarm rings when its gains are too large for luck. Memory is constant.

    The promise: on average at most one false alarm in `false_alarms_per` rows, and so a chance of at most
    N / `false_alarms_per` of one within N rows. It needs no assumption about model or data but that rows are
    exchangeable with each other and with the reference. Rows that depend on their neighbours, such as hours of a day,
    are not: take `every` or `block`. Several processes, each with an alarm of its own and its own share of the rows,
    keep the promise for all rows together. One alarm is for one thread at a time.

    Parameters
    ----------
    reference : array-like of shape (m,), optional
        Log-densities of rows that the model has not been trained on, such as ``held_out_levels_``. Without it the first
        `warm_up` rows serve: then it is only found what changes later.
    false_alarms_per : float
        Rows in which there may be one false alarm on average.
    chance : float, optional
        Instead of that, bound the chance that there is ever a false alarm (Ville's inequality). Late changes are then
        found late.
    direction : "unfamiliar" or "changed"
        Ring when scores are lower than before; or when they are lower or higher, at the cost of some more rows.
    every : int
        Let one row in so many count, for rows that depend on their neighbours.
    block : int
        Or let so many rows have one score, their mean. It tells more than one row does, but means are no log-densities
        of single rows: the first `warm_up` blocks serve as the reference.
    targets : bool
        Whether targets become known. Errors and bias are then watched too, and each of the three thresholds is three
        times as high.
    error_reference : array-like of shape (m,), optional
        Distances of targets from predictions, in standard deviations, of rows kept aside. Without it the first
        `warm_up` targets serve.
    warm_up : int
        Scores that serve as a reference where there is none.
    profile : Profile, optional
        What the model was fitted to, so that an alarm says which columns have moved. Without it
        that is learnt from the first 200 rows.
    names : sequence of str, optional
        Names of all columns that the model was fitted to, for arrays, which have none.
    seed : int
        Of the draws that break ties.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> alarm = Alarm(rng.normal(size=500), false_alarms_per=10_000)
    >>> alarm.update_scores(rng.normal(size=1000))
    []
    >>> reports = alarm.update_scores(rng.normal(-2.0, size=100))
    >>> reports[0].since
    999
    """

    def __init__(
        self,
        reference: ArrayLike | None = None,
        *,
        false_alarms_per: float = 100_000,
        chance: float | None = None,
        direction: Direction = "unfamiliar",
        every: int = 1,
        block: int = 1,
        targets: bool = False,
        error_reference: ArrayLike | None = None,
        warm_up: int = 100,
        profile: Profile | None = None,
        names: Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:
        self.settings = Settings(
            false_alarms_per=float(false_alarms_per),
            chance=chance,
            direction=direction,
            every=every,
            block=block,
            warm_up=warm_up,
            targets=targets,
            seed=seed,
        )
        known = references(reference, error_reference)
        self.fingerprint = digest([self.settings.watches, *known])
        self._columns = UsualColumns(profile, names)
        self._watches = self._new_watches(*known)
        for watch in self._watches.values():
            watch.count_columns(self._columns.columns or (), self._columns.rows)
        self._rows = {"inputs": 0, "targets": 0}
        self._reports: list[AlarmReport] = []
        self.alarms = self._acknowledged = 0
        self.regressor: Any = None
        self.notes: dict[str, Any] = {}

    @classmethod
    def for_model(cls, regressor: Any, **settings: Any) -> Self:
        """An alarm for a fitted regressor, beginning with its held-out rows.

        Parameters
        ----------
        regressor : DensityRegressor, or another with `score_samples`
            Of ``held_out_levels_``, ``profile_`` and ``conformal_`` it uses those that it has.
        **settings
            Parameters of `Alarm`.
        """
        if not hasattr(regressor, "score_samples"):
            raise ValueError(
                f"{type(regressor).__name__} has no score_samples, so it does not know how familiar a row is: take a "
                "method that does, such as DensityRegressor."
            )
        return cls(**{**known_of(regressor), **settings}).attach(regressor)

    def attach(self, regressor: Any) -> Self:
        """Let `update` score rows by this regressor; returns the alarm."""
        self.regressor = regressor
        return self

    # -- rows ---------------------------------------------------------------------------------------------------

    def update(self, X: Any, y: ArrayLike | None = None) -> list[AlarmReport]:
        """Take the next rows, scored by the regressor of `for_model`; the alarms among them, most often none.

        Parameters
        ----------
        X : array-like or data frame of shape (n, c)
            As for the regressor's `predict`.
        y : array-like of shape (n,) or (n, k), optional
            Their targets, NaN where not known, for an alarm with ``targets=True``. For those that become known later
            call `update_targets` then.
        """
        errors = None if y is None else self._standardised(X, y)
        return self.update_scores(self._model().score_samples(X), errors=errors, columns=X)

    def update_targets(self, X: Any, y: ArrayLike) -> list[AlarmReport]:
        """Take targets of rows whose inputs were taken earlier; the alarms among them. They are numbered apart."""
        return self.update_scores(errors=self._standardised(X, y), columns=X)

    def update_scores(
        self, scores: ArrayLike | None = None, *, errors: ArrayLike | None = None, columns: Any = None
    ) -> list[AlarmReport]:
        """Take the next rows as a model has scored them; the alarms among them. Needs no regressor.

        Parameters
        ----------
        scores : array-like of shape (n,), optional
            Log-densities.
        errors : array-like of shape (n,) or (n, k), optional
            Targets in standard deviations from the predicted mean, NaN where not known; see `standardised`.
        columns : data frame, array of shape (n, c), or mapping of names to values, optional
            The inputs themselves, so that an alarm says which columns have moved.
        """
        if errors is not None and not self.settings.targets:
            raise ValueError("Targets are given, but this alarm does not watch them: make it with targets=True.")
        checked = watched_scores(scores, errors)
        rows = len(next(iter(checked.values())))
        if rows == 0:
            return []
        table = self._columns.read(columns, rows)
        if scores is not None:
            self._learn_columns(table, rows)
        cells = self._columns.cells(table, rows)
        reports: list[AlarmReport] = []
        for name, values in checked.items():
            seen = self._rows["inputs" if name == "inputs" else "targets"]
            rings = self._watches[name].update(values, cells, seen + 1)
            for ring in rings:
                if not self._goes_on(name, ring, reports):
                    reports.append(self._report(name, ring))
        for kind, part in (("inputs", scores), ("targets", errors)):
            self._rows[kind] += rows if part is not None else 0
        reports.sort(key=lambda report: report.row)
        self.alarms += len(reports)
        self._reports = (self._reports + reports)[-MOST_REPORTS:]
        return reports

    def _learn_columns(self, table: dict[str, Values], rows: int) -> None:
        """Learn what is usual in the columns, if it is not known, from the next so many rows and those before."""
        cells = self._columns.learn(table, rows)
        if cells is not None and self._columns.columns is not None:
            for name, watch in self._watches.items():
                # Targets are numbered apart, so their watches count from the next row on.
                earlier = cells if name == "inputs" else [part[:0] for part in cells]
                count = len(earlier[0]) if earlier else 0
                watch.count_columns(self._columns.columns, 0, earlier, self._rows["inputs"] - count + 1)

    def _goes_on(self, name: Watched, ring: Ring, new: list[AlarmReport]) -> bool:
        """Whether it is an earlier alarm that goes on; that says so from now on."""
        for reports in (new, self._reports) if ring.goes_on else ():
            for i in reversed(range(len(reports))):
                if reports[i].watched == name:
                    reports[i] = replace(reports[i], until=ring.row)
                    return True
        return ring.goes_on

    def _report(self, name: Watched, ring: Ring) -> AlarmReport:
        return AlarmReport(
            watched=name,
            row=ring.row,
            since=ring.since,
            evidence=math.exp(min(ring.log_evidence, 700.0)),
            threshold=self.settings.threshold,
            mean_rank=ring.mean_rank,
            neighbours=ring.correlation,
            neighbours_alike=ring.alike,
            columns=tuple(ring.moves),
            columns_known=self._columns.columns is not None,
            until=ring.row,
        )

    def _model(self) -> Any:
        if self.regressor is None:
            raise ValueError("This alarm has no model to score rows by: make it with Alarm.for_model, or call attach.")
        return self.regressor

    def _standardised(self, X: Any, y: ArrayLike) -> Floats:
        regressor = self._model()
        mean, std = regressor.predict(X, return_std=True)
        return standardised(y, mean, std, getattr(regressor, "target_", "identity"))

    # -- what it says -------------------------------------------------------------------------------------------

    @property
    def promise(self) -> str:
        """What holds as long as nothing changes, in words."""
        return self.settings.promise

    @property
    def rows(self) -> int:
        """Number of rows whose inputs were taken."""
        return self._rows["inputs"]

    @property
    def target_rows(self) -> int:
        """Number of rows whose targets were taken, those without a known one counted in."""
        return self._rows["targets"]

    @property
    def reports(self) -> tuple[AlarmReport, ...]:
        """The latest alarms, a hundred at most."""
        return tuple(self._reports)

    @property
    def ringing(self) -> bool:
        """Whether there are alarms that nobody has acknowledged."""
        return self.alarms > self._acknowledged

    def acknowledge(self) -> None:
        """Note that somebody has seen the alarms so far."""
        self._acknowledged = self.alarms

    @property
    def neighbours_alike(self) -> bool:
        """Whether neighbouring rows are so much alike that the promise does not hold."""
        return any(watch.neighbours.alike for watch in self._watches.values())

    @property
    def warming_up(self) -> tuple[Watched, ...]:
        """What is still collected to compare with, and not watched yet."""
        return tuple(name for name, watch in self._watches.items() if watch.warming_up)

    def evidence(self) -> dict[Watched, float]:
        """Evidence of each watch as a share of its threshold, on a logarithmic scale: 1 where it rings, 0 for none."""
        log_threshold = math.log(self.settings.threshold)
        values = {name: watch.detector.evidence.log_value for name, watch in self._watches.items()}
        return {name: max(0.0, value / log_threshold) for name, value in values.items()}

    def history(self) -> dict[Watched, list[tuple[int, float]]]:
        """Of each watch the natural logarithm of its evidence along the rows: a few hundred pairs."""
        return {name: watch.trace.points() for name, watch in self._watches.items()}

    # -- state --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        """All that later alarms depend on, as plain numbers and strings that JSON can say."""
        return {
            "promise": self.promise,
            "settings": asdict(self.settings),
            "fingerprint": self.fingerprint,
            "rows": dict(self._rows),
            "alarms": self.alarms,
            "acknowledged": self._acknowledged,
            "columns": self._columns.to_json(),
            "watches": {name: watch.to_json() for name, watch in self._watches.items()},
            "reports": [report.to_json() for report in self._reports],
            "notes": self.notes,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The alarm that has this `state`, without a regressor."""
        self = cls(**state["settings"])
        self.fingerprint = str(state["fingerprint"])
        self._columns = UsualColumns.from_json(state["columns"])
        for name, watch in self._watches.items():
            watch.take(state["watches"][name], self._columns.columns or (), self._columns.rows)
        self._rows = {name: int(state["rows"][name]) for name in self._rows}
        self._reports = [AlarmReport.from_json(report) for report in state["reports"]]
        self.alarms, self._acknowledged = int(state["alarms"]), int(state["acknowledged"])
        self.notes = dict(state["notes"])
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, whole or not at all.

        An `OSError`, as of a full disk, leaves the old file and the alarm as they are: it goes on in memory.
        """
        write_state(path, self.state)

    @classmethod
    def load(cls, path: str | os.PathLike[str], regressor: Any = None) -> Self:
        """Read what `save` wrote: the alarm goes on as if it had never been interrupted.

        Parameters
        ----------
        path : path
        regressor : regressor, optional
            To score rows by, the one of `for_model`.

        Raises
        ------
        AlarmStateError
            If the file is damaged, from a newer major version, or of another model; a `ValueError`.
        """
        state = read_state(path)
        try:
            self = cls.from_state(state)
        # A missing or wrong entry may fail in any way.
        except Exception as error:
            raise AlarmStateError(
                f"{path} does not describe an alarm ({type(error).__name__}: {error}): begin a new one."
            ) from error
        if regressor is None:
            return self
        if self.fingerprint != cls.for_model(regressor, **asdict(self.settings)).fingerprint:
            raise AlarmStateError(
                f"{path} is the state of an alarm for another model: give that model, or another file for this one."
            )
        return self.attach(regressor)

    def _new_watches(self, reference: list[float], error_reference: list[float]) -> dict[Watched, Watch]:
        settings = self.settings

        def watch(number: int, known: list[float], *, both: bool = False) -> Watch:
            # Means of blocks are no scores of single rows.
            return Watch(
                known if known and settings.block == 1 else None,
                groups=settings.groups(),
                jumper=settings.jumper(both=both),
                evidence=settings.evidence(),
                warm_up=settings.warm_up,
                seed=settings.seed + number,
            )

        watches: dict[Watched, Watch] = {"inputs": watch(0, reference)}
        if settings.targets:
            watches["errors"] = watch(1, [-value for value in error_reference])
            watches["bias"] = watch(2, [], both=True)
        return watches
