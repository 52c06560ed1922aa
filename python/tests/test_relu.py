import laws
import pytest
import torch
import torch.nn.functional as F

from ferrolayer.torch import ReLU, functional
from ferrolayer.torch.relu import relu_backward, relu_forward


@pytest.mark.parametrize("layout", ["dense", "channels_last", "strided"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_is_torchs(device, dtype, layout):
    laws.agree(functional.relu, F.relu, [laws.images(2, 3, 5, 4, device=device, dtype=dtype, layout=layout)])


def test_keeps_channels_last():
    x = laws.images(2, 3, 5, 4, layout="channels_last")
    assert functional.relu(x).is_contiguous(memory_format=torch.channels_last)


def test_derivatives():
    laws.differentiable(functional.relu, [torch.randn(3, 4, dtype=torch.float64)])


def test_transforms():
    x = torch.randn(3, 4)
    laws.transformable(functional.relu, [x])
    laws.compilable(functional.relu, [x])
    laws.exportable(functional.relu, [x])


def test_operators_are_registered_fully():
    x = torch.randn(2, 3, 4, 5, requires_grad=True)
    laws.registered(relu_forward.traced, [x])
    laws.registered(relu_backward.traced, [x, x.detach().relu()])
    laws.registered(torch.ops.ferrolayer.relu.default, [x.detach()])


@pytest.mark.parametrize("layout", ["dense", "channels_last", "strided"])
def test_in_place(device, layout):
    x = laws.images(2, 3, 4, 5, device=device, layout=layout)
    theirs = x.clone()
    assert functional.relu(x, inplace=True) is x
    torch.testing.assert_close(x, F.relu_(theirs))

    def ours(x):
        return functional.relu((x * 2)[:, 1:], inplace=True)

    laws.agree(ours, lambda x: F.relu((x * 2)[:, 1:], inplace=True), [theirs - 0.5])
    laws.compilable(lambda x: functional.relu(x * 2, inplace=True), [theirs - 0.5])


def test_in_place_counts_as_a_change():
    leaf = torch.randn(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        functional.relu_(leaf)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        functional.relu_(leaf[:2])
    with torch.no_grad():
        x = leaf * 2
    y = (leaf * x).sum()
    functional.relu_(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_module():
    assert repr(ReLU(inplace=True)) == "ReLU(inplace=True)"
    laws.module_laws(ReLU(), torch.randn(3))
