"""A bar for a share of a whole."""

from __future__ import annotations

from density_regression.serve.page.markup import Markup, tag

__all__ = ["bar"]

WIDTH, HEIGHT = 200.0, 10.0


def bar(share: float) -> Markup:
    """A bar filled to a share from 0 to 1. The number stands beside it, so those who cannot see it miss nothing."""
    filled = WIDTH * min(max(share, 0.0), 1.0)
    return tag(
        "svg",
        tag("rect", x=0.0, y=0.0, width=WIDTH, height=HEIGHT, class_="rail"),
        tag("rect", x=0.0, y=0.0, width=filled, height=HEIGHT, class_="filled"),
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        preserveAspectRatio="none",
        class_="bar",
        aria_hidden="true",
    )
