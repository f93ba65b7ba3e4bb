"""Tables and figures of what `latency.py`, `training.py` and `export.py` measured.

    python benchmarks/speed_report.py FOLDER

Reads latency.json, training.json and export.json in the folder; writes report.md and figures/ beside them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from density_regression.plots.style import BAND_COLORS, MEAN_COLOR, curve_style, short_number

OURS = "Density-Regression"
KINDS = {
    "predict": "`predict(X, return_std=True)` through the estimator",
    "module": "The bare module, eager",
    "compiled": "The bare module, compiled",
    "onnx": "ONNX Runtime",
}
Figures = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    latency, training, export = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("latency", "training", "export")
    )
    (folder / "figures").mkdir(exist_ok=True)
    draw_sizes(latency, folder / "figures" / "model-size.png")
    draw_training(training, folder / "figures" / "training-time.png")
    lines = [
        *heading(latency, training, export),
        *in_short(latency, training, export),
        *sizes(latency),
        *latencies(latency),
    ]
    lines += [*trainings(training), *exports(export)]
    (folder / "report.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def heading(latency: Figures, *others: Figures) -> Iterator[str]:
    machine = latency["machine"]
    commits = ", ".join(dict.fromkeys(figures["machine"]["commit"] for figures in (latency, *others)))
    yield "# Speed and size"
    yield ""
    yield (
        f"{machine['processor']}, {machine['cores']} cores, {machine['threads used']} thread used; torch "
        f"{machine['torch']}, commit {commits}. All methods by turns within one run; medians. The default "
        f"MLP 2 x 100 on 20 columns; the density has {latency['components of the density']} components. Written by "
        "`make bench` from the JSON files beside it."
    )
    yield ""


def in_short(latency: Figures, training: Figures, export: Figures) -> Iterator[str]:
    others = latency["predict against others"]
    rows = [("`predict`, 100,000 rows / bare module's forward", others["100,000 rows, predict / bare module at once"])]
    rows.append(("the same, the bare module in chunks", others["100,000 rows, predict / bare module in chunks"]))
    rows.append(("`predict`, 1 row / scikit-learn's `MLPRegressor`", others["1 row, predict / MLPRegressor.predict"]))
    for size, ratio in training["ours / Gaussian network, by rows"].items():
        rows.append((f"training, {int(size):,} rows, {training['epochs']} epochs / Gaussian network", ratio))
    for name, found in training["exponent of rows"].items():
        rows.append((f"{name}: exponent of training time in rows, all sizes", found["all"]))
        rows.append((f"{name}: between the two largest", found["largest two"]))
    memory = training["memory"]
    size = " x ".join(f"{part:,}" for part in memory["rows and columns"])
    rows.append((f"growth of memory in `fit` / bytes of {size} inputs", memory["growth / bytes of the inputs"]))
    for name, found in each_shape(export):
        for batch in ("1", "1000"):
            rows.append(
                (
                    f"ONNX Runtime, {name}, batch {int(batch):,} / Gaussian network",
                    found[batch]["ours / Gaussian network"],
                )
            )
    worst = max(export["largest relative difference from torch"].values())
    rows.append(("ONNX Runtime / torch: largest relative difference, a million rows", worst))
    yield from table(("", ""), [(name, f"{value:.2f}" if value > 1e-3 else f"{value:.1e}") for name, value in rows])


def sizes(latency: Figures) -> Iterator[str]:
    yield "## Size"
    yield ""
    yield "![Numbers that a model holds, and how long it takes to predict 1,000 rows.](figures/model-size.png)"
    yield ""
    columns = ("parameters", "parameters and buffers", "saved", "onnx", "onnx, int8")
    rows = [
        (name, *(f"{found[key]:,}" if found[key] is not None else "-" for key in columns))
        for name, found in latency["size"].items()
    ]
    yield from table(("", "trained", "all numbers", "saved (bytes)", "ONNX (bytes)", "with int8"), rows)


def latencies(latency: Figures) -> Iterator[str]:
    yield "## Predictions"
    yield ""
    for kind, title in KINDS.items():
        found = latency["microseconds"].get(kind)
        if found is None:
            continue
        yield f"{title}, microseconds, and over those of the Gaussian network:"
        yield ""
        rows = []
        for name in found["1"]:
            times = [found[batch].get(name) for batch in found]
            against = [
                found[batch][name] / found[batch]["Gaussian"] if name in found[batch] else None for batch in found
            ]
            cells = [f"{time:,.0f} ({ratio:.2f})" if time else "-" for time, ratio in zip(times, against, strict=True)]
            rows.append((name, *cells))
        yield from table(("", *(f"{int(batch):,} row{'s' * (batch != '1')}" for batch in found)), rows)


def trainings(training: Figures) -> Iterator[str]:
    yield "## Training"
    yield ""
    yield "![Seconds of training by rows, and ours over one network.](figures/training-time.png)"
    yield ""
    by_rows = training["seconds by rows"]
    yield f"Seconds of {training['epochs']} epochs, all steps, without early stopping:"
    yield ""
    names = ("Gaussian", OURS, "Deep Ensembles")
    steps = ("pretrain", "fit_density", "refit_head", "learn_reach")
    rows = [
        (
            f"{int(size):,}",
            *(short_number(found[name]) if name in found else "-" for name in names),
            f"{found['ratio']:.2f}",
            " + ".join(short_number(found["steps of ours"][step]) for step in steps),
        )
        for size, found in by_rows.items()
    ]
    yield from table(("rows", *names, "ours / Gaussian", "ours: network + density + head + reach"), rows)
    key = "seconds by width, 10,000 rows, 10 epochs"
    yield "By the width of both layers, 10,000 rows, 10 epochs:"
    yield ""
    rows = [
        (width, *(short_number(found[name]) for name in names), f"{found['ratio']:.2f}")
        for width, found in training[key].items()
    ]
    yield from table(("width", *names, "ours / Gaussian"), rows)


def exports(export: Figures) -> Iterator[str]:
    yield "## ONNX"
    yield ""
    rows = []
    for name, found in each_shape(export):
        for batch in ("1", "1000"):
            part = found[batch]
            rows.append(
                (
                    name,
                    f"{found['components']}",
                    f"{int(batch):,}",
                    *(f"{part[f'{who} (microseconds)']:,.1f}" for who in ("Gaussian network", "ours", "five networks")),
                    f"{part['ours / Gaussian network']:.2f}",
                    f"{part['ours, mean and std alone / Gaussian network']:.2f}",
                    f"{part['five networks / ours']:.2f}",
                )
            )
    times = ("Gaussian (us)", "ours (us)", "five (us)", "ours / Gaussian", "its mean and std alone", "five / ours")
    yield from table(("", "components", "rows", *times), rows)
    yield "Encoder in int8, on 1,000 test rows:"
    yield ""
    rows = []
    for name, found in each_shape(export):
        if "int8" not in found:
            continue
        part = found["int8"]
        changes = [part["largest change of a mean, in its deviations"], part["largest relative change of a deviation"]]
        pairs = [f"{part[f'{key}, float32']:.4f}, {part[f'{key}, int8']:.4f}" for key in ("NLL", "CRPS")]
        files = f"{part['bytes, float32']:,}, {part['bytes, int8']:,}"
        rows.append((name, files, *pairs, *(f"{change:.2g}" for change in changes)))
    yield from table(
        ("", "bytes: float32, int8", "NLL", "CRPS", "mean moves by at most (deviations)", "deviation by (relative)"),
        rows,
    )


def each_shape(export: Figures) -> Iterator[tuple[str, Figures]]:
    """The networks that were exported."""
    return ((name, found) for name, found in export.items() if "components" in found)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table in Markdown, all but the first column to the right."""
    yield "| " + " | ".join(head) + " |"
    yield "|---|" + "---:|" * (len(head) - 1)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def draw_sizes(latency: Figures, path: Path) -> None:
    """Bars of what a model holds and how long it takes."""
    names = list(latency["size"])[::-1]
    colors = [MEAN_COLOR if name == OURS else BAND_COLORS[0] for name in names]
    panels = (
        ("Numbers held, thousands", [latency["size"][name]["parameters and buffers"] / 1e3 for name in names]),
        (
            "predict, 1,000 rows, milliseconds",
            [latency["microseconds"]["predict"]["1000"][name] / 1e3 for name in names],
        ),
    )
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for ax, (title, values) in zip(axes, panels, strict=True):
        bars = ax.barh(names, values, color=colors)
        ax.bar_label(bars, [short_number(value) for value in values], padding=3, fontsize=8)
        ax.set_xscale("log")
        ax.set_xlim(min(values) / 2, max(values) * 3)
        ax.set_title(title, fontsize=10)
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_training(training: Figures, path: Path) -> None:
    """Seconds by rows, and ours over one network."""
    by_rows = training["seconds by rows"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for index, name in enumerate((OURS, "Deep Ensembles", "Gaussian")):
        known = [(int(size), found[name], found["Gaussian"]) for size, found in by_rows.items() if name in found]
        sizes, seconds, plain = np.transpose(known)
        look = {"color": MEAN_COLOR if name == OURS else "0.45", "linestyle": curve_style(index).linestyle}
        left.plot(sizes, seconds, marker=curve_style(index).marker, label=name, **look)
        if name != "Gaussian":
            right.plot(sizes, seconds / plain, marker=curve_style(index).marker, label=name, **look)
    left.set(xscale="log", yscale="log", xlabel="rows", ylabel=f"seconds of {training['epochs']} epochs")
    right.axhline(1.0, color="0.7", linewidth=1)
    right.set(xscale="log", xlabel="rows", ylabel="over one Gaussian network", ylim=(0, None))
    for ax in (left, right):
        ax.legend(frameon=False, fontsize=9)
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    main()
