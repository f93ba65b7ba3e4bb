"""Predictions by a bundle, with numpy and ONNX Runtime alone."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from density_regression.io.extras import import_extra
from density_regression.serve.bundle import Prepared
from density_regression.serve.columns import ColumnReader, Feeds
from density_regression.tabular.arrays import Floats

__all__ = ["COVERAGE", "LOG_DENSITY", "OF_ROW", "OutOfTime", "Results", "Scorer"]

COVERAGE: Final = 0.95
"""Of intervals, unless a request asks for another; that of `predict_interval`."""

COVERAGES: Final = (COVERAGE, 0.9, 0.8, 0.5)
"""Coverages that are tried where conformal rows are too few for the usual one."""

BLOCK: Final = 8192
"""Rows that are scored at once, so that memory does not grow with the rows, and that time is looked at in between."""

LOG_LIMITS: Final = (-708.0, 709.0)
LARGEST: Final = float(np.finfo(np.float64).max)
ROUNDING: Final = 1e-9

INTERVAL: Final = ("low", "high")
FAMILIARITY: Final = "familiarity"
LOG_DENSITY: Final = "log_density"
OF_ROW: Final = (LOG_DENSITY, FAMILIARITY)
"""Results that a row has one of, whatever the number of targets."""

Results = dict[str, NDArray[Any]]
"""Results by name, each (n,) or (n, k)."""


class OutOfTime(Exception):  # noqa: N818 - a state of the request, not an error of the program
    """Rows were not scored by the deadline."""


class Scorer:
    """What `predict` and its like say of rows, without torch.

    Parameters
    ----------
    prepared : Prepared
        A bundle and its graph.
    threads : int
        Threads that ONNX Runtime may use for one run.

    Attributes
    ----------
    bundle : Bundle
        What is known of the model.
    outputs : tuple of str
        Names of the results: `mean` and `std`; `low` and `high`, where there are intervals; `log_density` and
        `familiarity` of a model with a density; `noise`, `disagreement` and `distance` of a `DensityRegressor`.
    coverage : float
        Of intervals, unless another is asked for.

    Examples
    --------
    >>> from pathlib import Path
    >>> from density_regression.serve.bundle import prepare
    >>> scorer = Scorer(prepare(Path("model")))  # doctest: +SKIP
    >>> scorer({"age": [41.0], "town": ["Ulm"]})["mean"]  # doctest: +SKIP
    """

    def __init__(self, prepared: Prepared, threads: int = 1) -> None:
        runtime = import_extra("onnxruntime", needed_by="Serving", extra="serve")
        self.bundle = bundle = prepared.bundle
        self.read = ColumnReader(bundle)
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # A graph of ours has all its weights in itself: files that a forged one names are not read.
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", "/nonexistent")
        self._session = runtime.InferenceSession(prepared.graph, options, providers=["CPUExecutionProvider"])
        self._graph_outputs = [part.name for part in self._session.get_outputs()]
        self._levels = None if bundle.levels is None else np.array(bundle.levels, dtype=np.float32)
        self._scores = None if bundle.scores is None else np.array(bundle.scores, dtype=np.float64)
        self._half_width = lru_cache(maxsize=64)(self._find_half_width)
        self.coverage = next((coverage for coverage in COVERAGES if self._has(coverage)), math.nan)
        interval = INTERVAL * (not math.isnan(self.coverage))
        own = [name for name in self._graph_outputs if name not in ("familiarity", "log_mean", "log_std")]
        familiarity = (FAMILIARITY,) * (self._levels is not None and LOG_DENSITY in own)
        after = own.index("std") + 1
        density = [name for name in own[after:] if name == LOG_DENSITY]
        self.outputs = ("mean", "std", *interval, *density, *familiarity, *(n for n in own[after:] if n not in density))

    def __call__(
        self,
        rows: Mapping[str, Any] | Sequence[Any] | NDArray[Any],
        *,
        coverage: float | None = None,
        outputs: Sequence[str] | None = None,
        deadline: float | None = None,
    ) -> Results:
        """Results for columns by name, each a list or an array (n,), or for an array (n, c) of numbers.

        Parameters
        ----------
        rows
            Numbers, booleans, text, dates and times (ISO text, or what Python has for them); None or NaN for gaps.
        coverage : float, optional
            Of the intervals from `low` to `high`.
        outputs : sequence of str, optional
            Names of the results to give; all by default.
        deadline : float, optional
            By `time.monotonic`; `OutOfTime` is raised if rows are left then.
        """
        return self.score(self.read(rows), coverage=coverage, outputs=outputs, deadline=deadline)

    def score(
        self,
        feeds: Feeds,
        *,
        coverage: float | None = None,
        outputs: Sequence[str] | None = None,
        deadline: float | None = None,
    ) -> Results:
        """Results for inputs that `read` has made."""
        wanted = self.checked_outputs(outputs)
        width = self.half_width(coverage) if any(name in INTERVAL for name in wanted) else None
        rows = len(next(iter(feeds.values())))
        blocks = []
        for start in range(0, rows, BLOCK):
            if deadline is not None and time.monotonic() > deadline:
                raise OutOfTime
            part = feeds if rows <= BLOCK else {name: values[start : start + BLOCK] for name, values in feeds.items()}
            found = self._session.run(None, part)
            blocks.append(self._results(dict(zip(self._graph_outputs, found, strict=True)), wanted, width))
        if len(blocks) == 1:
            return blocks[0]
        return {name: np.concatenate([block[name] for block in blocks]) for name in wanted}

    def checked_outputs(self, outputs: Sequence[str] | None) -> Sequence[str]:
        """Names of results, all by default; a `ValueError` for unknown ones."""
        if outputs is None:
            return self.outputs
        if unknown := [name for name in outputs if name not in self.outputs]:
            raise ValueError(f"There is no output {unknown[0]!r:.40}: the model gives {', '.join(self.outputs)}.")
        return outputs

    def half_width(self, coverage: float | None = None) -> Floats:
        """Half the width (k,) of intervals, in standard deviations of the law's Normal; a `ValueError` if unknown."""
        if coverage is None:
            coverage = self.coverage
        number = isinstance(coverage, float | int) and not isinstance(coverage, bool)
        if not number or not 0 < coverage < (1 + coverage) / 2 < 1:
            raise ValueError(f"coverage must lie strictly between 0 and 1, got {coverage!r:.40}.")
        return self._half_width(float(coverage))

    def _has(self, coverage: float) -> bool:
        try:
            self._half_width(coverage)
        except ValueError:
            return False
        return True

    def _find_half_width(self, coverage: float) -> Floats:
        if self.bundle.interval == "law":
            return np.full(self.bundle.targets, NormalDist().inv_cdf((1.0 + coverage) / 2.0))
        if self._scores is None:
            raise ValueError("The model's intervals depend on the density of each row, which a server does not know.")
        place = math.ceil((len(self._scores) + 1) * coverage - ROUNDING) - 1
        if place >= len(self._scores):
            most = len(self._scores) / (len(self._scores) + 1)
            raise ValueError(
                f"coverage={coverage:g} needs more rows than the {len(self._scores)} that conformalize had: "
                f"ask for {most:.3g} or less."
            )
        return np.asarray(self._scores[place])

    def _results(self, found: Results, wanted: Sequence[str], width: Floats | None) -> Results:
        if FAMILIARITY in wanted and self._levels is not None:
            reached = np.searchsorted(self._levels, found[LOG_DENSITY], side="right")
            found[FAMILIARITY] = reached / len(self._levels)
        if width is not None:
            found |= self._interval(found, width)
        results = {}
        for name in wanted:
            values = found[name]
            results[name] = values if name in OF_ROW else values.reshape(len(values), *self.bundle.target_shape)
        return results

    def _interval(self, found: Results, width: Floats) -> Results:
        if self.bundle.law == "log":
            mean, std = found["log_mean"], found["log_std"]
            ends = (mean - width * std, mean + width * std)
            return {name: np.exp(np.clip(end, *LOG_LIMITS)) for name, end in zip(INTERVAL, ends, strict=True)}
        mean, std = found["mean"], found["std"]
        with np.errstate(over="ignore"):
            ends = (mean - width * std, mean + width * std)
        return {name: np.clip(end, -LARGEST, LARGEST) for name, end in zip(INTERVAL, ends, strict=True)}
