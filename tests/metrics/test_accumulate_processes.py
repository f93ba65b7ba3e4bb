"""Scores over two processes against the plain functions of all rows."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from density_regression import metrics

pytest.importorskip("torchmetrics", reason="the extra metrics is not installed")
pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="torch.distributed with gloo is not available",
)

# A program of its own, because a spawned child would import this file and all that pytest brings.
CHILD = """
import json, sys
import numpy as np, torch
from density_regression.metrics import accumulate

rank, store, data = int(sys.argv[1]), sys.argv[2], np.load(sys.argv[3])
torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
scores = {name: getattr(accumulate, name)() for name in accumulate.__all__}
scores["columns"] = accumulate.R2(columns=2)
share = [torch.from_numpy(array) for array in data["rows"]]
share = [array[:70] if rank == 0 else array[70:] for array in share]
for batch in zip(*(array.split(40) for array in share)):
    for score in scores.values():
        score.update(*batch)
results = {name: score.compute().item() for name, score in scores.items()}
results["count"] = int(scores["NLL"].count)
print(json.dumps(results))
torch.distributed.destroy_process_group()
"""


def test_two_processes_of_unequal_shares(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    mean, std = rng.normal(1e6, 1.0, size=(101, 2)), rng.uniform(0.5, 2.0, size=(101, 2))
    y_true = mean + 1.3 * std * rng.normal(size=(101, 2))
    np.savez(tmp_path / "rows.npz", rows=np.stack([y_true, mean, std]))
    command = [sys.executable, "-c", CHILD]
    files = [str(tmp_path / "store"), str(tmp_path / "rows.npz")]
    children = [subprocess.Popen([*command, str(rank), *files], stdout=subprocess.PIPE, text=True) for rank in (0, 1)]
    try:
        outputs = [child.communicate(timeout=120)[0] for child in children]
    finally:
        for child in children:
            child.kill()
    assert [child.returncode for child in children] == [0, 0]
    first, second = (json.loads(output.splitlines()[-1]) for output in outputs)
    # The share of each process is left as it was once the score of all is computed.
    assert (first.pop("count"), second.pop("count")) == (140, 62)
    assert first == pytest.approx(second, rel=1e-12)
    expected = {
        "NLL": metrics.nll(y_true, mean, std),
        "RMSE": metrics.rmse(y_true, mean),
        "MAE": metrics.mae(y_true, mean),
        "R2": metrics.r2(y_true.ravel(), mean.ravel()),
        "columns": metrics.r2(y_true, mean),
        "CRPS": metrics.crps(y_true, mean, std),
        "Sharpness": metrics.sharpness(std),
        "Coverage": metrics.coverage(y_true, mean, std),
        "IntervalScore": metrics.interval_score(y_true, mean, std),
        "CalibrationError": metrics.calibration_error(y_true, mean, std),
        "MiscalibrationArea": metrics.miscalibration_area(y_true, mean, std),
    }
    assert first == pytest.approx(expected, rel=1e-9)
