"""Windows of two-dimensional pooling: arguments, sizes and refusals, all of them PyTorch's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from .. import _windows
from .._windows import Size2, Window

# Symbolic numbers too; a tuple, since the compilers of some versions do not know what `int | torch.SymInt` is.
_INTEGER = (int, torch.SymInt)


def pair(op: str, argument: str, position: int, value: Any, optional: bool = False) -> tuple[int, int]:
    """`value` for both axes: an int, or a sequence of one or two."""
    return _windows.pair(op, argument, position, value, optional, integer=_INTEGER)


def normalise(op: str, kernel_size: Size2, stride: Size2 | None, padding: Size2) -> Window:
    """The window that these arguments mean; without a stride it is the window's size."""
    return _windows.normalise(op, kernel_size, stride, padding, integer=_INTEGER)


def output_length(length: int, size: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """Windows along an axis of this length; at most 0 where none fits. Lengths may be symbolic."""
    slack = length + 2 * padding - dilation * (size - 1) - 1
    if not ceil_mode:
        return slack // stride + 1
    # A last window that would begin past the image and its first padding does not count. Not by `if`, which would tie a
    # program compiled for free sizes to those of which the same is true.
    fitting, beginning = (slack + stride - 1) // stride, (length + padding - 1) // stride
    # Compilers see through `min`; what symbols are left after them it would compare.
    smaller = min if type(fitting) is int and type(beginning) is int else torch.sym_min
    return smaller(fitting, beginning) + 1


def output_size(
    x: Tensor, kh: int, kw: int, sh: int, sw: int, ph: int, pw: int, dh: int, dw: int, ceil_mode: bool
) -> tuple[int, int]:
    """Height and width of what pooling `x: [..., H, W]` gives."""
    height = output_length(x.shape[-2], kh, sh, ph, dh, ceil_mode)
    return height, output_length(x.shape[-1], kw, sw, pw, dw, ceil_mode)


def check(x: Tensor, w: Window, dh: int = 1, dw: int = 1, ceil_mode: bool = False) -> None:
    """Refuses what PyTorch's pooling refuses, in its words."""
    kh, kw, sh, sw, ph, pw = w
    if x.dim() not in (3, 4):
        raise RuntimeError(f"non-empty 3D or 4D (batch mode) tensor expected for input, but got: {list(x.shape)}")
    if sh == 0 or sw == 0:
        raise RuntimeError("stride should not be zero")
    for size, pad, dilation in ((kh, ph, dh), (kw, pw, dw)):
        if pad < 0:
            raise RuntimeError(f"pad must be non-negative, but got pad: {pad}")
        # As C++ divides: what is below zero is another check's.
        if pad > max((size - 1) * dilation + 1, 0) // 2:
            raise RuntimeError(
                "pad should be at most half of effective kernel size, but got "
                f"pad={pad}, kernel_size={size} and dilation={dilation}"
            )
    if kh <= 0 or kw <= 0:
        raise RuntimeError(f"kernel size should be greater than zero, but got kH: {kh} kW: {kw}")
    if sh <= 0 or sw <= 0:
        raise RuntimeError(f"stride should be greater than zero, but got dH: {sh} dW: {sw}")
    if dh <= 0 or dw <= 0:
        raise RuntimeError(f"dilation should be greater than zero, but got dilationH: {dh} dilationW: {dw}")
    if any(n == 0 for n in x.shape[-3:]):
        raise RuntimeError(
            f"Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size for input, but got:{list(x.shape)}"
        )
    if ph > kh // 2 or pw > kw // 2:
        raise RuntimeError(
            "pad should be smaller than or equal to half of kernel size, but got "
            f"padW = {pw}, padH = {ph}, kW = {kw}, kH = {kh}"
        )
    planes, height, width = x.shape[-3:]
    h, width_out = output_size(x, kh, kw, sh, sw, ph, pw, dh, dw, ceil_mode)
    if h < 1 or width_out < 1:
        raise RuntimeError(
            f"Given input size: ({planes}x{height}x{width}). "
            f"Calculated output size: ({planes}x{h}x{width_out}). Output size is too small"
        )


def empty_image(x: Tensor, size: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
    """Memory for images in `x`'s layout, row-major or channels last, as the operators choose it."""
    return torch.empty(
        size, dtype=x.dtype if dtype is None else dtype, device=x.device, memory_format=suggest_memory_format(x)
    )


def index_type(different: int) -> torch.dtype:
    """What indices into a window are held in, of which there are so many different ones."""
    return torch.uint8 if different <= 1 << 8 else torch.int16


def source_positions(
    indices: Tensor, height: int, width: int, w: Window, dh: int = 1, dw: int = 1
) -> tuple[Tensor, Tensor]:
    """Where in its plane each output came from, `h * W + w` in int64, and whether it came from anywhere."""
    kh, kw, sh, sw, ph, pw = w
    # Two bytes are an unsigned number's.
    position = indices.long() & 0xFFFF
    rows = torch.arange(indices.shape[-2], device=indices.device).unsqueeze(-1) * sh - ph
    columns = torch.arange(indices.shape[-1], device=indices.device) * sw - pw
    row, column = rows + position // kw * dh, columns + position % kw * dw
    inside = (position < kh * kw) & (row >= 0) & (row < height) & (column >= 0) & (column < width)
    return torch.where(inside, row * width + column, 0), inside


def gather(x: Tensor, indices: Tensor, w: Window, dh: int = 1, dw: int = 1) -> Tensor:
    """The elements of `x: [N, C, H, W]` at the positions that `indices: [N, C, Ho, Wo]` name, 0 where they name none.

    It is what the backward pass of picking is the transpose of, in PyTorch's operations: differentiable throughout.
    """
    flat, inside = source_positions(indices, x.shape[-2], x.shape[-1], w, dh, dw)
    picked = x.flatten(-2).gather(-1, flat.flatten(-2)).view(indices.shape)
    return torch.where(inside, picked, torch.zeros((), dtype=x.dtype, device=x.device))


def empty_like(x: Tensor, *_: object) -> Tensor:
    """Memory for elements that match `x`'s one by one, in the layout that the operators choose."""
    return torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=suggest_memory_format(x))
