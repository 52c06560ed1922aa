"""Makes differentiable, compilable functions of operators that have no more than kernels.

A *raw* operator is registered for the CPU and CUDA (from Rust, say) and knows nothing of autograd. `define` adds what
PyTorch wants of a good citizen, in the form that costs least in each situation:

=======================================  =====================================================================
situation                                what is called
=======================================  =====================================================================
no gradient is wanted                    the raw operator, round the dispatcher where that has nothing to add
an input requires a gradient             an `autograd.Function` around it
`torch.compile`, `torch.export`          a public operator with the same schema that is differentiable by itself;
                                         it stays in an exported program, and becomes raw ones in a compiled one
`torch.func.grad`, `vmap`, ...           an `autograd.Function` of the kind that functorch can look into
=======================================  =====================================================================

(`torch.library.register_autograd` alone makes every call go through Python twice, and fails under `torch.func.grad`.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from ._autocast import any_autocast
from ._library import find, library
from ._vmap import Rule, looping

# Whether a functorch transform is running. Without it (an older or newer torch) asking its stack does.
transforming: Callable[[], bool] = getattr(
    torch._C, "_are_functorch_transforms_active", lambda: torch._C._functorch.peek_interpreter_stack() is not None
)

Save = Callable[[Any, tuple[Any, ...], Any], None]
Backward = Callable[..., Any]


class Operator:
    """What `define` makes of a raw operator. Calling it chooses among its forms; hot functions choose by themselves.

    Attributes:
        raw: the raw operator, without gradients.
        direct: the same, but `None` where more than its kernel is to run (under a transform or autocast, say), or where
            it fails: a function that calls it goes its general way then.
        apply: an `autograd.Function` around it, for eager mode without transforms, whose inputs are those before the
            first that is no tensor, and a tuple of the others if there are any. Where the operator gives several
            tensors, `apply` gives the first alone (the others are for backward).
        apply_all: as `apply`, but of the operator's own inputs, and gives all its tensors.
        traced: the public operator.
        transformed: the `autograd.Function` for functorch, which gives all tensors.
    """

    def __init__(
        self,
        raw: Callable[..., Any],
        direct: Callable[..., Any],
        apply: Any,
        apply_all: Any,
        traced: Callable[..., Any],
        transformed: Any,
    ) -> None:
        self.raw, self.direct, self.apply, self.apply_all = raw, direct, apply, apply_all
        self.traced, self.transformed = traced, transformed

    def __call__(self, *inputs: Any) -> Any:
        """Everything that the raw operator gives."""
        if is_compiling():
            # Dynamo of torch 2.4 takes `self.traced(...)` for a method.
            traced = self.traced
            return traced(*inputs)
        if transforming():
            return self.transformed(*inputs)
        if wants_gradient(inputs):
            return self.apply_all(*inputs)
        return self.raw(*inputs)


def wants_gradient(inputs: tuple[Any, ...]) -> bool:
    """Whether autograd would record an operation on these inputs."""
    return torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs)


def differentiably(
    function: Callable[..., Tensor], inputs: tuple[Any, ...], wanted: tuple[bool, ...], gradient: Tensor
) -> tuple[Tensor | None, ...]:
    """The gradients of `function(*inputs)` where they are wanted, in operations that are differentiable themselves."""
    positions = [index for index, want in enumerate(wanted) if want]

    def of_wanted(*chosen: Tensor) -> Tensor:
        complete = list(inputs)
        for index, x in zip(positions, chosen, strict=True):
            complete[index] = x
        return function(*complete)

    _, backward = torch.func.vjp(of_wanted, *(inputs[index] for index in positions))
    gradients: list[Tensor | None] = [None] * len(inputs)
    for index, found in zip(positions, backward(gradient), strict=True):
        gradients[index] = found
    return tuple(gradients)


def define(
    raw: str,
    *,
    fake: Callable[..., Any],
    save: Save | None = None,
    backward: Backward | None = None,
    vmap: Rule | None = None,
    name: str | None = None,
) -> Operator:
    """Makes a differentiable, compilable, exportable, vmappable function of a raw operator.

    Args:
        raw: the operator's name, "mine::op"; registered for CPU and CUDA, with no mutable inputs.
        fake: from the operator's inputs, tensors of the shapes, strides, types and devices of its outputs, made with
            `torch.empty` and its like: for tracing. Sizes may be symbolic.
        save: `save(ctx, inputs, output)` keeps what `backward` needs: tensors by `ctx.save_for_backward`, all else as
            attributes of `ctx`. `inputs` is a tuple of all inputs, `output` all that the operator gave. Outputs after
            the first get no gradient.
        backward: `backward(ctx, *gradients)` gives one gradient per input, `None` for what has none. Where it is
            itself to be differentiated it must be made of differentiable functions, such as other `Operator`s. Of an
            operator with several outputs it is called as `backward(ctx, gradient_of_the_first)` too, which may be
            `None` where the first is not used. Without it the operator is to have no gradient.
        vmap: how `torch.vmap` computes a batch at once: `vmap(operator, info, in_dims, *inputs)`, see
            `ferrolayer.torch.define_vmap`; one element after another if left out.
        name: the public operator's name; "mine_autograd::op" if left out.
    """
    operator = find(raw)
    namespace, opname = raw.split("::")
    own = library(namespace)
    rule = vmap or looping
    # The raw operator has no gradient of its own: autograd passes it by.
    own.impl(opname, torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake(raw, fake, lib=own)
    _register_vmap(raw, operator, rule)
    # The object looks at its arguments in Python first.
    call = getattr(operator, "run", None) or getattr(operator, "_op", operator)
    direct = getattr(operator, "direct", None) or _or_none(call)
    if backward is None:
        return Operator(call, direct, call, call, operator, call)
    assert save is not None, f"{raw}: backward without save"
    several = len(operator._schema.returns) > 1
    kinds = [str(argument.type) for argument in operator._schema.arguments]
    tensors = next((index for index, kind in enumerate(kinds) if "Tensor" not in kind), None)
    title = "".join(word.capitalize() for word in opname.split("_"))
    apply_all = _eager(title, call, save, backward, several)
    apply = _packed(title, call, save, backward, several, tensors)
    name = name or f"{namespace}_autograd::{opname}"
    traced = _public(name, operator, fake, apply_all)
    _register_vmap(name, traced, rule)
    return Operator(call, direct, apply, apply_all, traced, _functorch(title, operator, save, backward, several))


def _or_none(raw: Callable[..., Any]) -> Callable[..., Any]:
    """`Operator.direct`, where the operator does not bring its own."""

    def direct(*inputs: Any) -> Any:
        if transforming() or any_autocast():
            return None
        try:
            return raw(*inputs)
        except RuntimeError:
            return None

    return direct


def _eager(title: str, raw: Callable[..., Any], save: Save, backward: Backward, several: bool) -> Callable[..., Any]:
    """`Operator.apply_all`"""

    def forward(ctx: Any, *inputs: Any) -> Any:
        output = raw(*inputs)
        save(ctx, inputs, output)
        if several:
            ctx.mark_non_differentiable(*output[1:])
            ctx.set_materialize_grads(False)
        return output

    return _function(title, forward, backward)


def _packed(
    title: str, raw: Callable[..., Any], save: Save, backward: Backward, several: bool, tensors: int | None
) -> Callable[..., Any]:
    """`Operator.apply`. Inputs after `tensors` are one object: each costs a Function's caller 0.1 µs."""

    def forward(ctx: Any, *inputs: Any) -> Any:
        inputs = (*inputs[:-1], *inputs[-1])
        output = raw(*inputs)
        save(ctx, inputs, output)
        return output[0] if several else output

    def backward_packed(ctx: Any, gradient: Any) -> Any:
        return *backward(ctx, gradient)[:tensors], None

    def forward_of_tensors(ctx: Any, *inputs: Any) -> Any:
        output = raw(*inputs)
        save(ctx, inputs, output)
        return output[0] if several else output

    if tensors is None:
        return _function(title, forward_of_tensors, backward)
    return _function(title, forward, backward_packed)


def _function(title: str, forward: Callable[..., Any], backward: Backward) -> Callable[..., Any]:
    """`apply` of a Function for eager mode."""
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function = type(title, (torch.autograd.Function,), members)
    # Where `Function.apply` is Python's it asks for functorch's transforms, which callers have done: C's is below it.
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


def _functorch(
    title: str, operator: Callable[..., Any], save: Save, backward: Backward, several: bool
) -> Callable[..., Any]:
    """`apply` of a Function that functorch can take apart: forward apart from what is saved, and a rule for vmap."""

    def forward(*inputs: Any) -> Any:
        return operator(*inputs)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        save(ctx, inputs, output)
        if several:
            # Gradients stay materialised: before torch 2.8 a batch of gradients may not lack one.
            ctx.mark_non_differentiable(*output[1:])

    members = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(setup_context),
        "backward": staticmethod(backward),
        "generate_vmap_rule": True,
    }
    return type(title, (torch.autograd.Function,), members).apply  # type: ignore[attr-defined]


def _public(name: str, operator: Any, fake: Callable[..., Any], apply: Callable[..., Any]) -> Any:
    """A public operator of the raw one's schema. Below autograd it is the raw one, so that compiled graphs hold
    that."""
    namespace, opname = name.split("::")
    own = library(namespace)
    schema = str(operator._schema)
    own.define(opname + schema[schema.index("(") :])
    defaults = [argument.default_value for argument in operator._schema.arguments]

    def with_autograd(*inputs: Any) -> Any:
        # The dispatcher leaves out trailing inputs that equal their defaults.
        inputs = (*inputs, *defaults[len(inputs) :])
        return apply(*inputs) if wants_gradient(inputs) else operator(*inputs)

    def below_autograd(*inputs: Any) -> Any:
        return operator(*inputs)

    own.impl(opname, with_autograd, "Autograd")
    for key in ("CPU", "CUDA"):
        own.impl(opname, below_autograd, key)
    torch.library.register_fake(name, fake, lib=own)
    return find(name)


def _register_vmap(name: str, operator: Any, rule: Rule) -> None:
    # Since torch 2.5; before, functorch runs one element after another by itself.
    if not hasattr(torch.library, "register_vmap"):
        return

    def of_batch(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        return rule(operator, info.batch_size, in_dims, inputs)

    torch.library.register_vmap(name, of_batch, lib=library(name.split("::")[0]))
