"""Maximum pooling over two dimensions (Riesenhuber & Poggio, Nature Neuroscience 2, 1999; Ranzato et al., CVPR 2007).

Backward needs which position of its window each maximum came from: one byte each for windows of up to 256
positions, two for larger ones, where PyTorch's indices take eight.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, is_grad_enabled
from torch.compiler import is_compiling

from ._operator import define, transforming
from ._vmap import folding
from ._windows import Size2, check, empty_image, gather, index_type, output_size, pair, window

# After `x`, or after `indices` and the image's height and width: kh, kw, sh, sw, ph, pw, dh, dw, ceil_mode.
_ARGUMENTS = 9


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


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, *rest = inputs
    ctx.arguments = (*x.shape[2:], *rest)
    ctx.save_for_backward(output[1])


def _backward(ctx: Any, dy: Tensor | None, _: Any = None) -> tuple[Tensor | None, ...]:
    if dy is None:
        return (None,) * (1 + _ARGUMENTS)
    (indices,) = ctx.saved_tensors
    backward = max_pool_backward if is_grad_enabled() else max_pool_backward.raw
    return backward(dy, indices, *ctx.arguments), *(None,) * _ARGUMENTS


def _save_indices(ctx: Any, inputs: tuple[Any, ...], dx: Tensor) -> None:
    _, indices, _, _, *ctx.arguments = inputs
    ctx.save_for_backward(indices)


def _backward_twice(ctx: Any, ddx: Tensor) -> tuple[Tensor | None, ...]:
    (indices,) = ctx.saved_tensors
    *w, dh, dw, _ = ctx.arguments
    return gather(ddx, indices, tuple(w), dh, dw), *(None,) * (3 + _ARGUMENTS)


max_pool_forward = define("ferrolayer::max_pool", fake=_fake, save=_save, backward=_backward, vmap=folding(0))
max_pool_backward = define(
    "ferrolayer::max_pool_backward",
    fake=_fake_backward,
    save=_save_indices,
    backward=_backward_twice,
    vmap=folding(0, 1),
)
_direct = define("ferrolayer::max_pool_inference", fake=_fake_inference, vmap=folding(0)).direct
_flat_indices = define("ferrolayer::max_pool_flat_indices", fake=_fake_flat_indices, vmap=folding(0)).traced
_apply = max_pool_forward.apply


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
    eager = not is_compiling()
    w = window("max_pool2d", kernel_size, stride, padding, eager)
    dh, dw = (dilation, dilation) if type(dilation) is int else pair("max_pool2d", "dilation", 5, dilation)
    if eager and not return_indices:
        if not (input.requires_grad and is_grad_enabled()):
            y = _direct(input, *w, dh, dw, ceil_mode)
            if y is not None:
                return y
        elif input.dim() == 4 and not transforming():
            try:
                return _apply(input, (*w, dh, dw, ceil_mode))
            except RuntimeError:
                pass
    return _general(input, w, dh, dw, ceil_mode, return_indices)


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


def _general(x: Tensor, w: Any, dh: int, dw: int, ceil_mode: bool, return_indices: bool) -> Any:
    check(x, w, dh, dw, ceil_mode)
    images = x.unsqueeze(0) if x.dim() == 3 else x
    y, indices = max_pool_forward(images, *w, dh, dw, ceil_mode)
    outputs = [y]
    if return_indices:
        # The operator's are of 32 bits without a sign.
        outputs.append(_flat_indices(indices, *images.shape[2:], *w, dh, dw, ceil_mode).long() & 0xFFFF_FFFF)
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
