"""The sum of two tensors, `y = a + b`: a starter for an operator of your own."""

from __future__ import annotations

from typing import Any

from torch import Tensor, is_grad_enabled
from torch.compiler import is_compiling

from ._operator import define, transforming
from ._vmap import pointwise
from ._windows import empty_like


def _save(ctx: Any, inputs: tuple[Any, ...], y: Tensor) -> None:
    """Backward needs nothing: the sum's slope is 1 everywhere."""


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
    return dy, dy


add2_forward = define("ferrolayer::add2", fake=empty_like, save=_save, backward=_backward, vmap=pointwise)
_direct, _apply = add2_forward.direct, add2_forward.apply


def add2(a: Tensor, b: Tensor) -> Tensor:
    """`y = a + b`, with `a` and `b` of one shape, which is also `y`'s. Both gradients are `dy`."""
    if not is_compiling():
        if not (is_grad_enabled() and (a.requires_grad or b.requires_grad)):
            y = _direct(a, b)
            if y is not None:
                return y
        elif not transforming():
            return _apply(a, b)
    return add2_forward(a, b)
