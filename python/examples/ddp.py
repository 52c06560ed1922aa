"""Data-parallel training with our layers: two processes learn what one learns.

Each process trains on its half of every batch with `DistributedDataParallel`, which averages their gradients. Two
things must hold then, and are checked: all processes have the same weights, to the bit; and they are those that one
process gets with whole batches, up to the order in which gradients are summed.

    torchrun --nproc-per-node 2 ddp.py [--device cuda]      NCCL on a GPU for each process, or gloo on the CPU
"""

from __future__ import annotations

import argparse
import os
import sys

import digits
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from ferrolayer.torch import GaussianPool2d, Linear, MaxPool2d, PReLU

TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-2}
"""Of the weights' largest difference, relative to the largest weight. Rounding alone grows to 1e-15 and 1e-6 in 60
steps; one maximum that falls on another pixel makes 5e-4 of the latter."""


def network(like: torch.Tensor) -> nn.Sequential:
    """From [N, 1, 8, 8] to a score for each digit, [N, 10]; the same weights always, of `like`'s type and device."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        PReLU(16),
        MaxPool2d(2),
        GaussianPool2d(3, stride=1, padding=1, channels=16),
        nn.Conv2d(16, 32, 3, padding=1),
        MaxPool2d(2),
        nn.Flatten(),
        Linear(128, 32, activation="prelu"),
        Linear(32, 10),
    )
    return model.to(like)


def train(model: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """One step of SGD for each batch; the last loss."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = torch.tensor(float("nan"))
    for images, labels in batches:
        optimiser.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimiser.step()
    return loss.item()


def weights(model: nn.Module) -> torch.Tensor:
    """All parameters, one after another."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64, help="images of all processes together")
    arguments = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("start it with torchrun: torchrun --nproc-per-node 2 ddp.py")
    if arguments.batch % int(os.environ["WORLD_SIZE"]):
        parser.error("--batch: a multiple of the number of processes, so that all have equal shares")

    torch.set_num_threads(1)  # the network is too small to be shared by several
    device = torch.device("cpu")
    if arguments.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend)
    try:
        return compare(device, backend, arguments.steps, arguments.batch)
    finally:
        dist.destroy_process_group()


def compare(device: torch.device, backend: str, steps: int, batch: int) -> int:
    """Trains both ways; the first process says what came of it, all return whether it was right."""
    rank, world = dist.get_rank(), dist.get_world_size()
    images, labels = digits.load(device)[:2]
    if device.type == "cpu":
        images = images.double()  # which our layers take on the CPU alone
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0)).to(device)
    whole = [order[torch.arange(step * batch, (step + 1) * batch, device=device) % len(order)] for step in range(steps)]
    mine = [indices.chunk(world)[rank] for indices in whole]

    model = DistributedDataParallel(network(images), device_ids=[device.index] if device.type == "cuda" else None)
    loss = train(model, [(images[indices], labels[indices]) for indices in mine])
    all_weights = [torch.empty_like(weights(model)) for _ in range(world)]
    dist.all_gather(all_weights, weights(model))
    same = all(torch.equal(all_weights[0], other) for other in all_weights)

    alone = network(images)
    loss_alone = train(alone, [(images[indices], labels[indices]) for indices in whole])
    largest = weights(alone).abs().max()
    difference = ((weights(model) - weights(alone)).abs().max() / largest).item()
    learnt = (weights(alone) - weights(network(images))).abs().max().item()
    tolerance = TOLERANCES[images.dtype]
    good = same and difference <= tolerance and learnt > 10 * tolerance
    if rank == 0:
        print(f"{world} processes on {device.type} by {backend}, {steps} steps of {batch} images")
        print(f"weights the same in all processes: {'yes, to the bit' if same else 'NO'}")
        print(f"largest difference from one process with whole batches: {difference:.1e} (at most {tolerance:.0e})")
        print(f"last loss of the first process's share {loss:.4f}, of the whole batch {loss_alone:.4f}")
        print("as it should be" if good else "NOT as it should be")
    # Not agreed on by one more collective: torchrun fails where any process does, and gloo's threads, which still hold
    # the tensors of a collective when it returns, abort a process that ends before they have let go of them.
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
