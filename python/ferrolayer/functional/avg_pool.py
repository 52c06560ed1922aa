"""Average pooling over two dimensions: the sum of each window over a divisor (LeCun et al., NIPS 1989)."""

from __future__ import annotations

from collections.abc import Sequence

from .._windows import Size2, normalise
from ._arrays import AnyArray, call, giver, images, unbatched


def avg_pool2d(
    input: AnyArray,
    kernel_size: Size2,
    stride: Size2 | None = None,
    padding: Size2 = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> AnyArray:
    """The average of each window.

    Args:
        input: `(N, C, H, W)` or `(C, H, W)`.
        kernel_size: height and width of the window.
        stride: steps between windows; the window's size if left out.
        padding: zeros around the image, at most half the window.
        ceil_mode: whether an incomplete last window counts.
        count_include_pad: whether the padding counts for the divisor.
        divisor_override: divides every sum, if given.

    Returns:
        `(N, C, Ho, Wo)` or `(C, Ho, Wo)`, with `Ho = (H + 2 * padding - kernel_size) // stride + 1` and `Wo` alike,
        rounded up with `ceil_mode`.
    """
    arguments = _arguments(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    x, single = images("avg_pool2d", "input", input)
    return giver(input)(unbatched(call("avg_pool", x, *arguments), single))


def avg_pool2d_backward(
    grad_output: AnyArray,
    input_shape: Sequence[int],
    kernel_size: Size2,
    stride: Size2 | None = None,
    padding: Size2 = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> AnyArray:
    """Each element of `dx` is the sum of `dy` over the windows that it is in, each over its divisor.

    Args:
        grad_output: `dy`, of the shape of the result.
        input_shape: the shape of `x`, which is also `dx`'s.
        kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override: what `avg_pool2d` was given.
    """
    arguments = _arguments(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    dy, single = images("avg_pool2d_backward", "grad_output", grad_output)
    dx = call("avg_pool_backward", dy, *map(int, input_shape[-2:]), *arguments)
    return giver(grad_output)(unbatched(dx, single))


def _arguments(
    kernel_size: Size2,
    stride: Size2 | None,
    padding: Size2,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> tuple[int, ...]:
    if divisor_override == 0:
        raise ValueError("avg_pool2d: divisor_override is 0, expected another number, or None")
    window = normalise("avg_pool2d", kernel_size, stride, padding)
    return (*window, bool(ceil_mode), bool(count_include_pad), divisor_override or 0)
