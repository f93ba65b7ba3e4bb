"""Evaluation of a fitted regressor on rows with targets: metrics, figures, words and one page."""
