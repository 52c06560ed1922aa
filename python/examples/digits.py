"""What the examples share: the handwritten digits (`host/data/README.md` says whose they are), and training."""

from __future__ import annotations

import csv
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

DATA = Path(__file__).resolve().parents[2] / "host" / "data" / "digits.csv"
"""8 × 8 images, one row each: 64 grey values from 0 to 16, then the digit."""

Split = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def load(device: torch.device | str) -> Split:
    """Images [N, 1, 8, 8] of mean 0 and deviation 1 with their digits [N], and likewise a fifth of them, held back."""
    with DATA.open(newline="") as file:
        table = torch.tensor([[int(cell) for cell in row] for row in csv.reader(file)])
    # The split has nothing to do with the seeds of training: all networks are tested with the same images.
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(1797))
    pixels = table[order, :-1].float()
    images = ((pixels - pixels.mean()) / pixels.std()).view(-1, 1, 8, 8).to(device)
    labels = table[order, -1].to(device)
    held_back = len(table) // 5
    return images[held_back:], labels[held_back:], images[:held_back], labels[:held_back]


def train(
    network: nn.Module, data: Split, *, epochs: int, seed: int, rate: float = 0.01, batch: int = 32
) -> list[float]:
    """Trains with Adam, in batches that depend on the seed alone; the accuracy on held-back images after each epoch."""
    images, labels, test_images, test_labels = data
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(network.parameters(), lr=rate)
    steps = epochs * (len(images) // batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    accuracies = []
    for _ in range(epochs):
        network.train()
        order = torch.randperm(len(images), generator=generator).to(images.device)
        for indices in order.split(batch):
            if len(indices) < batch:
                continue
            optimiser.zero_grad()
            F.cross_entropy(network(images[indices]), labels[indices]).backward()
            optimiser.step()
            schedule.step()
        network.eval()
        with torch.no_grad():
            right = network(test_images).argmax(1) == test_labels
        accuracies.append(right.float().mean().item())
    return accuracies
