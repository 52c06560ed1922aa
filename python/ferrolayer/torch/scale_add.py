"""Scaling and shifting by two numbers in device memory, `y = x * scale + constant`.

The kernel reads both when it runs: a new value needs no rebuild, no recompilation and no new capture of a CUDA graph.
They are settings rather than parameters: gradients go to `x` alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, is_grad_enabled
from torch.compiler import is_dynamo_compiling

from ._operator import Kept, define
from ._vmap import elementwise
from ._windows import empty_like


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
    (scale,) = ctx.saved_tensors
    dx = scale_add_backward(dy, scale) if is_grad_enabled() else scale_add_backward.raw(dy, scale)
    return dx, None, None


def _linearly(ctx: Any, moved: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None]:
    """Of backward the gradient as well as the tangent, and of forward the tangent."""
    (scale,) = ctx.saved_tensors
    return (None if moved is None else scale_add_backward(moved, scale),)


def _jvp(ctx: Any, *tangents: Tensor | None) -> Tensor | None:
    # A setting's tangent is none, as it has no gradient.
    return _linearly(ctx, *tangents)[0]


scale_add_forward = define(
    "ferrolayer::scale_add",
    fake=empty_like,
    save=Kept("scale"),
    backward=_backward,
    jvp=_jvp,
    vmap=elementwise,
    settings=1,
)
scale_add_backward = define(
    "ferrolayer::scale_add_backward",
    fake=empty_like,
    save=Kept("scale"),
    backward=_linearly,
    jvp=_jvp,
    vmap=elementwise,
)
_eager = scale_add_forward.eager


def scale_add(input: Tensor, scale: Tensor | float, constant: Tensor | float) -> Tensor:
    """`y = x * scale + constant`.

    Args:
        input: `x`, of any shape.
        scale: a number, or a tensor of one element on `x`'s device, which the kernel reads when it runs.
        constant: likewise.
    """
    if isinstance(scale, Tensor) and not is_dynamo_compiling():
        y = _eager(input, scale, constant)
        if y is not None:
            return y  # type: ignore[no-any-return]
    scale, constant = _setting("scale", scale, input), _setting("constant", constant, input)
    return scale_add_forward(input, scale, constant)  # type: ignore[no-any-return]


def add_constant(input: Tensor, constant: Tensor | float) -> Tensor:
    """`y = x + constant`, with a constant that may live in device memory: see `scale_add`."""
    return scale_add(input, 1.0, constant)


def _setting(name: str, value: Tensor | float, x: Tensor) -> Tensor:
    """`value` as a tensor of one element in the type that the operator computes in."""
    dtype = torch.float64 if x.dtype is torch.float64 else torch.float32
    if not isinstance(value, Tensor):
        return torch.full((1,), value, dtype=dtype, device=x.device)
    if value.requires_grad and is_grad_enabled():
        raise RuntimeError(
            f"scale_add: {name} is a setting and gets no gradient; detach it, or write x * scale + constant to learn it"
        )
    if value.numel() != 1:
        raise RuntimeError(f"scale_add: {name} must have one element, but has shape {list(value.shape)}")
    return value if value.dtype is dtype and value.dim() == 1 else value.reshape(1).to(dtype)


class ScaleAdd(torch.nn.Module):
    """`y = x * scale + constant`, with both kept in device memory, where they can be changed at any time.

    Changing one in place (``layer.constant.fill_(0.5)``) is seen by the next call, by compiled code and by the next
    replay of a CUDA graph, with nothing built or captured again.

    Args:
        scale: what `x` is multiplied by at first. Default: 1
        constant: what is added at first. Default: 0
        device, dtype: of the buffers; float32 serves all inputs but float64.

    Shape:
        Input and output: ``(*)``, any shape.

    Attributes:
        scale: buffer of shape ``(1,)``.
        constant: buffer of shape ``(1,)``.
    """

    scale: Tensor
    constant: Tensor

    def __init__(
        self,
        scale: float = 1.0,
        constant: float = 0.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((1,), float(scale), device=device, dtype=dtype))
        self.register_buffer("constant", torch.full((1,), float(constant), device=device, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return scale_add(input, self.scale, self.constant)
