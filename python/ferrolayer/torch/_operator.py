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
`torch.func.grad`, `vmap`, `jvp`, ...,   an `autograd.Function` of the kind that functorch can look into, with a
forward mode                             rule for tangents
=======================================  =====================================================================

(`torch.library.register_autograd` alone makes every call go through Python twice, and fails under `torch.func.grad`.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from ._autocast import any_autocast
from ._library import find, library
from ._vmap import Rule, looping

# Whether a functorch transform is running. Without it (an older or newer torch) asking its stack does.
_functorch_is_active: Callable[[], bool] = getattr(
    torch._C, "_are_functorch_transforms_active", lambda: torch._C._functorch.peek_interpreter_stack() is not None
)

Save = Callable[[Any, tuple[Any, ...], Any], None]
Backward = Callable[..., Any]
Jvp = Callable[..., Any]
Numbers = Callable[..., tuple[Any, ...]]


class Operator:
    """What `define` makes of a raw operator. Calling it chooses among its forms; hot functions choose by themselves.

    Attributes:
        raw: the raw operator, without gradients.
        direct: the same, but `None` where more than its kernel is to run (under a transform or autocast, say), or where
            it fails: a function that calls it goes its general way then.
        eager: the operator's first output outside of compilers, with a gradient where one is wanted. Its inputs are
            the operator's before the first that is no tensor, and then what `define`'s `numbers` makes the others of.
            `None` where more is to be done, as `direct`.
        apply: an `autograd.Function` around it, for eager mode without transforms, of the operator's own inputs. It
            gives all its tensors.
        traced: the public operator.
        transformed: the `autograd.Function` for functorch and forward mode, which gives all tensors.
    """

    def __init__(
        self,
        raw: Callable[..., Any],
        direct: Callable[..., Any],
        eager: Callable[..., Any],
        apply: Callable[..., Any],
        traced: Callable[..., Any],
        transformed: Callable[..., Any],
    ) -> None:
        self.raw, self.direct, self.eager, self.apply = raw, direct, eager, apply
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
            return self.apply(*inputs)
        return self.raw(*inputs)


class Kept:
    """`save` of `define` for operators that keep no more than tensors, the inputs that are none, and a shape.

    In backward `ctx.saved_tensors` are the tensors, `ctx.numbers` all inputs from the first that is no tensor on,
    `ctx.shape` the shape. For forward mode the same is kept.

    Args:
        tensors: names of inputs and outputs in the operator's schema; an output without a name is "y".
        shape: the name of the input whose shape is kept, if one is.
    """

    def __init__(self, *tensors: str, shape: str | None = None) -> None:
        self.names, self.name = tensors, shape

    def of(self, schema: Any) -> Kept:
        """With places instead of names."""
        inputs = [argument.name for argument in schema.arguments]
        places = [*inputs, *(output.name or "y" for output in schema.returns)]
        self.tensors = [places.index(name) for name in self.names]
        self.shape = None if self.name is None else inputs.index(self.name)
        self.first_number = first_number(schema)
        return self

    def __call__(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        everything = (*inputs, *output) if isinstance(output, tuple) else (*inputs, output)
        tensors = [everything[place] for place in self.tensors]
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.numbers = inputs[self.first_number :]
        if self.shape is not None:
            ctx.shape = inputs[self.shape].shape


def first_number(schema: Any) -> int:
    """The place of the first input that is no tensor; after the last if all are."""
    kinds = [str(argument.type) for argument in schema.arguments]
    return next((index for index, kind in enumerate(kinds) if "Tensor" not in kind), len(kinds))


def transforming() -> bool:
    """Whether a functorch transform is running, or tensors may have tangents."""
    return _functorch_is_active() or in_forward_mode()


def in_forward_mode() -> bool:
    """Whether a level of forward-mode differentiation is entered, `torch.func.jvp`'s or `dual_level`'s."""
    return forward_ad._current_level >= 0


def occupied() -> bool:
    """Whether calls are looked at by more than autograd."""
    return is_compiling() or transforming()


def occupied_or_cast() -> bool:
    """The same, of operators whose inputs autocast has changed."""
    return occupied() or any_autocast()


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


def pushforward(function: Callable[..., Tensor], inputs: tuple[Any, ...], tangents: tuple[Any, ...]) -> Tensor:
    """The tangent of `function(*inputs)`, in differentiable operations, of inputs that have a tangent or `None`.

    By reverse mode twice, which other than forward mode may be within itself.
    """
    positions = [index for index, tangent in enumerate(tangents) if tangent is not None]

    def of_moving(*chosen: Tensor) -> Tensor:
        complete = list(inputs)
        for index, x in zip(positions, chosen, strict=True):
            complete[index] = x
        return function(*complete)

    y, backward = torch.func.vjp(of_moving, *(inputs[index] for index in positions))
    # Linear in the gradient: its own gradient is what tangents are multiplied by.
    _, forward = torch.func.vjp(backward, torch.zeros_like(y))
    (tangent,) = forward(tuple(tangents[index] for index in positions))
    return tangent


def define(
    raw: str,
    *,
    fake: Callable[..., Any],
    save: Save | None = None,
    backward: Backward | None = None,
    jvp: Jvp | None = None,
    vmap: Rule | None = None,
    inference: Operator | None = None,
    numbers: Numbers | None = None,
    dims: int | None = None,
    settings: int | None = None,
    casts: bool = False,
    name: str | None = None,
) -> Operator:
    """Makes a differentiable, compilable, exportable, vmappable function of a raw operator.

    Args:
        raw: the operator's name, "mine::op"; registered for CPU and CUDA, with no mutable inputs.
        fake: from the operator's inputs, tensors of the shapes, strides, types and devices of its outputs, made with
            `torch.empty` and its like: for tracing. Sizes may be symbolic. PyTorch leaves out last inputs that equal
            their defaults, where the schema has such.
        save: keeps what `backward` needs, `Kept` or a function. `save(ctx, inputs, output)` keeps tensors by
            `ctx.save_for_backward`, all else as attributes of `ctx`. `inputs` is a tuple of all inputs, `output` all
            that the operator gave. Outputs after the first get no gradient.
        backward: `backward(ctx, *gradients)` gives one gradient per input, `None` for what has none; a tuple may leave
            out the last ones. Where it is itself to be differentiated it must be made of differentiable functions, such
            as other `Operator`s. Of an operator with several outputs it is called as `backward(ctx,
            gradient_of_the_first)` too, which may be `None` where the first is not used. Without it the operator is to
            have no gradient.
        jvp: `jvp(ctx, *tangents)` gives the first output's tangent from one for each input, `None` for what has none:
            for forward mode, which is an error without it. `save` has to keep what it needs by `ctx.save_for_forward`,
            and the same tensors by `ctx.save_for_backward`, as `Kept` does.
        vmap: how `torch.vmap` computes a batch at once: `vmap(operator, info, in_dims, *inputs)`, see
            `ferrolayer.torch.define_vmap`; one element after another if left out.
        inference: what is to run where no gradient is wanted: an operator with the same inputs that gives the first
            output alone.
        numbers: makes the operator's inputs from the first that is no tensor on, for `Operator.eager`, of what that is
            called with instead of them. It is remembered for inputs that are numbers, texts and tuples.
        dims: how many dimensions the first input has where `Operator.eager` is to run it; of others that gives `None`.
        settings: from which input on tensors have no gradient; where one requires it `Operator.eager` gives `None`.
        casts: whether autocast changes the inputs, which who calls `Operator.eager` sees to where it gives `None`.
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
    several = len(operator._schema.returns) > 1
    busy = occupied_or_cast if casts else occupied
    direct = getattr(operator, "direct", None) or _or_none(call, busy)
    if backward is None:
        return Operator(call, direct, direct, call, operator, call)
    assert save is not None, f"{raw}: backward without save"
    if isinstance(save, Kept):
        save = save.of(operator._schema)
    title = "".join(word.capitalize() for word in opname.split("_"))
    tensors, inputs = first_number(operator._schema), len(operator._schema.arguments)
    apply = _eager(title, call, save, _complete(backward, inputs), several)
    packed = _packed(title, operator, call, save, backward, several, tensors)
    plain = direct if inference is None else inference.direct
    eager = _choosing(operator, plain, packed, busy, numbers, dims, settings, tensors)
    transformed = _functorch(title, operator, save, _complete(backward, inputs), jvp, several)
    name = name or f"{namespace}_autograd::{opname}"
    traced = _public(name, operator, fake, apply, transformed)
    _register_vmap(name, traced, rule)
    return Operator(call, direct, eager, apply, traced, transformed)


def _or_none(raw: Callable[..., Any], busy: Callable[[], bool]) -> Callable[..., Any]:
    """`Operator.direct`, where the operator does not bring its own."""

    def direct(*inputs: Any) -> Any:
        if busy() or any_autocast():
            return None
        try:
            return raw(*inputs)
        except RuntimeError:
            return None

    return direct


def _choosing(
    operator: Any,
    plain: Callable[..., Any],
    packed: Callable[..., Any],
    busy: Callable[[], bool],
    numbers: Numbers | None,
    dims: int | None,
    settings: int | None,
    tensors: int,
) -> Callable[..., Any]:
    """`Operator.eager`: `packed` where a gradient is wanted, else `plain`."""
    if hasattr(operator, "eager"):
        return operator.eager(packed, busy, plain, numbers, dims, settings)  # type: ignore[no-any-return]

    def eager(*inputs: Any) -> Any:
        if dims is not None and inputs[0].dim() != dims:
            return None
        if settings is not None and wants_gradient(inputs[settings:tensors]):
            return None
        inputs, others = inputs[:tensors], inputs[tensors:]
        if numbers is not None:
            others = numbers(*others)
        if not wants_gradient(inputs):
            output = plain(*inputs, *others)
            return output[0] if isinstance(output, tuple) else output
        if busy():
            return None
        try:
            return packed(*inputs, others) if others else packed(*inputs)
        except RuntimeError:
            return None

    return eager


def _complete(backward: Backward, inputs: int) -> Backward:
    """The same with a gradient for each input."""

    def complete(ctx: Any, *gradients: Any) -> Any:
        found = backward(ctx, *gradients)
        return (*found, *(None,) * (inputs - len(found))) if isinstance(found, tuple) else found

    return complete


def _eager(title: str, raw: Callable[..., Any], save: Save, backward: Backward, several: bool) -> Callable[..., Any]:
    """`Operator.apply`"""

    def forward(ctx: Any, *inputs: Any) -> Any:
        output = raw(*inputs)
        save(ctx, inputs, output)
        if several:
            ctx.mark_non_differentiable(*output[1:])
            ctx.set_materialize_grads(False)
        return output

    return _function(title, forward, backward)


def _packed(
    title: str, operator: Any, raw: Callable[..., Any], save: Save, backward: Backward, several: bool, tensors: int
) -> Callable[..., Any]:
    """`apply` of the Function of `Operator.eager`: of the operator's inputs before the first that is no tensor, and the
    others, if there are any, as one tuple. Each input costs a Function's caller 0.1 µs. Those with defaults
    may be left out, and backward then finds no `ctx.numbers`, or fewer."""
    defaults = _defaults(operator)

    def forward(ctx: Any, *inputs: Any) -> Any:
        # One object, or none.
        for numbers in inputs[tensors:]:
            inputs = (*inputs[:tensors], *numbers)
        inputs = (*inputs, *defaults[len(inputs) :])
        output = raw(*inputs)
        save(ctx, inputs, output)
        return output[0] if several else output

    def backward_packed(ctx: Any, gradient: Any) -> Any:
        found = backward(ctx, gradient)
        return (*found[:tensors], *(None,) * (tensors + 1 - len(found))) if isinstance(found, tuple) else (found, None)

    if isinstance(save, Kept) and hasattr(operator, "forward"):
        forward = operator.forward(save.tensors, save.shape)
    numbers = len(operator._schema.arguments) > tensors
    return _function(title, forward, backward_packed if numbers else _complete(backward, tensors))


def _function(title: str, forward: Callable[..., Any], backward: Backward) -> Callable[..., Any]:
    """`apply` of a Function for eager mode."""
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function = type(title, (torch.autograd.Function,), members)
    # What the engine calls would look for who has defined backward, or vjp, in each call.
    function._backward_cls.apply = backward  # type: ignore[attr-defined]
    # Where `Function.apply` is Python's it asks for functorch's transforms, which callers have done: C's is below it.
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


def _defaults(operator: Any) -> list[Any]:
    """Of each input what it is where it is left out; `None` where it may not be."""
    return [argument.default_value for argument in operator._schema.arguments]


def _functorch(
    title: str, operator: Callable[..., Any], save: Save, backward: Backward, jvp: Jvp | None, several: bool
) -> Callable[..., Any]:
    """`apply` of a Function that functorch can take apart: forward apart from what is saved, and a rule for vmap."""

    def forward(*inputs: Any) -> Any:
        return operator(*inputs)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        save(ctx, inputs, output)
        if several:
            # Gradients stay materialised: before torch 2.8 a batch of gradients may not lack one.
            ctx.mark_non_differentiable(*output[1:])

    def push(ctx: Any, *tangents: Any) -> Any:
        if jvp is None:
            raise NotImplementedError(
                f"{operator} has no forward-mode derivative; use reverse mode (torch.func.vjp, Tensor.backward)"
            )
        tangent = jvp(ctx, *tangents)
        return (tangent, *(None,) * (len(operator._schema.returns) - 1)) if several else tangent  # type: ignore[attr-defined]

    members = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(setup_context),
        "backward": staticmethod(backward),
        "jvp": staticmethod(push),
        "generate_vmap_rule": True,
    }
    return type(title, (torch.autograd.Function,), members).apply  # type: ignore[attr-defined]


def _public(
    name: str,
    operator: Any,
    fake: Callable[..., Any],
    apply: Callable[..., Any],
    transformed: Callable[..., Any],
) -> Any:
    """A public operator of the raw one's schema. Below autograd it is the raw one, so that compiled graphs hold
    that."""
    namespace, opname = name.split("::")
    own = library(namespace)
    schema = str(operator._schema)
    own.define(opname + schema[schema.index("(") :])
    defaults = _defaults(operator)

    def with_autograd(*inputs: Any) -> Any:
        # The dispatcher leaves out trailing inputs that equal their defaults.
        inputs = (*inputs, *defaults[len(inputs) :])
        if in_forward_mode():
            return transformed(*inputs)
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
