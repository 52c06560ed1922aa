"""Average pooling over two dimensions: the sum of each window over a divisor (LeCun et al., NIPS 1989)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, is_grad_enabled
from torch.compiler import is_dynamo_compiling

from ._operator import Kept, define
from ._vmap import folding
from ._windows import Size2, check, empty_image, normalise, output_size


def _fake(x: Tensor, *rest: Any) -> Tensor:
    *w, ceil_mode, _, _ = rest
    check(x, tuple(w), 1, 1, ceil_mode)
    return empty_image(x, (*x.shape[:2], *output_size(x, *w, 1, 1, ceil_mode)))


def _fake_backward(dy: Tensor, height: int, width: int, *rest: Any) -> Tensor:
    return empty_image(dy, (*dy.shape[:2], height, width))


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor]:
    backward = avg_pool_backward if is_grad_enabled() else avg_pool_backward.raw
    _, _, height, width = ctx.shape
    return (backward(dy, height, width, *ctx.numbers),)


def _jvp(ctx: Any, dx: Tensor, *_: None) -> Tensor:
    return avg_pool_forward(dx, *ctx.numbers)  # type: ignore[no-any-return]


def _backward_twice(ctx: Any, ddx: Tensor) -> tuple[Tensor]:
    # Linear: what backward is the transpose of is the forward pass.
    return (avg_pool_forward(ddx, *ctx.numbers[2:]),)


def _jvp_of_backward(ctx: Any, dy: Tensor, *_: None) -> Tensor:
    return avg_pool_backward(dy, *ctx.numbers)  # type: ignore[no-any-return]


def _numbers(
    kernel_size: Size2,
    stride: Size2 | None,
    padding: Size2,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> tuple[int, ...]:
    """The operator's: kh, kw, sh, sw, ph, pw and the last three; backward's have the image's height and width first."""
    w = normalise("avg_pool2d", kernel_size, stride, padding)
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    return *w, ceil_mode, count_include_pad, divisor_override or 0


avg_pool_forward = define(
    "ferrolayer::avg_pool",
    fake=_fake,
    save=Kept(shape="x"),
    backward=_backward,
    jvp=_jvp,
    vmap=folding(0),
    numbers=_numbers,
    dims=4,
)
avg_pool_backward = define(
    "ferrolayer::avg_pool_backward",
    fake=_fake_backward,
    save=Kept(),
    backward=_backward_twice,
    jvp=_jvp_of_backward,
    vmap=folding(0),
)
_eager = avg_pool_forward.eager


def avg_pool2d(
    input: Tensor,
    kernel_size: Size2,
    stride: Size2 | None = None,
    padding: Size2 = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The average of each window, as `torch.nn.functional.avg_pool2d`.

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
    if not is_dynamo_compiling():
        y = _eager(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        if y is not None:
            return y  # type: ignore[no-any-return]
    numbers = _numbers(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    check(input, numbers[:6], 1, 1, ceil_mode)
    if input.dim() == 3:
        return avg_pool_forward(input.unsqueeze(0), *numbers).squeeze(0)  # type: ignore[no-any-return]
    return avg_pool_forward(input, *numbers)  # type: ignore[no-any-return]


class AvgPool2d(torch.nn.AvgPool2d):
    """The average of each window: `y[n, c, h, w]` is the sum over a window of `x` divided by its size.

    Arguments are those of `torch.nn.AvgPool2d`: ``kernel_size, stride=None, padding=0, ceil_mode=False,
    count_include_pad=True, divisor_override=None``.

    Shape:
        Input: ``(N, C, H, W)`` or ``(C, H, W)``. Output: ``(N, C, Ho, Wo)`` or ``(C, Ho, Wo)``: see
        `ferrolayer.torch.functional.avg_pool2d`.
    """

    def forward(self, input: Tensor) -> Tensor:
        return avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )
