import laws
import pytest
import torch

from ferrolayer.torch import StochasticPool2d, functional
from ferrolayer.torch.stochastic_pool import (
    expectation,
    reference_expectation,
    stochastic_pool_backward,
    stochastic_pool_forward,
)


def drawn(x):
    torch.manual_seed(3)
    return functional.stochastic_pool2d(x, 2)


@pytest.mark.parametrize("layout", ["dense", "channels_last", "strided"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_draws_come_from_the_window(device, dtype, layout):
    x = laws.images(2, 3, 6, 8, device=device, dtype=dtype, layout=layout)
    y = functional.stochastic_pool2d(x, 2)
    windows = x.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
    positive = (windows > 0).any(-1)
    assert ((windows == y.unsqueeze(-1)) & (windows > 0)).any(-1)[positive].all()
    assert (y[~positive] == 0).all()


def test_the_seed_repeats_the_draws(device):
    layer, x = StochasticPool2d(2), torch.rand(4, 3, 8, 8, device=device)
    torch.manual_seed(1)
    first, second = layer(x), layer(x)
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(layer(x), first)
    generators = [torch.Generator(device).manual_seed(5) for _ in range(2)]
    ys = [functional.stochastic_pool2d(x, 2, generator=generator) for generator in generators]
    assert torch.equal(*ys)


def test_draws_follow_the_shares():
    x = torch.tensor([1.0, 2.0, 3.0, -4.0]).view(1, 1, 2, 2).expand(20_000, 1, 2, 2)
    y = functional.stochastic_pool2d(x, 2)
    shares = torch.stack([(y == value).float().mean() for value in (1, 2, 3)])
    torch.testing.assert_close(shares, torch.tensor([1, 2, 3]) / 6, atol=0.02, rtol=0)


@pytest.mark.gpu
def test_a_captured_graph_draws_anew():
    x = torch.rand(4, 3, 8, 8, device="cuda")
    functional.stochastic_pool2d(x, 2)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = functional.stochastic_pool2d(x, 2)
    graph.replay()
    first = y.clone()
    graph.replay()
    assert not torch.equal(first, y)


@pytest.mark.parametrize("layout", ["dense", "channels_last"])
def test_evaluation_is_the_expectation(device, layout):
    layer = StochasticPool2d(3, 2, 1, ceil_mode=True).eval()
    x = laws.images(2, 3, 6, 8, device=device, layout=layout)
    laws.agree(layer, lambda x: reference_expectation(x, 3, 3, 2, 2, 1, 1, True), [x])
    torch.testing.assert_close(layer(x[0]), layer(x)[0])


def test_derivatives():
    x = torch.randn(2, 2, 4, 6, dtype=torch.float64)
    laws.differentiable(drawn, [x])
    laws.differentiable(lambda x: functional.stochastic_pool2d(x, 2, training=False), [x.abs() + 0.1])


def test_transforms():
    x = torch.rand(2, 2, 4, 6)

    def mean(x):
        return functional.stochastic_pool2d(x, 2, training=False)

    laws.transformable(mean, [x])
    laws.compilable(mean, [x])
    laws.exportable(mean, [x])
    layer = torch.compile(StochasticPool2d(2), fullgraph=True, backend="aot_eager")
    (slope,) = torch.autograd.grad(layer(x.requires_grad_()).sum(), x)
    assert slope.sum() == 2 * 2 * 2 * 3
    with pytest.raises(RuntimeError, match="random"):
        torch.vmap(lambda x: functional.stochastic_pool2d(x, 2))(x)
    many = torch.vmap(lambda x: functional.stochastic_pool2d(x, 2), randomness="different")(x.expand(3, 2, 2, 4, 6))
    assert not torch.equal(many[0], many[1])


def test_operators_are_registered_fully():
    x, state, window = torch.rand(2, 3, 6, 6), torch.tensor([1, 2]), (3, 3, 2, 2, 1, 1, True)
    y, indices = torch.ops.ferrolayer.stochastic_pool(x, state, *window)
    laws.registered(stochastic_pool_forward.traced, [x.requires_grad_(), state, *window])
    laws.registered(stochastic_pool_backward.traced, [y.requires_grad_(), indices, 6, 6, *window])
    laws.registered(expectation.traced, [x, *window])


def test_module():
    layer = StochasticPool2d(3, 2)
    assert repr(layer) == "StochasticPool2d(kernel_size=3, stride=2, padding=0, ceil_mode=False)"
    laws.module_laws(layer, torch.randn(2, 3, 7, 7))
