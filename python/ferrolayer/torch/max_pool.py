"""Maximum pooling over two dimensions (Riesenhuber & Poggio, Nature Neuroscience 2, 1999; Ranzato et al., CVPR 2007).

Backward needs which position of its window each maximum came from: one byte each for windows of up to 256
positions, two for larger ones, where PyTorch's indices take eight.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, is_grad_enabled
from torch.compiler import is_dynamo_compiling

from ._operator import Kept, define
from ._vmap import folding
from ._windows import Size2, check, empty_image, gather, index_type, normalise, output_size, pair


def _fake_inference(x: Tensor, *rest: Any) -> Tensor:
    *w, dh, dw, ceil_mode = rest
    check(x, tuple(w), dh, dw, ceil_mode)
    return empty_image(x, (*x.shape[:2], *output_size(x, *rest)))


def _fake(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    y = _fake_inference(x, *rest)
    return y, torch.empty_like(y, dtype=index_type(rest[0] * rest[1]))


def _fake_backward(dy: Tensor, indices: Tensor, height: int, width: int, *rest: Any) -> Tensor:
    return empty_image(indices, (*indices.shape[:2], height, width), dy.dtype)


def _fake_flat_indices(indices: Tensor, height: int, width: int, *rest: Any) -> Tensor:
    return torch.empty_like(indices, dtype=torch.int32)


def _backward(ctx: Any, dy: Tensor | None, _: Any = None) -> tuple[Tensor | None]:
    if dy is None:
        return (None,)
    (indices,) = ctx.saved_tensors
    backward = max_pool_backward if is_grad_enabled() else max_pool_backward.raw
    _, _, height, width = ctx.shape
    return (backward(dy, indices, height, width, *ctx.numbers),)


def _picked(ctx: Any, x: Tensor) -> Tensor:
    """The elements of `x` where the maxima were."""
    (indices,) = ctx.saved_tensors
    *w, dh, dw, _ = ctx.numbers[-9:]
    return gather(x, indices, tuple(w), dh, dw)


def _jvp(ctx: Any, dx: Tensor, *_: None) -> Tensor:
    return _picked(ctx, dx)


def _backward_twice(ctx: Any, ddx: Tensor) -> tuple[Tensor]:
    return (_picked(ctx, ddx),)


def _jvp_of_backward(ctx: Any, dy: Tensor, *_: None) -> Tensor:
    (indices,) = ctx.saved_tensors
    return max_pool_backward(dy, indices, *ctx.numbers)  # type: ignore[no-any-return]


def _numbers(
    kernel_size: Size2, stride: Size2 | None, padding: Size2, dilation: Size2, ceil_mode: bool
) -> tuple[int, ...]:
    """The operator's: kh, kw, sh, sw, ph, pw, dh, dw, ceil_mode; backward's have the image's height and width first."""
    w = normalise("max_pool2d", kernel_size, stride, padding)
    return *w, *pair("max_pool2d", "dilation", 5, dilation), ceil_mode


_inference = define("ferrolayer::max_pool_inference", fake=_fake_inference, vmap=folding(0))
max_pool_forward = define(
    "ferrolayer::max_pool",
    fake=_fake,
    save=Kept("indices", shape="x"),
    backward=_backward,
    jvp=_jvp,
    vmap=folding(0),
    inference=_inference,
    numbers=_numbers,
    dims=4,
)
max_pool_backward = define(
    "ferrolayer::max_pool_backward",
    fake=_fake_backward,
    save=Kept("indices"),
    backward=_backward_twice,
    jvp=_jvp_of_backward,
    vmap=folding(0, 1),
)
_flat_indices = define("ferrolayer::max_pool_flat_indices", fake=_fake_flat_indices, vmap=folding(0)).traced
_eager = max_pool_forward.eager


def max_pool2d(
    input: Tensor,
    kernel_size: Size2,
    stride: Size2 | None = None,
    padding: Size2 = 0,
    dilation: Size2 = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of each window, as `torch.nn.functional.max_pool2d`.

    Args:
        input: `(N, C, H, W)` or `(C, H, W)`.
        kernel_size: height and width of the window.
        stride: steps between windows; the window's size if left out.
        padding: minus infinity around the image, at most half the window.
        dilation: steps between the window's positions.
        ceil_mode: whether an incomplete last window counts.
        return_indices: whether to give also where the maxima were, `h * W + w`, as `torch.nn.MaxUnpool2d` wants it.

    Returns:
        `(N, C, Ho, Wo)` or `(C, Ho, Wo)`, with `Ho = (H + 2 * padding - dilation * (kernel_size - 1) - 1) // stride
        + 1` and `Wo` alike, rounded up with `ceil_mode`; with `return_indices` also int64 indices of that shape.
    """
    if not is_dynamo_compiling() and not return_indices:
        y = _eager(input, kernel_size, stride, padding, dilation, ceil_mode)
        if y is not None:
            return y
    return _general(input, _numbers(kernel_size, stride, padding, dilation, ceil_mode), return_indices)


def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Size2,
    stride: Size2 | None = None,
    padding: Size2 = 0,
    dilation: Size2 = 1,
    ceil_mode: bool = False,
    return_indices: bool = True,
) -> tuple[Tensor, Tensor]:
    """`max_pool2d` with `return_indices`."""
    return max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, True)  # type: ignore[return-value]


def _general(x: Tensor, numbers: tuple[Any, ...], return_indices: bool) -> Any:
    *w, dh, dw, ceil_mode = numbers
    check(x, tuple(w), dh, dw, ceil_mode)
    images = x.unsqueeze(0) if x.dim() == 3 else x
    y, indices = max_pool_forward(images, *numbers)
    outputs = [y]
    if return_indices:
        # The operator's are of 32 bits without a sign.
        outputs.append(_flat_indices(indices, *images.shape[2:], *numbers).long() & 0xFFFF_FFFF)
    if x.dim() == 3:
        outputs = [output.squeeze(0) for output in outputs]
    return tuple(outputs) if return_indices else outputs[0]


class MaxPool2d(torch.nn.MaxPool2d):
    """The largest element of each window: `y[n, c, h, w]` is the maximum of `x` over a window.

    Arguments are those of `torch.nn.MaxPool2d`: ``kernel_size, stride=None, padding=0, dilation=1,
    return_indices=False, ceil_mode=False``.

    Shape:
        Input: ``(N, C, H, W)`` or ``(C, H, W)``. Output: ``(N, C, Ho, Wo)`` or ``(C, Ho, Wo)``: see
        `ferrolayer.torch.functional.max_pool2d`.
    """

    def forward(self, input: Tensor) -> Any:
        return max_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )
