import laws
import pytest
import torch

from ferrolayer.torch import ScaleAdd, add_constant, functional
from ferrolayer.torch.scale_add import scale_add_backward, scale_add_forward


@pytest.mark.parametrize("layout", ["dense", "channels_last", "strided"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_is_the_formula(device, dtype, layout):
    x = laws.images(2, 3, 5, 4, device=device, dtype=dtype, layout=layout)
    laws.agree(lambda x: functional.scale_add(x, 2.0, 0.5), lambda x: (x.float() * 2 + 0.5).to(dtype), [x])
    laws.agree(lambda x: add_constant(x, 0.5), lambda x: x + 0.5, [x])


def test_derivatives_and_transforms():
    laws.differentiable(lambda x: functional.scale_add(x, 2.0, 3.0), [torch.randn(3, 4, dtype=torch.float64)])
    scale, constant = torch.tensor([2.0]), torch.tensor([3.0])

    def function(x):
        return functional.scale_add(x, scale, constant)

    x = torch.randn(3, 4)
    laws.transformable(function, [x])
    laws.compilable(function, [x])
    # The settings are inputs of the program: before torch 2.7 export refuses tensors that a closure holds.
    laws.exportable(lambda x, s, c: functional.scale_add(x, s.detach(), c.detach()) * s + c, [x, scale, constant])
    laws.registered(scale_add_forward.traced, [x.requires_grad_(), scale, constant])
    laws.registered(scale_add_backward.traced, [x, scale])


def test_settings_are_not_parameters():
    with pytest.raises(RuntimeError, match="scale is a setting and gets no gradient"):
        functional.scale_add(torch.ones(3), torch.ones(1, requires_grad=True), 0.0)
    with pytest.raises(RuntimeError, match="constant must have one element"):
        functional.scale_add(torch.ones(3), 1.0, torch.ones(2))


def test_settings_change_without_a_new_graph():
    layer = ScaleAdd(2.0, 1.0)
    counted = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, backend=counted)
    x = torch.randn(4)
    torch.testing.assert_close(compiled(x), x * 2 + 1)
    layer.constant.fill_(-5)
    layer.scale.fill_(3)
    torch.testing.assert_close(compiled(x), x * 3 - 5)
    assert counted.frame_count == 1


@pytest.mark.gpu
def test_settings_change_within_a_captured_graph():
    layer, x = ScaleAdd(2.0, 1.0, device="cuda"), torch.randn(4, device="cuda")
    layer(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = layer(x)
    layer.constant.fill_(-5)
    graph.replay()
    torch.testing.assert_close(y, x * 2 - 5)


def test_module():
    layer = ScaleAdd(2.0, 1.0)
    assert set(layer.state_dict()) == {"scale", "constant"}
    laws.module_laws(layer, torch.randn(2, 3))
    layer.half()
    torch.testing.assert_close(layer(torch.ones(2, dtype=torch.float16)), torch.full((2,), 3.0, dtype=torch.float16))
