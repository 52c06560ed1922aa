"""Both sides of each row: our op, and PyTorch's own or what composes it from PyTorch's primitives.

Each entry takes the case and whether it is for training, and gives a function of the case's inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

import ferrolayer.torch.functional as ours

if TYPE_CHECKING:
    from .cases import Case

Function = Callable[..., torch.Tensor]
Side = Callable[["Case", bool], Function]


def _window(case: Case) -> dict[str, tuple[int, int]]:
    kh, kw, sh, sw, ph, pw = case.window
    return {"kernel_size": (kh, kw), "stride": (sh, sw), "padding": (ph, pw)}


def _our_max_pool(case: Case, _training: bool) -> Function:
    options = _window(case)
    return lambda x: ours.max_pool2d(x, **options)


def _our_avg_pool(case: Case, _training: bool) -> Function:
    options = _window(case)
    return lambda x: ours.avg_pool2d(x, **options)


def _our_stochastic_pool(case: Case, training: bool) -> Function:
    options = _window(case)
    return lambda x: ours.stochastic_pool2d(x, **options, training=training)


def _our_gaussian_pool(case: Case, _training: bool) -> Function:
    options = _window(case)
    return lambda x, mean, var: ours.gaussian_pool2d(x, mean, var, **options)


def _our_dense(case: Case, _training: bool) -> Function:
    activation = case.options["activation"]
    if activation == "none":
        return ours.linear
    if activation == "relu":
        return lambda x, w, b: ours.linear(x, w, b, activation="relu")
    return lambda x, w, b, alpha: ours.linear(x, w, b, activation="prelu", alpha=alpha)


OURS: dict[str, Side] = {
    "relu": lambda _case, _training: ours.relu,
    "add2": lambda _case, _training: ours.add2,
    "scale_add": lambda _case, _training: ours.scale_add,
    "prelu": lambda _case, _training: ours.prelu,
    "max_pool": _our_max_pool,
    "avg_pool": _our_avg_pool,
    "stochastic_pool": _our_stochastic_pool,
    "gaussian_pool": _our_gaussian_pool,
    "dense": _our_dense,
}


def _max_pool(case: Case, _training: bool) -> Function:
    options = _window(case)
    return lambda x: F.max_pool2d(x, **options)


def _avg_pool(case: Case, _training: bool) -> Function:
    options = _window(case)
    return lambda x: F.avg_pool2d(x, **options)


def _stochastic_pool(case: Case, training: bool) -> Function:
    """Draws by the largest of p / exponential, as `torch.multinomial` draws one; inference by average pooling."""
    kh, kw, sh, sw, ph, pw = case.window

    def draw(x: torch.Tensor) -> torch.Tensor:
        windows = F.pad(x, (pw, pw, ph, ph)).unfold(2, kh, sh).unfold(3, kw, sw).flatten(4)
        with torch.no_grad():
            chances = windows.clamp_min(0)
            drawn = (chances / torch.empty_like(chances).exponential_()).argmax(-1, keepdim=True)
        return windows.gather(-1, drawn).squeeze(-1)

    def mean(x: torch.Tensor) -> torch.Tensor:
        a, options = F.relu(x), _window(case)
        return F.avg_pool2d(a * a, **options) / F.avg_pool2d(a, **options).clamp_min(torch.finfo(x.dtype).tiny)

    return draw if training else mean


def gaussian_weights(case: Case, x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
    """Weights that make a depthwise convolution Gaussian pooling, [C * K, 1, kh, kw]."""
    kh, kw = case.window[:2]
    along = []
    for axis, size in ((0, kh), (1, kw)):
        at = torch.arange(size, dtype=mean.dtype, device=mean.device) - (size - 1) / 2
        along.append(-((at - mean[:, :, axis, None]) ** 2) / (2 * var[:, :, min(axis, var.shape[2] - 1), None]))
    weights = torch.softmax((along[0][..., :, None] + along[1][..., None, :]).flatten(2), 2).view(-1, 1, kh, kw)
    # One set is all channels'.
    return weights.repeat(x.shape[1] // mean.shape[0], 1, 1, 1).to(x.dtype)


def _gaussian_pool(case: Case, _training: bool) -> Function:
    _, _, sh, sw, ph, pw = case.window

    def convolve(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, weights, stride=(sh, sw), padding=(ph, pw), groups=x.shape[1])

    if not case.options["learnable"]:
        return convolve
    return lambda x, mean, var: convolve(x, gaussian_weights(case, x, mean, var))


def _dense(case: Case, _training: bool) -> Function:
    activation = case.options["activation"]
    if activation == "none":
        return F.linear
    if activation == "relu":
        return lambda x, w, b: F.relu(F.linear(x, w, b))
    return lambda x, w, b, alpha: F.prelu(F.linear(x, w, b), alpha)


THEIRS: dict[str, tuple[str, Side]] = {
    "relu": ("relu", lambda _case, _training: F.relu),
    "add2": ("add", lambda _case, _training: torch.add),
    "scale_add": ("addcmul", lambda _case, _training: lambda x, s, c: torch.addcmul(c, x, s)),
    "prelu": ("prelu", lambda _case, _training: F.prelu),
    "max_pool": ("max_pool2d", _max_pool),
    "avg_pool": ("avg_pool2d", _avg_pool),
    "stochastic_pool": (
        "composed: unfold, exponential_, argmax, gather; for inference avg_pool2d",
        _stochastic_pool,
    ),
    "gaussian_pool": ("depthwise conv2d", _gaussian_pool),
    "dense": ("linear", _dense),
}
