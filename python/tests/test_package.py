"""The package as a whole: without torch, by its command, and its layers in the company that they keep."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import ferrolayer
import ferrolayer.torch as fl


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=os.environ | environment
    )


def test_import_takes_nothing_along():
    done = run("-c", "import sys, ferrolayer; assert not {'torch', 'numpy'} & set(sys.modules); ferrolayer.__version__")
    assert done.returncode == 0, done.stderr


def test_doctor():
    done = run("-m", "ferrolayer", "doctor", PYTHONIOENCODING="utf-8")
    assert done.returncode == 0, done.stderr
    for what in ("ferrolayer", "driver", "torch", "torch operators"):
        assert f" {what}: " in done.stdout
    assert ferrolayer.doctor().healthy
    assert run("-m", "ferrolayer", "doctor", PYTHONIOENCODING="ascii").returncode == 0


def test_doctor_without_torch():
    code = "import sys; sys.modules['torch'] = None; import ferrolayer; print(ferrolayer.doctor())"
    done = run("-c", code, PYTHONIOENCODING="utf-8")
    assert "– torch: not installed" in done.stdout, done.stderr


def test_unknown_commands():
    done = run("-m", "ferrolayer", "cure")
    assert done.returncode == 2
    assert "invalid choice: 'cure'" in done.stderr


def network():
    return nn.Sequential(
        fl.MaxPool2d(2),
        fl.GaussianPool2d(2, kernels=2),
        fl.PReLU(),
        fl.AvgPool2d(2),
        nn.Flatten(),
        fl.Linear(8, 6, activation="prelu"),
        fl.Linear(6, 4, activation="relu"),
        fl.ScaleAdd(2.0),
        fl.Linear(4, 3),
    )


def step(model, x):
    model.zero_grad()
    model(x).square().sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_checkpoint():
    model, x = network(), torch.randn(2, 1, 18, 18)
    expected = step(model, x)
    for reentrant in (False, True):
        model.zero_grad()
        checkpoint(model, x.clone().requires_grad_(), use_reentrant=reentrant).square().sum().backward()
        torch.testing.assert_close([p.grad for p in model.parameters()], expected)


def test_checkpoint_repeats_draws():
    layer, x = fl.StochasticPool2d(2), torch.rand(1, 1, 8, 8, requires_grad=True)
    y = checkpoint(layer, x, use_reentrant=False)
    (slope,) = torch.autograd.grad(y.sum(), x)
    drawn = (slope * x).unfold(2, 2, 2).unfold(3, 2, 2).sum((-1, -2))
    torch.testing.assert_close(drawn, y)


def test_functional_call():
    model, x = network(), torch.randn(2, 1, 18, 18)
    expected = step(model, x)
    parameters = dict(model.named_parameters())

    def loss(parameters):
        return torch.func.functional_call(model, parameters, x).square().sum()

    torch.testing.assert_close(list(torch.func.grad(loss)(parameters).values()), expected)


@pytest.mark.gpu
def test_graphed_callables():
    model, x = network().cuda(), torch.randn(2, 1, 18, 18, device="cuda")
    expected = step(model, x)
    graphed = torch.cuda.make_graphed_callables(model, (x,))
    torch.testing.assert_close(step(graphed, x), expected)


@pytest.mark.gpu
def test_reduce_overhead():
    model, x = network().cuda(), torch.randn(2, 1, 18, 18, device="cuda")
    expected = step(model, x)
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        torch.testing.assert_close(step(compiled, x), expected, rtol=1e-4, atol=1e-4)


def test_grad_scaler(device):
    model, x = network().to(device), torch.randn(2, 1, 18, 18, device=device)
    scaler = torch.amp.GradScaler(device, init_scale=128.0)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    before = [p.detach().clone() for p in model.parameters()]
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = model(x).float().square().sum()
    scaler.scale(loss).backward()
    scaler.step(optimiser)
    scaler.update()
    assert any(not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


@pytest.mark.gpu
def test_float64_is_for_the_cpu():
    with pytest.raises(RuntimeError, match=r"\.float\(\)"):
        fl.functional.relu(torch.ones(2, device="cuda", dtype=torch.float64))


def test_integers_are_refused():
    with pytest.raises(RuntimeError):
        fl.functional.relu(torch.ones(2, dtype=torch.int32))
