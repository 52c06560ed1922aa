"""Rectified linear unit: `y = x` where `x > 0`, else 0 (Nair & Hinton, ICML 2010). NaN stays NaN."""

from __future__ import annotations

from ._arrays import AnyArray, call, giver


def relu(input: AnyArray) -> AnyArray:
    """`max(x, 0)`.

    Args:
        input: `x`, of any shape, which is also the result's.
    """
    return giver(input)(call("relu", input))


def relu_backward(grad_output: AnyArray, output: AnyArray) -> AnyArray:
    """`dx = dy` where `y > 0`, else 0.

    Args:
        grad_output: `dy`, of any shape.
        output: `y`, what `relu` gave, of the same shape.
    """
    return giver(grad_output)(call("relu_backward", grad_output, output))
