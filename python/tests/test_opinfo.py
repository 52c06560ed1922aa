"""PyTorch's own test inputs of its functions and modules, run through ours: the same results, the same refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ferrolayer.torch as fl
from ferrolayer.torch import functional

pytest.importorskip("expecttest", reason="PyTorch's test inputs want the package expecttest")
inputs_of_functions = pytest.importorskip("torch.testing._internal.common_methods_invocations")
inputs_of_modules = pytest.importorskip("torch.testing._internal.common_modules")

FUNCTIONS = {
    "nn.functional.max_pool2d": functional.max_pool2d,
    "nn.functional.avg_pool2d": functional.avg_pool2d,
    "nn.functional.prelu": functional.prelu,
    "nn.functional.relu": functional.relu,
    "nn.functional.linear": functional.linear,
}
MODULES = {
    nn.MaxPool2d: fl.MaxPool2d,
    nn.AvgPool2d: fl.AvgPool2d,
    nn.PReLU: fl.PReLU,
    nn.ReLU: fl.ReLU,
    nn.Linear: fl.Linear,
}
#: Types that PyTorch's function takes and ours refuses, of which the kernels have none: integers and complex numbers.
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def of_function(name: str) -> Any:
    (found,) = (info for info in inputs_of_functions.op_db if info.name == name)
    return found


def of_module(kind: type[nn.Module]) -> Any:
    (found,) = (info for info in inputs_of_modules.module_db if info.module_cls is kind)
    return found


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors within arguments or results."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)


def like_theirs(ours: Any, theirs: Any, leaves: list[Tensor], **close: float) -> None:
    """The same results, in the same memory format, and the same gradients of every leaf."""
    for got, wanted in zip(tensors(ours), tensors(theirs), strict=True):
        torch.testing.assert_close(got, wanted, **close)
        if wanted.dim() == 4 and wanted.numel() and not wanted.is_contiguous():
            last = torch.channels_last
            assert got.is_contiguous(memory_format=last) == wanted.is_contiguous(memory_format=last)
    y, expected = next(tensors(ours)), next(tensors(theirs))
    assert y.requires_grad == expected.requires_grad
    # A window wholly in the padding: PyTorch's backward of it writes outside of the image.
    if not leaves or not expected.requires_grad or not expected.isfinite().all():
        return
    dy = torch.randn_like(expected)
    got, wanted = (torch.autograd.grad(result, leaves, dy, allow_unused=True) for result in (y, expected))
    torch.testing.assert_close(got, wanted, **close)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_samples_of_functions(device, name, dtype):
    if device == "cuda" and dtype is torch.float64:
        pytest.skip("float64 is for the CPU")
    info = of_function(name)
    if dtype not in info.supported_dtypes(device):
        pytest.skip(f"this PyTorch's own {name} has no {dtype} on this device")
    close = {"rtol": 3e-2, "atol": 3e-2} if dtype.itemsize == 2 else {"rtol": 1e-4, "atol": 1e-5}
    # 1,440 of them in the case of max pooling: every one in float32, one in eleven in other types.
    samples = list(info.sample_inputs(device, dtype, requires_grad=True))
    samples = samples[:: 11 if len(samples) > 100 and dtype is not torch.float32 else 1]
    assert samples
    for sample in samples:
        arguments = (sample.input, *sample.args)
        leaves = [leaf for leaf in tensors([arguments, sample.kwargs]) if leaf.requires_grad]
        theirs = info.op(*arguments, **sample.kwargs)
        like_theirs(FUNCTIONS[name](*arguments, **sample.kwargs), theirs, leaves, **close)


@pytest.mark.parametrize("dtype", [torch.int32, torch.complex64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_types_are_refused(name, dtype):
    info = of_function(name)
    if dtype not in info.supported_dtypes("cpu"):
        # PyTorch's own samples are of types that it has.
        sample = next(iter(info.sample_inputs("cpu", torch.float32)))
        arguments, kwargs = _cast((sample.input, *sample.args), dtype), _cast(sample.kwargs, dtype)
    else:
        sample = next(iter(info.sample_inputs("cpu", dtype)))
        arguments, kwargs = (sample.input, *sample.args), sample.kwargs
    with pytest.raises(RuntimeError):
        FUNCTIONS[name](*arguments, **kwargs)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, dict):
        return {name: _cast(item, dtype) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_cast(item, dtype) for item in value)
    return value.detach().to(dtype) if isinstance(value, Tensor) else value


@pytest.mark.parametrize("name", FUNCTIONS)
def test_refusals_of_functions(device, name):
    info = of_function(name)
    if info.error_inputs_func is None:
        pytest.skip(f"PyTorch has no error inputs of {name}")
    errors = list(info.error_inputs(device))
    assert errors
    for error in errors:
        sample = error.sample_input
        for function in (info.op, FUNCTIONS[name]):
            with pytest.raises(error.error_type, match=error.error_regex):
                function(sample.input, *sample.args, **sample.kwargs)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", MODULES, ids=lambda kind: kind.__name__)
def test_samples_of_modules(device, kind, training):
    info = of_module(kind)
    samples = info.module_inputs_func(info, device=device, dtype=torch.float32, requires_grad=True, training=training)
    for sample in samples:
        arguments, kwargs = sample.constructor_input.args, sample.constructor_input.kwargs
        theirs = kind(*arguments, **kwargs).to(device).train(training)
        ours = MODULES[kind](*arguments, **kwargs).to(device).train(training)
        assert repr(ours) == repr(theirs)
        ours.load_state_dict(theirs.state_dict())
        inputs = sample.forward_input
        expected, y = (layer(*inputs.args, **inputs.kwargs) for layer in (theirs, ours))
        like_theirs(y, expected, [x for x in tensors(inputs.args) if x.requires_grad], rtol=1e-4, atol=1e-5)
        if not list(ours.parameters()):
            continue
        y, expected = (layer(*inputs.args, **inputs.kwargs).square().sum() for layer in (ours, theirs))
        slopes = [torch.autograd.grad(result, list(m.parameters())) for result, m in ((y, ours), (expected, theirs))]
        torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", MODULES, ids=lambda kind: kind.__name__)
def test_refusals_of_modules(kind):
    info = of_module(kind)
    if info.module_error_inputs_func is None:
        pytest.skip(f"PyTorch has no error inputs of {kind.__name__}")
    errors = list(
        info.module_error_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=True)
    )
    assert errors
    for error in errors:
        of_layer, of_input = error.module_error_input.constructor_input, error.module_error_input.forward_input
        for layer in (kind, MODULES[kind]):
            with pytest.raises(error.error_type, match=error.error_regex):
                layer(*of_layer.args, **of_layer.kwargs)(*of_input.args, **of_input.kwargs)
