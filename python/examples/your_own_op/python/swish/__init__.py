"""`y = x * sigmoid(beta * x)` with a `beta` to be learnt (Ramachandran et al., arXiv 1710.05941), computed by Rust."""

from __future__ import annotations

from typing import Any

import torch
from ferrolayer.torch import define, differentiably, empty_like
from torch import Tensor

from . import _native as _native  # makes torch.ops.swish.swish and torch.ops.swish.swish_backward

__all__ = ["Swish", "swish"]


def _fake(x: Tensor, beta: Tensor) -> Tensor:
    return empty_like(x)


def _fake_backward(dy: Tensor, x: Tensor, beta: Tensor, need_dx: bool, need_dbeta: bool) -> tuple[Tensor, Tensor]:
    return empty_like(x) if need_dx else x.new_empty(0), empty_like(beta) if need_dbeta else beta.new_empty(0)


def _save(ctx: Any, inputs: tuple[Any, ...], y: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, beta = ctx.saved_tensors
    need_dx, need_dbeta = ctx.needs_input_grad
    if torch.is_grad_enabled():
        return differentiably(_formula, (x, beta), (need_dx, need_dbeta), dy)
    dx, dbeta = _gradients(dy, x, beta, need_dx, need_dbeta)
    return dx if need_dx else None, dbeta if need_dbeta else None


def _formula(x: Tensor, beta: Tensor) -> Tensor:
    """The op in PyTorch's operations, whose gradients have gradients."""
    return (x * torch.sigmoid(beta * x)).to(x.dtype)


_gradients = define("swish::swish_backward", fake=_fake_backward)
_swish = define("swish::swish", fake=_fake, save=_save, backward=_backward)


def swish(x: Tensor, beta: Tensor) -> Tensor:
    """`x * sigmoid(beta * x)`, of the shape of `x`; `beta` has one element."""
    # Where x is of 16 bits, parameters are of 32.
    return _swish(x, beta.to(torch.promote_types(x.dtype, torch.float32)))


class Swish(torch.nn.Module):
    """`x * sigmoid(beta * x)` with a `beta` to be learnt, `(1,)`; `beta` is what it is at first."""

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__()
        self.beta = torch.nn.Parameter(torch.tensor([beta]))

    def forward(self, x: Tensor) -> Tensor:
        return swish(x, self.beta)
