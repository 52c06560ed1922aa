"""Fully connected layer with bias and activation: `y = act(x · wᵀ + b)`, the activation within the same pass."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, is_grad_enabled
from torch.compiler import is_compiling, is_dynamo_compiling

from ._autocast import lower_precision
from ._operator import Kept, define, differentiably, pushforward, transforming, wants_gradient
from ._vmap import folding
from .prelu import reference as prelu_reference

Activation = Literal["relu", "prelu"] | None
#: What the operator calls the activations.
_ACTIVATIONS = {None: 0, "relu": 1, "prelu": 2}
_RELU, _PRELU = 1, 2

Precision = Literal["f32", "f32_split", "tf32"]
#: What the operators call the ways in which products of float32 are made, and which they take where none is named.
_PRECISIONS = {"f32": 0, "f32_split": 1, "tf32": 2}
_DEFAULT = "f32_split"


def _fake_linear(x: Tensor, w: Tensor, b: Tensor | None, precision: int = 1) -> Tensor:
    return x.new_empty(x.shape[0], w.shape[0])


def _fake_linear_backward(
    dy: Tensor, x: Tensor, w: Tensor, dx: bool, dw: bool, db: bool, precision: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape if dx else 0), w.new_empty(w.shape if dw else 0), w.new_empty(w.shape[:1] if db else 0)


def _linear_backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    x, w = ctx.saved_tensors
    needs = ctx.needs_input_grad[:3]
    if is_grad_enabled():
        dx, dw, db = differentiably(torch.nn.functional.linear, (x, w, _any_bias(w)), needs, dy)
        return dx, dw, db
    # No number: the call named no precision.
    dx, dw, db = _raw_linear_backward(dy, x, w, *needs, *getattr(ctx, "numbers", ()))
    needs_dx, needs_dw, needs_db = needs
    return dx if needs_dx else None, dw if needs_dw else None, db if needs_db else None


def _linear_jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
    x, w = ctx.saved_tensors
    return pushforward(torch.nn.functional.linear, (x, w, _any_bias(w)), tangents)


def _any_bias(w: Tensor) -> Tensor:
    """In the bias' place: no derivative depends on what it was, which so need not be kept."""
    return w.new_zeros(w.shape[0])


def _fake(
    x: Tensor, w: Tensor, b: Tensor | None, alpha: Tensor | None, activation: int, save: bool, precision: int = 1
) -> tuple[Tensor, Tensor]:
    y = x.new_empty(x.shape[0], w.shape[0])
    return y, torch.empty_like(y) if activation == _PRELU and save else y.new_empty(0)


def _fake_backward(
    dy: Tensor,
    x: Tensor,
    w: Tensor,
    alpha: Tensor | None,
    saved: Tensor,
    activation: int,
    dx: bool,
    dw: bool,
    db: bool,
    dalpha: bool,
    precision: int = 1,
) -> tuple[Tensor, ...]:
    return (
        x.new_empty(x.shape if dx else 0),
        w.new_empty(w.shape if dw else 0),
        w.new_empty(w.shape[:1] if db else 0),
        w.new_empty(alpha.shape if dalpha and alpha is not None else 0, dtype=_computed(x)),
    )


def _computed(x: Tensor) -> torch.dtype:
    """The type of sums, which is also the slopes'."""
    return torch.float64 if x.dtype is torch.float64 else torch.float32


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, w, b, alpha, ctx.activation, _, ctx.precision = inputs
    y, saved = output
    kept = (x, w, b, alpha, y if ctx.activation == _RELU else saved)
    ctx.save_for_backward(*kept)
    ctx.save_for_forward(*kept)


def _backward(ctx: Any, dy: Tensor | None, _: Any = None) -> tuple[Tensor | None, ...]:
    if dy is None:
        return (None,) * 4
    x, w, b, alpha, saved = ctx.saved_tensors
    needs = ctx.needs_input_grad[:4]
    if is_grad_enabled():
        return differentiably(lambda *inputs: reference(*inputs, ctx.activation), (x, w, b, alpha), needs, dy)
    dx, dw, db, dalpha = _raw_backward(dy, x, w, alpha, saved, ctx.activation, *needs, ctx.precision)
    needs_dx, needs_dw, needs_db, needs_dalpha = needs
    return (
        dx if needs_dx else None,
        dw if needs_dw else None,
        db if needs_db else None,
        dalpha if needs_dalpha else None,
    )


def _jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
    return pushforward(lambda *inputs: reference(*inputs, ctx.activation), ctx.saved_tensors[:4], tangents[:4])


def reference(x: Tensor, w: Tensor, b: Tensor | None, alpha: Tensor | None, activation: int) -> Tensor:
    """The formula in PyTorch's operations, differentiable any number of times."""
    z = torch.nn.functional.linear(x, w, b)
    if activation == _RELU:
        return z.relu()
    return z if alpha is None else prelu_reference(z, alpha)


plain = define(
    "ferrolayer::linear",
    fake=_fake_linear,
    save=Kept("x", "w"),
    backward=_linear_backward,
    jvp=_linear_jvp,
    vmap=folding(0),
    casts=True,
)
_raw_linear_backward = define("ferrolayer::linear_backward", fake=_fake_linear_backward).raw
dense = define("ferrolayer::dense", fake=_fake, save=_save, backward=_backward, jvp=_jvp, vmap=folding(0), casts=True)
_raw_backward = define("ferrolayer::dense_backward", fake=_fake_backward).raw
_raw, _eager, _plain_eager = dense.raw, dense.eager, plain.eager


def linear(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: Activation = None,
    alpha: Tensor | None = None,
    precision: Precision = _DEFAULT,
) -> Tensor:
    """`act(x · weightᵀ + bias)`, as `torch.nn.functional.linear`, with an activation in the same pass.

    Args:
        input: `x`, `(*, in_features)`.
        weight: `(out_features, in_features)`.
        bias: `(out_features,)`, if any.
        activation: `None`, "relu" or "prelu".
        alpha: PReLU's slopes, `(1,)` or `(out_features,)`. Where `x` is of 16 bits they may be of the same type, or
            float32.
        precision: how products of float32 are made on a GPU, in both passes: "f32" by float32 arithmetic; "f32_split"
            by Hopper's tensor cores where that is faster, with errors no larger than those of "f32"; "tf32" by Hopper's
            tensor cores with each factor rounded to 11 binary digits. Where there are no such kernels, and of other
            types, all are the same. PyTorch's own setting, `torch.set_float32_matmul_precision` or `allow_tf32`, is not
            looked at, but where gradients are themselves differentiable (`create_graph=True`), which PyTorch's
            operations compute.

    Returns:
        `(*, out_features)`.
    """
    if activation is None and alpha is None and not is_dynamo_compiling() and input.dim() == 2:
        if precision == _DEFAULT:
            # What the operator has for default need not be handed over.
            y = _plain_eager(input, weight, bias)
        elif precision in _PRECISIONS:
            y = _plain_eager(input, weight, bias, _PRECISIONS[precision])
        else:
            y = None
        if y is not None:
            return y  # type: ignore[no-any-return]
    return _linear(input, weight, bias, activation, alpha, precision)


def _linear(
    x: Tensor, w: Tensor, b: Tensor | None, activation: Activation, alpha: Tensor | None, precision: Precision
) -> Tensor:
    """`linear` of anything that it takes, and its refusals."""
    if activation not in _ACTIVATIONS:
        raise ValueError(f"linear: activation must be None, 'relu' or 'prelu', but got {activation!r}")
    if (alpha is not None) != (activation == "prelu"):
        raise ValueError("linear: alpha goes with activation='prelu', and only with it")
    _check_precision("linear", precision)
    x, w, b = lower_precision(x.device, x, w, b)
    if w.dim() == 1 and x.dim() > 0 and b is None:
        # PyTorch's weight of one output, whose dimension the result then lacks.
        return _linear(x, w.unsqueeze(0), None, activation, alpha, precision).squeeze(-1)
    if b is not None and b.dim() < 2 and b.numel() == 1 and w.dim() == 2:
        b = b.reshape(1).expand(w.shape[0])
    if alpha is not None and alpha.dtype is not _computed(x):
        alpha = alpha.to(_computed(x))
    _check(x, w, b, alpha)
    rows = x if x.dim() == 2 else x.unsqueeze(0) if x.dim() == 1 else x.flatten(0, -2)
    number, made = _ACTIVATIONS[activation], _PRECISIONS[precision]
    arguments = (rows, w, b, alpha, number)
    if w.numel() == 0:
        # Sums of nothing, and of no outputs, are none of the kernels' business.
        y = reference(*arguments)
    elif is_compiling() or transforming():
        y = plain(rows, w, b, made) if activation is None else dense(*arguments, True, made)[0]
    elif activation is None:
        # Autocast is done with, where it may be that this does not serve.
        y = _plain_eager(rows, w, b, made)
        y = plain(rows, w, b, made) if y is None else y
    elif wants_gradient(arguments):
        y = _eager(*arguments, True, made)
        y = dense.apply(*arguments, True, made)[0] if y is None else y
    else:
        y = _raw(*arguments, False, made)[0]
    return y if x.dim() == 2 else y.view(*x.shape[:-1], w.shape[0])


def _check_precision(who: str, precision: Precision) -> None:
    if precision not in _PRECISIONS:
        raise ValueError(f"{who}: precision must be 'f32', 'f32_split' or 'tf32', but got {precision!r}")


def _check(x: Tensor, w: Tensor, b: Tensor | None, alpha: Tensor | None) -> None:
    if x.dim() == 0 or w.dim() == 0:
        raise RuntimeError(f"both arguments to linear need to be at least 1D, but they are {x.dim()}D and {w.dim()}D")
    if w.dim() != 2:
        raise RuntimeError(f"linear: weight must be a matrix, got {w.dim()}-D tensor")
    if x.shape[-1] != w.shape[1]:
        rows = x.shape[:-1].numel()
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({rows}x{x.shape[-1]} and {w.shape[1]}x{w.shape[0]})"
        )
    if b is not None and tuple(b.shape) != (w.shape[0],):
        raise RuntimeError(f"linear: bias must have shape [{w.shape[0]}] for this weight, but has {list(b.shape)}")
    if x.dtype is not w.dtype or (b is not None and b.dtype is not x.dtype):
        other = w if x.dtype is not w.dtype else b
        raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {x.dtype} and {other.dtype}")
    if alpha is not None and (alpha.dim() != 1 or alpha.shape[0] not in (1, w.shape[0])):
        raise RuntimeError(f"linear: alpha must have shape [1] or [{w.shape[0]}], but has {list(alpha.shape)}")


class Linear(torch.nn.Linear):
    """`y = act(x · weightᵀ + bias)`, with the activation in the same pass.

    Args:
        in_features: size of each input.
        out_features: size of each output.
        bias: whether there is a bias. Default: ``True``
        activation: ``None``, ``"relu"`` or ``"prelu"``. Default: ``None``
        num_parameters: with ``"prelu"``, number of slopes: 1, or ``out_features``. Default: 1
        init: with ``"prelu"``, what the slopes are at first. Default: 0.25
        precision: how products of float32 are made on a GPU, forward and backward: ``"f32"``, ``"f32_split"`` or
            ``"tf32"``, see `ferrolayer.torch.functional.linear`. An attribute, which may be set at any time, of a layer
            that `replace` has made too. Default: ``"f32_split"``

    Shape:
        Input: ``(*, in_features)``. Output: ``(*, out_features)``.

    Attributes:
        weight: ``(out_features, in_features)``, at first as `torch.nn.Linear`'s: the same seed gives the same numbers.
        bias: ``(out_features,)``, or ``None``; likewise.
        alpha: the slopes of ``"prelu"``, ``(num_parameters,)``: a parameter of this layer, ``alpha`` in its
            ``state_dict``, where a `torch.nn.PReLU` after a `torch.nn.Linear` has a ``weight`` of its own. Without
            ``"prelu"`` the ``state_dict`` is `torch.nn.Linear`'s.
    """

    # Also of layers that have no attribute of this name: PyTorch's own that `replace` swapped, and pickled ones.
    activation: Activation = None
    precision: Precision = _DEFAULT

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        activation: Activation = None,
        num_parameters: int = 1,
        init: float = 0.25,
        precision: Precision = _DEFAULT,
    ) -> None:
        if activation not in _ACTIVATIONS:
            raise ValueError(f"Linear: activation must be None, 'relu' or 'prelu', but got {activation!r}")
        if activation == "prelu" and num_parameters not in (1, out_features):
            raise ValueError(f"Linear: num_parameters must be 1 or {out_features}, but got {num_parameters}")
        _check_precision("Linear", precision)
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation
        self.precision = precision
        self.init = init
        if activation == "prelu":
            self.alpha = torch.nn.Parameter(torch.full((num_parameters,), init, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if "alpha" in self._parameters:
            torch.nn.init.constant_(self.alpha, self.init)

    def forward(self, input: Tensor) -> Tensor:
        if self.activation is None:
            return linear(input, self.weight, self.bias, precision=self.precision)
        alpha = self.slopes if self.activation == "prelu" else None
        return linear(input, self.weight, self.bias, activation=self.activation, alpha=alpha, precision=self.precision)

    @property
    def slopes(self) -> Tensor:
        """PReLU's slopes: `alpha`, or the parameter of the `torch.nn.PReLU` that `replace` fused into this layer."""
        fused = self.__dict__.get("_fused")
        return self.alpha if fused is None else fused[0].weight

    def extra_repr(self) -> str:
        text = super().extra_repr()
        if self.activation is not None:
            text += f", activation={self.activation!r}"
        return text if self.precision == _DEFAULT else f"{text}, precision={self.precision!r}"
