"""One sample or more of every function and module of the package, for the tests that look at all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ferrolayer.torch as fl
from ferrolayer.torch import functional


@dataclass(frozen=True)
class Sample:
    """A function of tensors alone, the shapes of these, and PyTorch's function, where there is one."""

    name: str
    function: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    theirs: Callable[..., Tensor] | None = None
    #: Which inputs must be above zero.
    positive: tuple[int, ...] = ()

    def inputs(self, dtype: torch.dtype = torch.float32, device: str = "cpu", **options: bool) -> list[Tensor]:
        """Random ones; zeros of both sorts of kink are as good as impossible."""
        return [
            (torch.rand(shape) + 0.5 if place in self.positive else torch.randn(shape))
            .to(device, dtype)
            .requires_grad_(options.get("requires_grad", False))
            for place, shape in enumerate(self.shapes)
        ]


def _drawn(x: Tensor) -> Tensor:
    # The same draws in each call.
    torch.manual_seed(3)
    return functional.stochastic_pool2d(x, 3, 2, 1)


IMAGE = (2, 3, 7, 6)
SAMPLES = [
    Sample("relu", functional.relu, (IMAGE,), F.relu),
    Sample("relu_", lambda x: functional.relu_(x.clone()), (IMAGE,), lambda x: F.relu_(x.clone())),
    Sample("prelu", functional.prelu, (IMAGE, (1,)), F.prelu),
    Sample("prelu", functional.prelu, (IMAGE, (3,)), F.prelu),
    Sample("add2", functional.add2, (IMAGE, IMAGE), torch.add),
    Sample("add_constant", lambda x: functional.add_constant(x, 0.5), (IMAGE,), lambda x: x + 0.5),
    Sample("scale_add", lambda x: functional.scale_add(x, 3.0, 0.5), (IMAGE,), lambda x: x * 3.0 + 0.5),
    Sample(
        "max_pool2d",
        lambda x: functional.max_pool2d(x, (3, 2), (2, 1), (1, 0), ceil_mode=True),
        (IMAGE,),
        lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0), ceil_mode=True),
    ),
    Sample(
        "max_pool2d",
        lambda x: functional.max_pool2d(x, 2, dilation=2),
        (IMAGE[1:],),
        lambda x: F.max_pool2d(x, 2, dilation=2),
    ),
    Sample(
        "max_pool2d_with_indices",
        lambda x: functional.max_pool2d_with_indices(x, 3)[0],
        (IMAGE,),
        lambda x: F.max_pool2d_with_indices(x, 3)[0],
    ),
    Sample(
        "avg_pool2d",
        lambda x: functional.avg_pool2d(x, 3, 2, 1, True, False),
        (IMAGE,),
        lambda x: F.avg_pool2d(x, 3, 2, 1, True, False),
    ),
    Sample(
        "avg_pool2d",
        lambda x: functional.avg_pool2d(x, 2, divisor_override=3),
        (IMAGE[1:],),
        lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    ),
    Sample("stochastic_pool2d", _drawn, (IMAGE,)),
    Sample("stochastic_pool2d", lambda x: functional.stochastic_pool2d(x, 2, training=False), (IMAGE,), positive=(0,)),
    Sample(
        "gaussian_pool2d",
        lambda x, mean, var: functional.gaussian_pool2d(x, mean, var, 3, 2, 1, True, "valid"),
        (IMAGE, (3, 2, 2), (3, 2, 1)),
        positive=(2,),
    ),
    Sample(
        "gaussian_pool2d",
        lambda x, mean, var: functional.gaussian_pool2d(x, mean, var, 2),
        (IMAGE, (1, 1, 2), (1, 1, 2)),
        positive=(2,),
    ),
    Sample("linear", functional.linear, ((4, 6), (5, 6), (5,)), F.linear),
    Sample("linear", functional.linear, ((2, 3, 6), (5, 6)), F.linear),
    Sample(
        "linear",
        lambda x, w, b: functional.linear(x, w, b, activation="relu"),
        ((4, 6), (5, 6), (5,)),
        lambda x, w, b: F.linear(x, w, b).relu(),
    ),
    Sample(
        "linear",
        lambda x, w, b, alpha: functional.linear(x, w, b, activation="prelu", alpha=alpha),
        ((4, 6), (5, 6), (5,), (5,)),
        lambda x, w, b, alpha: F.prelu(F.linear(x, w, b), alpha),
    ),
]

#: Without two that are there for their own sake: drawing, which is random, and working in place.
PURE = [sample for sample in SAMPLES if sample.function is not _drawn and sample.name != "relu_"]


def named(samples: list[Sample]) -> list[str]:
    """A name for each, for pytest."""
    return [f"{sample.name}-{place}" for place, sample in enumerate(samples)]


#: Each of our modules with the input's shape, and PyTorch's of the same arguments where there is one.
MODULES: list[tuple[Callable[[], nn.Module], tuple[int, ...], Callable[[], nn.Module] | None]] = [
    (lambda: fl.ReLU(), IMAGE, lambda: nn.ReLU()),
    (lambda: fl.ReLU(inplace=True), IMAGE, lambda: nn.ReLU(inplace=True)),
    (lambda: fl.PReLU(), IMAGE, lambda: nn.PReLU()),
    (lambda: fl.PReLU(3, 0.1), IMAGE, lambda: nn.PReLU(3, 0.1)),
    (lambda: fl.MaxPool2d(3, 2, 1, ceil_mode=True), IMAGE, lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True)),
    (lambda: fl.AvgPool2d(2, 3, 1, divisor_override=3), IMAGE, lambda: nn.AvgPool2d(2, 3, 1, divisor_override=3)),
    (lambda: fl.Linear(6, 5), (4, 6), lambda: nn.Linear(6, 5)),
    (lambda: fl.Linear(6, 5, bias=False, activation="relu"), (4, 6), lambda: nn.Linear(6, 5, bias=False)),
    (lambda: fl.Linear(6, 5, activation="prelu", num_parameters=5), (4, 6), None),
    (lambda: fl.ScaleAdd(2.0, 0.5), IMAGE, None),
    (lambda: fl.StochasticPool2d(2), IMAGE, None),
    (lambda: fl.GaussianPool2d(2, kernels=2, channels=3, per_axis=True), IMAGE, None),
    (lambda: fl.GaussianPool2d(3, 2, 1, learnable=False, normalize="valid"), IMAGE, None),
]


def network(images: int = 1) -> nn.Module:
    """Every differentiable layer, one after another, of inputs `[N, images, 18, 18]`."""
    return nn.Sequential(
        fl.MaxPool2d(2),
        fl.GaussianPool2d(2, kernels=2),
        fl.PReLU(),
        fl.AvgPool2d(2),
        nn.Flatten(),
        fl.Linear(8 * images, 6, activation="prelu"),
        fl.ReLU(),
        fl.Linear(6, 4, activation="relu"),
        fl.ScaleAdd(2.0),
        fl.Linear(4, 3),
    )


def step(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The gradients of all parameters."""
    model.zero_grad()
    model(x).square().sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
