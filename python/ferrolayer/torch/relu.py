"""Rectified linear unit: `y = x` where `x > 0`, else 0 (Nair & Hinton, ICML 2010). NaN stays NaN."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, is_grad_enabled
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling, is_dynamo_compiling

from ._library import find, library
from ._operator import Kept, define, transforming
from ._vmap import pointwise
from ._windows import empty_like


def _backward(ctx: Any, dy: Tensor) -> Tensor:
    (y,) = ctx.saved_tensors
    return relu_backward(dy, y) if is_grad_enabled() else relu_backward.raw(dy, y)


def _jvp(ctx: Any, dx: Tensor) -> Tensor:
    (y,) = ctx.saved_tensors
    return relu_backward(dx, y)  # type: ignore[no-any-return]


def _backward_twice(ctx: Any, ddx: Tensor) -> tuple[Tensor]:
    # Linear in `dy`, and constant in `y` almost everywhere.
    (y,) = ctx.saved_tensors
    return (relu_backward(ddx, y),)


def _jvp_of_backward(ctx: Any, dy: Tensor | None, _: Tensor | None) -> Tensor | None:
    (y,) = ctx.saved_tensors
    return None if dy is None else relu_backward(dy, y)


relu_forward = define("ferrolayer::relu", fake=empty_like, save=Kept("y"), backward=_backward, jvp=_jvp, vmap=pointwise)
relu_backward = define(
    "ferrolayer::relu_backward",
    fake=lambda dy, y: empty_like(y),
    save=Kept("y"),
    backward=_backward_twice,
    jvp=_jvp_of_backward,
    vmap=pointwise,
)
_eager = relu_forward.eager

_in_place = find("ferrolayer::relu_")
torch.library.register_fake("ferrolayer::relu_", lambda x: None, lib=library("ferrolayer"))


class _InPlace(torch.autograd.Function):
    """Overwrites its input, which autograd is told of. Backward needs the output alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        _in_place(x)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    backward = staticmethod(_backward)


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """`max(x, 0)`, as `torch.nn.functional.relu`.

    Args:
        input: of any shape.
        inplace: whether the result replaces the input, which is then what is given back.
    """
    if inplace:
        return relu_(input)
    if not is_dynamo_compiling():
        y = _eager(input)
        if y is not None:
            return y  # type: ignore[no-any-return]
    return relu_forward(input)


def relu_(input: Tensor) -> Tensor:
    """`relu` in place of `input`."""
    if is_compiling() or transforming() or not _is_dense(input):
        return input.copy_(relu_forward(input))
    if input.requires_grad and is_grad_enabled():
        _check_not_leaf(input)
        return _InPlace.apply(input)  # type: ignore[no-any-return]
    _in_place(input)
    # Operators that mutate do not count versions by themselves; autograd compares them with those it saved.
    increment_version(input)
    return input


def _is_dense(x: Tensor) -> bool:
    return x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)


def _check_not_leaf(x: Tensor) -> None:
    """Refuses before anything is overwritten; autograd itself would refuse after."""
    if x.is_leaf:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    if x._base is not None and x._base.is_leaf and x._base.requires_grad:
        raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")


class ReLU(torch.nn.ReLU):
    """`y = max(x, 0)`, element by element.

    Args:
        inplace: whether the result replaces the input. Default: ``False``

    Shape:
        Input and output: ``(*)``, any shape.
    """

    def forward(self, input: Tensor) -> Tensor:
        return relu(input, self.inplace)
