"""Which wrong changes do the tests beside a module notice? Mutants by the operators of mutmut, and the share killed.

    pip install mutmut
    python benchmarks/mutation.py heads reach --out mutants.json

Each mutant is one small change of the source: a number, an operator, an argument, a branch. It is killed if a test
beside the module fails or takes too long. Tests are collected once; a forked process changes one function and runs the
tests that call it, the quickest first. mutmut itself leaves out constants and decorated functions, of which there are
many here, so only its operators are used.

Left out as harmless: docstrings, type hints, decorators, `__all__`, and all that is raised (the words of errors).
"""

from __future__ import annotations

import argparse
import gc
import importlib.machinery
import json
import os
import pickle
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from _mutants import ROOT, SOURCE, Mutant, sample_of

MODULES = {
    "heads": ["nn/heads.py", "nn/tempering.py"],
    "density": ["nn/density"],
    "training": [
        f"training/{part}.py" for part in ("algorithm", "distillation", "loop", "pretraining", "refit", "teacher")
    ],
    "reach": ["training/reach.py"],
    "metrics": ["metrics"],
    "significance": ["experiments/significance.py"],
    "splits": ["datasets/shift.py", "datasets/uci.py"],
}
"""What is changed, by its name on the command line; the tests beside it are in the folder of the same name."""

ELSEWHERE = {
    "heads": [
        "nn/density/test_tempering.py",
        *(f"training/test_{part}.py" for part in ("calibration", "refit_head", "three_steps")),
    ],
    "density": ["vision/test_scene_density.py"],
}
"""Further tests, in other folders."""

SLOWEST = 8.0
"""Seconds; tests that take longer are left out."""

LONGEST = 20.0
"""Seconds that all tests of a mutant may take, as measured without it; the slower ones beyond are left out."""

TRACED = ("export", "compile")
"""Tests of that name run code by tracing it, so that no call is seen: they are run in any case."""


# -- which test calls which function -----------------------------------------------------------------------------------


class Calls:
    """A pytest plugin that writes down the functions that each test calls, and its seconds."""

    def __init__(self, paths: set[str]) -> None:
        self.paths = paths
        self.now: set[tuple[str, str]] = set()
        self.of_fixture: dict[str, set[tuple[str, str]]] = {}
        self.of_test: dict[str, tuple[float, set[tuple[str, str]]]] = {}
        self.failed: set[str] = set()

    def watch(self, frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename in self.paths:
            self.now.add((code.co_filename, code.co_qualname.split(".<locals>")[0]))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Any:
        outer, self.now = self.now, set()
        result = yield
        self.of_fixture.setdefault(fixturedef.argname, set()).update(self.now)
        self.now |= outer
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self.now = set()
        start = time.process_time()
        sys.setprofile(self.watch)
        threading.setprofile(self.watch)
        result = yield
        sys.setprofile(None)
        threading.setprofile(None)
        for name in getattr(item, "fixturenames", ()):
            self.now |= self.of_fixture.get(name, set())
        self.of_test[item.nodeid] = (time.process_time() - start, self.now)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)


# -- one mutant --------------------------------------------------------------------------------------------------------


class Select:
    """A pytest plugin that keeps these tests, in this order, and writes down the first that fails."""

    def __init__(self, order: list[str], found: Path) -> None:
        self.order = {nodeid: i for i, nodeid in enumerate(order)}
        self.found = found

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda item: self.order[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.found.write_text(report.nodeid)


def in_a_fork(work: Callable[[Path], int], seconds: float) -> str:
    """The test that failed in a forked process; "timeout", "crash", or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found"
        pid = os.fork()
        if pid == 0:
            os.setsid()
            # Of its own time, as others may share the machine.
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            code = 1
            try:
                code = work(found)
            finally:
                os._exit(code)
        deadline = time.monotonic() + 10 * seconds
        status, done = 0, 0
        while not done:
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done and time.monotonic() > deadline:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return "timeout"
            time.sleep(0.005)
        if found.exists():
            return found.read_text()
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            return "timeout"
        return "" if status == 0 else "crash"


def swap(mutant: Mutant) -> None:
    """Give the function its changed code, whoever holds it: modules that imported it need not do so again."""
    code = find_code(compile(mutant.code, mutant.path, "exec", dont_inherit=True), mutant.function)
    swapped = 0
    for held in gc.get_objects():
        if isinstance(held, FunctionType):
            old = held.__code__
            if old.co_filename == mutant.path and old.co_qualname == mutant.function:
                held.__code__ = code
                swapped += 1
    assert swapped, mutant.function


def find_code(code: CodeType, qualname: str) -> CodeType:
    for part in code.co_consts:
        if isinstance(part, CodeType):
            if part.co_qualname == qualname:
                return part
            if qualname.startswith(part.co_qualname + "."):
                return find_code(part, qualname)
    raise LookupError(qualname)


def import_changed(mutant: Mutant) -> None:
    """Let the changed file be imported in the place of its own."""
    usual = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        if self.path == mutant.path:
            return compile(mutant.code, mutant.path, "exec", dont_inherit=True)
        return usual(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


# -- all of them -------------------------------------------------------------------------------------------------------


class Loop:
    """A pytest plugin: instead of the tests once, those that may kill a mutant, for each of them in a fork."""

    def __init__(self, mutants: list[Mutant], order: Callable[[Mutant], list[str]], tell: Any, seconds: float) -> None:
        self.mutants, self.order, self.tell, self.seconds = mutants, order, tell, seconds

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        from _pytest.main import pytest_runtestloop

        by_name = {item.nodeid: item for item in session.items}
        for mutant in self.mutants:
            order = self.order(mutant)

            def work(found: Path, mutant: Mutant = mutant, order: list[str] = order) -> int:
                swap(mutant)
                session.config.pluginmanager.register(Select([], found))
                session.items[:] = [by_name[nodeid] for nodeid in order]
                session.config.option.maxfail = 1
                try:
                    pytest_runtestloop(session)
                except (session.Failed, session.Interrupted):
                    return 1
                return int(session.testsfailed > 0)

            self.tell(mutant, in_a_fork(work, self.seconds) if order else "", len(order))
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", default=list(MODULES), help=", ".join(MODULES))
    parser.add_argument("--sample", type=int, default=150, help="mutants of each module, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds of CPU time for each mutant")
    parser.add_argument("--again", type=Path, help="results of an earlier run: only what survived there")
    parser.add_argument("--out", type=Path, default=Path("mutants.json"))
    args = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(SOURCE.parent))
    settle_hypothesis()
    earlier = json.loads(args.again.read_text()) if args.again else {}
    results = json.loads(args.out.read_text()) if args.out.exists() else {}
    for module in args.modules:
        # Each in a process of its own: once imported, a module is not imported again.
        pid = os.fork()
        if pid == 0:
            found = run(module, args, earlier.get(module))
            args.out.write_text(json.dumps(results | {module: found}, indent=1))
            os._exit(0)
        os.waitpid(pid, 0)
        results = json.loads(args.out.read_text())


def settle_hypothesis() -> None:
    """Let Hypothesis only say whether a test fails."""
    from hypothesis import Phase, settings

    # No time limits on a shared machine, and no search for a simpler example.
    settings.register_profile("mutation", deadline=None, database=None, phases=[Phase.explicit, Phase.generate])
    settings.load_profile("mutation")


def run(module: str, args: argparse.Namespace, earlier: dict[str, Any] | None) -> dict[str, Any]:
    """Try the mutants of a module, or those that survived earlier."""
    mutants, every = sample_of(MODULES[module], args.sample, args.seed)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--hypothesis-seed=0", "-W", "ignore"]
    options += tests_of(module)
    calls = calls_of(options, {mutant.path for mutant in mutants})
    quick = {name: spent for name, (spent, _) in calls.of_test.items() if spent < SLOWEST and name not in calls.failed}

    def order(mutant: Mutant) -> list[str]:
        key = (mutant.path, mutant.function)
        traced = {name for name in quick if any(word in name for word in TRACED)}
        names = [name for name in quick if not mutant.function or key in calls.of_test[name][1] or name in traced]
        names.sort(key=quick.__getitem__)
        return [name for name, total in zip(names, accumulate(map(quick.get, names)), strict=True) if total < LONGEST]

    rows: list[dict[str, Any]] = []
    start = time.perf_counter()

    def tell(mutant: Mutant, by: str, tests: int) -> None:
        rows.append(mutant.row() | {"by": by, "tests": tests})
        if not by:
            place = f"{rows[-1]['file']}:{mutant.line} {mutant.function}"
            print(f"\n{place}: {mutant.before}  ->  {mutant.after}  ({tests} tests)", flush=True)

    todo = mutants
    if earlier is not None:
        survived = [{name: row[name] for name in mutants[0].row()} for row in earlier["rows"] if not row["by"]]
        todo = [mutant for mutant in mutants if mutant.row() in survived]
    for mutant in (mutant for mutant in todo if not mutant.function):

        def work(found: Path, mutant: Mutant = mutant) -> int:
            import_changed(mutant)
            return int(pytest.main([*options, "-x"], plugins=[Select(order(mutant), found)]) != 0)

        tell(mutant, in_a_fork(work, args.timeout), len(order(mutant)))
    pytest.main(options, plugins=[Loop([mutant for mutant in todo if mutant.function], order, tell, args.timeout)])
    killed = len(mutants) - sum(not row["by"] for row in rows)
    share, seconds = 100 * killed / len(mutants), time.perf_counter() - start
    print(f"{module}: {len(mutants)} of {every} mutants, {killed} killed ({share:.1f} %), {seconds:.0f} s", flush=True)
    return {"every": every, "tried": len(mutants), "killed": killed, "rows": rows}


def tests_of(module: str) -> list[str]:
    """Folders and files of tests; `tests/` has the folders of the package."""
    folders = [name if (SOURCE / name).is_dir() else str(Path(name).parent) for name in MODULES[module]]
    return [f"tests/{name}" for name in dict.fromkeys([*folders, *ELSEWHERE.get(module, [])])]


def calls_of(options: list[str], paths: set[str]) -> Calls:
    """Run the tests once without any change, and see what they call."""
    calls = Calls(paths)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "calls"
        pid = os.fork()
        if pid == 0:
            pytest.main(options, plugins=[calls])
            file.write_bytes(pickle.dumps((calls.of_test, calls.failed)))
            os._exit(0)
        os.waitpid(pid, 0)
        calls.of_test, calls.failed = pickle.loads(file.read_bytes())
    return calls


if __name__ == "__main__":
    # Imported before any fork, so that no mutant waits for them.
    import lightning_fabric  # noqa: F401
    import torch

    torch.set_num_threads(1)
    main()
