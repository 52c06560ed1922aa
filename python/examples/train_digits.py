"""A convolutional network on handwritten digits: with our layers, and with PyTorch's own.

The same function builds both, since our layers have PyTorch's names and arguments, and one's `state_dict` starts the
other. Every seed trains both from the same weights on the same batches. They differ by rounding alone, which training
amplifies: the mean accuracies must lie within the spread that the seeds make anyway.

    python train_digits.py [--device cuda] [--seeds 3] [--epochs 6]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from types import ModuleType

import digits
import torch
from torch import nn

import ferrolayer.torch


def network(layers: ModuleType) -> nn.Sequential:
    """From [N, 1, 8, 8] to a score for each digit, [N, 10]; `layers` is `torch.nn` or `ferrolayer.torch`."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        layers.PReLU(16),
        layers.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        layers.PReLU(32),
        layers.AvgPool2d(2),
        nn.Flatten(),
        layers.Linear(128, 64),
        layers.ReLU(),
        layers.Linear(64, 10),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=3, help="networks of each kind, at least 2")
    parser.add_argument("--epochs", type=int, default=6)
    arguments = parser.parse_args()
    if arguments.seeds < 2:
        parser.error("--seeds: at least 2, to have a spread")

    torch.set_num_threads(1)  # the networks are too small to be shared by several
    data = digits.load(arguments.device)
    print(f"{len(data[1])} images to learn from, {len(data[3])} held back; accuracy on the latter in %")
    print(f"{'seed':>4} {'ours':>7} {'torch':>7}")
    ours, theirs = [], []
    for seed in range(arguments.seeds):
        torch.manual_seed(seed)
        reference = network(nn).to(arguments.device)
        model = network(ferrolayer.torch).to(arguments.device)
        model.load_state_dict(reference.state_dict())
        for each, results in ((model, ours), (reference, theirs)):
            results.append(100 * digits.train(each, data, epochs=arguments.epochs, seed=seed)[-1])
        print(f"{seed:>4} {ours[-1]:>7.2f} {theirs[-1]:>7.2f}", flush=True)

    difference = abs(statistics.mean(ours) - statistics.mean(theirs))
    # Of so few seeds the spread may happen to be nothing; one image in the held-back ones always counts as spread.
    spread = max(statistics.stdev(ours), statistics.stdev(theirs), 100 / len(data[3]))
    print(f"mean {statistics.mean(ours):>7.2f} {statistics.mean(theirs):>7.2f}")
    verdict = "within" if difference <= spread else "NOT within"
    print(f"the means differ by {difference:.2f}, {verdict} the spread of the seeds, {spread:.2f}")
    return 0 if difference <= spread else 1


if __name__ == "__main__":
    sys.exit(main())
