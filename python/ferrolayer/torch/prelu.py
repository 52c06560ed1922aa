"""Parametric rectified linear unit: `y = x` where `x > 0`, else `weight * x` (He et al., ICCV 2015, arXiv
1502.01852)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, is_grad_enabled
from torch.compiler import is_dynamo_compiling

from ._autocast import lower_precision
from ._operator import Kept, define, differentiably, pushforward
from ._vmap import elementwise, folding
from ._windows import empty_like


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None]:
    x, alpha = ctx.saved_tensors
    need_dx, need_dalpha = ctx.needs_input_grad
    if is_grad_enabled():
        return differentiably(reference, (x, alpha), (need_dx, need_dalpha), dy)
    dx, dalpha = _raw_backward(dy, x, alpha, need_dx, need_dalpha)
    return dx if need_dx else None, dalpha if need_dalpha else None


def _jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
    return pushforward(reference, ctx.saved_tensors, tangents)


def _fake_backward(dy: Tensor, x: Tensor, alpha: Tensor, need_dx: bool, need_dalpha: bool) -> tuple[Tensor, Tensor]:
    return (
        empty_like(x) if need_dx else x.new_empty(0),
        torch.empty_like(alpha) if need_dalpha else alpha.new_empty(0),
    )


def reference(x: Tensor, alpha: Tensor) -> Tensor:
    """The formula in PyTorch's operations, differentiable any number of times."""
    slope = alpha if alpha.numel() == 1 else alpha.view(-1, *(1,) * (x.dim() - 2))
    return torch.where(x > 0, x, (slope * x).to(x.dtype))


def _vmap(operator: Any, batch: int, in_dims: Any, inputs: tuple[Any, ...]) -> tuple[Any, Any]:
    rule = elementwise if in_dims[1] is None and inputs[1].numel() == 1 else folding(0)
    return rule(operator, batch, in_dims, inputs)


prelu_forward = define(
    "ferrolayer::prelu",
    fake=empty_like,
    save=Kept("x", "alpha"),
    backward=_backward,
    jvp=_jvp,
    vmap=_vmap,
    casts=True,
)
_raw_backward = define("ferrolayer::prelu_backward", fake=_fake_backward).raw
_eager = prelu_forward.eager


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """`x` where `x > 0`, else `weight * x`, as `torch.nn.functional.prelu`.

    Args:
        input: `x`, `(N, C, *)`, or any shape where `weight` has one element.
        weight: the slopes, `(1,)` for all or `(C,)`, one for each channel. Where `x` is of 16 bits they may be of the
            same type, or float32.
    """
    if not is_dynamo_compiling():
        y = _eager(input, weight)
        if y is not None:
            return y  # type: ignore[no-any-return]
    return _prelu(input, weight)


def _prelu(x: Tensor, weight: Tensor) -> Tensor:
    """`prelu` of anything that it takes, and its refusals."""
    (x,) = lower_precision(x.device, x)
    # What autocast rounds for PyTorch's own operation need not be rounded here: the operator takes float32 slopes, too.
    if weight.dtype is not torch.float32:
        (weight,) = lower_precision(x.device, weight)
    _check(x, weight)
    if x.numel() == 0 and x.dim() > 0 and x.shape[0] != 0:
        return reference(x, weight)
    return prelu_forward(x, weight.reshape(1) if weight.dim() == 0 else weight)


def _check(x: Tensor, weight: Tensor) -> None:
    if weight.dtype is not x.dtype and not (weight.dtype is torch.float32 and x.dtype.itemsize == 2):
        raise RuntimeError(f"prelu: Type promoting not supported. Got {x.dtype} and {weight.dtype}")
    if weight.dim() > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.dim()}")
    if weight.numel() != 1:
        if x.dim() == 0:
            raise RuntimeError("Not allow zero-dim input tensor.")
        channels = x.shape[1] if x.dim() > 1 else 1
        if channels != weight.numel():
            raise RuntimeError(
                "Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                f"{weight.numel()} and channel size = {channels}."
            )


class PReLU(torch.nn.PReLU):
    """`y = x` where `x > 0`, else `weight * x`.

    Args:
        num_parameters: number of slopes to learn: 1, or the number of channels. Default: 1
        init: what they are at first. Default: 0.25

    Shape:
        Input and output: ``(*)``, any shape; with a slope for each channel, ``(N, C, *)``.

    Attributes:
        weight: the slopes, ``(num_parameters,)``.
    """

    def forward(self, input: Tensor) -> Tensor:
        return prelu(input, self.weight)
