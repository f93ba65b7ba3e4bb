from __future__ import annotations

import math
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats

from density_regression.serve.page.fields import Field
from density_regression.serve.page.outlook import Point, Sweep
from density_regression.serve.page.svg.axes import Scale, ticks, ticks_in_words
from density_regression.serve.page.svg.bands import along_a_line, along_categories, common_range
from density_regression.serve.page.svg.bars import bar
from density_regression.serve.page.svg.density import Law, distribution
from density_regression.serve.page.svg.scale import familiarity_scale, place

HISTOGRAM = ((0.0, 10.0, 20.0, 40.0), (10, 30, 20))


def parsed(drawing: str) -> ElementTree.Element:
    """A drawing, which must be well-formed, and all of which must lie inside its frame."""
    root = ElementTree.fromstring(drawing)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for part in root.iter():
        for name in ("x", "x1", "x2", "cx"):
            assert -0.01 <= float(part.get(name, 0)) <= width + 0.01
        for name in ("y", "y1", "y2", "cy"):
            assert -0.01 <= float(part.get(name, 0)) <= height + 0.01
        for x, y in points(part):
            assert -0.01 <= x <= width + 0.01
            assert -0.01 <= y <= height + 0.01
    return root


def points(part: ElementTree.Element) -> list[tuple[float, float]]:
    pairs = part.get("points", "").split()
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in pairs)]


def of_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [part for part in root.iter() if name in part.get("class", "").split()]


def words(root: ElementTree.Element) -> list[str]:
    return [part.text or "" for part in root.iter("text")]


@pytest.mark.parametrize(
    ("low", "high", "most"), [(0, 1, 5), (-3, 17, 4), (1e-9, 3e-9, 6), (1234, 987654, 3), (5, 5, 4), (0, math.inf, 5)]
)
def test_ticks_are_few_round_numbers_inside(low: float, high: float, most: int) -> None:
    found = ticks(low, high, most)
    assert len(found) <= most
    if 0 < high - low < math.inf:
        assert len(found) >= 1
        step = (found[1] - found[0]) if len(found) > 1 else abs(found[0]) or 1.0
        assert f"{step:.0e}"[0] in "125"
        assert all(low - 1e-9 * step <= value <= high + 1e-9 * step for value in found)
        assert all(value / step == pytest.approx(round(value / step)) for value in found)


def test_words_of_ticks_tell_them_apart() -> None:
    assert [words for _, words in ticks_in_words(0.0, 1.0, 6)] == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
    assert [words for _, words in ticks_in_words(0.0, 60000.0, 4)] == ["0", "20,000", "40,000", "60,000"]


def test_values_beyond_a_scale_are_drawn_at_its_ends() -> None:
    scale = Scale(0.0, 10.0, 100.0, 200.0)
    assert (scale(5.0), scale(-99.0), scale(99.0)) == (150.0, 100.0, 200.0)
    assert Scale(3.0, 3.0, 1.0, 2.0)(3.0) == 1.0


@pytest.mark.parametrize(("mean", "std"), [(10.0, 1.0), (3.0, 5.0), (1e-200, 1e-199), (1e200, 1e199)])
def test_a_log_normal_law_has_its_mean_and_standard_deviation(mean: float, std: float) -> None:
    center, scale = Law(mean, std, log=True).moments
    assert math.exp(center + 0.5 * scale**2) == pytest.approx(mean)
    assert mean * math.sqrt(math.expm1(scale**2)) == pytest.approx(std)


@pytest.mark.parametrize("log", [False, True])
def test_densities_and_quantiles_are_those_of_scipy(log: bool) -> None:
    law = Law(3.0, 1.2, log)
    center, scale = law.moments
    own = stats.lognorm(scale, scale=math.exp(center)) if log else stats.norm(3.0, 1.2)
    values = np.array([0.5, 1.0, 2.0, 3.0, 7.0])
    ratio = np.array([law.density(value) for value in values]) / own.pdf(values)
    np.testing.assert_allclose(ratio, ratio[0])
    assert law.at(1.5) == pytest.approx(own.ppf(stats.norm.cdf(1.5)))
    assert own.mean() == pytest.approx(3.0)


def test_the_drawing_has_curve_interval_mean_and_training_targets() -> None:
    root = parsed(distribution(Law(20.0, 4.0), (13.4, 26.6), HISTOGRAM, "price", lambda v: f"{v:.1f}", "what"))
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == "what"
    [curve] = of_class(root, "curve")
    top = min(points(curve), key=lambda point: point[1])
    [dot] = of_class(root, "dot")
    assert float(dot.attrib["cx"]) == pytest.approx(top[0], abs=1.0)
    bars = of_class(root, "target")
    areas = [float(part.attrib["width"]) * float(part.attrib["height"]) for part in bars]
    # The outermost are cut off by the drawing's ends, so heights tell: rows per unit.
    heights = [float(part.attrib["height"]) for part in bars]
    assert heights == pytest.approx([heights[0], 3 * heights[0], heights[0]], rel=0.01)
    assert len(areas) == 3
    assert {"mean 20.0", "13.4", "26.6", "price"} <= set(words(root))


def test_what_is_far_beyond_the_drawing_is_an_arrow() -> None:
    near = parsed(distribution(Law(20.0, 4.0), (13.4, 26.6), HISTOGRAM, "y", str, ""))
    far = parsed(distribution(Law(20.0, 4000.0), (-6560.0, 6600.0), HISTOGRAM, "y", str, ""))
    assert len(of_class(near, "arrow")) == 0
    assert len(of_class(far, "arrow")) == 2


@pytest.mark.parametrize("targets", [None, HISTOGRAM, ((5.0, 5.0), (7,))])
@pytest.mark.parametrize("interval", [None, (1.0, 2.0), (-1e308, 1e308), (0.0, 0.0)])
@pytest.mark.parametrize(("mean", "std"), [(1.5, 0.3), (1e-300, 1e300), (1e308, 1.0), (0.0, 0.0), (7.0, 1e-12)])
@pytest.mark.parametrize("log", [False, True])
def test_extremes_are_drawn_inside_the_frame(mean, std, interval, targets, log: bool) -> None:
    drawn = distribution(Law(mean, std, log), interval, targets, "y", str, "")
    parsed(drawn)
    assert "nan" not in drawn


KM = Field("km", "number", 5.0, ends=(0.0, 10.0))
SWEEP = Sweep(KM, (-5.0, 0.0, 5.0, 10.0, 15.0), tuple(Point(5.0, 5.0 - w, 5.0 + w) for w in (3.0, 1.0, 1.0, 1.0, 3.0)))
NOW = SWEEP.points[2]


def test_the_band_is_drawn_along_the_column_and_opens() -> None:
    root = parsed(along_a_line(SWEEP, NOW, 5.0, (0.0, 10.0), "km"))
    [band] = of_class(root, "band")
    corners = points(band)
    assert len(corners) == 10
    upper, lower = corners[:5], corners[:4:-1]
    assert [above[0] for above in upper] == [below[0] for below in lower]
    widths = [below[1] - above[1] for above, below in zip(upper, lower, strict=True)]
    assert widths == pytest.approx([3 * widths[2], widths[2], widths[2], widths[2], 3 * widths[2]], rel=0.01)
    [training] = of_class(root, "training")
    assert float(training.attrib["x"]) == pytest.approx(upper[1][0], abs=0.1)
    assert float(training.attrib["width"]) == pytest.approx(upper[3][0] - upper[1][0], abs=0.1)
    [now] = of_class(root, "now")
    assert float(now.attrib["cx"]) == pytest.approx(upper[2][0], abs=0.1)
    assert {"0", "10"} <= set(words(root))


def test_a_value_beyond_the_drawing_is_an_arrow() -> None:
    assert of_class(parsed(along_a_line(SWEEP, NOW, 900.0, (0.0, 10.0), "")), "arrow")
    assert not of_class(parsed(along_a_line(SWEEP, NOW, 5.0, (0.0, 10.0), "")), "arrow")
    assert not of_class(parsed(along_a_line(SWEEP, NOW, None, (0.0, 10.0), "")), "now")


def test_without_intervals_there_is_a_line_alone() -> None:
    bare = Sweep(KM, SWEEP.values, tuple(Point(point.mean, math.nan, math.nan) for point in SWEEP.points))
    drawn = along_a_line(bare, bare.points[2], 5.0, (0.0, 10.0), "")
    assert not of_class(parsed(drawn), "band")
    assert "nan" not in drawn


def test_each_category_has_a_dot_and_the_present_one_a_ring() -> None:
    town = Field("town", "category", "Ulm", values=("Ulm", "a < b"))
    sweep = Sweep(town, ("Ulm", "a < b", "Paris", None), tuple(Point(5.0, 5.0 - w, 5.0 + w) for w in (1, 1, 3, 2)))
    root = parsed(along_categories(sweep, "Paris", (0.0, 10.0), ""))
    assert words(root)[:4] == ["Ulm", "a < b", "never seen", "missing"]
    assert (len(of_class(root, "dot")), len(of_class(root, "now"))) == (3, 1)
    widths = [float(part.attrib["x2"]) - float(part.attrib["x1"]) for part in of_class(root, "whisker")]
    assert widths == pytest.approx([widths[0], widths[0], 3 * widths[0], 2 * widths[0]], rel=0.01)


def test_one_range_holds_what_is_usual_and_not_all_that_is_not() -> None:
    low, high = common_range([SWEEP], NOW)
    assert low < 4.0
    assert high > 6.0
    wild = Sweep(KM, SWEEP.values, (Point(0.0, -1e9, 1e9), *SWEEP.points[1:]))
    low, high = common_range([wild], NOW)
    assert -10.0 < low < 4.0
    assert 6.0 < high < 20.0


def test_the_scale_of_familiarity_rises_from_far_to_familiar() -> None:
    places = [place(0.0, 1e6), place(0.0, 100.0), place(0.0, 1.0), place(0.005, 0.0), place(0.01, -1.0)]
    places += [place(0.04, -1.0), place(0.05, -1.0), place(0.5, -1.0), place(1.0, -9.0)]
    assert places == sorted(places)
    assert (places[0], places[-1]) == (0.0, 1.0)


@pytest.mark.parametrize(("familiarity", "below"), [(0.0, 1e300), (0.0, math.inf), (1.0, -5.0), (0.3, 0.0)])
def test_the_mark_of_familiarity_stays_inside(familiarity: float, below: float) -> None:
    root = parsed(familiarity_scale(familiarity, below, "words"))
    assert len(of_class(root, "mark")) == 1


@pytest.mark.parametrize(("share", "width"), [(0.25, 50.0), (0.0, 0.0), (1.0, 200.0), (7.0, 200.0)])
def test_a_bar_is_filled_to_its_share(share: float, width: float) -> None:
    assert float(of_class(parsed(bar(share)), "filled")[0].attrib["width"]) == width
