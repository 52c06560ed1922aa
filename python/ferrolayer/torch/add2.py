"""The sum of two tensors, `y = a + b`: a starter for an operator of your own."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.compiler import is_dynamo_compiling

from ._operator import Kept, define
from ._vmap import pointwise
from ._windows import empty_like


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
    return dy, dy


def _jvp(ctx: Any, da: Tensor | None, db: Tensor | None) -> Tensor:
    present = [tangent for tangent in (da, db) if tangent is not None]
    return sum(present[1:], start=present[0].clone())


# The sum's slope is 1 everywhere: nothing is kept.
add2_forward = define("ferrolayer::add2", fake=empty_like, save=Kept(), backward=_backward, jvp=_jvp, vmap=pointwise)
_eager = add2_forward.eager


def add2(a: Tensor, b: Tensor) -> Tensor:
    """`y = a + b`, with `a` and `b` of one shape, which is also `y`'s. Both gradients are `dy`."""
    if not is_dynamo_compiling():
        y = _eager(a, b)
        if y is not None:
            return y  # type: ignore[no-any-return]
    return add2_forward(a, b)
