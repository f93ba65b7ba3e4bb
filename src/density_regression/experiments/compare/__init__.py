"""Comparison of all methods on one's own table: folds, fits, tests and a verdict."""
