import laws
import pytest
import torch
import torch.nn.functional as F

from ferrolayer.torch import AvgPool2d, functional
from ferrolayer.torch.avg_pool import avg_pool_backward, avg_pool_forward

WINDOWS = [
    {"kernel_size": 2},
    {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 3, "padding": 1, "count_include_pad": False},
    {"kernel_size": 3, "divisor_override": -2},
]


def pools(**window):
    return lambda x: functional.avg_pool2d(x, **window), lambda x: F.avg_pool2d(x, **window)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("layout", ["dense", "channels_last", "strided"])
def test_is_torchs(device, layout, window):
    ours, theirs = pools(**window)
    # On a GPU PyTorch's backward of padded channels-last images is wrong (seen with 2.11); on the CPU it is right.
    of_cpu = lambda x: theirs(x.cpu()).to(x.device)  # noqa: E731
    laws.agree(ours, of_cpu, [laws.images(2, 3, 8, 7, device=device, layout=layout)])
    laws.agree(ours, theirs, [laws.images(3, 8, 7, device=device)])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits(device, dtype):
    ours, theirs = pools(kernel_size=2)
    laws.agree(ours, theirs, [laws.images(2, 3, 8, 8, device=device, dtype=dtype)], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("shape", "window"),
    [
        ((1, 2, 6, 6), {"kernel_size": 3, "padding": 2}),
        ((1, 2, 6, 6), {"kernel_size": 3, "padding": -1}),
        ((1, 2, 6, 6), {"kernel_size": (3, 3, 3)}),
        ((1, 2, 6, 6), {"kernel_size": 3, "divisor_override": 0}),
        ((1, 2, 6, 6), {"kernel_size": 7}),
        ((1, 0, 4, 4), {"kernel_size": 2}),
    ],
)
def test_refuses_what_torch_refuses(shape, window):
    ours, theirs = pools(**window)
    with pytest.raises(RuntimeError) as expected:
        theirs(torch.randn(shape))
    with pytest.raises(RuntimeError) as refused:
        ours(torch.randn(shape))
    assert str(refused.value) == str(expected.value)


@pytest.mark.parametrize("window", WINDOWS)
def test_derivatives(window):
    ours, _ = pools(**window)
    laws.differentiable(ours, [torch.randn(2, 2, 6, 5, dtype=torch.float64)])


def test_transforms():
    ours, _ = pools(**WINDOWS[2])
    x = torch.randn(2, 3, 6, 5)
    laws.transformable(ours, [x])
    laws.compilable(ours, [x])
    laws.exportable(ours, [x])


@pytest.mark.parametrize("layout", ["dense", "channels_last"])
def test_operators_are_registered_fully(layout):
    x = laws.images(2, 3, 6, 6, layout=layout)
    window = (3, 3, 2, 2, 1, 1, True, False, 0)
    y = torch.ops.ferrolayer.avg_pool(x, *window)
    laws.registered(avg_pool_forward.traced, [x.requires_grad_(), *window])
    laws.registered(avg_pool_backward.traced, [y.requires_grad_(), 6, 6, *window])


def test_module():
    layer = AvgPool2d(3, 2, 1, ceil_mode=True)
    assert repr(layer) == repr(torch.nn.AvgPool2d(3, 2, 1, ceil_mode=True))
    laws.module_laws(layer, torch.randn(2, 3, 7, 7))
