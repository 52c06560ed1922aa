"""The sum of two tensors, `y = a + b`: a starter for an operator of your own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from ._operator import define, transforming
from ._vmap import pointwise
from ._windows import empty_like


def _save(ctx: Any, inputs: tuple[Any, ...], y: Tensor) -> None:
    """Backward needs nothing: the sum's slope is 1 everywhere."""


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
    return dy, dy


add2_forward = define("ferrolayer::add2", fake=empty_like, save=_save, backward=_backward, vmap=pointwise)
_raw, _apply = add2_forward.raw, add2_forward.apply


def add2(a: Tensor, b: Tensor) -> Tensor:
    """`y = a + b`, with `a` and `b` of one shape, which is also `y`'s. Both gradients are `dy`."""
    if is_compiling() or transforming():
        return add2_forward(a, b)
    if (a.requires_grad or b.requires_grad) and torch.is_grad_enabled():
        return _apply(a, b)
    return _raw(a, b)
