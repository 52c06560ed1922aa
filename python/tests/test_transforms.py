"""What PyTorch does with functions and layers: compile, export, transform, autocast, checkpoint, copy, distribute."""

from __future__ import annotations

import copy
import io
import os
import pickle
import shutil
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import laws
import pytest
import samples
import torch
from samples import PURE, SAMPLES, network, step
from torch import nn
from torch.utils.checkpoint import checkpoint

import ferrolayer.torch as fl

#: Compiling to machine code wants a compiler.
BACKENDS = ["aot_eager", "inductor"] if shutil.which("g++") or shutil.which("clang++") else ["aot_eager"]


def everything(x: torch.Tensor, w: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
    """Every function in one, of images `[N, C, H, W]`."""
    f = fl.functional
    x = f.prelu(f.add2(x, f.relu(x)), w)
    x = f.gaussian_pool2d(x, mean, var, 2, 1, 1)
    pooled = f.add2(f.max_pool2d(x, 3, 2, 1), f.avg_pool2d(x, 3, 2, 1, count_include_pad=False))
    mean_of_shares = f.stochastic_pool2d(pooled.abs() + 0.1, 2, 1, training=False)
    return f.scale_add(
        f.linear(mean_of_shares.flatten(1).mean(1, keepdim=True), w[:, None], activation="relu"), 3.0, 1.0
    )


def operands(images: int = 2, height: int = 8, width: int = 9) -> list[torch.Tensor]:
    return [torch.randn(images, 3, height, width), torch.rand(3), torch.randn(3, 2, 2) * 0.3, torch.rand(3, 2, 1) + 0.5]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_equals_eager(backend, dynamic):
    compiled = torch.compile(everything, fullgraph=True, dynamic=dynamic, backend=backend)
    for inputs in (operands(), operands(3, 10, 7)) if dynamic else (operands(),):
        expected = everything(*inputs)
        torch.testing.assert_close(compiled(*inputs), expected, rtol=1e-5, atol=1e-5)
        slopes = laws.gradients(everything, inputs)
        torch.testing.assert_close(laws.gradients(compiled, inputs), slopes, rtol=1e-4, atol=1e-5)


def test_free_sizes_are_compiled_once():
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    compiled = torch.compile(everything, fullgraph=True, dynamic=True, backend=counter)
    # No two of one size at first: those would be taken for the same, and that of a mean is always 2.
    for sizes in ((5, 8, 9), (4, 10, 7), (7, 12, 12)):
        inputs = operands(*sizes)
        torch.testing.assert_close(compiled(*inputs), everything(*inputs))
    assert counter.frame_count == 1


@pytest.mark.parametrize("make", [make for make, _, _ in samples.MODULES])
def test_modules_compile(make):
    shape = next(shape for other, shape, _ in samples.MODULES if other is make)
    layer, x = make(), torch.rand(shape)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    if isinstance(layer, fl.StochasticPool2d):
        windows = x.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
        assert (windows == compiled(x).unsqueeze(-1)).any(-1).all()
        return
    torch.testing.assert_close(compiled(x.clone()), layer(x.clone()))


class Everything(nn.Module):
    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return everything(*inputs)


def test_exported_programs_run(tmp_path):
    inputs = operands()
    exported = torch.export.export(Everything(), tuple(inputs))
    torch.export.save(exported, tmp_path / "everything.pt2")
    loaded = torch.export.load(tmp_path / "everything.pt2")
    for program in (exported, loaded, exported.run_decompositions()):
        torch.testing.assert_close(program.module()(*inputs), everything(*inputs))
    torch.testing.assert_close(laws.gradients(loaded.module(), inputs), laws.gradients(everything, inputs))


def test_exported_with_free_sizes():
    n, height, width = (torch.export.Dim(name, min=2, max=64) for name in ("n", "height", "width"))
    exported = torch.export.export(
        Pools(), (torch.randn(2, 3, 16, 12),), dynamic_shapes={"x": {0: n, 2: height, 3: width}}
    )
    for shape in ((5, 3, 17, 12), (2, 3, 8, 31)):
        x = torch.randn(shape)
        torch.testing.assert_close(exported.module()(x), Pools()(x))


class Pools(nn.Module):
    """All pools, of images of any size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        f = fl.functional
        parameters = torch.zeros(1, 1, 2), torch.ones(1, 1, 1)
        gaussian = f.gaussian_pool2d(x, *parameters, 3, 2, 1, ceil_mode=True)
        pooled = f.max_pool2d(x, 3, 2, 1, ceil_mode=True) + f.avg_pool2d(x, 3, 2, 1, ceil_mode=True) + gaussian
        return pooled + f.stochastic_pool2d(x, 3, 2, 1, ceil_mode=True, training=False)


@pytest.mark.parametrize("sample", PURE, ids=samples.named(PURE))
def test_transforms_of_functions(sample):
    """`vjp`, `jacrev` of the function itself, and its second derivatives, against plain autograd."""
    inputs = sample.inputs(torch.float64)
    every = tuple(range(len(inputs)))
    y = sample.function(*inputs)
    dy = torch.randn_like(y)
    leaves = laws.fresh(inputs)
    expected = torch.autograd.grad(sample.function(*leaves), leaves, dy)
    value, back = torch.func.vjp(sample.function, *inputs)
    torch.testing.assert_close(value, y)
    torch.testing.assert_close(back(dy), expected)
    first = inputs[-1]
    jacobian = torch.func.jacrev(sample.function, argnums=len(inputs) - 1)(*inputs)
    assert jacobian.shape == y.shape + first.shape
    torch.testing.assert_close(torch.tensordot(dy, jacobian, y.dim()), expected[-1])

    def loss(*inputs: torch.Tensor) -> torch.Tensor:
        return sample.function(*inputs).pow(3).sum()

    def norm(*inputs: torch.Tensor) -> torch.Tensor:
        return sum((g * g).sum() for g in torch.func.grad(loss, argnums=every)(*inputs))

    leaves = laws.fresh(inputs)
    slopes = torch.autograd.grad(loss(*leaves), leaves, create_graph=True)
    twice = torch.autograd.grad(sum((g * g).sum() for g in slopes), leaves)
    torch.testing.assert_close(torch.func.grad(norm, argnums=every)(*inputs), twice)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sample", SAMPLES, ids=samples.named(SAMPLES))
def test_autocast_gives_torchs_types(device, sample, dtype):
    inputs = sample.inputs(device=device, requires_grad=True)
    for given in (inputs, [x.detach().to(dtype) for x in inputs]):
        with torch.autocast(device, dtype=dtype):
            try:
                expected = sample.theirs(*given).dtype if sample.theirs is not None else given[0].dtype
            except RuntimeError as error:
                pytest.skip(f"PyTorch itself: {error}")
            y = sample.function(*given)
        assert y.dtype is expected
    y = sample.function(*inputs)
    y.float().sum().backward()
    assert all(x.grad is None or x.grad.dtype is x.dtype for x in inputs)


def test_autocast_of_a_model_compiled():
    model, x = network(), torch.randn(2, 1, 18, 18)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(x)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(x)
    assert y.dtype is torch.bfloat16
    torch.testing.assert_close(compiled, y, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("sample", SAMPLES, ids=samples.named(SAMPLES))
def test_checkpoints_change_nothing(sample, reentrant):
    plain = sample.inputs()
    checked = laws.fresh(plain)
    plain = laws.fresh(plain)
    sample.function(*plain).square().sum().backward()
    checkpoint(sample.function, *checked, use_reentrant=reentrant).square().sum().backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(checked, plain, strict=True))


def test_grad_scaler_steps_as_with_torchs_layers():
    ours, x = nn.Sequential(fl.Linear(6, 5), fl.PReLU(), fl.Linear(5, 2)), torch.randn(4, 6)
    theirs = nn.Sequential(nn.Linear(6, 5), nn.PReLU(), nn.Linear(5, 2))
    theirs.load_state_dict(ours.state_dict())
    for model in (ours, theirs):
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        for factor in (1.0, float("inf"), 1.0):
            optimiser.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(x).float().square().mean()
            scaler.scale(loss * factor).backward()
            scaler.unscale_(optimiser)
            scaler.step(optimiser)
            scaler.update()
        # Twice as large, half of it for the step that was left out, and twice that.
        assert scaler.get_scale() == 2048.0
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert p.isfinite().all()
        torch.testing.assert_close(p, q, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(("make", "shape", "theirs"), samples.MODULES)
def test_modules_are_copied_and_stored(make, shape, theirs, tmp_path):
    layer = make().eval()
    x = torch.randn(shape)
    expected = layer(x.clone())
    torch.save(layer, tmp_path / "layer.pt")
    copies = [
        pickle.loads(pickle.dumps(layer)),
        copy.deepcopy(layer),
        torch.load(tmp_path / "layer.pt", weights_only=False),
    ]
    for other in copies:
        assert type(other) is type(layer)
        assert repr(other) == repr(layer)
        assert torch.equal(other(x.clone()), expected)
        assert all(p.data_ptr() != q.data_ptr() for p, q in zip(other.parameters(), layer.parameters(), strict=True))
    state = io.BytesIO()
    torch.save(layer.state_dict(), state)
    state.seek(0)
    fresh = make().eval()
    fresh.load_state_dict(torch.load(state, weights_only=True))
    assert torch.equal(fresh(x.clone()), expected)


WITH_TWIN = [(make, shape, theirs) for make, shape, theirs in samples.MODULES if theirs is not None]


@pytest.mark.parametrize(("make", "shape", "theirs"), WITH_TWIN)
def test_state_dicts_load_into_torchs_modules_and_back(make, shape, theirs):
    ours, twin, x = make(), theirs(), torch.randn(shape)
    twin.load_state_dict(ours.state_dict())
    again = make()
    again.load_state_dict(twin.state_dict())
    assert torch.equal(again(x.clone()), ours(x.clone()))
    y = twin(x.clone())
    y = y.relu() if getattr(ours, "activation", None) == "relu" else y
    torch.testing.assert_close(ours(x.clone()), y)


@pytest.mark.parametrize(("make", "shape", "theirs"), samples.MODULES)
def test_modules_on_the_meta_device(make, shape, theirs):
    """Shapes without numbers, as large models are laid out; then memory for them."""
    layer = make().to("meta")
    y = layer(torch.empty(shape, device="meta"))
    assert y.is_meta
    assert y.shape == make()(torch.randn(shape)).shape
    assert not any(t.is_meta for t in layer.to_empty(device="cpu").state_dict().values())


def test_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        inputs = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in operands()]
        y = everything(*inputs)
    assert y.shape == everything(*operands()).shape


def test_graphs_are_traced_by_make_fx():
    from torch.fx.experimental.proxy_tensor import make_fx

    inputs = operands()
    graph = make_fx(everything)(*inputs)
    other = operands()
    torch.testing.assert_close(graph(*other), everything(*other))


def test_views_of_conjugates_and_negatives():
    """A view that only says that its numbers are negated is read as what it says."""
    x = torch.randn(2, 3, 4, 4, dtype=torch.complex64)
    imaginary = torch.conj(x).imag
    assert imaginary.is_neg()
    torch.testing.assert_close(fl.functional.relu(imaginary), torch.relu(imaginary))
    torch.testing.assert_close(fl.functional.max_pool2d(imaginary, 2), nn.functional.max_pool2d(imaginary, 2))


def test_in_place_is_noticed():
    x = torch.randn(3, requires_grad=True)
    y = x * 1
    z = y * y
    fl.functional.relu_(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_threads():
    """Backward of several threads at once, and forward without the interpreter's lock."""
    from concurrent.futures import ThreadPoolExecutor

    model = network()
    inputs = [torch.randn(2, 1, 18, 18) for _ in range(8)]

    def slope(x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        return torch.autograd.grad(model(x).square().sum(), x)[0]

    expected = [slope(x) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for got, wanted in zip(pool.map(slope, inputs), expected, strict=True):
            torch.testing.assert_close(got, wanted)


def test_nothing_is_leaked():
    """Tensors go when their last user does: outputs, and what is saved for backward."""
    import gc
    import weakref

    def watched(sample: samples.Sample) -> list[weakref.ref[torch.Tensor]]:
        inputs = sample.inputs(requires_grad=True)
        y = sample.function(*inputs)
        y.sum().backward()
        return [weakref.ref(tensor) for tensor in (y, *inputs)]

    references = {name: watched(sample) for name, sample in zip(samples.named(SAMPLES), SAMPLES, strict=True)}
    gc.collect()
    assert not {name for name, found in references.items() if any(tensor() is not None for tensor in found)}


def test_no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(network(), torch.randn(2, 1, 18, 18))


WORKER = """
import os, sys, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
sys.path.insert(0, {tests!r})
from samples import network, step
rank, address = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
torch.manual_seed(0)
model, x = network(), torch.randn(4, 1, 18, 18)
whole = network()
whole.load_state_dict(model.state_dict())
if rank:
    for p in model.parameters():
        p.data.zero_()
parallel = DistributedDataParallel(model)
for _ in range(2):
    gradients = step(parallel, x[2 * rank : 2 * rank + 2])
    # Each process has half of the batch; DDP averages where the whole batch adds up.
    expected = [gradient / 2 for gradient in step(whole, x)]
    torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-5)
    for p, q in zip(model.parameters(), whole.parameters()):
        with torch.no_grad():
            p -= 0.01 * p.grad
            q -= 0.01 * q.grad / 2
    torch.testing.assert_close(list(model.parameters()), list(whole.parameters()))
sums = torch.cat([p.detach().flatten() for p in model.parameters()])
both = [torch.empty_like(sums) for _ in range(2)]
dist.all_gather(both, sums)
assert torch.equal(*both)
print("same on both", flush=True)
# Without the interpreter's own end: gloo's threads let go of the last tensors only after the collective has returned,
# and abort a process whose interpreter is gone by then.
os._exit(0)
"""


def test_distributed_data_parallel():
    if not torch.distributed.is_available():
        pytest.skip("this PyTorch is built without torch.distributed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    code = WORKER.format(tests=str(Path(__file__).parent))
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": "-1"}
    workers: list[subprocess.Popen[str]] = []
    outputs: list[tuple[Any, str, str]] = []
    try:
        for rank in range(2):
            command = [sys.executable, "-c", code, str(rank), address]
            pipe = subprocess.PIPE
            workers.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment))
        for worker in workers:
            out, errors = worker.communicate(timeout=300)
            outputs.append((worker.returncode, out, errors))
    finally:
        for worker in workers:
            worker.kill()
    for code_, out, errors in outputs:
        assert code_ == 0, errors
        assert "same on both" in out
