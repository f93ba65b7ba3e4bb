"""The law of the target in a saved model: models of earlier versions have none, and forged ones are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_array_equal
from saved_models import Tensors, X, assert_refused, fitted, forge, y
from torch.distributions import Normal

from density_regression import InvalidModelError, load
from density_regression.baselines import GaussianRegressor


def test_models_of_earlier_versions_have_the_identity(tmp_path: Path) -> None:
    reg = GaussianRegressor(hidden=(8,), epochs=2, random_state=0).fit(X, y)
    reg.save(tmp_path)

    def earlier(config: dict[str, Any]) -> None:
        del config["target"], config["params"]["target"]

    forge(tmp_path, earlier)
    back = load(tmp_path)
    assert back.target == back.target_ == "identity"
    assert isinstance(back.predict_dist(X), Normal)
    assert_array_equal(back.predict(X), reg.predict(X))
    forge(tmp_path, lambda config: config.update(target="cube"))
    with pytest.raises(InvalidModelError, match="cube"):
        load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors["conformal.scores"].neg_(),
        lambda tensors: tensors["conformal.scores"].fill_(float("nan")),
        lambda tensors: tensors.update({"conformal.scores": tensors["conformal.scores"].flip(0).contiguous()}),
        lambda tensors: tensors.update({"conformal.scores": tensors["conformal.scores"].repeat(1, 2)}),
        lambda tensors: tensors.pop("conformal.scores"),
        lambda tensors: tensors["conformal.weights"].zero_(),
        lambda tensors: tensors.update({"conformal.weights": tensors["conformal.weights"][:-1].clone()}),
        lambda tensors: tensors.pop("conformal.ratio.slope"),
        lambda tensors: tensors["conformal.ratio.level"].fill_(float("inf")),
        lambda tensors: tensors.update({"conformal.ratio.slope": tensors["conformal.ratio.slope"][:-1].clone()}),
    ],
    ids=["negative", "nan", "order", "targets", "none", "no weight", "few weights", "no ratio", "ratio", "few slopes"],
)
def test_forged_scores_are_refused(change: Callable[[Tensors], Any], tmp_path: Path) -> None:
    fitted().conformalize(X, y, shifted=X).save(tmp_path)
    load(tmp_path)
    forge(tmp_path, tensors=lambda tensors: (change(tensors), None)[1])
    assert_refused(tmp_path, "conformalize")
