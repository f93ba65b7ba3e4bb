"""The law of the target in a saved model: models of earlier versions have none, and forged ones are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_array_equal
from saved_models import X, forge, y
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
