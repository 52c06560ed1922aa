import laws
import pytest
import torch

from ferrolayer.torch import add2
from ferrolayer.torch.add2 import add2_forward


@pytest.mark.parametrize("layout", ["dense", "channels_last", "strided"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_is_a_sum(device, dtype, layout):
    inputs = [laws.images(2, 3, 5, 4, device=device, dtype=dtype, layout=layout) for _ in range(2)]
    laws.agree(add2, torch.add, inputs)


def test_layouts_may_differ():
    laws.agree(add2, torch.add, [laws.images(2, 3, 5, 4, layout="channels_last"), laws.images(2, 3, 5, 4)])


def test_derivatives_and_transforms():
    laws.differentiable(add2, [torch.randn(3, 4, dtype=torch.float64) for _ in range(2)])
    inputs = [torch.randn(3, 4) for _ in range(2)]
    laws.transformable(add2, inputs)
    laws.compilable(add2, inputs)
    laws.exportable(add2, inputs)
    laws.registered(add2_forward.traced, laws.fresh(inputs))


def test_shapes_must_agree():
    with pytest.raises(RuntimeError, match="add2"):
        add2(torch.ones(3), torch.ones(4))
