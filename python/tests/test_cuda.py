"""The GPU's own matters: captured graphs, streams, several GPUs, memory, and that nothing waits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import samples
import torch
from samples import SAMPLES, network, step

import ferrolayer.torch as fl

pytestmark = pytest.mark.gpu

#: Without the one whose sample seeds a generator, which a capture must not see.
CAPTURED = [sample for sample in SAMPLES if sample.name != "stochastic_pool2d"]


def forward_and_back(sample: samples.Sample, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    y = sample.function(*inputs)
    return [y, *torch.autograd.grad(y, inputs, torch.ones_like(y))]


ALONE = """
import sys, torch
sys.path.insert(0, {tests!r})
import ferrolayer.torch as fl
from samples import network
x = torch.randn(2, 1, 18, 18, device="cuda", requires_grad=True)
model = network().cuda()
torch.ones(4, device="cuda") @ torch.ones(4, device="cuda")
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = model(x)
    z = fl.functional.stochastic_pool2d(x.detach().abs(), 2)
graph.replay()
torch.testing.assert_close(y, model(x))
print("captured")
"""


def test_capture_without_warming_up():
    """Kernels are loaded while the capture runs: the first call of all in a process of its own."""
    code = ALONE.format(tests=str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    assert "captured" in done.stdout


@pytest.mark.parametrize("sample", CAPTURED, ids=samples.named(CAPTURED))
def test_capture_of_both_passes(sample):
    inputs = sample.inputs(device="cuda", requires_grad=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        forward_and_back(sample, inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = forward_and_back(sample, inputs)
    for _ in range(2):
        with torch.no_grad():
            for x in inputs:
                x.mul_(0.75)
        graph.replay()
        assert all(torch.equal(a, b) for a, b in zip(captured, forward_and_back(sample, inputs), strict=True))


def test_a_captured_draw_is_anew_and_the_seed_repeats_it():
    x = torch.rand(4, 3, 32, 32, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = fl.functional.stochastic_pool2d(x, 2)

    def replayed(seed: int) -> list[torch.Tensor]:
        torch.cuda.manual_seed(seed)
        found = []
        for _ in range(3):
            graph.replay()
            found.append(y.clone())
        return found

    first, again, other = replayed(1), replayed(1), replayed(2)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[1], first[2])
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


def test_a_captured_constant_can_be_changed():
    layer, x = fl.ScaleAdd(2.0, 1.0).cuda(), torch.ones(8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = layer(x)
    for constant in (0.5, -3.0):
        layer.constant.fill_(constant)
        graph.replay()
        assert (y == 2.0 + constant).all()


def test_graphed_callables():
    model, x = network().cuda(), torch.randn(2, 1, 18, 18, device="cuda")
    expected = step(model, x)
    graphed = torch.cuda.make_graphed_callables(model, (x,))
    for _ in range(2):
        torch.testing.assert_close(step(graphed, x), expected)


@pytest.mark.parametrize("dynamic", [False, None])
def test_reduce_overhead(dynamic):
    model, x = network().cuda(), torch.randn(2, 1, 18, 18, device="cuda")
    expected = step(model, x)
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True, dynamic=dynamic)
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        torch.testing.assert_close(step(compiled, x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sample", SAMPLES, ids=samples.named(SAMPLES))
def test_side_streams(sample):
    """Work goes to the current stream, in order after what is there: inputs made late on a busy stream are right."""
    inputs = sample.inputs(device="cuda")
    expected = sample.function(*inputs)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        late = [torch.zeros_like(x) for x in inputs]
        torch.cuda._sleep(20_000_000)
        for x, value in zip(late, inputs, strict=True):
            x.copy_(value)
        y = sample.function(*late)
        # Freed on their stream before the work is done: what comes next there may have their memory, in order.
        del late
        for x in inputs:
            torch.full_like(x, torch.nan)
    torch.cuda.current_stream().wait_stream(side)
    y.record_stream(torch.cuda.current_stream())
    assert torch.equal(y, expected)


@pytest.mark.parametrize("sample", SAMPLES, ids=samples.named(SAMPLES))
def test_nothing_waits_for_the_gpu(sample):
    inputs = sample.inputs(device="cuda", requires_grad=True)
    forward_and_back(sample, inputs)
    torch.cuda.set_sync_debug_mode("error")
    try:
        forward_and_back(sample, inputs)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    # That mode sees PyTorch's own waiting alone. Ours would make the call last as long as the work before it.
    torch.cuda.synchronize()
    end = torch.cuda.Event()
    torch.cuda._sleep(500_000_000)
    with torch.no_grad():
        sample.function(*inputs)
    end.record()
    assert not end.query()
    torch.cuda.synchronize()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are not two GPUs here")
@pytest.mark.parametrize("sample", SAMPLES, ids=samples.named(SAMPLES))
def test_the_other_gpu(sample):
    inputs = sample.inputs(device="cpu")
    expected = sample.function(*[x.to("cuda:0") for x in inputs])
    assert torch.cuda.current_device() == 0
    there = [x.to("cuda:1").requires_grad_() for x in inputs]
    y, *slopes = forward_and_back(sample, there)
    assert torch.cuda.current_device() == 0
    assert {t.device.index for t in (y, *slopes)} == {1}
    if sample.name != "stochastic_pool2d":
        torch.testing.assert_close(y.to("cuda:0"), expected)
    if len(inputs) > 1:
        with pytest.raises(RuntimeError):
            sample.function(there[0], *[x.to("cuda:0") for x in inputs[1:]])


def settled(work: Callable[[], object]) -> tuple[int, int]:
    """What PyTorch holds of the device's memory after that work, and what all else does."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    reserved = torch.cuda.memory_stats()["reserved_bytes.all.current"]
    return reserved, total - free - reserved


def test_all_memory_is_torchs():
    model = network().cuda()
    grown = []
    # Other processes take and free memory of the device, too: of several times one has to be quiet. What we kept would
    # grow with the batch each time, by tens of megabytes.
    for batch in (512, 1024, 2048):
        small, large = (torch.randn(n, 1, 18, 18, device="cuda") for n in (2, batch))
        images = torch.randn(batch // 8, 64, 64, 64, device="cuda", requires_grad=True)

        def pools(images: torch.Tensor = images) -> None:
            y = fl.functional.max_pool2d(images, 3, 2, 1) + fl.functional.stochastic_pool2d(images, 3, 2, 1)
            torch.autograd.grad(y.sum(), images)

        pools()
        _, before = settled(lambda x=small: step(model, x))
        _, after = settled(lambda x=large: step(model, x))
        _, finally_ = settled(pools)
        grown.append(max(after, finally_) - before)
        if grown[-1] < 8 << 20:
            return
    pytest.fail(f"more memory by {grown} bytes that PyTorch does not know of")


def test_memory_is_given_back():
    model, x = network().cuda(), torch.randn(64, 1, 18, 18, device="cuda")
    step(model, x)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(20):
        step(model, x)
    assert torch.cuda.memory_allocated() == before


@pytest.mark.parametrize("sample", SAMPLES, ids=samples.named(SAMPLES))
def test_float64_is_for_the_cpu(sample):
    inputs = sample.inputs(torch.float64, "cuda")
    with pytest.raises(RuntimeError, match=r"float64.*\.float\(\)"):
        sample.function(*inputs)


@pytest.mark.parametrize("sample", SAMPLES, ids=samples.named(SAMPLES))
def test_a_gpus_bits_repeat(sample):
    inputs = sample.inputs(device="cuda", requires_grad=True)
    first = forward_and_back(sample, inputs)
    assert all(torch.equal(a, b) for a, b in zip(forward_and_back(sample, inputs), first, strict=True))


def test_mixed_devices_are_refused():
    with pytest.raises(RuntimeError):
        fl.functional.add2(torch.ones(2, device="cuda"), torch.ones(2))
    with pytest.raises(RuntimeError):
        fl.functional.prelu(torch.ones(2, 2, device="cuda"), torch.ones(2))
