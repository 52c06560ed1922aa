"""Gaussian pooling: each window is averaged with the weights of a Gaussian whose mean and variance can be learnt.

Differentiable pooling (Zeiler & Fergus 2012, arXiv 1207.0151). `K` Gaussians per feature map, whose outputs stay
separate. With `d = i - (k - 1) / 2 - mean` along each axis, position `(i, j)` of a window has the weight

`w = exp(-d_y² / (2 var_y) - d_x² / (2 var_x)) / Z`

where `Z` makes the weights of the whole window (`normalize="window"`, padding reads as 0) or of its positions inside
the image (`"valid"`) sum to one. A large variance averages; a small one picks the pixel nearest the mean.
"""

from __future__ import annotations

from typing import Literal

from .._windows import Size2, normalise
from ._arrays import AnyArray, call, giver, images, in_compute_type, unbatched

Normalize = Literal["window", "valid"]


def gaussian_pool2d(
    input: AnyArray,
    mean: AnyArray,
    var: AnyArray,
    kernel_size: Size2,
    stride: Size2 | None = None,
    padding: Size2 = 0,
    ceil_mode: bool = False,
    normalize: Normalize = "window",
) -> AnyArray:
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
    arguments = _arguments(kernel_size, stride, padding, ceil_mode, normalize)
    x, single = images("gaussian_pool2d", "input", input)
    mean, var = in_compute_type(mean, x), in_compute_type(var, x)
    return giver(input)(unbatched(call("gaussian_pool", x, mean, var, *arguments), single))


def gaussian_pool2d_backward(
    grad_output: AnyArray,
    input: AnyArray,
    mean: AnyArray,
    var: AnyArray,
    kernel_size: Size2,
    stride: Size2 | None = None,
    padding: Size2 = 0,
    ceil_mode: bool = False,
    normalize: Normalize = "window",
    needs: tuple[bool, bool, bool] = (True, True, True),
) -> tuple[AnyArray | None, AnyArray | None, AnyArray | None]:
    """`dx`, the sum of `w * dy` over windows, and the derivatives of the weights by `mean` and `var`, summed over
    images, windows, and where they share Gaussians over channels.

    Args:
        grad_output: `dy`, of the shape of the result.
        input, mean, var, kernel_size, stride, padding, ceil_mode, normalize: what `gaussian_pool2d` was given.
        needs: which of the three gradients are wanted; `None` stands for the others.

    Returns:
        Gradients of `input`, `mean` and `var`; those of `mean` and `var` are float32 where `x` is of 16 bits.
    """
    arguments = _arguments(kernel_size, stride, padding, ceil_mode, normalize)
    dy, single = images("gaussian_pool2d_backward", "grad_output", grad_output)
    x, _ = images("gaussian_pool2d_backward", "input", input)
    mean, var = in_compute_type(mean, x), in_compute_type(var, x)
    dx, dmean, dvar = call("gaussian_pool_backward", dy, x, mean, var, *arguments, *needs)
    give = giver(grad_output)
    need_dx, need_dmean, need_dvar = needs
    return (
        give(unbatched(dx, single)) if need_dx else None,
        give(dmean) if need_dmean else None,
        give(dvar) if need_dvar else None,
    )


def _arguments(
    kernel_size: Size2, stride: Size2 | None, padding: Size2, ceil_mode: bool, normalize: Normalize
) -> tuple[int, ...]:
    if normalize not in ("window", "valid"):
        raise ValueError(f"gaussian_pool2d: normalize must be 'window' or 'valid', but got {normalize!r}")
    window = normalise("gaussian_pool2d", kernel_size, stride, padding)
    return (*window, bool(ceil_mode), normalize == "valid")
