"""Learnable Gaussian pooling in place of max pooling, on handwritten digits.

Two small convolutional networks that differ in their pooling alone: one takes the maximum of 2 × 2 windows, the other
averages 3 × 3 windows, weighted by a Gaussian for each channel whose mean (where to look) and variance (how widely) are
learnt with the rest. Their learning curves stand side by side in a PNG, and what the Gaussians learnt beside them.

    python gaussian_pooling_cnn.py [--device cuda] [--seeds 2] [--epochs 6] [--plot gaussian_pooling_cnn.png]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import digits
import torch
from torch import nn

from ferrolayer.torch import GaussianPool2d, Linear, MaxPool2d, PReLU

CHANNELS = (16, 32)


def gaussian(channels: int) -> nn.Module:
    """Gaussian pooling: half the height and width, as the maximum of 2 × 2."""
    return GaussianPool2d(3, stride=2, padding=1, channels=channels, per_axis=True, var=0.25, normalize="valid")


def maximum(_channels: int) -> nn.Module:
    """Max pooling."""
    return MaxPool2d(2)


def network(pooling: Callable[[int], nn.Module]) -> nn.Sequential:
    """From [N, 1, 8, 8] to a score for each digit, [N, 10]."""
    first, second = CHANNELS
    return nn.Sequential(
        nn.Conv2d(1, first, 3, padding=1),
        PReLU(first),
        pooling(first),
        nn.Conv2d(first, second, 3, padding=1),
        PReLU(second),
        pooling(second),
        nn.Flatten(),
        Linear(4 * second, 64, activation="prelu"),
        Linear(64, 10),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--plot", type=Path, default=Path("gaussian_pooling_cnn.png"))
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # the networks are too small to be shared by several
    data = digits.load(arguments.device)
    curves: dict[str, list[list[float]]] = {}
    for name, pooling in (("max pooling", maximum), ("Gaussian pooling, learnt", gaussian)):
        for seed in range(arguments.seeds):
            torch.manual_seed(seed)
            model = network(pooling).to(arguments.device)
            curves.setdefault(name, []).append(digits.train(model, data, epochs=arguments.epochs, seed=seed))
            print(f"{name}, seed {seed}: {100 * curves[name][-1][-1]:.1f} % of the held-back images right", flush=True)

    pools = [layer for layer in model if isinstance(layer, GaussianPool2d)]
    plot(curves, pools, arguments.plot)
    print(f"learning curves and the last network's Gaussians are in {arguments.plot}")
    moved = all(bool(pool.mean.detach().abs().max() > 0) for pool in pools)
    return 0 if moved and min(curve[-1] for curve in curves["Gaussian pooling, learnt"]) > 0.9 else 1


def plot(curves: dict[str, list[list[float]]], pools: list[GaussianPool2d], path: Path) -> None:
    """Accuracy by epoch of both, and where the Gaussians of each layer look and how widely."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Ellipse

    figure, panels = plt.subplots(1, 2 + len(pools), figsize=(4 * (2 + len(pools)), 4), layout="constrained")
    for axes, (name, runs) in zip(panels, curves.items(), strict=False):
        for seed, accuracies in enumerate(runs):
            axes.plot(range(1, len(accuracies) + 1), [100 * value for value in accuracies], "o-", label=f"seed {seed}")
        axes.set(title=name, xlabel="epoch", ylabel="held-back images right, %", ylim=(50, 100))
        axes.legend()
    for axes, pool in zip(panels[2:], pools, strict=True):
        means, deviations = pool.mean.detach()[:, 0].cpu(), pool.var.detach()[:, 0].sqrt().cpu()
        for (y, x), (height, width) in zip(means.tolist(), deviations.tolist(), strict=True):
            axes.add_patch(Ellipse((x, y), 2 * width, 2 * height, fill=False, alpha=0.5))
            axes.plot(x, y, "k.", markersize=3)
        axes.set(title="Gaussians, one deviation, pixels", xlim=(-2, 2), ylim=(2, -2), aspect="equal")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
