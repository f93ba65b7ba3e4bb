"""Importing the figures does not import matplotlib."""

import subprocess
import sys


def test_matplotlib_is_not_imported_until_needed() -> None:
    code = "import sys; import density_regression.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
