"""The command line, as `python -m density_regression`."""

from density_regression.cli import app

app(prog_name="python -m density_regression")
