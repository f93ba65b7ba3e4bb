"""How much of the cubic toy's true curve the default's 95 % band covers outside the training range, over seeds.

python benchmarks/toy.py [--seeds 20]
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from density_regression.experiments.cubic import run_cubic


def main() -> None:
    """Print the mean over seeds, and each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    results = run_cubic("robust (default)", list(range(args.seeds)), np.linspace(-7, 7, 561))
    for name in ("curve coverage outside", "NLL outside", "NLL inside"):
        values = np.array([result.metrics[name] for result in results])
        print(f"{name:24s} mean {values.mean():.3f}   each {np.round(values, 2)}")


if __name__ == "__main__":
    main()
