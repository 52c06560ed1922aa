"""Swaps the layers of an existing model for ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from . import avg_pool, linear, max_pool, prelu, relu
from ._windows import pair

#: What each of PyTorch's layers becomes. Ours are subclasses with the same state, so that a layer changes its class
#: and stays the same object: parameters, hooks, the training flag, its name and whoever else holds it are none the
#: wiser.
SUCCESSORS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: linear.Linear,
    nn.MaxPool2d: max_pool.MaxPool2d,
    nn.AvgPool2d: avg_pool.AvgPool2d,
    nn.PReLU: prelu.PReLU,
    nn.ReLU: relu.ReLU,
}


@dataclass(frozen=True)
class Replaced:
    """A layer that was swapped: its name in the model, what it was, and what was fused into it, by name."""

    name: str
    kind: str
    fused: str | None = None


@dataclass(frozen=True)
class Left:
    """A layer that stayed as it was, and why."""

    name: str
    kind: str
    why: str


@dataclass
class Report:
    """What `replace` did."""

    replaced: list[Replaced] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    def __str__(self) -> str:
        if not self.replaced and not self.left:
            return "nothing to replace"
        lines = [f"replaced {len(self.replaced)}, left {len(self.left)}"]
        width = max(len(entry.name or "(model)") for entry in (*self.replaced, *self.left))
        for done in self.replaced:
            also = f", with {done.fused} fused into it" if done.fused else ""
            lines.append(f"  replaced  {done.name or '(model)':{width}}  {done.kind}{also}")
        for left in self.left:
            lines.append(f"  left      {left.name or '(model)':{width}}  {left.kind}: {left.why}")
        return "\n".join(lines)


class FusedReLU(nn.ReLU):
    """A ReLU that the layer before it computes; it stays in its place, so that names and indices do."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return input

    def extra_repr(self) -> str:
        return "fused into the layer before"


class FusedPReLU(nn.PReLU):
    """A PReLU that the layer before it computes; it stays in its place and keeps its weight, and so does the
    state_dict."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return input

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, fused into the layer before"


def replace(model: nn.Module, *, types: Iterable[type[nn.Module]] | None = None, fuse: bool = False) -> Report:
    """Swaps, in place, each of PyTorch's layers in `model` that there is one of ours for.

    A layer stays the same object and keeps its parameters, hooks, training flag and name; an optimiser goes on with
    it, and the `state_dict` stays the same. Subclasses, parametrised layers and what ours cannot compute are left,
    and reported.

    Args:
        model: any module, `model` itself included.
        types: which of PyTorch's types to swap; all of `nn.Linear`, `nn.MaxPool2d`, `nn.AvgPool2d`, `nn.PReLU`,
            `nn.ReLU` if left out.
        fuse: whether, in an `nn.Sequential`, a ReLU or PReLU after a linear layer is computed by that layer, in one
            pass. Both keep their places and parameters; the linear layer then gives the activation's output to
            whoever looks in between, so that layers with hooks, and layers that the model holds in several places,
            are not fused.
    """
    chosen = set(SUCCESSORS if types is None else types)
    unknown = chosen - set(SUCCESSORS)
    if unknown:
        names = ", ".join(sorted(kind.__name__ for kind in unknown))
        raise ValueError(f"replace: there is nothing to replace {names} with")
    report = Report()
    fused = dict(_fuse(model, chosen)) if fuse else {}
    swallowed = {id(activation) for _, activation in fused.values()}
    for name, module in model.named_modules():
        partner, _ = fused.get(module, (None, None))
        if id(module) in swallowed:
            continue
        if isinstance(module, tuple(SUCCESSORS.values())):
            if partner is not None:
                report.replaced.append(Replaced(name, type(module).__name__, partner))
            continue
        base = next((kind for kind in chosen if isinstance(module, kind)), None)
        if base is None:
            continue
        why = _unfit(module, base)
        if why is not None:
            report.left.append(Left(name, type(module).__name__, why))
            continue
        module.__class__ = SUCCESSORS[base]
        report.replaced.append(Replaced(name, base.__name__, partner))
    for layer, (_, activation) in fused.items():
        _join(layer, activation)
    return report


def _unfit(module: nn.Module, base: type[nn.Module]) -> str | None:
    """Why ours cannot take this layer's place, if so."""
    kind = type(module)
    if kind is not base:
        if torch.nn.utils.parametrize.is_parametrized(module):
            return "it is parametrised"
        return f"{kind.__module__}.{kind.__qualname__} is a subclass, which may compute something else"
    if "forward" in module.__dict__:
        return "its forward is overridden on the object"
    for parameter in ("weight", "bias"):
        # Weight normalisation of the old kind, say, computes the weight before each call.
        if parameter in module.__dict__:
            return f"its {parameter} is not a parameter"
    for name, parameter in module.named_parameters(recurse=False):
        if not parameter.is_floating_point():
            return f"its {name} is {parameter.dtype}"
        if parameter.dtype is torch.float64 and parameter.is_cuda:
            return f"its {name} is float64, which is for the CPU"
    if isinstance(module, nn.MaxPool2d | nn.AvgPool2d):
        return _unfit_window(module)
    return None


def _unfit_window(module: Any) -> str | None:
    try:
        kh, kw = pair("pool", "kernel_size", 2, module.kernel_size)
        ph, pw = pair("pool", "padding", 4, module.padding)
    except (RuntimeError, TypeError) as error:
        return str(error)
    if ph > kh // 2 or pw > kw // 2:
        return "its padding is more than half its window"
    if kh * kw > 1 << 16 and isinstance(module, nn.MaxPool2d):
        return "its window has more than 65536 positions"
    return None


def _fuse(model: nn.Module, chosen: set[type[nn.Module]]) -> Iterator[tuple[nn.Module, tuple[str, nn.Module]]]:
    """Each linear layer that an activation can be fused into, with the activation's name and itself."""
    places = Counter(id(module) for _, module in model.named_modules(remove_duplicate=False))
    for name, sequence in model.named_modules():
        if type(sequence) is not nn.Sequential:
            continue
        children = list(sequence.named_children())
        for (_, layer), (last, activation) in zip(children, children[1:], strict=False):
            kinds = type(layer) in (nn.Linear, linear.Linear) and type(activation) in (nn.ReLU, nn.PReLU)
            if (
                kinds
                and {nn.Linear, type(activation)} <= chosen
                and getattr(layer, "activation", None) is None
                and all(
                    places[id(m)] == 1 and not _hooked(m) and "forward" not in m.__dict__ for m in (layer, activation)
                )
                and (type(layer) is linear.Linear or _unfit(layer, nn.Linear) is None)
                and _unfit(activation, type(activation)) is None
                and _channels_fit(layer, activation)
            ):
                yield layer, (f"{name}.{last}" if name else last, activation)


def _hooked(module: nn.Module) -> bool:
    return any(
        getattr(module, hooks)
        for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    )


def _channels_fit(layer: Any, activation: nn.Module) -> bool:
    # A PReLU takes dimension 1 for channels, a linear layer the last: they agree for certain with one slope only.
    return isinstance(activation, nn.ReLU) or activation.weight.numel() == 1


def _join(layer: Any, activation: nn.Module) -> None:
    if isinstance(activation, nn.ReLU):
        activation.__class__, layer.activation = FusedReLU, "relu"
        return
    activation.__class__, layer.activation = FusedPReLU, "prelu"
    # In a tuple, so that the activation does not count as the layer's own: its weight keeps its one name.
    layer.__dict__["_fused"] = (activation,)
