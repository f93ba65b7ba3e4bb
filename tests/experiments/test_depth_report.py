"""The report of the depth experiment, from records made by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from density_regression.cli import app
from density_regression.experiments.depth import figures
from density_regression.experiments.depth.bench import EPSILONS
from density_regression.experiments.depth.figures import panel_drawings
from density_regression.experiments.depth.report import write_depth_report
from density_regression.experiments.records import Record

ATTACKS = [f"{kind} {epsilon}" for kind in ("own", "common") for epsilon in EPSILONS]
CURVES = ("calibration.png", "sparsification.png", "epsilon.png", "training-time.png")
NAMES = ("nll", "rmse", "cal", "sharpness_sd", "crps", "nll_rescaled", "cal_rescaled", "crps_rescaled")


def scored(value: float, image_std: list[float], image_score: list[float] | None = None) -> dict[str, Any]:
    """A test set on which every metric is ``value``."""
    return {
        "pixels": 1000,
        "metrics": dict.fromkeys(NAMES, value),
        "curve": [0.0, 0.4, 1.0],
        "sparsification": {"share": [0.0, 0.5], "by_std": [1.0, 0.8], "by_error": [1.0, 0.3]},
        "image_std": image_std,
        "image_score": image_score,
    }


def record(method: str, seed: int = 0, value: float = 1.0, **tests: dict[str, Any]) -> Record:
    """A fit with ``value`` on test images, ten times that outdoors, and 1 to 4 more at the four epsilons."""
    attacked = {name: scored(value + 1 + i % 4, [2.0 + i, 4.0 + i]) for i, name in enumerate(ATTACKS)}
    made = {"test": scored(value, [1.0, 2.0]), **attacked, "outdoor": scored(10 * value, [1.5, 3.0])}
    return {
        "suite": "depth",
        "protocol": "paper",
        "dataset": "nyu_labelled",
        "split": "0",
        "seed": seed,
        "method": method,
        "commit": "abc123",
        "device": "cuda",
        "seconds": 10.0 + seed,
        "parameters": 12345,
        "scale": 1.25,
        "tests": made | tests,
    }


def write(folder: Path, *records: Record) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "depth.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    return folder


def write_panels(folder: Path, method: str, *sets: str) -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for name in sets:
        arrays[f"{name}/image"] = rng.integers(0, 256, (2, 8, 10, 3)).astype(np.uint8)
        for part in ("depth", "mean", "std"):
            arrays[f"{name}/{part}"] = rng.uniform(1, 5, (2, 8, 10)).astype(np.float16)
    (folder / "panels").mkdir(exist_ok=True)
    np.savez(folder / "panels" / f"{method}.npz", **arrays)


def tables(page: Path) -> dict[str, list[dict[str, str]]]:
    """Rows of the tables of a page, by title, each by its header."""
    found: dict[str, list[dict[str, str]]] = {}
    title, header = "", [""]
    for line in page.read_text().splitlines():
        if line.startswith("**"):
            title, header = line.strip("*"), []
        elif line.startswith("| ---"):
            found[title] = []
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if header:
                found[title].append(dict(zip(header, cells, strict=True)))
            header = header or cells
    return found


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Figures of few pixels, which take less time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "DPI", 30)
        yield


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ours with 1 and 2 on test images, the Gaussian with 2 and 3, and its scores wide and worse."""
    folder = tmp_path_factory.mktemp("results")
    scores = {
        "test": scored(1.0, [1.0, 2.0], [5.0, 3.0]),
        "outdoor": scored(10.0, [1.5, 3.0], [4.0, 1.0]),
    }
    own = (record("Density-Regression", 0, 1.0, **scores), record("Density-Regression", 1, 2.0))
    write(folder, *own, record("Gaussian", 0, 2.0), record("Gaussian", 1, 3.0))
    return write_depth_report(folder, folder / "out")[0]


def test_means_and_deviations_are_over_seeds(page: Path) -> None:
    ours, gaussian = tables(page)["Main results"]
    assert (ours["Method"], gaussian["Method"]) == ("Density-Regression", "Gaussian")
    assert (ours["Test NLL"], gaussian["Test NLL"]) == ("**1.50 ± 0.71**", "2.50 ± 0.71")
    assert ours["Corrupted RMSE"] == "**4.00 ± 0.71**"
    assert ours["Outdoors CRPS"] == "**15.0 ± 7.1**"
    rescaled = tables(page)["Main results, rescaled"][1]
    assert (rescaled["Factor"], rescaled["Corrupted NLL"]) == ("1.25 ± 0.00", "5.00 ± 0.71")


def test_a_width_is_not_bold(page: Path) -> None:
    ours, gaussian = tables(page)["Main results"]
    assert (ours["Test Sharp"], gaussian["Test Sharp"]) == ("1.50 ± 0.71", "2.50 ± 0.71")
    assert "by means alone" in page.read_text()


def test_every_epsilon_has_its_row(page: Path) -> None:
    rows = tables(page)["Each ε"]
    assert [(row["Method"], row["ε"]) for row in rows[:3]] == [
        ("Density-Regression", "0.01"),
        ("Gaussian", "0.01"),
        ("Density-Regression", "0.02"),
    ]
    assert rows[2]["Own NLL"] == rows[2]["Common NLL"] == "**3.50 ± 0.71**"
    assert (rows[2]["Own mean std"], rows[2]["Common mean std"]) == ("4.00 ± 0.00", "8.00 ± 0.00")


def test_pairs_and_cost(page: Path) -> None:
    ours, gaussian = tables(page)["Outdoors against indoors, and cost"]
    # Of the pairs of (1.5, 3) with (1, 2), three of four are larger; of minus (4, 1) with minus (5, 3), too.
    assert ours["Larger std outdoors"] == "**0.750 ± 0.000**"
    assert (ours["AUROC of the density"], gaussian["AUROC of the density"]) == ("0.750", "–")
    assert (ours["Seconds to train"], ours["Parameters"]) == ("**10.5 ± 0.7**", "12,345")


def test_the_page_says_where_it_comes_from(page: Path) -> None:
    text = page.read_text()
    for part in (
        "abc123",
        "cuda",
        "stand-in for ApolloScape",
        "795 training, 218 test images",
        "seeds of each method: 2",
    ):
        assert part in text


def test_one_seed_has_no_deviation(tmp_path: Path) -> None:
    write(tmp_path, record("EDL"), record("NatPN", value=3.0))
    edl, natpn = tables(write_depth_report(tmp_path, tmp_path / "out")[0])["Main results"]
    assert (edl["Test NLL"], natpn["Test NLL"]) == ("**1.00**", "3.00")


def test_a_single_method_with_sets_missing(tmp_path: Path) -> None:
    one = record("EDL")
    for name in ("own 0.04", "outdoor"):
        del one["tests"][name]
    write(tmp_path, one)
    paths = write_depth_report(tmp_path, tmp_path / "out")
    assert [path.name for path in paths] == ["report.md", *CURVES[:3]]
    (row,) = tables(paths[0])["Main results"]
    assert (row["Test NLL"], row["Corrupted NLL"], row["Outdoors NLL"]) == ("1.00", "–", "–")


def test_pictures_are_chosen_from_those_there_are(tmp_path: Path) -> None:
    panels = ["panels-indoor.png", "panels-corrupted.png", "panels-outdoor.png"]
    assert panel_drawings(tmp_path / "panels") == []
    write_panels(tmp_path, "Density-Regression", "test", *ATTACKS, "outdoor")
    assert [drawing.name for drawing in panel_drawings(tmp_path / "panels")] == panels


def test_figures_are_files_that_the_page_shows(tmp_path: Path) -> None:
    write(tmp_path, record("Density-Regression"), record("Deep Ensembles"))
    write_panels(tmp_path, "Density-Regression", "outdoor")
    page, *figures = write_depth_report(tmp_path, tmp_path / "out")
    assert [path.name for path in figures] == ["panels-outdoor.png", *CURVES]
    for path in figures:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert f"(figures/{path.name})" in page.read_text()


def test_records_of_other_experiments_are_no_depth_results(tmp_path: Path) -> None:
    write(tmp_path, record("EDL") | {"suite": "uci"})
    with pytest.raises(ValueError, match="no depth results"):
        write_depth_report(tmp_path, tmp_path / "out")


def test_the_command_writes_it_beside_the_tables(tmp_path: Path) -> None:
    write(tmp_path, record("EDL"))
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "depth" / "report.md").exists()
    assert not (tmp_path / "report.md").exists()
    failed = {**record("EDL"), "suite": "cubic", "dataset": "cubic", "error": "no luck"}
    del failed["tests"]
    (tmp_path / "cubic.jsonl").write_text(json.dumps(failed) + "\n")
    result = CliRunner().invoke(app, ["report", str(tmp_path), "--out", str(tmp_path / "both")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "both" / "depth" / "report.md").exists()
    assert "nyu" not in (tmp_path / "both" / "report.md").read_text()


def test_two_depth_reports_do_not_fit_one_folder(tmp_path: Path) -> None:
    folders = [str(write(tmp_path / name, record("EDL"))) for name in "ab"]
    result = CliRunner().invoke(app, ["report", *folders, "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "one by one" in " ".join(result.output.split())
