"""Importing the figures imports neither matplotlib nor, with the metrics, scikit-learn."""

import subprocess
import sys


def test_neither_is_imported_until_needed() -> None:
    code = (
        "import sys; import density_regression.plots; sys.exit(not {'matplotlib', 'sklearn'}.isdisjoint(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
