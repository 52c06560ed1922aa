"""Stochastic pooling over two dimensions (Zeiler & Fergus, ICLR 2013, arXiv 1301.3557).

With `a = max(x, 0)` over a window and `p_i = a_i / sum a`, training draws one position of each window by `p`, and
evaluation gives the mean of all, `sum p_i a_i`. Where no element of a window is above zero the output is 0 and no
gradient goes back.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._native import Array
from .._windows import Size2, normalise
from ._arrays import AnyArray, call, giver, images, unbatched


def stochastic_pool2d(
    input: AnyArray,
    kernel_size: Size2,
    stride: Size2 | None = None,
    padding: Size2 = 0,
    ceil_mode: bool = False,
    training: bool = True,
    *,
    seed: int | None = None,
    offset: int = 0,
) -> AnyArray:
    """One element of each window, drawn by its share of the window's sum, or their mean by these shares.

    Args:
        input: `(N, C, H, W)` or `(C, H, W)`.
        kernel_size: height and width of the window.
        stride: steps between windows; the window's size if left out.
        padding: positions around the image, at most half the window; never drawn.
        ceil_mode: whether an incomplete last window counts.
        training: whether to draw.
        seed: what the draws follow from, up to 2⁶⁴ - 1; needed where there are any. The same seed and offset draw the
            same, on the CPU and on a GPU.
        offset: another offset draws anew; up to 2⁶⁴ - 1.

    Returns:
        `(N, C, Ho, Wo)` or `(C, Ho, Wo)`: see `avg_pool2d`.
    """
    if training:
        return stochastic_pool2d_forward(input, kernel_size, stride, padding, ceil_mode, seed=seed, offset=offset)[0]
    window = normalise("stochastic_pool2d", kernel_size, stride, padding)
    x, single = images("stochastic_pool2d", "input", input)
    return giver(input)(unbatched(call("stochastic_pool_inference", x, *window, bool(ceil_mode)), single))


def stochastic_pool2d_forward(
    input: AnyArray,
    kernel_size: Size2,
    stride: Size2 | None = None,
    padding: Size2 = 0,
    ceil_mode: bool = False,
    *,
    seed: int | None,
    offset: int = 0,
) -> tuple[AnyArray, AnyArray]:
    """`stochastic_pool2d`, and what `stochastic_pool2d_backward` needs: which position of its window was drawn,
    `i * kw + j`, of the result's shape, in uint8 for windows of up to 255 positions and in uint16 for larger ones.
    """
    window = normalise("stochastic_pool2d", kernel_size, stride, padding)
    if seed is None:
        raise TypeError("stochastic_pool2d: seed is None, expected a number; with training=False it needs none")
    give = giver(input)
    x, single = images("stochastic_pool2d", "input", input)
    state = (int(seed), int(offset))
    arrays: tuple[Array, Array] = call("stochastic_pool", x, state, *window, bool(ceil_mode))
    y, positions = (give(unbatched(array, single)) for array in arrays)
    return y, positions


def stochastic_pool2d_backward(
    grad_output: AnyArray,
    positions: AnyArray,
    input_shape: Sequence[int],
    kernel_size: Size2,
    stride: Size2 | None = None,
    padding: Size2 = 0,
    ceil_mode: bool = False,
) -> AnyArray:
    """Each element of `dx` is the sum of `dy` over the windows in which it was drawn.

    Args:
        grad_output: `dy`, of the shape of the result.
        positions: what `stochastic_pool2d_forward` gave beside the result.
        input_shape: the shape of `x`, which is also `dx`'s.
        kernel_size, stride, padding, ceil_mode: what `stochastic_pool2d_forward` was given.
    """
    window = normalise("stochastic_pool2d", kernel_size, stride, padding)
    dy, single = images("stochastic_pool2d_backward", "grad_output", grad_output)
    positions, _ = images("stochastic_pool2d_backward", "positions", positions)
    size = map(int, input_shape[-2:])
    dx = call("stochastic_pool_backward", dy, positions, *size, *window, bool(ceil_mode))
    return giver(grad_output)(unbatched(dx, single))
