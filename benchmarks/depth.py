"""What the density costs on images: time of a prediction, parameters, and memory while it is fitted.

    python benchmarks/depth.py [--device cuda] [--rounds 200] [--json FILE]

A U-Net of the default size on images of 128 x 160. Ours and five networks against one Gaussian network, all compiled
and timed by turns within one run, in float32 (convolutions in TF32 on a GPU, as torch has it). On a GPU each prediction
is recorded as a CUDA graph and replayed: many times on end, and alone, waiting for each. The density is that of random
images, which costs what any other costs. Memory: the most that caching features and fitting the density hold
beyond the network and one batch, for 100 images and for 795, with the same held-out images.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from _timing import by_turns, finish
from torch import Tensor, nn

from density_regression.baselines.ensemble import EnsembleNetwork
from density_regression.baselines.gaussian import GaussianNetwork
from density_regression.nn.encoders import UNet
from density_regression.nn.network import Predictor
from density_regression.training.algorithm import fit_density
from density_regression.training.batches import cache_features
from density_regression.training.refit import refit_head
from density_regression.vision.depth import DepthRegressor, placed
from density_regression.vision.model import SceneRegression

SIZE = (128, 160)
BATCHES = (1, 32)
MEMBERS = 5
BLOCK = 20
"""Predictions of one after another, before the next one's turn."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=200, help="predictions of each, by turns")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    plain, ensemble, ours = networks(args.device)
    figures: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
        "torch": torch.__version__,
        "parameters, ours / Gaussian network": count(ours) / count(plain),
        "parameters and buffers, ours / Gaussian network": count(ours, buffers=True) / count(plain, buffers=True),
    }
    for batch in BATCHES:
        x = torch.rand(batch, 3, *SIZE, device=args.device)
        if args.device == "cuda":
            x = x.to(memory_format=torch.channels_last)
        functions = [compiled(model, x) for model in (plain, ours, ensemble)]
        for how, calls in {"": BLOCK, " alone": 1}.items() if args.device == "cuda" else [("", 1)]:
            runs = [on_end(function, x, calls) for function in functions]
            with torch.inference_mode():
                blocks = by_turns(runs, max(args.rounds // BLOCK, 1), BLOCK // calls)
            times = [seconds / calls for seconds in blocks]
            for name, seconds in zip(("Gaussian network", "ours", "ensemble"), times, strict=True):
                figures[f"batch {batch}{how}, {name} (ms)"] = 1e3 * seconds
            figures[f"batch {batch}{how}, ours / Gaussian network"] = times[1] / times[0]
            figures[f"batch {batch}{how}, ensemble / ours"] = times[2] / times[1]
    if args.device == "cuda":
        for images in (100, 795):
            figures[f"memory of fitting the density, {images} images (MiB)"] = memory(images)
    finish(figures, args.json)


def networks(device: str) -> tuple[GaussianNetwork, EnsembleNetwork, SceneRegression]:
    """A Gaussian network, five of them, and ours with everything fitted but the network."""
    regressor = DepthRegressor(device=device)
    plain, *members = (GaussianNetwork(UNet(), regressor.width) for _ in range(1 + MEMBERS))
    ours = placed(regressor.build(), device).eval()
    fit_all_but_the_network(ours, list(some_batches(64, device)), list(some_batches(32, device)))
    ours.fold()
    return placed(plain, device).eval(), placed(EnsembleNetwork(members), device).eval(), ours


def some_batches(images: int, device: str, size: int = 16) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Images of noise with as much depth."""
    for start in range(0, images, size):
        n = min(size, images - start)
        x = torch.rand(n, 3, *SIZE, device=device)
        yield x, torch.randn(n, 1, *SIZE, device=device), torch.ones(n, *SIZE, device=device)


def fit_all_but_the_network(model: SceneRegression, train: Any, held_out: Any) -> None:
    """Steps 2 and 3, the scenes' density with them."""
    model.encoder.fit_scene([batch[0] for batch in train] if isinstance(train, list) else Inputs(train))
    features, held = cache_features(model, train), cache_features(model, held_out)
    fit_density(model, features, held)
    refit_head(model, features, held, rounds=1)


class Batches:
    """Batches made when they are asked for, so that it is not they that fill the memory."""

    def __init__(self, images: int, size: int) -> None:
        self.images = images
        self.size = size

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        return some_batches(self.images, "cuda", self.size)


class Inputs:
    """The images of `Batches` alone."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Tensor]:
        for x, *_ in self.batches:
            yield x


def compiled(model: Predictor, x: Tensor) -> Callable[[Tensor], object]:
    """A prediction, mean and standard deviation of every pixel, as one compiled graph."""

    class Prediction(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            mean, log_std = self.model.moments(x)
            return mean, log_std.exp()

    function = torch.compile(Prediction().eval(), dynamic=False)
    with torch.inference_mode():
        for _ in range(5):
            function(x)
        return replay(function, x) if x.is_cuda else function


def replay(function: Callable[[Tensor], object], x: Tensor) -> Callable[[Tensor], object]:
    """What a function does to `x` as a CUDA graph: one launch, whatever the number of its kernels."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = function(x)

    def again(_: Tensor) -> object:
        graph.replay()
        return kept

    return again


def on_end(function: Callable[[Tensor], object], x: Tensor, calls: int) -> Callable[[], None]:
    """So many calls, made without waiting and then waited for."""

    def run() -> None:
        for _ in range(calls):
            function(x)
        if x.is_cuda:
            torch.cuda.synchronize()

    return run


def memory(images: int) -> float:
    """MiB that steps 2 and 3 hold at most, beyond what is there before."""
    model = placed(DepthRegressor(device="cuda").build(), "cuda").eval()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    # Batches of 5, as the last one of either number.
    fit_all_but_the_network(model, Batches(images, 5), Batches(80, 5))
    return float(torch.cuda.max_memory_allocated() - before) / 2**20


def count(model: nn.Module, *, buffers: bool = False) -> int:
    """Numbers that were trained, and if asked all others."""
    return sum(part.numel() for part in (*model.parameters(), *(model.buffers() if buffers else ())))


if __name__ == "__main__":
    main()
