"""Gaussian pooling: each window is averaged with the weights of a Gaussian whose mean and variance can be learnt.

Differentiable pooling (Zeiler & Fergus 2012, arXiv 1207.0151). `K` Gaussians per feature map, whose outputs stay
separate. With `d = i - (k - 1) / 2 - mean` along each axis, position `(i, j)` of a window has the weight

`w = exp(-d_y² / (2 var_y) - d_x² / (2 var_x)) / Z`

where `Z` makes the weights of the whole window (`normalize="window"`, padding reads as 0) or of its positions
inside the image (`"valid"`) sum to one. A large variance averages; a small one picks the pixel nearest the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, is_grad_enabled
from torch.compiler import is_dynamo_compiling

from ._operator import Kept, define, differentiably, pushforward
from ._vmap import folding
from ._windows import Size2, check, empty_image, empty_like, normalise, output_size

Normalize = Literal["window", "valid"]
#: Logarithms of variances are cut off here, far beyond where a Gaussian turns into an average or a single pixel.
LIMIT = 40.0


def _fake(x: Tensor, mean: Tensor, var: Tensor, *rest: Any) -> Tensor:
    *w, ceil_mode, _ = rest
    check(x, tuple(w), 1, 1, ceil_mode)
    _check_parameters(x, mean, var)
    size = output_size(x, *w, 1, 1, ceil_mode)
    return empty_image(x, (x.shape[0], x.shape[1] * mean.shape[1], *size))


def _fake_backward(dy: Tensor, x: Tensor, mean: Tensor, var: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    need_dx, need_dmean, need_dvar = rest[-3:]
    return (
        empty_like(x) if need_dx else x.new_empty(0),
        torch.empty_like(mean) if need_dmean else mean.new_empty(0),
        torch.empty_like(var) if need_dvar else var.new_empty(0),
    )


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    inputs, needs = ctx.saved_tensors, ctx.needs_input_grad[:3]
    if is_grad_enabled():
        return differentiably(lambda *inputs: reference(*inputs, *ctx.numbers), inputs, needs, dy)
    found = _raw_backward(dy, *inputs, *ctx.numbers, *needs)
    return tuple(gradient if need else None for gradient, need in zip(found, needs, strict=True))


def _jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
    return pushforward(lambda *inputs: reference(*inputs, *ctx.numbers), ctx.saved_tensors, tangents[:3])


def reference(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    kh: int,
    kw: int,
    sh: int,
    sw: int,
    ph: int,
    pw: int,
    ceil_mode: bool,
    valid: bool,
) -> Tensor:
    """The formula in PyTorch's operations, differentiable any number of times.

    The weights are a product of one factor along each axis, each a matrix from pixels to outputs.
    """
    height, width = output_size(x, kh, kw, sh, sw, ph, pw, 1, 1, ceil_mode)
    rows = _factors(mean[..., 0], var[..., 0], x.shape[2], height, kh, sh, ph, valid)
    columns = _factors(mean[..., 1], var[..., -1], x.shape[3], width, kw, sw, pw, valid)
    channels = x.shape[1]
    rows, columns = (factor.expand(channels, *factor.shape[1:]) for factor in (rows, columns))
    y = torch.einsum("ckoh,nchw,ckqw->nckoq", rows, x.to(rows.dtype), columns)
    return y.flatten(1, 2).to(x.dtype)


def _factors(
    mean: Tensor, var: Tensor, length: int, outputs: int, size: int, stride: int, padding: int, valid: bool
) -> Tensor:
    """`[P, K, outputs, length]`: the weight of each pixel along one axis for each output."""
    position = torch.arange(size, device=mean.device)
    distance = position - (size - 1) / 2 - mean.unsqueeze(-1)
    exponent = (-(distance**2) / (2 * var.unsqueeze(-1))).unsqueeze(-2)
    pixel = torch.arange(outputs, device=mean.device).unsqueeze(-1) * stride - padding + position
    if valid:
        exponent = exponent.masked_fill((pixel < 0) | (pixel >= length), -torch.inf)
    weights = exponent.softmax(-1).expand(*mean.shape, outputs, size)
    at = (pixel.unsqueeze(-1) == torch.arange(length, device=mean.device)).to(weights.dtype)
    return torch.einsum("pkoi,oih->pkoh", weights, at)


def _numbers(
    kernel_size: Size2, stride: Size2 | None, padding: Size2, ceil_mode: bool, normalize: Normalize
) -> tuple[int, ...]:
    """The operator's: kh, kw, sh, sw, ph, pw, ceil_mode and whether weights are those of positions inside the image."""
    w = normalise("gaussian_pool2d", kernel_size, stride, padding)
    if normalize not in ("window", "valid"):
        raise ValueError(f"gaussian_pool2d: normalize must be 'window' or 'valid', but got {normalize!r}")
    return *w, ceil_mode, normalize == "valid"


gaussian_pool_forward = define(
    "ferrolayer::gaussian_pool",
    fake=_fake,
    save=Kept("x", "mean", "var"),
    backward=_backward,
    jvp=_jvp,
    vmap=folding(0),
    numbers=_numbers,
    dims=4,
)
_raw_backward = define("ferrolayer::gaussian_pool_backward", fake=_fake_backward).raw
_eager = gaussian_pool_forward.eager


def gaussian_pool2d(
    input: Tensor,
    mean: Tensor,
    var: Tensor,
    kernel_size: Size2,
    stride: Size2 | None = None,
    padding: Size2 = 0,
    ceil_mode: bool = False,
    normalize: Normalize = "window",
) -> Tensor:
    """The average of each window, weighted by Gaussians.

    Args:
        input: `(N, C, H, W)` or `(C, H, W)`.
        mean: `(P, K, 2)`, `(mu_y, mu_x)` in pixels from the window's centre; `P = 1` for Gaussians that all channels
            share, `P = C` for each channel's own.
        var: `(P, K, 1)`, or `(P, K, 2)` for `(var_y, var_x)`, in pixels squared; above 0. On a GPU nothing waits to
            look: a variance that is none gives NaN.
        kernel_size: height and width of the window.
        stride: steps between windows; the window's size if left out.
        padding: zeros around the image, at most half the window.
        ceil_mode: whether an incomplete last window counts.
        normalize: "window" for weights that sum to one over the window, "valid" over its positions inside the image.

    Returns:
        `(N, C * K, Ho, Wo)` or `(C * K, Ho, Wo)`, channel `c * K + k` by Gaussian `k` of channel `c`.
    """
    dtype = torch.float64 if input.dtype is torch.float64 else torch.float32
    if mean.dtype is not dtype or var.dtype is not dtype:
        mean, var = mean.to(dtype), var.to(dtype)
    if not is_dynamo_compiling():
        y = _eager(input, mean, var, kernel_size, stride, padding, ceil_mode, normalize)
        if y is not None:
            return y  # type: ignore[no-any-return]
    numbers = _numbers(kernel_size, stride, padding, ceil_mode, normalize)
    check(input, numbers[:6], 1, 1, ceil_mode)
    _check_parameters(input, mean, var)
    if input.dim() == 3:
        return gaussian_pool_forward(input.unsqueeze(0), mean, var, *numbers).squeeze(0)  # type: ignore[no-any-return]
    return gaussian_pool_forward(input, mean, var, *numbers)  # type: ignore[no-any-return]


def _check_parameters(x: Tensor, mean: Tensor, var: Tensor) -> None:
    channels = x.shape[-3]
    if mean.dim() != 3 or mean.shape[0] not in (1, channels) or mean.shape[1] < 1 or mean.shape[2] != 2:
        raise RuntimeError(
            f"gaussian_pool2d: mean must have shape [1, K, 2] or [{channels}, K, 2] for {channels} channels, "
            f"but has {list(mean.shape)}"
        )
    if var.dim() != 3 or var.shape[:2] != mean.shape[:2] or var.shape[2] not in (1, 2):
        sets, kernels, _ = mean.shape
        raise RuntimeError(
            f"gaussian_pool2d: var must have shape [{sets}, {kernels}, 1] or [{sets}, {kernels}, 2], as mean's, "
            f"but has {list(var.shape)}"
        )
    for name, parameter in (("mean", mean), ("var", var)):
        if parameter.device != x.device:
            raise RuntimeError(f"gaussian_pool2d: {name} is on {parameter.device}, but the input is on {x.device}")


class GaussianPool2d(torch.nn.Module):
    """The average of each window, weighted by Gaussians whose means and variances can be learnt.

    The weight of position `(i, j)` of a window is `exp(-d_y² / (2 var_y) - d_x² / (2 var_x)) / Z`, with `d` its
    distance from the window's centre plus the mean, and `Z` so that the weights sum to one.

    Args:
        kernel_size: height and width of the window.
        stride: steps between windows. Default: ``kernel_size``
        padding: zeros around the image, at most half the window. Default: 0
        kernels: Gaussians per channel, `K`: the output has `K` times the channels. Default: 1
        channels: the number of channels, each with Gaussians of its own; ``None``: all share one set. Default: ``None``
        per_axis: whether there is a variance for each axis. Default: ``False``
        mean: where the Gaussians are at first, in pixels from the window's centre: a number or anything that broadcasts
            to ``(P, K, 2)``, such as ``[[-0.5, -0.5], [0.5, 0.5]]`` for two that start apart; or ``"scattered"``:
            uniformly at random within the window, from PyTorch's generator. Default: 0, the centre
        var: variances at first, in pixels squared: a number or anything that broadcasts to ``(P, K, 1)`` (``(P, K,
            2)`` with ``per_axis``). Default: 1
        learnable: whether both are parameters. Default: ``True``
        normalize: ``"window"``: weights sum to one over the window, padding included; ``"valid"``: over its
            positions inside the image. Default: ``"window"``
        ceil_mode: whether an incomplete last window counts. Default: ``False``
        device, dtype: of the parameters; float32 serves inputs of 16 and 32 bits.

    Shape:
        Input: ``(N, C, H, W)`` or ``(C, H, W)``. Output: ``(N, C * K, Ho, Wo)`` or ``(C * K, Ho, Wo)``: see
            `AvgPool2d`.

    Attributes:
        mean: ``(P, K, 2)``, with ``P`` 1 or ``channels``: a parameter, or a buffer if not learnable.
        log_var: the variances' logarithms, ``(P, K, 1)`` or ``(P, K, 2)``: a parameter. Whatever an optimiser adds
            to it, the variance stays positive, and steps are relative to its size. It counts up to ±40.
        var: the variances, of the same shape, to be read; `set_var` sets them. If not learnable it is a buffer, and
            there is no ``log_var``.
    """

    mean: Tensor

    def __init__(
        self,
        kernel_size: Size2,
        stride: Size2 | None = None,
        padding: Size2 = 0,
        *,
        kernels: int = 1,
        channels: int | None = None,
        per_axis: bool = False,
        mean: float | Sequence[Any] | Tensor | Literal["scattered"] = 0.0,
        var: float | Sequence[Any] | Tensor = 1.0,
        learnable: bool = True,
        normalize: Normalize = "window",
        ceil_mode: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if kernels < 1 or (channels is not None and channels < 1):
            raise ValueError(
                f"GaussianPool2d: kernels and channels must be at least 1, but got {kernels} and {channels}"
            )
        if normalize not in ("window", "valid"):
            raise ValueError(f"GaussianPool2d: normalize must be 'window' or 'valid', but got {normalize!r}")
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.kernels = kernels
        self.channels = channels
        self.per_axis = per_axis
        self.learnable = learnable
        self.normalize: Normalize = normalize
        self.ceil_mode = ceil_mode
        self._initial = (mean, var)
        sets = 1 if channels is None else channels
        means = torch.empty(sets, kernels, 2, device=device, dtype=dtype)
        variances = torch.empty(sets, kernels, 2 if per_axis else 1, device=device, dtype=dtype)
        if learnable:
            self.mean = torch.nn.Parameter(means)
            self.log_var = torch.nn.Parameter(variances)
        else:
            self.register_buffer("mean", means)
            # Not by `register_buffer`, which finds the property of that name in its way.
            self._buffers["var"] = variances
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets means and variances to what they were at first; scatters anew."""
        mean, var = self._initial
        with torch.no_grad():
            if isinstance(mean, str):
                if mean != "scattered":
                    raise ValueError(f"GaussianPool2d: mean must be numbers or 'scattered', but got {mean!r}")
                kh, kw, *_ = normalise("GaussianPool2d", self.kernel_size, None, 0)
                self.mean.uniform_(-0.5, 0.5).mul_(self.mean.new_tensor([kh - 1, kw - 1]))
            else:
                self.mean.copy_(_broadcast("mean", mean, self.mean))
        self.set_var(var)

    @property
    def var(self) -> Tensor:
        """The variances, ``(P, K, 1)`` or ``(P, K, 2)``; see `set_var`."""
        if not self.learnable:
            return self._buffers["var"]  # type: ignore[return-value]
        # 16 bits hold neither large variances nor small ones.
        log_var = self.log_var.float() if self.log_var.dtype.itemsize == 2 else self.log_var
        # Not by `clamp`, which has no gradient at the bounds themselves and none for NaN.
        return torch.where(log_var > LIMIT, LIMIT, torch.where(log_var < -LIMIT, -LIMIT, log_var)).exp()

    def set_var(self, value: float | Sequence[Any] | Tensor) -> None:
        """Sets the variances, in place, to numbers that broadcast to their shape."""
        stored = self.log_var if self.learnable else self.var
        values = _broadcast("var", value, stored)
        if not values.is_meta and not bool(((values > 0) & values.isfinite()).all()):
            raise ValueError(f"GaussianPool2d: var must be finite and above 0, but got {value}")
        with torch.no_grad():
            stored.copy_(values.log() if self.learnable else values)

    def forward(self, input: Tensor) -> Tensor:
        return gaussian_pool2d(
            input, self.mean, self.var, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.normalize
        )

    def extra_repr(self) -> str:
        text = f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, kernels={self.kernels}"
        if self.channels is not None:
            text += f", channels={self.channels}"
        for name, value, usual in (
            ("per_axis", self.per_axis, False),
            ("learnable", self.learnable, True),
            ("normalize", self.normalize, "window"),
            ("ceil_mode", self.ceil_mode, False),
        ):
            if value != usual:
                text += f", {name}={value!r}"
        return text


def _broadcast(name: str, value: Any, like: Tensor) -> Tensor:
    """`value` in float64 as a tensor of `like`'s shape, where it is."""
    found = torch.as_tensor(value, dtype=torch.float64).to("cpu" if like.is_meta else like.device).detach()
    try:
        return found.broadcast_to(like.shape)
    except RuntimeError:
        shapes = f"{list(found.shape)} does not broadcast to {list(like.shape)}"
        raise ValueError(f"GaussianPool2d: {name} of shape {shapes}") from None
