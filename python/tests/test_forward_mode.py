"""Forward-mode differentiation: tangents come through every function, or it is said that they do not."""

from __future__ import annotations

from typing import Any

import pytest
import samples
import torch
from samples import PURE, SAMPLES, Sample
from torch import Tensor
from torch.autograd import forward_ad, gradcheck

import ferrolayer.torch as fl


def given(sample: Sample, **options: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Inputs, and a tangent for each."""
    inputs = sample.inputs(torch.float64, **options)
    return inputs, [torch.randn_like(x) for x in inputs]


def pushed(sample: Sample, inputs: list[Tensor], tangents: list[Tensor | None]) -> Tensor | None:
    """The output's tangent, by a level entered by hand."""
    with forward_ad.dual_level():
        duals = [x if t is None else forward_ad.make_dual(x, t.clone()) for x, t in zip(inputs, tangents, strict=True)]
        return forward_ad.unpack_dual(sample.function(*duals)).tangent


def by_reverse(sample: Sample, inputs: list[Tensor], tangents: list[Tensor | None]) -> Tensor:
    """The same, one output at a time, from gradients."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    y = sample.function(*leaves)
    slopes = []
    for place in range(y.numel()):
        gradients = torch.autograd.grad(y.flatten()[place], leaves, retain_graph=True, allow_unused=True)
        pairs = zip(gradients, tangents, strict=True)
        slopes.append(sum((g * t).sum() for g, t in pairs if g is not None and t is not None))
    return torch.stack([torch.as_tensor(slope, dtype=y.dtype) for slope in slopes]).view(y.shape)


@pytest.mark.parametrize("sample", SAMPLES, ids=samples.named(SAMPLES))
def test_agrees_with_differences(sample: Sample) -> None:
    assert gradcheck(
        sample.function,
        sample.inputs(torch.float64, requires_grad=True),
        check_forward_ad=True,
        check_backward_ad=False,
        check_undefined_grad=False,
        check_batched_grad=False,
    )


@pytest.mark.parametrize("requires_grad", (False, True))
@pytest.mark.parametrize("sample", SAMPLES, ids=samples.named(SAMPLES))
def test_agrees_with_reverse_mode(sample: Sample, requires_grad: bool) -> None:
    """Of all inputs together, and of each alone."""
    inputs, tangents = given(sample, requires_grad=requires_grad)
    alone = [[t if at == place else None for at, t in enumerate(tangents)] for place in range(len(inputs))]
    for some in (tangents, *alone):
        got = pushed(sample, inputs, some)
        assert got is not None, "a lost tangent"
        torch.testing.assert_close(got.detach(), by_reverse(sample, inputs, some))
    # Outside of the level nothing is left of it.
    torch.testing.assert_close(
        sample.function(*[x.detach() for x in inputs]), sample.function(*inputs), check_stride=False
    )


@pytest.mark.parametrize("sample", PURE, ids=samples.named(PURE))
def test_transforms(sample: Sample) -> None:
    """`jvp`, `jacfwd` and forward over reverse."""
    inputs, tangents = given(sample)
    y, tangent = torch.func.jvp(sample.function, tuple(inputs), tuple(tangents))
    torch.testing.assert_close(y, sample.function(*inputs))
    torch.testing.assert_close(tangent, by_reverse(sample, inputs, tangents))
    every = tuple(range(len(inputs)))
    torch.testing.assert_close(
        torch.func.jacfwd(sample.function, argnums=every)(*inputs),
        torch.func.jacrev(sample.function, argnums=every)(*inputs),
    )

    def loss(*inputs: Tensor) -> Tensor:
        return sample.function(*inputs).pow(3).sum()

    gradient = torch.func.grad(loss, argnums=every)
    expected = torch.func.vjp(gradient, *inputs)[1](tuple(tangents))  # A Hessian is symmetric.
    torch.testing.assert_close(torch.func.jvp(gradient, tuple(inputs), tuple(tangents))[1], expected)


def test_is_refused_without_a_rule() -> None:
    library = torch.library.Library("forward_mode_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")

    def save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    twice = fl.define(
        "forward_mode_test::twice", fake=torch.empty_like, save=save, backward=lambda ctx, dy: dy * 2, name="fm::twice"
    )
    x = torch.ones(2)
    torch.testing.assert_close(twice(x), x * 2)
    with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
        torch.func.jvp(twice, (x,), (x,))
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="no forward-mode derivative"):
        twice(forward_ad.make_dual(x, x.clone()))
