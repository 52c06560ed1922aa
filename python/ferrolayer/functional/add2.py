"""The sum of two arrays, `y = a + b`: a starter for an operator of your own."""

from __future__ import annotations

from ._arrays import AnyArray, call, giver


def add2(a: AnyArray, b: AnyArray) -> AnyArray:
    """`y = a + b`, with `a` and `b` of one shape, which is also `y`'s."""
    return giver(a)(call("add2", a, b))


def add2_backward(grad_output: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Both gradients are `dy`: it itself, twice."""
    return grad_output, grad_output
