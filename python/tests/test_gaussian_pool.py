import laws
import pytest
import torch
import torch.nn.functional as F

from ferrolayer.torch import GaussianPool2d, functional
from ferrolayer.torch.gaussian_pool import gaussian_pool_forward, reference

WINDOWS = [((2, 2, 2, 2, 0, 0, False), 1), ((3, 2, 2, 1, 1, 0, True), 3)]


def parameters(sets, kernels=2, axes=2, device="cpu", dtype=torch.float32):
    mean = torch.randn(sets, kernels, 2, device=device, dtype=dtype) * 0.3
    return mean, torch.rand(sets, kernels, axes, device=device, dtype=dtype) + 0.5


def pools(window, normalize):
    kh, kw, sh, sw, ph, pw, ceil_mode = window

    def ours(x, mean, var):
        return functional.gaussian_pool2d(x, mean, var, (kh, kw), (sh, sw), (ph, pw), ceil_mode, normalize)

    return ours, lambda x, mean, var: reference(x, mean, var, *window, normalize == "valid")


@pytest.mark.parametrize("normalize", ["window", "valid"])
@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize(("window", "sets"), WINDOWS)
@pytest.mark.parametrize("layout", ["dense", "channels_last", "strided"])
def test_is_the_formula(device, layout, window, sets, axes, normalize):
    x = laws.images(2, 3, 8, 7, device=device, layout=layout)
    inputs = [x, *parameters(sets, 2, axes, device)]
    laws.agree(*pools(window, normalize), inputs, rtol=1e-4, atol=1e-4)


def test_16_bits(device):
    inputs = [laws.images(2, 3, 8, 7, device=device, dtype=torch.float16), *parameters(1, device=device)]
    laws.agree(*pools(WINDOWS[1][0], "valid"), inputs, rtol=1e-2, atol=1e-2)
    x, mean, var = inputs
    y = functional.gaussian_pool2d(x, mean.half(), var.half(), 2)
    torch.testing.assert_close(y, functional.gaussian_pool2d(x, mean.half().float(), var.half().float(), 2))


def test_limits():
    x = torch.randn(1, 2, 6, 6)
    layer = GaussianPool2d(2, kernels=2, mean=[[0.0, 0.0], [-0.5, 0.5]], var=[[1e9], [1e-9]])
    y = layer(x).unflatten(1, (2, 2))
    torch.testing.assert_close(y[:, :, 0], F.avg_pool2d(x, 2))
    torch.testing.assert_close(y[:, :, 1], x[:, :, ::2, 1::2])


@pytest.mark.parametrize("normalize", ["window", "valid"])
@pytest.mark.parametrize(("window", "sets"), WINDOWS)
def test_derivatives(window, sets, normalize):
    inputs = [torch.randn(1, 3, 5, 4, dtype=torch.float64), *parameters(sets, dtype=torch.float64)]
    laws.differentiable(pools(window, normalize)[0], inputs)


def test_transforms():
    ours, _ = pools(WINDOWS[1][0], "valid")
    inputs = [torch.randn(2, 3, 5, 4), *parameters(3, axes=1)]
    laws.transformable(ours, inputs)
    laws.compilable(ours, inputs)
    laws.exportable(ours, inputs)


def test_operators_are_registered_fully():
    x, mean, var = torch.randn(2, 3, 5, 4), *parameters(1, axes=1)
    window = (*WINDOWS[1][0], True)
    y = torch.ops.ferrolayer.gaussian_pool(x, mean, var, *window)
    backward = torch.ops.ferrolayer.gaussian_pool_backward.default
    laws.registered(backward, [y, x, mean, var, *window, True, True, True])
    laws.registered(backward, [y, x, mean, var, *window, False, True, False])
    laws.registered(gaussian_pool_forward.traced, [*laws.fresh([x, mean, var]), *window])


@pytest.mark.parametrize(
    ("mean", "var", "words"),
    [
        ((2, 1, 2), (2, 1, 1), "mean must have shape"),
        ((1, 1, 1), (1, 1, 1), "mean must have shape"),
        ((1, 2, 2), (1, 1, 1), "var must have shape"),
        ((1, 2, 2), (1, 2, 3), "var must have shape"),
    ],
)
def test_refuses_parameters_of_other_shapes(mean, var, words):
    with pytest.raises(RuntimeError, match=words):
        functional.gaussian_pool2d(torch.randn(1, 3, 4, 4), torch.zeros(mean), torch.ones(var), 2)


def test_refuses_other_arguments():
    with pytest.raises(ValueError, match="normalize must be"):
        GaussianPool2d(2, normalize="image")
    with pytest.raises(ValueError, match="var must be finite and above 0"):
        GaussianPool2d(2, var=0.0)
    with pytest.raises(ValueError, match="does not broadcast"):
        GaussianPool2d(2, kernels=2, mean=[1.0, 2.0, 3.0])
    with pytest.raises(RuntimeError, match="var"):
        functional.gaussian_pool2d(torch.randn(1, 1, 4, 4), torch.zeros(1, 1, 2), torch.zeros(1, 1, 1), 2)


def test_module_parameters():
    layer = GaussianPool2d(3, 1, 1, kernels=2, channels=4, per_axis=True, mean=[[-1, 0], [1, 0]], var=[[[2.0, 3.0]]])
    assert layer.mean.shape == (4, 2, 2)
    assert layer.log_var.shape == (4, 2, 2)
    assert layer.mean[3, 0].tolist() == [-1, 0]
    torch.testing.assert_close(layer.var, torch.tensor([2.0, 3.0]).expand(4, 2, 2))
    assert set(layer.state_dict()) == {"mean", "log_var"}
    assert layer(torch.randn(4, 6, 5)).shape == (8, 6, 5)
    layer.set_var(0.5)
    torch.testing.assert_close(layer.var, torch.full((4, 2, 2), 0.5))
    fixed = GaussianPool2d(2, learnable=False, var=2.0)
    assert not list(fixed.parameters())
    assert set(fixed.state_dict()) == {"mean", "var"}
    assert fixed.double().var.dtype is torch.float64
    scattered = GaussianPool2d((3, 1), kernels=64, mean="scattered")
    assert scattered.mean[..., 0].abs().max() <= 1
    assert scattered.mean[..., 0].std() > 0.3
    assert (scattered.mean[..., 1] == 0).all()


def test_variances_stay_positive():
    layer = GaussianPool2d(2, mean=0.3)
    optimiser = torch.optim.SGD(layer.parameters(), lr=1e3)
    for _ in range(10):
        optimiser.zero_grad()
        layer(torch.randn(2, 3, 4, 4)).square().mean().backward()
        optimiser.step()
        assert (layer.var > 0).all()
        assert layer.var.isfinite().all()


def test_module():
    for learnable in (True, False):
        layer = GaussianPool2d(2, kernels=2, channels=3, learnable=learnable, normalize="valid")
        laws.module_laws(layer, torch.randn(2, 3, 4, 4))
    assert repr(layer) == (
        "GaussianPool2d(kernel_size=2, stride=2, padding=0, kernels=2, channels=3, learnable=False, normalize='valid')"
    )
