"""PyTorch's own checks of every registered operator, and every function's derivatives against differences."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import laws
import pytest
import samples
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import ferrolayer.torch as fl
from ferrolayer.torch import functional

SHAPE = (2, 3, 7, 6)
#: kh, kw, sh, sw, ph, pw.
W, SQUARE = (3, 2, 2, 1, 1, 0), (2, 2, 2, 2, 0, 0)
#: A window of more positions than a byte can name.
LARGE = (17, 16, 5, 5, 0, 0)
Inputs = tuple[Any, ...]


def images(dtype: torch.dtype = torch.float32, layout: str = "dense", shape: tuple[int, ...] = SHAPE) -> Tensor:
    return laws.images(*shape, dtype=dtype, layout=layout)


def kinds() -> list[Tensor]:
    """Images of several types and layouts."""
    return [
        images(),
        images(torch.float64, "channels_last"),
        images(torch.bfloat16, "strided"),
        images(torch.float16, shape=(0, 3, 7, 6)),
    ]


def settings(x: Tensor, *values: float) -> Inputs:
    dtype = torch.float64 if x.dtype is torch.float64 else torch.float32
    return tuple(torch.tensor([value], dtype=dtype) for value in values)


def prelu() -> list[Inputs]:
    found = [(x, settings(x, 0.3)[0].expand(slopes).clone()) for x, slopes in zip(kinds(), (1, 3, 3, 1), strict=True)]
    return [*found, (torch.randn(4, 3), torch.randn(3)), (torch.randn(()), torch.randn(1))]


def prelu_backward() -> list[Inputs]:
    needs = [(True, True), (True, False), (False, True), (False, False)]
    return [(torch.randn_like(x), x, alpha, *need) for (x, alpha), need in zip(prelu(), needs, strict=False)]


def max_pool() -> list[Inputs]:
    windows = [(*W, 1, 1, True), (*SQUARE, 2, 1, False), (*SQUARE, 1, 1, False), (*SQUARE, 1, 1, True)]
    large = (images(shape=(1, 2, 20, 19)), *LARGE, 1, 1, True)
    return [*((x, *window) for x, window in zip(kinds(), windows, strict=True)), large]


def avg_pool() -> list[Inputs]:
    windows = [(*W, True, False, 0), (*SQUARE, False, True, 3), (*W, False, True, 0), (*SQUARE, True, True, -2)]
    return [(x, *window) for x, window in zip(kinds(), windows, strict=True)]


def plain_pool() -> list[Inputs]:
    windows = [(*W, True), (*SQUARE, False), (*W, False), (*SQUARE, False)]
    return [
        *((x, *window) for x, window in zip(kinds(), windows, strict=True)),
        (images(shape=(1, 2, 20, 19)), *LARGE, False),
    ]


def stochastic_pool() -> list[Inputs]:
    return [(x, torch.tensor([5, 2**40 + 1]), *window) for x, *window in plain_pool()]


def gaussian(x: Tensor, sets: int, axes: int) -> tuple[Tensor, Tensor]:
    dtype = torch.float64 if x.dtype is torch.float64 else torch.float32
    return torch.randn(sets, 2, 2, dtype=dtype), torch.rand(sets, 2, axes, dtype=dtype) + 0.5


def gaussian_pool() -> list[Inputs]:
    windows = [(*W, True, True), (*SQUARE, False, False), (*W, False, True), (*SQUARE, True, False)]
    parameters = [(1, 1), (3, 2), (3, 1), (1, 2)]
    return [(x, *gaussian(x, *p), *window) for x, p, window in zip(kinds(), parameters, windows, strict=True)]


def gaussian_pool_backward() -> list[Inputs]:
    needs = [(True, True, True), (True, False, False), (False, True, True), (False, False, False)]
    found = []
    for inputs, need in zip(gaussian_pool(), needs, strict=True):
        dy = torch.randn_like(torch.ops.ferrolayer.gaussian_pool(*inputs))
        found.append((dy, *inputs, *need))
    return found


#: Gradients of `x`, `w` and `b`.
NEEDS = [
    (True, True, False),
    (True, True, True),
    (False, True, True),
    (True, False, False),
    (False, False, False),
    (True, True, True),
]


def dense() -> list[Inputs]:
    x, w, b = torch.randn(4, 6), torch.randn(5, 6), torch.randn(5)
    return [
        (x, w, None, None, 0, True),
        (x, w, b, None, 1, True),
        (x.double(), w.double(), b.double(), torch.rand(5).double(), 2, True),
        (x.bfloat16(), w.bfloat16(), b.bfloat16(), torch.rand(1), 2, False),
        (x.half(), w.half(), None, torch.rand(1), 2, True),
        (x, w, b, None, 1, True, 2),
    ]


def dense_backward() -> list[Inputs]:
    found = []
    for (x, w, _, alpha, activation, _, *precision), need in zip(dense(), NEEDS, strict=True):
        y, saved = torch.ops.ferrolayer.dense(x, w, None, alpha, activation, True)
        kept = y if activation == 1 else saved
        found.append((torch.randn_like(y), x, w, alpha, kept, activation, *need, alpha is not None, *precision))
    return found


def linear() -> list[Inputs]:
    return [(*inputs[:3], *inputs[6:]) for inputs in dense()]


def linear_backward() -> list[Inputs]:
    pairs = zip(linear(), NEEDS, strict=True)
    return [(torch.ops.ferrolayer.linear(*one), *one[:2], *need, *one[3:]) for one, need in pairs]


def picked_backward(forward: Callable[..., Any], inputs: list[Inputs], after: int) -> list[Inputs]:
    """Of a pool that gives `y` and indices; its window begins at input number `after`."""
    found = []
    for one in inputs:
        y, indices = forward(*one)
        found.append((torch.randn_like(y), indices, *one[0].shape[2:], *one[after:]))
    return found


def max_pool_backward() -> list[Inputs]:
    return picked_backward(torch.ops.ferrolayer.max_pool, max_pool(), 1)


def avg_pool_backward() -> list[Inputs]:
    return [(torch.ops.ferrolayer.avg_pool(*one), *one[0].shape[2:], *one[1:]) for one in avg_pool()]


#: Every operator with inputs of several types, layouts and options, in the order of its schema.
SAMPLES: dict[str, Callable[[], list[Inputs]]] = {
    "relu": lambda: [(x,) for x in [*kinds(), torch.randn(())]],
    "relu_": lambda: [(x,) for x in (images(), images(torch.float64, "channels_last"), images(torch.bfloat16))],
    "relu_backward": lambda: [(torch.randn_like(x), x.relu()) for x in kinds()],
    "prelu": prelu,
    "prelu_backward": prelu_backward,
    "add2": lambda: [(x, torch.randn_like(x)) for x in kinds()] + [(images(), images(layout="channels_last"))],
    "scale_add": lambda: [(x, *settings(x, 3.0, 0.5)) for x in kinds()],
    "scale_add_backward": lambda: [(x, *settings(x, 3.0)) for x in kinds()],
    "max_pool": max_pool,
    "max_pool_inference": max_pool,
    "max_pool_backward": max_pool_backward,
    "max_pool_flat_indices": lambda: [one[1:] for one in max_pool_backward()],
    "avg_pool": avg_pool,
    "avg_pool_backward": avg_pool_backward,
    "stochastic_pool": stochastic_pool,
    "stochastic_pool_inference": plain_pool,
    "stochastic_pool_backward": lambda: picked_backward(torch.ops.ferrolayer.stochastic_pool, stochastic_pool(), 2),
    "gaussian_pool": gaussian_pool,
    "gaussian_pool_backward": gaussian_pool_backward,
    "dense": dense,
    "dense_backward": dense_backward,
    "linear": linear,
    "linear_backward": linear_backward,
}


def registered(namespace: str) -> list[str]:
    names = torch._C._dispatch_get_all_op_names()
    return sorted({name.split("::")[1].split(".")[0] for name in names if name.startswith(f"{namespace}::")})


RAW, PUBLIC = registered("ferrolayer"), registered("ferrolayer_autograd")


def test_every_operator_has_samples():
    assert set(RAW) == set(SAMPLES)
    assert set(PUBLIC) <= set(RAW)
    # What has a gradient has a public operator: all but backward passes that are not differentiated by themselves,
    # inference, what works in place and what makes numbers of places.
    without = set(RAW) - set(PUBLIC)
    assert without == {
        "relu_",
        "prelu_backward",
        "max_pool_inference",
        "max_pool_flat_indices",
        "gaussian_pool_backward",
        "dense_backward",
        "linear_backward",
    }


def checked(namespace: str, name: str, requires_grad: bool) -> None:
    operator = getattr(getattr(torch.ops, namespace), name).default
    for inputs in SAMPLES[name]():
        # What backward needs must have been asked for: the last input of `dense`.
        if requires_grad and name == "dense" and not inputs[-1]:
            continue
        given = [x.clone() if isinstance(x, Tensor) else x for x in inputs]
        if requires_grad:
            # The settings of scale_add, and what is drawn by, are not to be learnt.
            settled = 1 if name.startswith("scale_add") else len(given)
            for x in given[:settled]:
                if isinstance(x, Tensor) and x.is_floating_point():
                    x.requires_grad_()
        torch.library.opcheck(operator, tuple(given))


@pytest.mark.parametrize("name", RAW)
def test_raw_operators(name):
    checked("ferrolayer", name, requires_grad=False)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_operators(name):
    checked("ferrolayer_autograd", name, requires_grad=False)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_operators_with_gradients(name):
    checked("ferrolayer_autograd", name, requires_grad=True)


def test_every_function_has_samples():
    functions = {name for name in functional.__all__ if inspect.isfunction(getattr(functional, name))}
    assert functions == {sample.name for sample in samples.SAMPLES} == set(functional.__all__)
    made = {type(make()).__name__ for make, _, _ in samples.MODULES}
    modules = {
        name for name in fl.__all__ if inspect.isclass(kind := getattr(fl, name)) and issubclass(kind, torch.nn.Module)
    }
    assert made == modules


@pytest.mark.parametrize("sample", samples.SAMPLES, ids=samples.named(samples.SAMPLES))
def test_derivatives(sample):
    """Both, of all inputs; batches of gradients too, and gradients that are missing."""
    inputs = sample.inputs(torch.float64, requires_grad=True)
    if sample.name == "gaussian_pool2d":
        inputs[0] = inputs[0].detach()[:1, :, :5, :4].clone().requires_grad_()
    batched = hasattr(torch.library, "register_vmap")
    assert gradcheck(sample.function, inputs, check_batched_grad=batched)
    assert gradgradcheck(sample.function, inputs)
