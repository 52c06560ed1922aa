"""Fully connected layer with bias and activation: `y = act(x · wᵀ + b)`, the activation within the same pass."""

from __future__ import annotations

from math import prod
from typing import Any, Literal

from .._native import Array
from ._arrays import AnyArray, call, giver, in_compute_type

Activation = Literal["relu", "prelu"] | None
#: What the operator calls the activations.
_ACTIVATIONS = {None: 0, "relu": 1, "prelu": 2}

Precision = Literal["f32", "f32_split", "tf32"]
#: What the operator calls the ways in which products of float32 are made.
_PRECISIONS = {"f32": 0, "f32_split": 1, "tf32": 2}


def linear(
    input: AnyArray,
    weight: AnyArray,
    bias: AnyArray | None = None,
    *,
    activation: Activation = None,
    alpha: AnyArray | None = None,
    precision: Precision = "f32_split",
) -> AnyArray:
    """`act(x · weightᵀ + bias)`.

    Args:
        input: `x`, `(*, in_features)`.
        weight: `(out_features, in_features)`.
        bias: `(out_features,)`, if any.
        activation: `None`, "relu" or "prelu".
        alpha: PReLU's slopes, `(1,)` or `(out_features,)`.
        precision: how products of float32 are made on a GPU: "f32" by float32 arithmetic; "f32_split" by Hopper's
            tensor cores where that is faster, with errors no larger than those of "f32"; "tf32" by Hopper's tensor
            cores with each factor rounded to 11 binary digits. Where there are no such kernels, and of other types,
            all are the same.

    Returns:
        `(*, out_features)`.
    """
    y, _ = _forward(input, weight, bias, activation, alpha, precision, save=False)
    return giver(input)(y)


def linear_forward(
    input: AnyArray,
    weight: AnyArray,
    bias: AnyArray | None = None,
    *,
    activation: Activation = None,
    alpha: AnyArray | None = None,
    precision: Precision = "f32_split",
) -> tuple[AnyArray, AnyArray | None]:
    """`linear`, and what `linear_backward` needs beside the arguments: for ReLU the result, for PReLU
    `z = x · weightᵀ + bias`, of as many rows as `input` has, without an activation `None`.
    """
    y, z = _forward(input, weight, bias, activation, alpha, precision, save=True)
    give = giver(input)
    output = give(y)
    if activation == "prelu":
        return output, give(z)
    return output, output if activation == "relu" else None


def linear_backward(
    grad_output: AnyArray,
    input: AnyArray,
    weight: AnyArray,
    saved: AnyArray | None = None,
    *,
    activation: Activation = None,
    alpha: AnyArray | None = None,
    needs: tuple[bool, bool, bool, bool] = (True, True, True, True),
    precision: Precision = "f32_split",
) -> tuple[AnyArray | None, AnyArray | None, AnyArray | None, AnyArray | None]:
    """With `dz = act'(z) * dy`: `dx = dz · weight`, `dweight = dzᵀ · x`, `dbias`, the sum of `dz` over rows, and for
    PReLU `dalpha`, that of `z * dy` where `z <= 0`.

    Args:
        grad_output: `dy`, `(*, out_features)`.
        input, weight, activation, alpha: what `linear_forward` was given.
        saved: what it gave beside the result.
        needs: which gradients are wanted; `None` stands for the others, and for `dalpha` without PReLU.
        precision: as `linear`'s; that of `linear_forward` may have been another.

    Returns:
        Gradients of `input`, `weight`, `bias` and `alpha`.
    """
    number, alpha = _activation(input, activation, alpha)
    made = _made(precision)
    if number != 0 and saved is None:
        raise ValueError("linear_backward: saved is None, expected what linear_forward gave beside the result")
    needs = (*needs[:3], needs[3] and alpha is not None)
    dy, x = _rows(grad_output), _rows(input)
    # Without an activation it is not looked at.
    state = 0.0 if saved is None else _rows(saved)
    dx, *others = call("dense_backward", dy, x, weight, alpha, state, number, *needs, made)
    give = giver(grad_output)
    gradients = (dx.reshape(tuple(input.shape)) if needs[0] else dx, *others)
    return tuple(  # type: ignore[return-value]
        give(gradient) if need else None for gradient, need in zip(gradients, needs, strict=True)
    )


def _forward(
    x: AnyArray,
    w: AnyArray,
    b: AnyArray | None,
    activation: Activation,
    alpha: AnyArray | None,
    precision: Precision,
    *,
    save: bool,
) -> tuple[Array, Array]:
    number, alpha = _activation(x, activation, alpha)
    y, z = call("dense", _rows(x), w, b, alpha, number, save, _made(precision))
    return y.reshape((*x.shape[:-1], y.shape[1])) if len(x.shape) != 2 else y, z


def _activation(x: AnyArray, activation: Activation, alpha: AnyArray | None) -> tuple[int, AnyArray | None]:
    if activation not in _ACTIVATIONS:
        raise ValueError(f"linear: activation must be None, 'relu' or 'prelu', but got {activation!r}")
    if (alpha is not None) != (activation == "prelu"):
        raise ValueError("linear: alpha goes with activation='prelu', and only with it")
    return _ACTIVATIONS[activation], None if alpha is None else in_compute_type(alpha, x)


def _made(precision: Precision) -> int:
    if precision not in _PRECISIONS:
        raise ValueError(f"linear: precision must be 'f32', 'f32_split' or 'tf32', but got {precision!r}")
    return _PRECISIONS[precision]


def _rows(x: Any) -> Any:
    """`x: (*, features)` as a matrix."""
    shape = tuple(getattr(x, "shape", (0, 0)))
    if len(shape) == 0:
        raise ValueError("linear: an array has shape (), expected (*, features)")
    return x if len(shape) == 2 else x.reshape((prod(shape[:-1]), shape[-1]))
