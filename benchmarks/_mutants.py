"""Mutants of source files by the operators of mutmut: each is one small change."""

from __future__ import annotations

import ast
import random
from pathlib import Path
from typing import Any, NamedTuple

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "density_regression"

TYPES = ("Literal", "NDArray", "tuple", "Callable")
"""What makes the alias of a type."""


class Mutant(NamedTuple):
    """One changed file; `function` is the one that holds the change, empty for constants and defaults."""

    path: str
    line: int
    function: str
    before: str
    after: str
    code: str

    def row(self) -> dict[str, Any]:
        """All but the code, for the results."""
        names = ("line", "function", "before", "after")
        return {"file": str(Path(self.path).relative_to(SOURCE))} | {name: getattr(self, name) for name in names}


class Enumerate(cst.CSTVisitor):
    """Finds what mutmut would change, and the function that it belongs to."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        self.found: list[tuple[cst.CSTNode, cst.CSTNode, str, int]] = []
        self.names: list[str] = []
        self.bodies = 0

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Raise | cst.Decorator | cst.Import | cst.ImportFrom):
            return False
        if isinstance(node, cst.Call) and getattr(node.func, "value", "") in ("len", "isinstance", "cast"):
            return False
        if isinstance(node, cst.Assign) and (
            getattr(node.targets[0].target, "value", "") == "__all__"
            or (isinstance(node.value, cst.Subscript) and getattr(node.value.value, "value", "") in TYPES)
        ):
            return False
        if isinstance(node, cst.FunctionDef | cst.ClassDef) and not self.bodies:
            self.names.append(node.name.value)
        function = ".".join(self.names) if self.bodies else ""
        line = self.get_metadata(PositionProvider, node).start.line if not isinstance(node, cst.Module) else 0
        for kind, operator in mutation_operators:
            if isinstance(node, kind):
                self.found += [(node, changed, function, line) for changed in operator(node)]
        if isinstance(node, cst.FunctionDef):
            # Its name, arguments and defaults belong to what surrounds it.
            node.params.visit(self)
            self.bodies += 1
            node.body.visit(self)
            self.bodies -= 1
            if not self.bodies:
                self.names.pop()
            return False
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, cst.ClassDef) and not self.bodies:
            self.names.pop()


def sample_of(files: list[str], size: int, seed: int) -> tuple[list[Mutant], int]:
    """So many mutants of these files, drawn at random, and how many there are."""
    paths = [path for name in files for path in (sorted((SOURCE / name).rglob("*.py")) or [SOURCE / name])]
    every = []
    for path in paths:
        wrapper = MetadataWrapper(cst.parse_module(path.read_text()))
        visitor = Enumerate()
        wrapper.visit(visitor)
        every += [(path, wrapper.module, *found) for found in visitor.found]
    chosen = random.Random(seed).sample(range(len(every)), min(size, len(every)))
    return [mutant for mutant in (rendered(*every[i]) for i in sorted(chosen)) if mutant is not None], len(every)


def rendered(
    path: Path, module: cst.Module, node: cst.CSTNode, changed: cst.CSTNode, function: str, line: int
) -> Mutant | None:
    """The mutant with its source; None if that is no Python, or the same (1e18 + 1 is 1e18)."""
    code = module.deep_replace(node, changed).code
    try:
        same = ast.dump(ast.parse(code)) == ast.dump(ast.parse(module.code))
        compile(code, "", "exec")
    except SyntaxError:
        return None
    if same:
        return None
    words = [" ".join(module.code_for_node(part).split()) for part in (node, changed)]
    return Mutant(str(path), line, function, *words, code)
