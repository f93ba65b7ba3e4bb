"""Axes to draw on, rendered once when the test is over: what cannot be rendered fails."""

from collections.abc import Iterator

import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


@pytest.fixture
def ax() -> Iterator[Axes]:
    figure = Figure()
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    yield axes
    figure.canvas.draw()
