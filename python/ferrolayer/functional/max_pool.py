"""Maximum pooling over two dimensions (Riesenhuber & Poggio, Nature Neuroscience 2, 1999; Ranzato et al., CVPR 2007).

Backward needs which position of its window each maximum came from: one byte each for windows of up to 256 positions,
two for larger ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._native import Array
from .._windows import Size2, normalise, pair
from ._arrays import AnyArray, call, giver, images, unbatched


def max_pool2d(
    input: AnyArray,
    kernel_size: Size2,
    stride: Size2 | None = None,
    padding: Size2 = 0,
    dilation: Size2 = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> AnyArray | tuple[AnyArray, AnyArray]:
    """The largest element of each window.

    Args:
        input: `(N, C, H, W)` or `(C, H, W)`.
        kernel_size: height and width of the window.
        stride: steps between windows; the window's size if left out.
        padding: minus infinity around the image, at most half the window.
        dilation: steps between the window's positions.
        ceil_mode: whether an incomplete last window counts.
        return_indices: whether to give also where the maxima were, `h * W + w`, as PyTorch does.

    Returns:
        `(N, C, Ho, Wo)` or `(C, Ho, Wo)`, with
        `Ho = (H + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1` and `Wo` alike, rounded up with
        `ceil_mode`; with `return_indices` also int32 indices of that shape.
    """
    arguments = _arguments(kernel_size, stride, padding, dilation, ceil_mode)
    give = giver(input)
    x, single = images("max_pool2d", "input", input)
    if not return_indices:
        return give(unbatched(call("max_pool_inference", x, *arguments), single))
    y, positions = call("max_pool", x, *arguments)
    indices = call("max_pool_flat_indices", positions, *x.shape[2:], *arguments)
    return give(unbatched(y, single)), give(unbatched(indices, single))


def max_pool2d_forward(
    input: AnyArray,
    kernel_size: Size2,
    stride: Size2 | None = None,
    padding: Size2 = 0,
    dilation: Size2 = 1,
    ceil_mode: bool = False,
) -> tuple[AnyArray, AnyArray]:
    """`max_pool2d`, and what `max_pool2d_backward` needs: at which position of its window each maximum was,
    `i * kw + j`, of the result's shape, in uint8 for windows of up to 256 positions and in uint16 for larger ones.
    """
    arguments = _arguments(kernel_size, stride, padding, dilation, ceil_mode)
    give = giver(input)
    x, single = images("max_pool2d", "input", input)
    arrays: tuple[Array, Array] = call("max_pool", x, *arguments)
    y, positions = (give(unbatched(array, single)) for array in arrays)
    return y, positions


def max_pool2d_backward(
    grad_output: AnyArray,
    positions: AnyArray,
    input_shape: Sequence[int],
    kernel_size: Size2,
    stride: Size2 | None = None,
    padding: Size2 = 0,
    dilation: Size2 = 1,
    ceil_mode: bool = False,
) -> AnyArray:
    """Each element of `dx` is the sum of `dy` over the windows whose maximum it was.

    Args:
        grad_output: `dy`, of the shape of the result.
        positions: what `max_pool2d_forward` gave beside the result.
        input_shape: the shape of `x`, which is also `dx`'s.
        kernel_size, stride, padding, dilation, ceil_mode: what `max_pool2d_forward` was given.
    """
    arguments = _arguments(kernel_size, stride, padding, dilation, ceil_mode)
    dy, single = images("max_pool2d_backward", "grad_output", grad_output)
    positions, _ = images("max_pool2d_backward", "positions", positions)
    dx = call("max_pool_backward", dy, positions, *map(int, input_shape[-2:]), *arguments)
    return giver(grad_output)(unbatched(dx, single))


def _arguments(
    kernel_size: Size2, stride: Size2 | None, padding: Size2, dilation: Size2, ceil_mode: bool
) -> tuple[int, ...]:
    window = normalise("max_pool2d", kernel_size, stride, padding)
    return (*window, *pair("max_pool2d", "dilation", 5, dilation), bool(ceil_mode))
