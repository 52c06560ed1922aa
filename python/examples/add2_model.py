"""Two parameter vectors, squared and added by an op of ours; SGD drives both to zero.

The smallest model there is: `sum(add2(a * a, b * b))`. An op of ours takes part in autograd like any other:
the gradient passes through it to both of its inputs.

    python add2_model.py [--device cuda] [--plot add2_model.png]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import nn

from ferrolayer.torch.functional import add2


class Add2Model(nn.Module):
    """`sum(a² + b²)`, which is smallest where both vectors are zero."""

    def __init__(self, length: int, device: torch.device | str) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(length, device=device))
        self.b = nn.Parameter(torch.randn(length, device=device))

    def forward(self) -> torch.Tensor:
        return add2(self.a * self.a, self.b * self.b).sum()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--length", type=int, default=16, help="elements of each vector")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--plot", type=Path, default=Path("add2_model.png"))
    arguments = parser.parse_args()

    torch.manual_seed(0)
    model = Add2Model(arguments.length, arguments.device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    history = {"loss": [], "‖a‖": [], "‖b‖": []}
    for _ in range(arguments.steps):
        optimiser.zero_grad()
        loss = model()
        loss.backward()
        for name, value in (("loss", loss), ("‖a‖", model.a.norm()), ("‖b‖", model.b.norm())):
            history[name].append(value.item())
        optimiser.step()

    plot(history, arguments.plot)
    largest = max(model.a.abs().max().item(), model.b.abs().max().item())
    print(f"after {arguments.steps} steps the largest element of both vectors is {largest:.1e}, see {arguments.plot}")
    return 0 if largest < 1e-3 else 1


def plot(history: dict[str, list[float]], path: Path) -> None:
    """The loss and both norms at each step."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for (name, values), style in zip(history.items(), ("-", "--", ":"), strict=True):
        axes.semilogy(values, style, label=name)
    axes.set_xlabel("step")
    axes.legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
