"""Names of the methods, for help and completion: to ask the registry for them would take seconds."""

import typer

__all__ = ["METHODS", "check_method", "complete_method"]

METHODS = (
    "DensityRegressor",
    "DeterministicRegressor",
    "GaussianRegressor",
    "QuantileRegressor",
    "MCDropoutRegressor",
    "BayesianRegressor",
    "EvidentialRegressor",
    "NaturalPosteriorRegressor",
    "SNGPRegressor",
    "DUERegressor",
    "DeepEnsembleRegressor",
)


def check_method(name: str) -> str:
    """The name of a method, whatever its case, and with or without "Regressor"; a usage error for another."""
    found = {method.lower(): method for method in METHODS}
    found |= {method.removesuffix("regressor"): full for method, full in found.items()}
    if name.lower() not in found:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(METHODS)}.", param_hint="--method")
    return found[name.lower()]


def complete_method(incomplete: str) -> list[str]:
    """Names that begin with what was typed, for the shell."""
    return [name for name in METHODS if name.startswith(incomplete)]
