"""Every function on inputs of any shape, strides, type and options against PyTorch's own operations in float64.

The examples are the same in each run; FERROLAYER_EXAMPLES=1000 takes that many of each, and others in each run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from windows import Windows

from ferrolayer.torch import functional
from ferrolayer.torch.stochastic_pool import stochastic_pool_forward

pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("FERROLAYER_EXAMPLES", "0"))
# An example's time says nothing: the first of each kind builds what the others share.
random_inputs = settings(
    max_examples=EXAMPLES or 60,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
)

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
LAYOUTS = ["dense", "channels_last", "transposed", "rotated", "gaps", "expanded", "offset", "offset_channels_last"]


def laid_out(values: Tensor, layout: str, axis: int) -> Tensor:
    """A tensor of these values whose memory is arranged so; `axis` is the one that "gaps" and "expanded" are about."""
    if layout == "channels_last" and values.dim() == 4:
        return values.contiguous(memory_format=torch.channels_last)
    if layout == "transposed" and values.dim() > 1:
        return values.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "rotated" and values.dim() > 1:
        return values.movedim(0, -1).contiguous().movedim(-1, 0)
    if layout == "gaps" and values.numel() > 0 and values.dim() > 0:
        axis %= values.dim()
        return values.repeat_interleave(2, axis).narrow(axis, 0, 2 * values.shape[axis]).unfold(axis, 1, 2).squeeze(-1)
    if layout == "expanded" and values.dim() > 0 and values.shape[axis % values.dim()] > 0:
        return values.narrow(axis % values.dim(), 0, 1).expand(values.shape)
    if layout.startswith("offset"):
        # One element past what allocators align to.
        room = values.new_empty(values.numel() + 1)[1:]
        if layout == "offset" or values.dim() != 4:
            return room.view(values.shape).copy_(values)
        n, c, h, w = values.shape
        return room.view(n, h, w, c).permute(0, 3, 1, 2).copy_(values)
    return values


@st.composite
def tensors(draw: Any, shape: Sequence[int], dtype: torch.dtype, device: str, scale: float = 1.0) -> Tensor:
    """Of normal numbers, or of few different ones, so that equals and zeros are common; in any memory layout."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 1 << 30)))) * scale
    if draw(st.integers(0, 3)) == 0:
        values = (values * 2).round() / 2 + 0.0
    values = values.to(device, dtype)
    x = laid_out(values, draw(st.sampled_from(LAYOUTS)), draw(st.integers(0, 3)))
    assert x.shape == values.shape
    return x


@st.composite
def images(draw: Any, dtype: torch.dtype, device: str) -> Tensor:
    """`[N, C, H, W]` or `[C, H, W]`."""
    shape = [draw(st.integers(1, 6)), draw(st.integers(1, 12)), draw(st.integers(1, 12))]
    images = draw(st.sampled_from([None, 0, 1, 1, 2, 3]))
    return draw(tensors(shape if images is None else [images, *shape], dtype, device))


@st.composite
def windows(draw: Any, dilated: bool = False) -> dict[str, Any]:
    """Arguments of pooling: mostly possible ones."""

    def one_or_two(values: Any) -> Any:
        return draw(st.one_of(values, st.tuples(values, values)))

    size = one_or_two(st.integers(1, 5))
    kh, kw = size if isinstance(size, tuple) else (size, size)
    window = {
        "kernel_size": size,
        "stride": draw(st.one_of(st.none(), st.integers(1, 7), st.tuples(st.integers(1, 3), st.integers(1, 7)))),
        "padding": (draw(st.integers(0, kh // 2)), draw(st.integers(0, kw // 2))),
        "ceil_mode": draw(st.booleans()),
    }
    if dilated:
        window["dilation"] = one_or_two(st.integers(1, 3))
    return window


def both(value: Any) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


def by_definition(x: Tensor, y: Tensor, window: dict[str, Any]) -> Windows:
    size = both(window["kernel_size"])
    stride = size if window["stride"] is None else both(window["stride"])
    return Windows(x.shape[-2:], y.shape[-2:], size, stride, window["padding"])


def tolerance(dtype: torch.dtype, terms: int = 1) -> dict[str, float]:
    """Half a unit in the last place or two of what is stored, and what a sum of that many terms rounds to."""
    computed = max(torch.finfo(dtype).eps if dtype.itemsize == 8 else 0.0, torch.finfo(torch.float32).eps)
    computed = torch.finfo(torch.float64).eps if dtype is torch.float64 else computed
    return {"rtol": 2 * torch.finfo(dtype).eps + 32 * computed, "atol": (64 + 16 * terms**0.5) * computed}


def compare(
    ours: Callable[..., Tensor], theirs: Callable[..., Tensor], inputs: Sequence[Tensor], seed: int, terms: int = 1
) -> None:
    """Ours in the inputs' type is PyTorch's in float64, forward and every gradient, or both refuse."""
    dtype = inputs[0].dtype
    exact = [x.detach().cpu().double().requires_grad_() for x in inputs]
    try:
        expected = theirs(*exact)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            ours(*inputs)
        return
    leaves = [x.detach().requires_grad_() for x in inputs]
    y = ours(*leaves)
    assert y.dtype is dtype
    close = tolerance(dtype, terms)
    torch.testing.assert_close(y.detach().cpu().double(), expected.detach(), **close)
    with torch.no_grad():
        assert torch.equal(ours(*leaves), y)
    # Windows wholly in the padding: PyTorch's backward writes outside of the image.
    if not expected.isfinite().all():
        return
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    got = torch.autograd.grad(y, leaves, dy.to(y.device))
    wanted = torch.autograd.grad(expected, exact, dy.double())
    for gradient, slope, leaf in zip(got, wanted, leaves, strict=True):
        assert gradient.dtype is leaf.dtype
        torch.testing.assert_close(gradient.cpu().double(), slope, **close)


def keeps_layout(y: Tensor, x: Tensor) -> None:
    """Images whose channels are last stay so, as PyTorch's layers keep them."""
    last = torch.channels_last
    if x.dim() == 4 and x.is_contiguous(memory_format=last) and not x.is_contiguous() and y.numel() > 0:
        assert y.is_contiguous(memory_format=last)


def seeds() -> Any:
    return st.integers(0, 1 << 30)


@random_inputs
@given(st.data())
def test_max_pool2d(device, data):
    x = data.draw(images(data.draw(dtypes(device)), device))
    window = data.draw(windows(dilated=True))
    compare(
        lambda x: functional.max_pool2d(x, **window), lambda x: F.max_pool2d(x, **window), [x], data.draw(seeds()), 25
    )
    try:
        expected, indices = F.max_pool2d(x.cpu().double(), **window, return_indices=True)
    except RuntimeError:
        return
    y, ours = functional.max_pool2d(x, **window, return_indices=True)
    keeps_layout(y, x)
    assert torch.equal(y.cpu().double(), expected)
    somewhere = expected.isfinite()
    assert torch.equal(ours.cpu()[somewhere], indices[somewhere])


@random_inputs
@given(st.data())
def test_avg_pool2d(device, data):
    x = data.draw(images(data.draw(dtypes(device)), device))
    window = data.draw(windows())
    window["count_include_pad"] = data.draw(st.booleans())
    window["divisor_override"] = data.draw(st.sampled_from([None, None, 1, 3, -2]))
    ours, theirs = (lambda x: functional.avg_pool2d(x, **window)), (lambda x: F.avg_pool2d(x, **window))
    compare(ours, theirs, [x], data.draw(seeds()), 25)
    try:
        theirs(x.cpu().double())
    except RuntimeError:
        return
    keeps_layout(ours(x), x)


def possible(x: Tensor, window: dict[str, Any]) -> Tensor:
    """What PyTorch gives for such a window, for its shape; other examples are left out."""
    try:
        return F.max_pool2d(x.detach().cpu().double(), **window)
    except RuntimeError:
        assume(False)
        raise


@random_inputs
@given(st.data())
def test_gaussian_pool2d(device, data):
    dtype = data.draw(dtypes(device))
    x, window = data.draw(images(dtype, device)), data.draw(windows())
    y = possible(x, window)
    valid, kernels, axes = data.draw(st.booleans()), data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    sets = data.draw(st.sampled_from([1, x.shape[-3]]))
    computed = torch.float64 if dtype is torch.float64 else torch.float32
    mean = data.draw(tensors((sets, kernels, 2), computed, device))
    var = data.draw(tensors((sets, kernels, axes), computed, device, 0.5)).abs() + 0.5
    by_formula = by_definition(x, y, window)

    def theirs(x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        y = by_formula.gaussian(x if x.dim() == 4 else x.unsqueeze(0), mean, var, valid)
        return y if x.dim() == 4 else y.squeeze(0)

    def ours(x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        y = functional.gaussian_pool2d(x, mean, var, **window, normalize="valid" if valid else "window")
        keeps_layout(y, x)
        return y

    # Weights' derivatives multiply rounding by the window's size squared.
    compare(ours, theirs, [x, mean, var], data.draw(seeds()), 25 * y.numel())


@random_inputs
@given(st.data())
def test_stochastic_pool2d(device, data):
    x, window = data.draw(images(data.draw(dtypes(device)), device)), data.draw(windows())
    y = possible(x, window)
    by_formula = by_definition(x, y, window)
    batch = x if x.dim() == 4 else x.unsqueeze(0)

    def theirs(x: Tensor) -> Tensor:
        y = by_formula.expectation(x if x.dim() == 4 else x.unsqueeze(0))
        return y if x.dim() == 4 else y.squeeze(0)

    # The mean's slope has a kink at 0, where all of a window is: keep clear of windows that are close to it.
    if ((batch == 0) | (batch.abs() > 0.05)).all():
        compare(
            lambda x: functional.stochastic_pool2d(x, **window, training=False), theirs, [x], data.draw(seeds()), 100
        )

    # What is drawn depends on the seed, not on the memory layout; it is one of the window's positive elements.
    seed = data.draw(seeds())
    leaf, dense = x.detach().requires_grad_(), x.detach().contiguous().requires_grad_()
    drawn = []
    for argument in (leaf, dense):
        torch.manual_seed(seed)
        drawn.append(functional.stochastic_pool2d(argument, **window))
    assert torch.equal(*drawn)
    keeps_layout(drawn[0], x)
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(seed)).to(device, x.dtype)
    slopes = [torch.autograd.grad(y, argument, dy)[0] for y, argument in zip(drawn, (leaf, dense), strict=True)]
    assert torch.equal(*slopes)
    elements = by_formula.take(batch.detach().cpu())
    chosen = drawn[0].detach().cpu().reshape(elements.shape[:4])[..., None, None]
    positive = elements > 0
    assert ((elements == chosen) & positive).any(-1).any(-1)[positive.any(-1).any(-1)].all()
    assert (chosen[~positive.any(-1).any(-1)] == 0).all()


@random_inputs
@given(st.data())
def test_stochastic_gradients_go_where_the_draw_was(device, data):
    x, window = data.draw(images(data.draw(dtypes(device)), device)), data.draw(windows())
    x = x if x.dim() == 4 else x.unsqueeze(0)
    y = possible(x, window)
    by_formula = by_definition(x, y, window)
    size = both(window["kernel_size"])
    stride = size if window["stride"] is None else both(window["stride"])
    state = torch.tensor([data.draw(seeds()), data.draw(seeds())], device=device)
    leaf = x.detach().requires_grad_()
    y, indices = stochastic_pool_forward(leaf, state, *size, *stride, *window["padding"], window["ceil_mode"])
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(5)).to(x.dtype)
    (dx,) = torch.autograd.grad(y, leaf, dy.to(device))
    at = F.one_hot(indices.cpu().long() & 0xFFFF, by_formula.positions + 1)[..., :-1].unflatten(-1, size)
    close = tolerance(x.dtype, 25)
    torch.testing.assert_close(
        (by_formula.take(x.cpu().double()) * at).sum((-2, -1)), y.detach().cpu().double(), **close
    )
    torch.testing.assert_close(by_formula.put(at * dy.double()[..., None, None]), dx.cpu().double(), **close)


@st.composite
def any_shape(draw: Any) -> list[int]:
    return draw(st.lists(st.integers(1, 7), min_size=0, max_size=5))


@random_inputs
@given(st.data())
def test_relu(device, data):
    x = data.draw(tensors(data.draw(any_shape()), data.draw(dtypes(device)), device))
    compare(functional.relu, F.relu, [x], data.draw(seeds()))
    compare(lambda x: functional.relu_(x + 0), F.relu, [x], data.draw(seeds()))
    keeps_layout(functional.relu(x), x)
    # In place, in whatever layout; where elements share memory PyTorch refuses, too.
    copy = x.clone(memory_format=torch.preserve_format)
    assert functional.relu_(copy) is copy
    assert torch.equal(copy, functional.relu(x))


@random_inputs
@given(st.data())
def test_prelu(device, data):
    dtype = data.draw(dtypes(device))
    x = data.draw(tensors(data.draw(any_shape()), dtype, device))
    slopes = x.shape[1] if x.dim() > 1 and data.draw(st.booleans()) else 1
    computed = torch.float32 if dtype.itemsize == 2 and data.draw(st.booleans()) else dtype
    weight = data.draw(tensors((slopes,), computed, device))
    compare(functional.prelu, F.prelu, [x, weight], data.draw(seeds()), x.numel())
    keeps_layout(functional.prelu(x, weight), x)


@random_inputs
@given(st.data())
def test_add2(device, data):
    shape, dtype = data.draw(any_shape()), data.draw(dtypes(device))
    inputs = [data.draw(tensors(shape, dtype, device)) for _ in range(2)]
    compare(functional.add2, torch.add, inputs, data.draw(seeds()))


@random_inputs
@given(st.data())
def test_scale_add(device, data):
    x = data.draw(tensors(data.draw(any_shape()), data.draw(dtypes(device)), device))
    scale, constant = (data.draw(st.sampled_from([-1.5, 0.0, 0.25, 3.0])) for _ in range(2))
    compare(lambda x: functional.scale_add(x, scale, constant), lambda x: x * scale + constant, [x], data.draw(seeds()))


@random_inputs
@given(st.data())
def test_linear(device, data):
    dtype = data.draw(dtypes(device))
    leading = data.draw(st.lists(st.integers(1, 4), max_size=3))
    features, outputs = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 20))
    activation = data.draw(st.sampled_from([None, "relu", "prelu"]))
    inputs = [
        data.draw(tensors((*leading, features), dtype, device)),
        data.draw(tensors((outputs, features), dtype, device)),
    ]
    bias = data.draw(st.booleans())
    if bias:
        inputs.append(data.draw(tensors((outputs,), dtype, device)))
    if activation == "prelu":
        inputs.append(data.draw(tensors((data.draw(st.sampled_from([1, outputs])),), dtype, device)))

    def operands(inputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
        x, w, *rest = inputs
        return x, w, rest[0] if bias else None, rest[-1] if activation == "prelu" else None

    def theirs(*inputs: Tensor) -> Tensor:
        x, w, b, alpha = operands(inputs)
        z = F.linear(x, w)
        if activation == "prelu" and dtype.itemsize == 2:
            # What the products take of the gradient is rounded to the type; the bias' gradient is not made of that.
            z.register_hook(lambda dz: dz.float().to(dtype).double())
        z = z if b is None else z + b
        # A sum that rounding can carry to the other side of the kink says nothing.
        assume(activation is None or ((z == 0) | (z.abs() > 1e-4)).all())
        if alpha is None:
            return z.relu() if activation == "relu" else z
        # What backward multiplies for the slopes is z as the type stores it.
        stored = z.detach() if dtype.itemsize > 2 else z.detach().float().to(dtype).double()
        return torch.where(z > 0, z, alpha.detach() * z + (alpha - alpha.detach()) * stored)

    def ours(*inputs: Tensor) -> Tensor:
        x, w, b, alpha = operands(inputs)
        return functional.linear(x, w, b, activation=activation, alpha=alpha)

    compare(ours, theirs, inputs, data.draw(seeds()), 40 * 64)


def dtypes(device: str) -> Any:
    """The types that a device computes in: float64 is for the CPU."""
    return st.sampled_from([dtype for dtype in DTYPES if device == "cpu" or dtype is not torch.float64])
