"""What must hold of every function of the package; a test file calls these with its own."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

Function = Callable[..., Tensor]


def images(*shape: int, device: str = "cpu", dtype: torch.dtype = torch.float32, layout: str = "dense") -> Tensor:
    """Random images: "dense", "channels_last", or "strided" for a view with gaps."""
    if layout == "strided":
        return torch.randn(*shape[:-1], 2 * shape[-1], device=device).to(dtype)[..., ::2]
    x = torch.randn(*shape, device=device).to(dtype)
    return x.contiguous(memory_format=torch.channels_last) if layout == "channels_last" else x


def fresh(inputs: Sequence[Tensor]) -> list[Tensor]:
    """The inputs as leaves that require gradients, in the layout they have."""
    return [x.detach().clone(memory_format=torch.preserve_format).requires_grad_() for x in inputs]


def gradients(function: Function, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Of the sum of the function's squares, which weighs every output differently."""
    leaves = fresh(inputs)
    return list(torch.autograd.grad(function(*leaves).square().sum(), leaves))


def agree(ours: Function, theirs: Function, inputs: Sequence[Tensor], **tolerance: float) -> None:
    """Forward and all gradients are those of another function, in the same layout."""
    y, expected = ours(*inputs), theirs(*inputs)
    torch.testing.assert_close(y, expected, **tolerance)
    for got, wanted in zip(gradients(ours, inputs), gradients(theirs, inputs), strict=True):
        torch.testing.assert_close(got, wanted, **tolerance)


def differentiable(function: Function, inputs: Sequence[Tensor]) -> None:
    """Both derivatives are those that differences show; for float64 on the CPU."""
    assert gradcheck(function, fresh(inputs))
    assert gradgradcheck(function, fresh(inputs), fast_mode=True)


def transformable(function: Function, inputs: Sequence[Tensor]) -> None:
    """`torch.func.grad`, `jacrev` and `vmap`, and these within each other, are what plain autograd says; no
    warnings."""
    expected = gradients(function, inputs)
    first, rest = inputs[0], tuple(inputs[1:])
    every = tuple(range(len(inputs)))

    def loss(*inputs: Tensor) -> Tensor:
        return function(*inputs).square().sum()

    with warnings.catch_warnings():
        if hasattr(torch.library, "register_vmap"):  # An older one warns that it goes through the batch one by one.
            warnings.simplefilter("error")
        torch.testing.assert_close(list(torch.func.grad(loss, argnums=every)(*inputs)), expected)
        torch.testing.assert_close(torch.func.jacrev(loss)(*inputs), expected[0])
        batch = torch.stack([first, -1.5 * first], 1)
        together = torch.vmap(lambda x: function(x, *rest), in_dims=1)(batch)
        torch.testing.assert_close(together, torch.stack([function(x, *rest) for x in batch.unbind(1)]))
        of_each = torch.vmap(torch.func.grad(loss, argnums=every), in_dims=(1,) + (None,) * len(rest))(batch, *rest)
        torch.testing.assert_close([gradient[0] for gradient in of_each], expected)
        through = torch.func.grad(lambda batch: torch.vmap(lambda x: loss(x, *rest), in_dims=1)(batch).sum())(batch)
        torch.testing.assert_close(through[:, 0], expected[0])


def compilable(function: Function, inputs: Sequence[Tensor]) -> None:
    """`torch.compile` in one graph, with fixed and free sizes, gives what eager mode gives."""
    expected, slopes = function(*inputs), gradients(function, inputs)
    for dynamic in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend="aot_eager")
        torch.testing.assert_close(compiled(*inputs), expected)
        torch.testing.assert_close(gradients(compiled, inputs), slopes)


def exportable(function: Function, inputs: Sequence[Tensor]) -> None:
    """`torch.export` keeps it in one differentiable piece."""

    class Module(torch.nn.Module):
        def forward(self, *inputs: Tensor) -> Tensor:
            return function(*inputs)

    exported = torch.export.export(Module(), tuple(inputs))
    torch.testing.assert_close(exported.module()(*inputs), function(*inputs))
    torch.testing.assert_close(gradients(exported.module(), inputs), gradients(function, inputs))
    exported.run_decompositions()


def registered(operator: Any, inputs: Sequence[Any]) -> None:
    """Everything that `opcheck` looks at."""
    torch.library.opcheck(operator, tuple(inputs))


def module_laws(module: torch.nn.Module, x: Tensor) -> None:
    """A module survives pickling and copying, and its `state_dict` loads again."""
    import copy

    module.eval()
    expected = module(x)
    for other in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
        torch.testing.assert_close(other(x), expected)
        assert repr(other) == repr(module)
        other.load_state_dict(module.state_dict())
