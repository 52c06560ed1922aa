"""Scaling and shifting by two numbers, `y = x * scale + constant`, which may be in a GPU's memory."""

from __future__ import annotations

from typing import Any

from ._arrays import AnyArray, call, giver, in_compute_type


def scale_add(input: AnyArray, scale: AnyArray | float, constant: AnyArray | float) -> AnyArray:
    """`y = x * scale + constant`.

    Args:
        input: `x`, of any shape, which is also the result's.
        scale: a number, or an array of one element where `x` is, which is read when the work runs.
        constant: likewise.
    """
    return giver(input)(call("scale_add", input, _setting(scale, input), _setting(constant, input)))


def scale_add_backward(grad_output: AnyArray, scale: AnyArray | float) -> AnyArray:
    """`dx = dy * scale`.

    Args:
        grad_output: `dy`, of any shape.
        scale: what `scale_add` was given.
    """
    return giver(grad_output)(call("scale_add_backward", grad_output, _setting(scale, grad_output)))


def _setting(value: Any, x: AnyArray) -> Any:
    return float(value) if isinstance(value, int | float) else in_compute_type(value, x)
