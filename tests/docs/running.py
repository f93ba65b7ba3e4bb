"""Run the code blocks of one page as a reader would: in their order, in one folder, in one namespace."""

from __future__ import annotations

import re
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch
from typer.testing import CliRunner

from density_regression.cli import app
from density_regression.nn import parts
from docs.blocks import Block, Command, blocks

_FILE = re.compile(r"# (\w+\.py)\n")


def run_page(page: Path, patch: pytest.MonkeyPatch) -> Counter[str]:
    """Run a page in the present folder, and return how many blocks were run, and how many not for each reason."""
    patch.syspath_prepend(str(Path.cwd()))
    patch.setattr(parts, "_REGISTERED", {})
    patch.setenv("COLUMNS", "120")
    patch.setenv("TERM", "dumb")
    patch.delenv("DENSITY_REGRESSION_DATA", raising=False)
    modules = set(sys.modules)
    done: Counter[str] = Counter()
    try:
        with torch.random.fork_rng(), warnings.catch_warnings(), plt.rc_context():
            warnings.simplefilter("ignore")
            plt.switch_backend("agg")
            namespace = {"__name__": "__main__"}
            for block in _blocks(page):
                done.update(_run(block, page, namespace))
    finally:
        plt.close("all")
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and Path.cwd() in Path(file).parents:
                del sys.modules[name]
    return done


def _blocks(page: Path) -> list[Block]:
    try:
        return blocks(page.read_text(encoding="utf-8"))
    except ValueError as error:
        pytest.fail(f"{page}: {error}", pytrace=False)


def _run(block: Block, page: Path, namespace: dict[str, object]) -> list[str]:
    """What became of a block, or of each command in it: "run", or why not."""
    if block.why_not:
        return [block.why_not]
    if block.kind == "text":
        return ["no code"]
    if block.kind == "shell":
        return [_invoke(command, page, block.line) for command in block.commands]
    if file := _FILE.match(block.source):
        Path(file[1]).write_text(block.source, encoding="utf-8")
        return ["run"]
    # As many empty lines before it as the page has: errors then name lines of the page.
    source = "\n" * (block.line - 1) + block.source
    try:
        exec(compile(source, str(page), "exec"), namespace)
    except Exception:
        lines = traceback.format_exc(limit=-3)
        pytest.fail(f"{page}, line {block.line}: this block fails.\n\n{block.source}\n{lines}", pytrace=False)
    return ["run"]


def _invoke(command: Command, page: Path, line: int) -> str:
    if command.why_not:
        return command.why_not
    result = CliRunner().invoke(app, list(command.words[1:]))
    error = result.exception is not None and not isinstance(result.exception, SystemExit)
    if error or (result.exit_code and " ".join(result.output.split()) != " ".join(command.printed.split())):
        said = "".join(traceback.format_exception(result.exception)) if error else result.output
        pytest.fail(f"{page}, block at line {line}: {' '.join(command.words)} failed.\n{said}", pytrace=False)
    return "run"
