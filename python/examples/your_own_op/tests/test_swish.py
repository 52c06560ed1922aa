import pytest
import torch
from swish import Swish, swish
from torch import Tensor

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU here")
on_each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NO_GPU)])


def reference(x: Tensor, beta: Tensor) -> Tensor:
    return x * torch.sigmoid(beta * x)


def inputs(device: str = "cpu", dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4, 5, device=device).to(dtype)
    return [x.requires_grad_(), torch.tensor([1.5], device=device, dtype=dtype, requires_grad=True)]


@on_each_device
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_is_the_formula(device: str, dtype: torch.dtype, layout: torch.memory_format) -> None:
    x, beta = inputs(device, dtype)
    x = x.detach().to(memory_format=layout).requires_grad_()
    y, expected = swish(x, beta), reference(x.float(), beta.float()).to(dtype)
    dy = torch.randn_like(y)
    torch.testing.assert_close(y, expected)
    assert y.is_contiguous(memory_format=layout)
    gradients, wanted = (torch.autograd.grad(output, [x, beta], dy) for output in (y, expected))
    torch.testing.assert_close(gradients, wanted)


def test_gradients_are_those_of_differences() -> None:
    assert torch.autograd.gradcheck(swish, inputs(dtype=torch.float64))
    assert torch.autograd.gradgradcheck(swish, inputs(dtype=torch.float64))


@on_each_device
def test_is_registered_fully(device: str) -> None:
    x, beta = inputs(device)
    torch.library.opcheck(torch.ops.swish_autograd.swish.default, (x, beta))
    x, beta = x.detach(), beta.detach()
    for needed in [(True, True), (True, False), (False, True)]:
        torch.library.opcheck(torch.ops.swish.swish_backward.default, (x, x, beta, *needed))


@on_each_device
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_is_eager(device: str, dynamic: bool) -> None:
    x, beta = inputs(device)
    compiled = torch.compile(swish, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for function in (compiled, swish):
        torch.testing.assert_close(function(x, beta), reference(x, beta))
        gradients, wanted = (torch.autograd.grad(f(x, beta).sum(), [x, beta]) for f in (function, reference))
        torch.testing.assert_close(gradients, wanted)


@on_each_device
def test_transformed_is_eager(device: str) -> None:
    x, beta = (tensor.detach() for tensor in inputs(device))
    together = torch.vmap(swish, in_dims=(0, None))(x, beta)
    torch.testing.assert_close(together, swish(x, beta))
    gradients, wanted = (torch.func.grad(lambda x, f=f: f(x, beta).sum())(x) for f in (swish, reference))
    torch.testing.assert_close(gradients, wanted)


@on_each_device
def test_beta_is_learnt(device: str) -> None:
    x, _ = inputs(device)
    layer = Swish().to(device)
    optimiser = torch.optim.SGD(layer.parameters(), lr=2.0)
    for _ in range(100):
        optimiser.zero_grad()
        (layer(x.detach()) - reference(x.detach(), torch.tensor(0.5, device=device))).square().mean().backward()
        optimiser.step()
    torch.testing.assert_close(layer.beta.detach().cpu(), torch.tensor([0.5]), rtol=0, atol=1e-2)


@pytest.mark.parametrize(
    ("x", "beta", "says"),
    [
        (torch.ones(3), torch.ones(2), "beta"),
        (torch.ones(3, dtype=torch.int64), torch.ones(1), "torch.int64"),
    ],
)
def test_says_what_is_wrong(x: Tensor, beta: Tensor, says: str) -> None:
    with pytest.raises(RuntimeError, match=says):
        swish(x, beta)
