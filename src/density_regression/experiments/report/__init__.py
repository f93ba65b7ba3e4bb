"""The report of a benchmark: tables, tests and figures, drawn from its records alone."""

from density_regression.experiments.report.write import write_report

__all__ = ["write_report"]
