"""The extras of the package, and what its release promises: each has a smoke test, and files name the same version."""

import runpy
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_each_extra_is_tried_by_itself() -> None:
    corners = runpy.run_path(str(ROOT / "tests" / "release" / "corners.py"))["CORNERS"]
    assert PROJECT["optional-dependencies"].keys() - {"all", "dev", "docs"} == corners.keys()


def test_the_workflow_tries_each_python_that_is_promised() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    promised = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if "Python :: 3." in name]
    assert "python: [" + ", ".join(f'"{name}"' for name in promised) + "]" in workflow


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {PROJECT['version']}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
