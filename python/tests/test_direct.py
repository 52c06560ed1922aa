"""The operators round the dispatcher: the same results, and only where the dispatcher has nothing to add."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import test_opcheck
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ferrolayer.torch import functional
from ferrolayer.torch._library import DOOR

relu = torch.ops.ferrolayer.relu.default
prelu = torch.ops.ferrolayer.prelu.default
pytestmark = pytest.mark.skipif(
    not hasattr(relu, "direct") and DOOR != "c", reason="this PyTorch lacks what direct functions take"
)
X = torch.tensor([[1.0, -2.0], [-0.0, float("nan")]])


@pytest.mark.parametrize("name", [name for name in test_opcheck.RAW if not name.endswith("_")])
def test_equals_the_operator(name: str) -> None:
    operator = getattr(torch.ops.ferrolayer, name).default
    for arguments in test_opcheck.SAMPLES[name]():
        expected = operator(*arguments)
        for function in (operator.direct, operator.run):
            got = function(*arguments)
            assert got is not None
            torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
            first, other = (t if isinstance(t, Tensor) else t[0] for t in (got, expected))
            assert first.stride() == other.stride() and type(first) is Tensor


class Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


class Other(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class Sub(Tensor):
    pass


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "dispatch mode": Seen,
    "function mode": Other,
    "default device": lambda: torch.device("cpu"),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "profiler": torch.profiler.profile,
    "fake tensors": lambda: torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True),
}


def test_leaves_what_writes_to_the_dispatcher() -> None:
    assert not hasattr(torch.ops.ferrolayer.relu_.default, "direct")


@pytest.mark.parametrize("mode", MODES)
def test_leaves_modes_to_the_dispatcher(mode: str) -> None:
    assert relu.direct(X) is not None
    with MODES[mode]():
        assert relu.direct(X) is None
        assert relu.run(X).shape == X.shape
    assert relu.direct(X) is not None


def test_modes_see_the_operator() -> None:
    with Seen() as seen:
        functional.relu(X)
    assert seen.names == ["ferrolayer.relu.default"]
    with torch.profiler.profile() as profile:
        functional.relu(X)
    assert "ferrolayer::relu" in {event.key for event in profile.key_averages()}


@pytest.mark.parametrize("mode", (torch.no_grad, torch.inference_mode))
def test_serves_without_gradients(mode: Callable[[], AbstractContextManager[Any]]) -> None:
    with mode():
        y = relu.direct(X)
        assert y is not None and y.is_inference() == torch.is_inference_mode_enabled()


def test_serves_in_a_backward_pass() -> None:
    """Where names of dimensions are not looked at, which some versions of PyTorch switch off by a key."""
    results: list[Any] = []

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            results.append(relu.direct(x))
            return x.clone()

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Tensor:
            results.append(relu.direct(dy))
            return dy

    Function.apply(torch.ones(2, requires_grad=True)).sum().backward()
    assert len(results) == 2 and not any(result is None for result in results)


def test_leaves_tangents_to_the_dispatcher() -> None:
    with torch.autograd.forward_ad.dual_level():
        assert relu.direct(X) is None
    assert relu.direct(X) is not None


def test_leaves_transforms_to_the_dispatcher() -> None:
    results: list[Any] = []
    torch.func.vmap(lambda x: results.append(relu.direct(x)) or x)(X)
    torch.func.grad(lambda x: results.append(relu.direct(x)) or x.sum())(X)
    torch.jit.trace(lambda x: results.append(relu.direct(x)) or x + 1, X, check_trace=False)
    assert results == [None, None, None]


@pytest.mark.parametrize(
    "tensor",
    (
        X.as_subclass(Sub),
        torch._neg_view(X),
        X.to_sparse(),
        X.to("meta"),
        torch.complex(X, X).conj().imag,
        torch.complex(X, X),
        torch.ones(3, dtype=torch.int32),
        1.0,
        None,
    ),
    ids=(
        "subclass",
        "negated",
        "sparse",
        "meta",
        "part of complex",
        "complex",
        "integers",
        "number",
        "None",
    ),
)
def test_leaves_other_tensors_to_the_dispatcher(tensor: Any) -> None:
    assert relu.direct(tensor) is None
    try:
        expected = relu(tensor)
    except (RuntimeError, NotImplementedError) as error:
        with pytest.raises(type(error)) as raised:
            relu.run(tensor)
        assert str(raised.value) == str(error)
    else:
        got = relu.run(tensor)
        assert got.shape == expected.shape and (got.is_meta or torch.equal(got.nan_to_num(), expected.nan_to_num()))


def test_takes_parameters() -> None:
    weight = torch.nn.Parameter(torch.tensor([0.25, 0.5]))
    y = prelu.direct(X, weight)
    assert torch.equal(y.nan_to_num(), prelu(X, weight).nan_to_num()) and not y.requires_grad


def test_leaves_other_arguments_to_the_dispatcher() -> None:
    pool = torch.ops.ferrolayer.avg_pool.default
    image, window = torch.randn(1, 1, 4, 4), (2, 2, 2, 2, 0, 0)
    assert pool.direct(image, *window, False, True, 0) is not None
    for arguments in (
        (image, *window, False, True),
        (image, *window, False, True, 0, 0),
        (image, *window, 0, True, 0),
        (image, *window[:-1], False, False, True, 0),
        (image, *window, False, True, 1 << 70),
        (image, *window, False, True, 0.0),
        (image, *window, False, True, None),
        (image[0], *window, False, True, 0),
        (image, 0, 0, 0, 0, 0, 0, False, True, 0),
        (),
    ):
        assert pool.direct(*arguments) is None
    with pytest.raises(RuntimeError, match="missing value"):
        pool.run(image)
    with pytest.raises(RuntimeError, match="avg_pool"):
        pool.run(image[0], *window, False, True, 0)


def test_leaks_nothing() -> None:
    """Neither where it serves, nor where it finds out after having taken tensors."""
    dense = torch.ops.ferrolayer.dense.default
    x, w = torch.randn(2, 3), torch.randn(4, 3)
    references = [weakref.ref(x), weakref.ref(w)]
    for _ in range(10):
        y, saved = dense.direct(x, w, None, None, 0, True)
        references += [weakref.ref(y), weakref.ref(saved)]
        assert dense.direct(x, w, None, None, 0, 1) is None
        assert dense.direct(x, w.t(), None, None, 0, True) is None
        assert dense.direct(x, w, x, None, 0, True) is None
    del x, w, y, saved
    gc.collect()
    assert all(reference() is None for reference in references)


def test_serves_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    x = torch.randn(2, 3, 7, 6)
    expected = torch.relu(x)

    def work(index: int) -> bool:
        if index % 2:
            with torch.autocast("cpu"):
                return relu.direct(x) is None
        return all(torch.equal(relu.direct(x), expected) for _ in range(200))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(64)))


def test_windows_are_remembered_as_they_are() -> None:
    """Not by objects that can change, nor by value, which takes one type for another."""
    x = torch.randn(1, 2, 9, 9)
    for requires_grad in (False, True):
        x.requires_grad_(requires_grad)
        size = [2, 2]
        for _ in range(2):
            for kernel_size in (size, (2, 3), 2, [3], (3,)):
                expected = torch.nn.functional.max_pool2d(x, kernel_size)
                torch.testing.assert_close(functional.max_pool2d(x, kernel_size), expected)
            size[:] = [3, 2]
        for wrong in (2.0, (2, 2.0), "2", (size, 2)):
            with pytest.raises(TypeError, match="kernel_size"):
                functional.max_pool2d(x, wrong)
        # More than are remembered.
        for stride in list(range(1, 30)) * 2:
            expected = torch.nn.functional.avg_pool2d(x, 3, stride)
            torch.testing.assert_close(functional.avg_pool2d(x, 3, stride), expected)
        with pytest.raises(RuntimeError, match="divisor must be not zero"):
            functional.avg_pool2d(x, 3, divisor_override=0)


def test_calls_with_gradients_are_recorded_once() -> None:
    """By a Function in eager mode, by the public operator where a program is traced."""
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    y = functional.max_pool2d(x, 2)
    assert type(y.grad_fn).__name__ == "MaxPoolBackward" and len(y.grad_fn.next_functions) == 1
    (indices,) = y.grad_fn.saved_tensors
    assert indices.dtype is torch.uint8 and y.grad_fn.shape == x.shape
    with torch.no_grad():
        assert functional.max_pool2d(x, 2).grad_fn is None
    with torch.autocast("cpu", torch.bfloat16):
        assert type(functional.max_pool2d(x, 2).grad_fn).__name__ == "MaxPoolBackward"
    program = torch.export.export(Pool(), (x.detach(),), strict=False).graph
    called = [node.target for node in program.nodes if node.op == "call_function"]
    assert torch.ops.ferrolayer_autograd.max_pool.default in called


class Pool(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return functional.max_pool2d(x * self.weight, 2)


def test_no_gradient_is_looked_for_in_what_is_no_tensor() -> None:
    for wrong in (None, 1.0, [1.0]):
        with pytest.raises((TypeError, RuntimeError, AttributeError)):
            functional.relu(wrong)
