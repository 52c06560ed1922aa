"""Stochastic pooling over two dimensions (Zeiler & Fergus, ICLR 2013, arXiv 1301.3557).

With `a = max(x, 0)` over a window and `p_i = a_i / sum a`, training draws one position of each window by `p`, and
evaluation gives the mean of all, `sum p_i a_i`. Where no element of a window is above zero the output is 0 and no
gradient goes back.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, is_grad_enabled
from torch.compiler import is_dynamo_compiling

from ._operator import Kept, define, differentiably, pushforward
from ._vmap import folding, looping
from ._windows import Size2, check, empty_image, gather, index_type, normalise, output_size


def _fake_inference(x: Tensor, *rest: Any) -> Tensor:
    *w, ceil_mode = rest
    check(x, tuple(w), 1, 1, ceil_mode)
    return empty_image(x, (*x.shape[:2], *output_size(x, *w, 1, 1, ceil_mode)))


def _fake(x: Tensor, state: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    y = _fake_inference(x, *rest)
    # One index more than positions: that of none.
    return y, torch.empty_like(y, dtype=index_type(rest[0] * rest[1] + 1))


def _fake_backward(dy: Tensor, indices: Tensor, height: int, width: int, *rest: Any) -> Tensor:
    return empty_image(indices, (*indices.shape[:2], height, width), dy.dtype)


def _backward(ctx: Any, dy: Tensor | None, _: Any = None) -> tuple[Tensor | None, None]:
    if dy is None:
        return None, None
    (indices,) = ctx.saved_tensors
    backward = stochastic_pool_backward if is_grad_enabled() else stochastic_pool_backward.raw
    _, _, height, width = ctx.shape
    return backward(dy, indices, height, width, *ctx.numbers), None


def _picked(ctx: Any, x: Tensor) -> Tensor:
    """The elements of `x` that were drawn."""
    (indices,) = ctx.saved_tensors
    *w, _ = ctx.numbers[-7:]
    return gather(x, indices, tuple(w))


def _jvp(ctx: Any, dx: Tensor, *_: None) -> Tensor:
    return _picked(ctx, dx)


def _backward_twice(ctx: Any, ddx: Tensor) -> tuple[Tensor]:
    return (_picked(ctx, ddx),)


def _jvp_of_backward(ctx: Any, dy: Tensor, *_: None) -> Tensor:
    (indices,) = ctx.saved_tensors
    return stochastic_pool_backward(dy, indices, *ctx.numbers)  # type: ignore[no-any-return]


def _backward_expectation(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    # Rare: the mean is for evaluation. So its gradient is made of other operations.
    return differentiably(lambda x: reference_expectation(x, *ctx.numbers), ctx.saved_tensors, (True,), dy)


def _jvp_expectation(ctx: Any, dx: Tensor, *_: None) -> Tensor:
    return pushforward(lambda x: reference_expectation(x, *ctx.numbers), ctx.saved_tensors, (dx,))


def reference_expectation(x: Tensor, kh: int, kw: int, sh: int, sw: int, ph: int, pw: int, ceil_mode: bool) -> Tensor:
    """`sum a² / sum a` in PyTorch's operations, differentiable any number of times."""
    # Squares of 16 bits, and differences of their sums, would be left with few digits.
    a = x.relu() if x.dtype.itemsize > 2 else x.relu().float()
    # Row-major: the gradient of PyTorch's averages is wrong for padded channels-last images on a GPU (seen with 2.11).
    a = a.contiguous()
    squares, total = (
        torch.nn.functional.avg_pool2d(values, (kh, kw), (sh, sw), (ph, pw), ceil_mode, divisor_override=1)
        for values in (a * a, a)
    )
    nothing = total == 0
    return torch.where(nothing, 0, squares / torch.where(nothing, 1, total)).to(x.dtype)


stochastic_pool_forward = define(
    # Draws depend on where an output stands in the batch, so that a batch of vmap is not one of images.
    "ferrolayer::stochastic_pool",
    fake=_fake,
    save=Kept("indices", shape="x"),
    backward=_backward,
    jvp=_jvp,
    vmap=looping,
)
stochastic_pool_backward = define(
    "ferrolayer::stochastic_pool_backward",
    fake=_fake_backward,
    save=Kept("indices"),
    backward=_backward_twice,
    jvp=_jvp_of_backward,
    vmap=folding(0, 1),
)
expectation = define(
    "ferrolayer::stochastic_pool_inference",
    fake=_fake_inference,
    save=Kept("x"),
    backward=_backward_expectation,
    jvp=_jvp_expectation,
    vmap=folding(0),
)
_eager = stochastic_pool_forward.eager


def _numbers(kernel_size: Size2, stride: Size2 | None, padding: Size2, ceil_mode: bool) -> tuple[int, ...]:
    """The operators': kh, kw, sh, sw, ph, pw, ceil_mode; backward's have the image's height and width first."""
    return *normalise("stochastic_pool2d", kernel_size, stride, padding), ceil_mode


def stochastic_pool2d(
    input: Tensor,
    kernel_size: Size2,
    stride: Size2 | None = None,
    padding: Size2 = 0,
    ceil_mode: bool = False,
    training: bool = True,
    generator: torch.Generator | None = None,
) -> Tensor:
    """One element of each window, drawn by its share of the window's sum, or their mean by these shares.

    Args:
        input: `(N, C, H, W)` or `(C, H, W)`.
        kernel_size: height and width of the window.
        stride: steps between windows; the window's size if left out.
        padding: positions around the image, at most half the window; never drawn.
        ceil_mode: whether an incomplete last window counts.
        training: whether to draw.
        generator: what to draw from, on `input`'s kind of device; PyTorch's default generator of that device if
            left out, so that `torch.manual_seed` repeats the draws. A captured CUDA graph draws anew at each replay.

    Returns:
        `(N, C, Ho, Wo)` or `(C, Ho, Wo)`: see `avg_pool2d`.
    """
    numbers = _numbers(kernel_size, stride, padding, ceil_mode)
    if input.dim() != 4:
        check(input, numbers[:6], 1, 1, ceil_mode)
        images = input.unsqueeze(0)
        return stochastic_pool2d(images, kernel_size, stride, padding, ceil_mode, training, generator).squeeze(0)
    try:
        if not training:
            return expectation(input, *numbers)  # type: ignore[no-any-return]
        state = _draw_state(input.device, generator)
        if not is_dynamo_compiling():
            y = _eager(input, state, *numbers)
            if y is not None:
                return y  # type: ignore[no-any-return]
        return stochastic_pool_forward(input, state, *numbers)[0]  # type: ignore[no-any-return]
    except RuntimeError:
        check(input, numbers[:6], 1, 1, ceil_mode)
        raise


def _draw_state(device: torch.device, generator: torch.Generator | None) -> Tensor:
    """A seed and an offset from PyTorch's generator, drawn where they are read: nothing waits for the device."""
    # The generator's own numbers are the operator's key; what they are used up by is PyTorch's business.
    return torch.randint(0x7FFF_FFFF_FFFF_FFFF, (2,), dtype=torch.int64, device=device, generator=generator)


class StochasticPool2d(torch.nn.Module):
    """While training, one element of each window, drawn by its share of the window's sum; else their mean by these
    shares.

    With `a = max(x, 0)`: `y = x_i` with probability `a_i / sum a`; in evaluation `y = sum a_i² / sum a`.

    Args:
        kernel_size: height and width of the window.
        stride: steps between windows. Default: ``kernel_size``
        padding: positions around the image, never drawn. Default: 0
        ceil_mode: whether an incomplete last window counts. Default: ``False``

    Shape:
        Input: ``(N, C, H, W)`` or ``(C, H, W)``. Output: ``(N, C, Ho, Wo)`` or ``(C, Ho, Wo)``, as `AvgPool2d`'s.
    """

    def __init__(
        self, kernel_size: Size2, stride: Size2 | None = None, padding: Size2 = 0, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return stochastic_pool2d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, training=self.training
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, ceil_mode={self.ceil_mode}"
        )
