"""The README is short, its links lead somewhere, and its figures are those that the commands beside them print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = ROOT / "docs" / "results"
WORDS = 900


def stands() -> dict[str, str]:
    """The results of "Where it stands", by what ours is compared with."""
    table = README.partition("## Where it stands")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")][1:]
    return {name.strip(): result.strip() for name, result, _ in rows}


def column(report: str, section: str, table: str, name: str) -> dict[str, str]:
    """One column of a table of a report, by method."""
    text = report.partition(f"\n### {section}\n")[2].partition("\n### ")[0].partition(f"**{table}**")[2]
    header, _, *rows = [line.strip("| ").split(" | ") for line in text.strip().partition("\n\n")[0].splitlines()]
    return {row[0]: row[header.index(name)].strip("*").split(" ± ")[0] for row in rows}


@pytest.fixture(scope="module")
def shift() -> str:
    """What `density-regression report docs/results/shift/shift-default.jsonl` writes, which is in the repository."""
    return (RESULTS / "shift" / "report.md").read_text(encoding="utf-8")


def test_it_is_short() -> None:
    assert len(README.split()) <= WORDS
    (python,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(python.splitlines()) <= 10


def test_linked_files_exist() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_five_rows() -> None:
    assert len(stands()) == 5


def test_figures_of_natural_shifts(shift: str) -> None:
    metrics = ("NLL", "CRPS", "Calibration error")
    table = "Data sets on which Density-Regression is better than each method"
    home, shifted = (
        [column(shift, section, table, metric)["Deep Ensembles"].partition(" of 17")[0] for metric in metrics]
        for section in ("In distribution", "Shifted")
    )
    said = stands()["five networks (Deep Ensembles), 17 tables"]
    assert said == (
        f"at home better on {home[0]} of 17 by NLL, {home[1]} by CRPS, {home[2]} by calibration error; "
        f"shifted on {shifted[0]}, {shifted[1]} and {shifted[2]}"
    )
    auroc = column(shift, "Shifted", "Mean over data sets", "AUROC of the density score")
    said = stands()["SNGP and DUE, telling shifted rows from the others"]
    assert said.endswith(f"{auroc['Density-Regression']}, theirs {auroc['SNGP']} and {auroc['DUE']}")
    coverage = column(shift, "Shifted", "Mean over data sets", "Coverage of 95 % intervals")
    assert f"{100 * float(coverage['Density-Regression']):.1f} % of the targets on average" in README
    assert f"those of five networks {100 * float(coverage['Deep Ensembles']):.1f} %" in README


def printed(*command: str) -> str:
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_figures_of_peers() -> None:
    lines = printed("benchmarks/peers/shift_table.py", "docs/results/shift/peers.jsonl").splitlines()
    (home, shifted, rmse), others = (
        next(re.findall(r"on (\d+)", line) for line in lines if line.startswith(f"- {name}:"))
        for name in ("NGBoost", "RealMLP")
    )
    assert stands()["NGBoost; RealMLP, same tables, one seed"] == (
        f"NLL lower on {home}; {others[0]} of 17 at home, on {shifted}; {others[1]} shifted. "
        f"RMSE at home lower on {rmse}; {others[2]}"
    )


def test_figures_of_gaps() -> None:
    last = printed("benchmarks/gaps.py").splitlines()[-1]
    cells, nll, crps = re.fullmatch(r".*of (\d+): .*as they come (\d+), CRPS (\d+), .*", last).groups()  # type: ignore[union-attr]
    said = stands()["five networks, gaps and tails of UCI tables"]
    assert said == f"of {cells}: better on {nll} by NLL, on {crps} by CRPS"


def test_figures_of_images() -> None:
    lines = (RESULTS / "depth" / "report.md").read_text(encoding="utf-8").splitlines()
    pairs, rmse = [], []
    for name in ("Density-Regression", "Deep Ensembles"):
        rows = [line.strip("| ").replace("*", "").split(" | ") for line in lines if line.startswith(f"| {name} |")]
        rmse.append(rows[0][2].partition(" ")[0])
        pairs += [row[1].partition(" ")[0] for row in rows if len(row) == len(("name", "pairs", "AUROC", "s", "size"))]
    assert stands()["five networks, depth from images"] == (
        f"mean std larger outdoors than in a room in {pairs[0]} of the pairs, theirs {pairs[1]}; "
        f"RMSE at home worse, {rmse[0]} m against {rmse[1]}"
    )
