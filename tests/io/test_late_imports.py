"""What is imported when: a list of commands, or a figure, does not wait for torch or scikit-learn."""

import json
import subprocess
import sys

import pytest

HEAVY = ("PIL", "matplotlib", "numpy", "pandas", "pyarrow", "scipy", "sklearn", "torch", "torchmetrics")
WITHOUT = {
    "import density_regression": set(HEAVY),
    "import density_regression.cli": set(HEAVY),
    "import density_regression.serve.alarm": {"torch", "pandas", "sklearn", "pyarrow", "matplotlib"},
    "import density_regression.datasets": {"torch", "sklearn", "matplotlib"},
    "import density_regression.metrics": {"sklearn.metrics", "torchmetrics"},
    "import density_regression.plots": {"sklearn", "matplotlib"},
    "from density_regression import DensityRegressor, load": {"matplotlib", "sklearn.metrics"},
    "from density_regression.datasets import DepthFolder": {"PIL"},
}
"""Steps of one program, and what it must not have imported after each."""

PROGRAM = f"""
import json, sys
found = {{}}
for step in {list(WITHOUT)}:
    exec(step)
    found[step] = sorted(set(sys.modules) & {{"sklearn.metrics", *{HEAVY}}})
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def imported() -> dict[str, list[str]]:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("step", WITHOUT)
def test_no_more_than_is_needed(step: str, imported: dict[str, list[str]]) -> None:
    assert WITHOUT[step].isdisjoint(imported[step])


def test_what_is_needed_is_seen(imported: dict[str, list[str]]) -> None:
    assert "torch" in imported["from density_regression import DensityRegressor, load"]
