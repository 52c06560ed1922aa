import laws
import pytest
import torch
import torch.nn.functional as F

from ferrolayer.torch import MaxPool2d, functional
from ferrolayer.torch.max_pool import max_pool_backward, max_pool_forward

WINDOWS = [
    {"kernel_size": 2},
    {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": [2], "dilation": 2},
    {"kernel_size": 3, "stride": [], "dilation": (2, 1)},
]


def pools(**window):
    return lambda x: functional.max_pool2d(x, **window), lambda x: F.max_pool2d(x, **window)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("layout", ["dense", "channels_last", "strided"])
def test_is_torchs(device, layout, window):
    ours, theirs = pools(**window)
    laws.agree(ours, theirs, [laws.images(2, 3, 8, 7, device=device, layout=layout)])
    laws.agree(ours, theirs, [laws.images(3, 8, 7, device=device)])
    for x in (laws.images(3, 8, 7, device=device), laws.images(2, 3, 8, 7, device=device, layout=layout)):
        y, indices = functional.max_pool2d(x, **window, return_indices=True)
        torch.testing.assert_close((y, indices), F.max_pool2d(x, **window, return_indices=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits(device, dtype):
    ours, theirs = pools(kernel_size=2)
    laws.agree(ours, theirs, [laws.images(2, 3, 8, 8, device=device, dtype=dtype)])


def test_large_windows_have_indices_of_two_bytes():
    ours, theirs = pools(kernel_size=(20, 15), stride=3)
    laws.agree(ours, theirs, [torch.randn(1, 2, 30, 29)])


def test_keeps_channels_last():
    x = laws.images(2, 3, 8, 8, layout="channels_last")
    assert functional.max_pool2d(x, 2).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("shape", "window"),
    [
        ((1, 2, 6, 6), {"kernel_size": 3, "padding": 2}),
        ((1, 2, 6, 6), {"kernel_size": 3, "padding": 2, "dilation": 2}),
        ((1, 2, 6, 6), {"kernel_size": 3, "padding": -1}),
        ((1, 2, 6, 6), {"kernel_size": (3, 3, 3)}),
        ((1, 2, 6, 6), {"kernel_size": []}),
        ((1, 2, 6, 6), {"kernel_size": -1, "stride": 1}),
        ((1, 2, 6, 6), {"kernel_size": 3, "stride": (1, 2, 3)}),
        ((1, 2, 6, 6), {"kernel_size": 3, "padding": (1, 1, 1)}),
        ((1, 2, 6, 6), {"kernel_size": 3, "dilation": 0}),
        ((1, 2, 6, 6), {"kernel_size": 3, "stride": 0}),
        ((1, 2, 6, 6), {"kernel_size": 0}),
        ((1, 2, 6, 6), {"kernel_size": 3, "padding": -1, "stride": 0}),
        ((1, 0, 6, 6), {"kernel_size": 3, "padding": -1}),
        ((1, 2, 6, 6), {"kernel_size": 7}),
        ((2, 6, 6), {"kernel_size": 7}),
        ((1, 0, 4, 4), {"kernel_size": 2}),
        ((1, 2, 4, 0), {"kernel_size": 2}),
        ((1, 2, 6, 6), {"kernel_size": 3.0}),
        ((1, 2, 6, 6), {"kernel_size": "a"}),
    ],
)
def test_refuses_what_torch_refuses(shape, window):
    x = torch.randn(shape)
    ours, theirs = pools(**window)
    with pytest.raises((RuntimeError, TypeError)) as expected:
        theirs(x)
    with pytest.raises(expected.type) as refused:
        ours(x)
    assert str(refused.value).splitlines()[0] == str(expected.value).splitlines()[0]


@pytest.mark.parametrize("shape", [(2, 2), (2, 2, 2, 2, 2)])
def test_refuses_other_dimensions(shape):
    with pytest.raises(RuntimeError, match="3D or 4D"):
        functional.max_pool2d(torch.randn(shape), 2)


def test_no_images():
    laws.agree(*pools(kernel_size=2), [torch.randn(0, 2, 4, 4)])


@pytest.mark.parametrize("window", WINDOWS)
def test_derivatives(window):
    ours, _ = pools(**window)
    laws.differentiable(ours, [torch.randn(2, 2, 6, 5, dtype=torch.float64)])


def test_windows_outside_the_image_pass_no_gradient_on():
    ours, _ = pools(kernel_size=(2, 1), stride=1, padding=(1, 0), dilation=(3, 1))
    x = torch.randn(1, 1, 2, 2, dtype=torch.float64, requires_grad=True)
    y = ours(x)
    assert torch.isinf(y).any()
    (slope,) = torch.autograd.grad(torch.where(y.isinf(), 0, y).square().sum(), x, create_graph=True)
    torch.autograd.grad(slope.square().sum(), x)


@pytest.mark.parametrize("window", WINDOWS[1:3])
def test_transforms(window):
    ours, _ = pools(**window)
    x = torch.randn(2, 3, 6, 5)
    laws.transformable(ours, [x])
    laws.compilable(ours, [x])
    laws.compilable(lambda x: functional.max_pool2d(x, **window, return_indices=True)[0], [x])
    laws.exportable(ours, [x])


@pytest.mark.parametrize("layout", ["dense", "channels_last"])
def test_operators_are_registered_fully(layout):
    x = laws.images(2, 3, 6, 6, layout=layout)
    window = (3, 3, 2, 2, 1, 1, 1, 1, True)
    y, indices = torch.ops.ferrolayer.max_pool(x, *window)
    laws.registered(max_pool_forward.traced, [x.requires_grad_(), *window])
    laws.registered(max_pool_backward.traced, [y.requires_grad_(), indices, 6, 6, *window])
    laws.registered(torch.ops.ferrolayer.max_pool_inference.default, [x.detach(), *window])
    laws.registered(torch.ops.ferrolayer.max_pool_flat_indices.default, [indices, 6, 6, *window])


def test_module():
    layer = MaxPool2d(3, 2, 1, return_indices=True, ceil_mode=True)
    assert repr(layer) == repr(torch.nn.MaxPool2d(3, 2, 1, return_indices=True, ceil_mode=True))
    laws.module_laws(layer, torch.randn(2, 3, 7, 7))
    unpooled = torch.nn.MaxUnpool2d(2)(*MaxPool2d(2, return_indices=True)(torch.randn(1, 2, 4, 4)))
    assert unpooled.shape == (1, 2, 4, 4)
