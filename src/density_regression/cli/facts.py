"""What is known of a saved model, as plain numbers and strings: for `info`, model cards, and the end of `fit`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from density_regression.tabular.profile import Profile

__all__ = ["model_facts"]

MACHINE = ("checkpoint_dir", "callbacks", "verbose")
"""Settings that say nothing of a model."""


def model_facts(folder: Path) -> dict[str, Any]:
    """Facts about the model in a folder; what an earlier version did not save is None.

    The folder is read and its checksums are compared, but no model is built: one with an encoder of somebody's own
    needs no code.
    """
    from density_regression.io.store import read_model

    config, tensors = read_model(folder)
    facts: dict[str, Any] = {
        "model": str(folder),
        "estimator": config.get("estimator", config.get("module")),
        "version": config.get("version"),
        "torch": config.get("torch"),
        "seconds": config.get("seconds", {}),
        "parameters": sum(t.numel() for name, t in tensors.items() if not name.startswith("conformal.")),
        "bytes": sum((folder / name).stat().st_size for name in ("model.json", config["weights"])),
    }
    if "target_shape" not in config:
        # A model of images, or a torch module.
        return facts | {"settings": config.get("params", {})}
    return facts | _of_table(config, tensors)


def _of_table(config: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    from density_regression.tabular.profile import Profile

    profile = Profile.from_json(config["profile"]) if "profile" in config else None
    targets = len(config["scaling"]["y"][0])
    return {
        "method": _method(config["estimator"]),
        "own_encoder": config["own_encoder"],
        "rows": None if profile is None else profile.rows,
        "columns": _columns(config, profile),
        "targets": [{"name": None}] * targets if profile is None else profile.to_json()["targets"],
        "law": config.get("target", "identity"),
        "settings": _settings(config["estimator"], config["params"]),
        "epochs": len(config["history"]),
        "conformal": _conformal(tensors),
    }


def _columns(config: dict[str, Any], profile: Profile | None) -> list[dict[str, Any]]:
    """Columns as the profile has them; without one their names, and what the code says of their kind."""
    coders = {coder["name"]: coder for coder in config.get("columns", [])}
    if profile is None and coders:
        kept = ("name", "type", "kind", "values")
        columns = [{key: coder[key] for key in kept if key in coder} for coder in coders.values()]
        columns = [{**column, "kind": column.pop("type", column["kind"])} for column in columns]
    elif profile is None:
        names = config["feature_names"] or [str(i) for i in range(len(config["scaling"]["x"][0]))]
        columns = [{"name": name, "kind": "number"} for name in names]
    else:
        columns = profile.to_json()["columns"]
    for column in columns:
        if column["kind"] == "left out":
            coder = coders[column["name"]]
            different = f"{coder['different']:,} different texts in {coder['known']:,} rows"
            column["why"] = f"{different}, such as {coder['example']!r:.40}"
    return columns


def _settings(estimator: str, params: dict[str, Any]) -> dict[str, Any]:
    """Settings that are not the defaults."""
    from density_regression.nn.parts import to_json
    from density_regression.registry import estimators

    known = estimators()
    defaults = inspect.signature(known[estimator]).parameters if estimator in known else {}
    usual = {name: to_json(parameter.default) for name, parameter in defaults.items()}
    return {
        name: value
        for name, value in params.items()
        if name not in MACHINE and not (name in usual and usual[name] == value)
    }


def _method(estimator: str) -> str | None:
    """Name and reference of a method."""
    from density_regression.registry import estimators

    if estimator not in (known := estimators()):
        return None
    about = known[estimator].about
    return f"{about.name} ({about.reference})" if about.reference else about.name


def _conformal(tensors: dict[str, Tensor]) -> dict[str, Any] | None:
    """Rows of `conformalize`, and how many they are worth where inputs have shifted."""
    from density_regression.estimators.conformal import Conformal

    learnt = {name.removeprefix("conformal."): t for name, t in tensors.items() if name.startswith("conformal.")}
    if not learnt:
        return None
    conformal = Conformal.saved(learnt)
    effective = None if conformal.weights is None else conformal.effective_rows
    return {"rows": conformal.rows, "effective_rows": effective, "most_coverage": conformal.rows / (conformal.rows + 1)}
