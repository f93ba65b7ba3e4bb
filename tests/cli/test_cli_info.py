"""`info` and model cards: what they say is what the model has, of earlier versions and of images, too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from flats import flats, run

from density_regression import DensityRegression, DensityRegressor, MixtureDensity
from density_regression.baselines import GaussianRegressor
from density_regression.cli import words

SAVED = Path(__file__).parents[1] / "fixtures" / "saved-06ae3e5"
FLATS = flats().dropna(subset=["price"])


@pytest.fixture(scope="module")
def reg() -> GaussianRegressor:
    with pytest.warns(UserWarning, match="Left out"):
        return GaussianRegressor(hidden=(8,), epochs=3, random_state=0, n_threads=1, target="log").fit(
            FLATS.drop(columns="price"), FLATS["price"], conformal=0.3
        )


@pytest.fixture
def model(reg: GaussianRegressor, tmp_path: Path) -> Path:
    reg.save(tmp_path / "model")
    return tmp_path / "model"


def test_what_is_shown(reg: GaussianRegressor, model: Path) -> None:
    result = run("info", model)
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines() if line.strip()]
    held, profile = reg.profile_.held_out, reg.profile_
    low, middle, high = (profile.columns[1].quantiles[i] for i in (0, 4, 8))
    town = profile.columns[3]
    (first, share), (second, other) = sorted(zip(town.values, town.shares, strict=True), key=lambda pair: -pair[1])
    assert lines[0].startswith(f"Model: {model} (GaussianRegressor, density-regression ")
    assert lines[1] == f"Method: {reg.about.name} ({reg.about.reference})"
    assert lines[2] == "Column Kind Values in training Gaps"
    assert lines[3].startswith("id left out not used: 31 different texts in 31 rows, such as 'A0")
    assert lines[4] == f"size number {low:.4g} to {high:.4g}, median {middle:.4g} none"
    assert lines[6] == f"town category {first} {100 * share:.0f} %, {second} {100 * other:.0f} % none"
    assert lines[8].startswith("sold date 2022-01-0")
    assert lines[9].startswith("Target: price: ")
    assert lines[9].endswith("; log-normal law")
    assert lines[10] == (
        f"Held out: 10 rows: RMSE {held.rmse:,.0f}; 90 % intervals hold {100 * held.coverage:.0f} %; "
        f"CRPS {held.crps:,.0f}, NLL {held.nll:.3f}"
    )
    assert lines[11].startswith("Conformal: Intervals hold what they promise by 17 rows kept aside")
    assert lines[12].startswith("Training: 31 rows, 3 epochs; train ")
    assert lines[13] == 'Settings: epochs=3, hidden=[8], n_threads=1, random_state=0, target="log"'
    weights = sum(tensor.numel() for tensor in reg.model_.state_dict().values())
    assert lines[14].startswith(f"Size: {weights:,} numbers, ")


def test_gaps_are_shown(model: Path) -> None:
    year = next(line for line in run("info", model).stdout.splitlines() if line.startswith("year"))
    assert year.rstrip().endswith(" %")


def test_json(reg: GaussianRegressor, model: Path) -> None:
    facts = json.loads(run("info", model, "--json").stdout)
    assert facts["settings"] == {"hidden": [8], "target": "log", "epochs": 3, "n_threads": 1, "random_state": 0}
    assert facts["targets"] == json.loads(json.dumps(reg.profile_.to_json()["targets"]))
    assert facts["conformal"] == {"rows": 17, "effective_rows": None, "most_coverage": 17 / 18}
    assert facts["bytes"] == sum(path.stat().st_size for path in model.iterdir())
    assert (facts["law"], facts["epochs"], facts["own_encoder"]) == ("log", 3, False)


def test_a_card(reg: GaussianRegressor, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "new" / "card.md"
    result = run("info", model, "--card", path)
    assert result.exit_code == 0
    assert f"Model card: {path}" in result.stdout
    card = path.read_text()
    titles = [line for line in card.splitlines() if line.startswith("#")]
    assert titles == [
        "# Prediction of price", "## From what", "## How good", "## Where not to use it", "## How it was made"
    ]  # fmt: skip
    assert "a log-normal law, so it is never below 0" in card
    assert "31 rows trained." in card
    held = reg.profile_.held_out
    assert f"| price | 10 | {held.rmse:,.0f} | {held.crps:,.0f} | {held.nll:.3f} |" in card
    assert "by 17 rows kept aside" in card
    assert "This method may not notice strange rows" in card
    assert '`target="log"`' in card
    # All rows of a table have as many cells.
    tables = [line.count("|") for line in card.splitlines() if line.startswith("|")]
    assert set(tables) == {5, 7}


def test_a_card_that_cannot_be_written(model: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    result = run("info", model, "--card", tmp_path / "taken" / "card.md")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "taken" in result.stderr


def test_text_in_a_card_cannot_break_its_tables(tmp_path: Path) -> None:
    X = FLATS[["size"]].rename(columns={"size": "a|b\nc"}).assign(town=["x|y", "z"] * 29)
    GaussianRegressor(hidden=(4,), epochs=1, random_state=0).fit(X, FLATS["price"]).save(tmp_path / "model")
    run("info", tmp_path / "model", "--card", tmp_path / "card.md")
    card = (tmp_path / "card.md").read_text()
    assert "a\\|b c" in card
    assert "x\\|y" in card


def test_a_density_knows_strange_rows(tmp_path: Path) -> None:
    reg = DensityRegressor(hidden=(4,), epochs=1, members=0, random_state=0, density=MixtureDensity(2))
    reg.fit(FLATS[["size", "balcony"]], FLATS[["price", "size"]]).save(tmp_path / "model")
    facts = json.loads(run("info", tmp_path / "model", "--json", "--card", tmp_path / "card.md").stdout)
    assert facts["settings"]["density"]["type"] == "MixtureDensity"
    card = (tmp_path / "card.md").read_text()
    assert "`familiarity` is below 0.01" in card
    assert "# Prediction of price, size" in card
    assert card.count("| size | 10 |") == 1
    shown = run("info", tmp_path / "model").stdout
    assert shown.count("Held out:") == 2
    assert "True 4" in shown or "True 3" in shown


def test_nothing_held_out(tmp_path: Path) -> None:
    reg = GaussianRegressor(hidden=(4,), epochs=1, random_state=0, validation_fraction=0.0)
    reg.fit(FLATS[["size"]], FLATS["price"]).save(tmp_path / "model")
    result = run("info", tmp_path / "model", "--card", tmp_path / "card.md")
    assert "Held out:" not in result.stdout
    assert "No rows were held out. Judge it on rows of your own" in (tmp_path / "card.md").read_text()


def test_an_array_without_names_and_an_encoder_of_one_s_own(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    reg = GaussianRegressor(encoder=torch.nn.Linear(2, 3), epochs=1, random_state=0).fit(X, X[:, 0])
    reg.save(tmp_path / "model")
    facts = json.loads(run("info", tmp_path / "model", "--json").stdout)
    assert [column["name"] for column in facts["columns"]] == ["0", "1"]
    assert facts["own_encoder"] is True


@pytest.mark.parametrize("coded", [True, False])
def test_models_without_a_profile_say_so(coded: bool, tmp_path: Path) -> None:
    X = FLATS[["size", "town", "sold"]] if coded else FLATS[["size"]]
    reg = GaussianRegressor(hidden=(4,), epochs=1, random_state=0).fit(X, FLATS["price"])
    reg.profile_ = None
    reg.save(tmp_path / "model")
    shown = run("info", tmp_path / "model", "--card", tmp_path / "card.md")
    assert shown.exit_code == 0, shown.output
    assert "An earlier version saved it, which kept neither ranges of columns nor held-out quality." in shown.stdout
    facts = json.loads(run("info", tmp_path / "model", "--json").stdout)
    assert facts["rows"] is None
    assert [column["kind"] for column in facts["columns"]] == (["number", "category", "date"] if coded else ["number"])
    assert "An earlier version of density-regression saved this model" in (tmp_path / "card.md").read_text()


@pytest.mark.parametrize("name", ["density", "ensemble"])
def test_folders_of_an_earlier_version(name: str) -> None:
    shown = run("info", SAVED / name).stdout
    assert "An earlier version saved it" in shown
    assert "Settings:" in shown


def test_models_of_images_in_short(tmp_path: Path) -> None:
    result = run("info", SAVED / "depth", "--card", tmp_path / "card.md")
    assert result.exit_code == 0, result.output
    assert "DepthRegressor" in result.stdout
    assert "width=" in result.stdout
    assert (tmp_path / "card.md").read_text().startswith("# DepthRegressor\n")


def test_a_torch_module(tmp_path: Path) -> None:
    DensityRegression(torch.nn.Linear(2, 3), features=3, density=None).save(tmp_path / "module")
    result = run("info", tmp_path / "module")
    assert result.exit_code == 0, result.output
    assert "(DensityRegression, density-regression" in result.stdout


def test_no_model(tmp_path: Path, model: Path) -> None:
    assert "No model in" in run("info", tmp_path / "none").stderr
    weights = next(model.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1])
    result = run("info", model)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (1, "", 1)
    assert "truncated or was edited" in result.stderr
    shutil.rmtree(model)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.23456, "1.235"),
        (1234.5678, "1235"),
        (12345.678, "12,346"),
        (-98765.4, "-98,765"),
        (1e20, "1e+20"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert words.number(value) == text


@pytest.mark.parametrize(("share", "text"), [(0.0, "0 %"), (0.004, "0.4 %"), (0.126, "13 %"), (1.0, "100 %")])
def test_shares(share: float, text: str) -> None:
    assert words.percent(share) == text


def test_many_categories_are_counted() -> None:
    column = {"kind": "category", "values": list("abcdefgh"), "shares": [0.1] * 7 + [0.3]}
    assert words.values(column) == "h 30 %, a 10 %, b 10 %, c 10 %, d 10 % and 3 more"
    assert words.values({"kind": "number", "quantiles": [], "gaps": 1.0}) == "only gaps"
    assert words.values({"kind": "number", "quantiles": [3.0] * 9}) == "always 3"
