"""The page for people, at `/`: a form, the predictive distribution, and how familiar the row is. Needs no script."""

from __future__ import annotations

from fastapi import FastAPI

__all__ = ["add_page"]


def add_page(app: FastAPI) -> None:
    """Add the routes of the page to an app whose `state.models` has the models."""
    from density_regression.serve.page.routes import ROUTES

    app.router.routes.extend(ROUTES)
