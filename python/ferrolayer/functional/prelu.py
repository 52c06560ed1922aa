"""Parametric rectified linear unit: `y = x` where `x > 0`, else `weight * x` (He et al., ICCV 2015, arXiv 1502.01852).

The slope at 0 is `weight`.
"""

from __future__ import annotations

from ._arrays import AnyArray, call, giver, in_compute_type, results


def prelu(input: AnyArray, weight: AnyArray) -> AnyArray:
    """`x` where `x > 0`, else `weight * x`.

    Args:
        input: `x`, `(N, C, *)`, or any shape where `weight` has one element.
        weight: the slopes, `(1,)` for all or `(C,)`, one for each channel. Where `x` is of 16 bits they are computed
            with in float32.
    """
    return giver(input)(call("prelu", input, in_compute_type(weight, input)))


def prelu_backward(
    grad_output: AnyArray, input: AnyArray, weight: AnyArray, needs: tuple[bool, bool] = (True, True)
) -> tuple[AnyArray | None, AnyArray | None]:
    """`dx = dy` where `x > 0`, else `weight * dy`; `dweight`, the sum of `x * dy` where `x <= 0`, for each channel or
    all.

    Args:
        grad_output: `dy`, of `input`'s shape.
        input, weight: what `prelu` was given.
        needs: which of the two gradients are wanted; `None` stands for the others.

    Returns:
        Gradients of `input` and of `weight`; that of `weight` is float32 where `x` is of 16 bits.
    """
    gradients = call("prelu_backward", grad_output, input, in_compute_type(weight, input), *needs)
    return results(grad_output, gradients, needs)  # type: ignore[return-value]
