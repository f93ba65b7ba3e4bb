"""Where a depth model is unsure: at edges, and far away, against the rest of each image, beside its errors.

    density-regression fit FOLDER --task depth --out model/
    python benchmarks/edges.py model/ TEST_FOLDER [--json FILE]

Edges are the tenth of an image's pixels about which depth, true or predicted, differs most, within one pixel or four;
far is the tenth with the largest depth. Each figure is the median over images of a ratio of means, and the share of
images in which that of the standard deviations is above one. At the same distance: within tenths of the predicted
depth, weighted by their edges.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from _timing import finish, machine
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter, minimum_filter

from density_regression.datasets import DepthFolder
from density_regression.vision.depth import DepthRegressor

Map = NDArray[np.float64]
SHARE = 0.1
NEAR = (1, 4)
"""Pixels to each side of an edge that belong to it."""
FEWEST = 10
"""Pixels on either side that a ratio of means needs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="what `fit` wrote")
    parser.add_argument("folder", type=Path, help="test images: rgb/*.jpg and depth/*.png")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    model, folder = DepthRegressor.load(args.model), DepthFolder(args.folder)
    found: dict[str, list[list[float]]] = {}
    errors = []
    for i in range(len(folder)):
        image, depth = folder.load(i)
        maps = model.predict(image)
        truth, mean, std = (np.asarray(part, np.float64) for part in (depth, maps.mean[0], maps.std[0]))
        known = truth > 0
        error = np.abs(mean - truth)
        errors.append(np.mean(error[known] ** 2))
        for name, chosen in places(truth, mean, known).items():
            found.setdefault(name, []).append([ratio(values, chosen, known) for values in (std, error)])
            if name != "far away":
                near = [at_same_distance(values, chosen, known, mean) for values in (std, error)]
                found.setdefault(f"{name}, at the same distance", []).append(near)
    finish(
        {
            "machine": machine(),
            "settings": {name: getattr(model, name) for name in ("width", "levels", "epochs", "smoothness")},
            "images": len(folder),
            "RMSE, mean over images (m)": float(np.mean(np.sqrt(errors))),
            **{name: summary(np.array(ratios)) for name, ratios in found.items()},
        },
        args.json,
    )


def places(truth: Map, mean: Map, known: NDArray[np.bool_]) -> dict[str, NDArray[np.bool_]]:
    """Which pixels count as edges of the true and of the predicted depth, and as far away."""
    values = {"far away": truth}
    for near in NEAR:
        values[f"edges, within {near}"] = differing(truth, known, near)
        values[f"edges of the prediction, within {near}"] = differing(mean, known, near)
    return {name: known & (value >= np.quantile(value[known], 1 - SHARE)) for name, value in values.items()}


def differing(depth: Map, known: NDArray[np.bool_], near: int) -> Map:
    """By how much the known depths differ within so many pixels of each."""
    size = 2 * near + 1
    highest = maximum_filter(np.where(known, depth, -np.inf), size)
    lowest = minimum_filter(np.where(known, depth, np.inf), size)
    return np.where(known, highest - lowest, 0.0)


def ratio(values: Map, chosen: NDArray[np.bool_], known: NDArray[np.bool_]) -> float:
    """Mean over the chosen pixels over that of the other known ones; NaN if there are too few."""
    rest = known & ~chosen
    return float(values[chosen].mean() / values[rest].mean()) if min(chosen.sum(), rest.sum()) > FEWEST else np.nan


def at_same_distance(values: Map, chosen: NDArray[np.bool_], known: NDArray[np.bool_], mean: Map) -> float:
    """`ratio` within tenths of the predicted depth."""
    limits = np.quantile(mean[known], np.linspace(0, 1, 11)[1:-1])
    parts = [known & (np.digitize(mean, limits) == part) for part in range(10)]
    ratios = np.array([ratio(values, chosen & part, part) for part in parts])
    weights = np.where(np.isnan(ratios), 0, [(chosen & part).sum() for part in parts])
    return float(np.average(np.nan_to_num(ratios), weights=weights))


def summary(ratios: Map) -> dict[str, float]:
    std, error = np.nanmedian(ratios, axis=0)
    return {"std": std, "error": error, "images where that of the std is above 1": float(np.mean(ratios[:, 0] > 1))}


if __name__ == "__main__":
    main()
