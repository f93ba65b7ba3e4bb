"""The graph of a model that reads a table with text, dates or gaps: one input for each column."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from density_regression.inference.onnx.code_nodes import CodeWriter, days_of_dates, shares_of_times
from density_regression.inference.onnx.familiarity import FAMILIARITY, write_familiarity
from density_regression.inference.onnx.graph import INPUT, LOG_MOMENTS, OUTPUTS, PARTS, ExportError
from density_regression.inference.onnx.nodes import IR_VERSION, Nodes
from density_regression.io.extras import import_extra
from density_regression.tabular.columns import Columns, Table, Values
from density_regression.tabular.columns.coders import CategoryColumn, DateColumn, Measured, NumberColumn
from density_regression.tabular.columns.dates import iso_texts
from density_regression.tabular.table import Floats, Scaling

__all__ = ["ColumnInputs"]

OPSETS: Final = {"": 20, "ai.onnx.ml": 4}
"""StringSplit and RegexFullMatch came with 20."""

OF_CODE, OF_MODEL, OF_RESULTS = "columns.", "model.", "results."
"""What the names of the graph's values begin with: of the code, of the model, and of what follows."""

UNKNOWN: Final = "(unknown)"


class ColumnInputs(NamedTuple):
    """Inputs of a graph for a table whose columns need a code.

    Each column is an input of its name and of shape (rows,): numbers and booleans in `dtype`, NaN for gaps; categories,
    and dates and times in ISO form, as strings, "" for gaps. Columns without names, if all are numbers, are one input X
    of shape (rows, c).

    Attributes
    ----------
    columns : Columns
        The code.
    named : bool
        Whether the columns have names.
    scaling : Scaling
        Of the coded columns.
    dtype : type
        Of numbers: float64 or float32.
    levels : array of shape (m,), optional
        Sorted log-densities of held-out rows, for an output `familiarity`.
    parts : bool
        Whether the outputs may have the names of `Graph`'s parts.
    """

    columns: Columns
    named: bool
    scaling: Scaling
    dtype: Any
    levels: NDArray[np.float32] | None = None
    parts: bool = False

    @property
    def coders(self) -> list[Any]:
        """How each column is coded, but for those that are left out."""
        return [self.columns.coders[i] for i in self.columns.used]

    @property
    def as_one(self) -> bool:
        """Whether all columns are one input."""
        return not self.named and all(isinstance(coder, NumberColumn) for coder in self.columns.coders)

    @property
    def names(self) -> list[str]:
        """Name of each column's input: its own, unless an output has it."""
        taken = ("", INPUT, *OUTPUTS, FAMILIARITY, *(PARTS + LOG_MOMENTS) * self.parts)
        return [f"{INPUT}.{coder.name}" if coder.name in taken else coder.name for coder in self.coders]

    @property
    def about(self) -> dict[str, str]:
        """For the file's metadata: what each input holds, as JSON."""
        kinds = [coder.kind if isinstance(coder, CategoryColumn) else coder.type for coder in self.coders]
        return {} if self.as_one else {"inputs": json.dumps(dict(zip(self.names, kinds, strict=True)))}

    def feeds(self, table: Table) -> dict[str, NDArray[Any]]:
        """The inputs of a table with the columns that are used."""
        parts = []
        for coder, column, label in zip(self.coders, table.columns, table.labels, strict=True):
            values = coder.read(column, label)
            if isinstance(coder, NumberColumn):
                parts.append(np.asarray(values, dtype=self.dtype))
                continue
            texts = iso_texts(values, coder.type) if isinstance(coder, DateColumn) else values
            parts.append(np.array(["" if text is None else text for text in texts], dtype=object))
        return {INPUT: np.column_stack(parts)} if self.as_one else dict(zip(self.names, parts, strict=True))

    def random_table(self, sizes: Floats, *, rounded: bool = False) -> Table:
        """Random rows, with gaps in all columns and unknown categories; numbers and dates so many deviations away.

        With `rounded`, numbers are those that `dtype` has.
        """
        rng = np.random.default_rng(0)
        columns, start = [], 0
        for coder in self.coders:
            own = 0.0, 1.0
            if coder.codes and isinstance(coder, Measured) and not coder.constant:
                own = float(self.scaling.center[start]), float(self.scaling.scale[start])
            column = _random_column(coder, own[0] + own[1] * sizes * rng.normal(size=len(sizes)), rng)
            if isinstance(coder, NumberColumn):
                limits = np.finfo(self.dtype)
                values = np.clip(column.values, limits.min, limits.max)
                column = Values(column.kind, values.astype(self.dtype).astype(np.float64) if rounded else values)
            columns.append(column)
            start += len(coder.codes)
        return Table(tuple(f"column {coder.name!r} of X" for coder in self.coders), tuple(columns))

    def put_before(self, proto: Any) -> Any:
        """A model that reads these inputs, from one that reads the coded rows, in float64, as its input X."""
        onnx = import_extra("onnx", needed_by="Exporting", extra="onnx")
        helper, text = onnx.helper, onnx.TensorProto.STRING
        number = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        model = onnx.compose.add_prefix(proto, OF_MODEL)
        if clash := [n for n in self.names if n.startswith((OF_CODE, OF_MODEL, OF_RESULTS)) or self.names.count(n) > 1]:
            raise ExportError(f"Column {clash[0]!r} has a name that the graph needs itself: rename it, and fit again.")
        nodes = Nodes(torch.float64, OF_CODE)
        CodeWriter(nodes, self.columns).write(self._values(nodes), f"{OF_MODEL}{INPUT}")
        inputs = [helper.make_tensor_value_info(INPUT, number, ["rows", len(self.coders)])]
        if not self.as_one:
            kinds = [number if isinstance(coder, NumberColumn) else text for coder in self.coders]
            inputs = [helper.make_tensor_value_info(*pair, ["rows"]) for pair in zip(self.names, kinds, strict=True)]
        outputs, last = [], Nodes(torch.float64, OF_RESULTS)
        for output in model.graph.output:
            name, kind = output.name.removeprefix(OF_MODEL), output.type.tensor_type.elem_type
            # The log-density is in float32 anyway.
            kind = kind if name == OUTPUTS[2] else number
            shape = ["rows", *(part.dim_value for part in output.type.tensor_type.shape.dim[1:])]
            outputs.append(helper.make_tensor_value_info(name, kind, shape))
            last.add("Cast", [output.name], output=name, to=kind)
        if self.levels is not None:
            outputs.append(helper.make_tensor_value_info(FAMILIARITY, number, ["rows"]))
            last.add("Cast", [write_familiarity(last, OUTPUTS[2], self.levels)], output=FAMILIARITY, to=number)
        (before, constants), (after, more) = nodes.parts, last.parts
        tensors = [*constants, *model.graph.initializer, *more]
        body = helper.make_graph([*before, *model.graph.node, *after], "density_regression", inputs, outputs, tensors)
        opsets = {opset.domain: opset.version for opset in model.opset_import}
        opsets |= {domain: max(least, opsets.get(domain, 0)) for domain, least in OPSETS.items()}
        return helper.make_model(
            body,
            opset_imports=[helper.make_opsetid(domain, version) for domain, version in opsets.items()],
            functions=model.functions,
            ir_version=max(IR_VERSION, model.ir_version),
        )

    def _values(self, nodes: Nodes) -> list[str]:
        """Values (n,) of each column: numbers in float64, days of dates and times, text of categories."""
        if self.as_one:
            table = nodes.add("Cast", [INPUT], to=nodes.double)
            return [nodes.add("Gather", [table, nodes.integers(i)], axis=1) for i in range(len(self.coders))]
        values = []
        for coder, name in zip(self.coders, self.names, strict=True):
            if isinstance(coder, NumberColumn):
                values.append(nodes.add("Cast", [name], to=nodes.double))
            elif isinstance(coder, DateColumn):
                values.append(days_of_dates(nodes, name) if coder.type == "date" else shares_of_times(nodes, name))
            else:
                values.append(name)
        return values


def _random_column(coder: Any, values: Floats, rng: np.random.Generator) -> Values:
    """Random values (n,) of one column, a tenth of them gaps; of dates and varying numbers these."""
    rows = len(values)
    gaps = rng.random(rows) < 0.1
    if isinstance(coder, CategoryColumn):
        known = [*coder.values, *coder.rare, UNKNOWN]
        texts = np.array([*known, None], dtype=object)
        return Values("text", texts[np.where(gaps, len(known), rng.integers(len(known), size=rows))])
    if coder.constant:
        values = np.where(rng.random(rows) < 0.5, coder.median, coder.median + values)
    if isinstance(coder, DateColumn):
        # Within the years 1 to 9999, and to the microsecond, as text has them.
        low, high = (-719_162.0, 2_932_896.0) if coder.type == "date" else (0.0, 0.999)
        values = np.round(np.clip(values, low, high) * 86400e6) / 86400e6
    elif coder.type == "boolean":
        values = np.asarray(values > coder.median, dtype=np.float64)
    return Values(coder.type, np.where(gaps, np.nan, values))
