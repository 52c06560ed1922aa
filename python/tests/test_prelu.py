import laws
import pytest
import torch
import torch.nn.functional as F

from ferrolayer.torch import PReLU, functional
from ferrolayer.torch.prelu import prelu_forward


@pytest.mark.parametrize("layout", ["dense", "channels_last", "strided"])
@pytest.mark.parametrize("slopes", [1, 3])
def test_is_torchs(device, slopes, layout):
    weight = torch.randn(slopes, device=device)
    laws.agree(functional.prelu, F.prelu, [laws.images(2, 3, 5, 4, device=device, layout=layout), weight])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits(device, dtype):
    x, weight = laws.images(2, 3, 5, 4, device=device, dtype=dtype), torch.randn(3, device=device)
    laws.agree(functional.prelu, F.prelu, [x, weight.to(dtype)], rtol=2e-2, atol=2e-2)
    laws.agree(
        functional.prelu, lambda x, weight: torch.where(x > 0, x, (x * weight.view(-1, 1, 1)).to(dtype)), [x, weight],
        rtol=2e-2, atol=2e-2,
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(), (3,), (0, 3), (3, 0, 2)])
def test_odd_shapes(shape):
    x = torch.randn(shape)
    for weight in (torch.tensor([0.3]), torch.tensor(0.3)):
        torch.testing.assert_close(functional.prelu(x, weight), F.prelu(x, weight))


@pytest.mark.parametrize(
    ("x", "weight"),
    [
        (torch.ones(1, 2, 6, 6), torch.ones(3)),
        (torch.ones(1, 2, 6, 6), torch.ones(2, 1)),
        (torch.ones(2), torch.ones(2)),
        (torch.ones(()), torch.ones(2)),
        (torch.ones(2, dtype=torch.int32), torch.ones(1)),
        (torch.ones(2), torch.ones(1, dtype=torch.float64)),
    ],
)
def test_refuses_what_torch_refuses(x, weight):
    with pytest.raises(RuntimeError) as theirs:
        F.prelu(x, weight)
    with pytest.raises(RuntimeError) as ours:
        functional.prelu(x, weight)
    assert str(ours.value)[:40] == str(theirs.value)[:40]


@pytest.mark.parametrize("slopes", [1, 3])
def test_derivatives(slopes):
    inputs = [torch.randn(2, 3, 2, dtype=torch.float64), torch.randn(slopes, dtype=torch.float64)]
    laws.differentiable(functional.prelu, inputs)


@pytest.mark.parametrize("slopes", [1, 3])
def test_transforms(slopes):
    inputs = [torch.randn(2, 3, 2), torch.randn(slopes)]
    laws.transformable(functional.prelu, inputs)
    laws.compilable(functional.prelu, inputs)
    laws.exportable(functional.prelu, inputs)


def test_operator_is_registered_fully():
    inputs = [torch.randn(2, 3, 4, 5, requires_grad=True), torch.randn(3, requires_grad=True)]
    laws.registered(prelu_forward.traced, inputs)
    x, alpha = (x.detach() for x in inputs)
    laws.registered(torch.ops.ferrolayer.prelu_backward.default, [x, x, alpha, True, True])
    laws.registered(torch.ops.ferrolayer.prelu_backward.default, [x, x, alpha, False, True])
    x, low = x.bfloat16(), alpha.bfloat16()
    for slopes in (low, alpha):
        laws.registered(prelu_forward.traced, [x.clone().requires_grad_(), slopes.clone().requires_grad_()])
        laws.registered(torch.ops.ferrolayer.prelu_backward.default, [x, x, slopes, True, True])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_slopes_of_16_bits_stay_so(device, dtype):
    layer = PReLU(3, device=device, dtype=dtype)
    x = laws.images(2, 3, 5, 4, device=device, dtype=dtype)
    wide = layer.weight.detach().float().requires_grad_()
    for weight in (layer.weight, wide):
        functional.prelu(x, weight).sum().backward()
    assert layer.weight.grad.dtype is dtype
    assert torch.equal(layer.weight.grad, wide.grad.to(dtype))


def test_refuses_slopes_of_another_16_bits():
    with pytest.raises(RuntimeError, match="Got torch.float16 and torch.bfloat16"):
        functional.prelu(torch.ones(2, dtype=torch.float16), torch.ones(1, dtype=torch.bfloat16))
    x, slopes = torch.ones(2, dtype=torch.float16), torch.ones(1, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match="alpha is torch.bfloat16, expected torch.float16 or torch.float32"):
        torch.ops.ferrolayer.prelu(x, slopes)


def test_autocast(device):
    layer, theirs = PReLU(3, device=device), torch.nn.PReLU(3, device=device)
    x = laws.images(2, 3, 4, 5, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        ours = layer(x)
        torch.testing.assert_close(ours, theirs(x), rtol=1e-2, atol=1e-2)
    ours.sum().backward()
    assert layer.weight.grad.dtype is torch.float32


def test_module():
    layer, theirs = PReLU(3, 0.1), torch.nn.PReLU(3, 0.1)
    assert repr(layer) == repr(theirs)
    theirs.load_state_dict(layer.state_dict())
    laws.module_laws(layer, torch.randn(2, 3, 4))
