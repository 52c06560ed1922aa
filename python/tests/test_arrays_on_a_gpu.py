"""`ferrolayer.functional` on a GPU: arrays of the libraries that have some there."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from test_arrays import normal  # noqa: E402

from ferrolayer import functional as F  # noqa: E402


def on_gpu(library):
    """What makes a GPU's array of a NumPy array, or skips."""
    module = pytest.importorskip({"torch cuda": "torch"}.get(library, library))
    if library == "torch cuda":
        if not module.cuda.is_available():
            pytest.skip("no GPU that torch sees")
        return lambda x: module.from_numpy(np.ascontiguousarray(x)).cuda()
    if library == "cupy":
        try:
            count = module.cuda.runtime.getDeviceCount()
        except module.cuda.runtime.CUDARuntimeError as error:
            pytest.skip(f"no GPU that cupy sees: {error}")
        if count == 0:
            pytest.skip("no GPU that cupy sees")
        return module.asarray
    try:
        device = module.devices("gpu")[0]
    except RuntimeError as error:
        pytest.skip(f"no GPU that jax sees: {error}")
    return lambda x: module.device_put(x, device)


def to_numpy(x):
    if hasattr(x, "get"):
        return x.get()
    return np.asarray(x.cpu() if hasattr(x, "cpu") else x)


gpu_libraries = pytest.mark.parametrize("library", ["torch cuda", "cupy", "jax"])


@gpu_libraries
def test_gpu_results_are_the_cpus(library):
    put = on_gpu(library)
    x, dy, w, b = normal(2, 3, 6, 6), normal(2, 3, 3, 3), normal(4, 6), normal(4)
    mean, var = np.zeros((1, 1, 2), np.float32), np.ones((1, 1, 1), np.float32)
    xs, dys = put(x), put(dy)
    y = F.relu(xs)
    assert type(y) is type(xs)
    pairs = [
        (y, F.relu(x)),
        (F.relu_backward(xs, y), F.relu_backward(x, F.relu(x))),
        (F.scale_add(xs, 2.0, put(np.float32([1]))), F.scale_add(x, 2.0, 1.0)),
        (F.linear(xs, put(w), put(b), activation="relu"), F.linear(x, w, b, activation="relu")),
        (F.avg_pool2d(xs, 2), F.avg_pool2d(x, 2)),
        (F.avg_pool2d(xs[0], 2), F.avg_pool2d(x[0], 2)),
        (F.gaussian_pool2d(xs, put(mean), put(var), 2), F.gaussian_pool2d(x, mean, var, 2)),
        (F.stochastic_pool2d(xs, 2, seed=1), F.stochastic_pool2d(x, 2, seed=1)),
        *zip(F.max_pool2d(xs, 2, return_indices=True), F.max_pool2d(x, 2, return_indices=True), strict=True),
    ]
    _, positions = F.max_pool2d_forward(xs, 2)
    pairs.append(
        (F.max_pool2d_backward(dys, positions, x.shape, 2), F.max_pool2d_backward(dy, to_numpy(positions), x.shape, 2))
    )
    for slopes in (np.float32([0.25]), np.float32([0.1, 0.2, 0.3])):
        pairs += zip(F.prelu_backward(xs, xs, put(slopes)), F.prelu_backward(x, x, slopes), strict=True)
    for got, expected in pairs:
        np.testing.assert_allclose(to_numpy(got), expected, rtol=1e-4, atol=1e-5)
    assert F.relu(put(x[:0])).shape == (0, 3, 6, 6)
    assert to_numpy(F.relu(put(np.float32(-1)))) == 0


@gpu_libraries
def test_gpu_views_and_refusals(library):
    put = on_gpu(library)
    x = normal(2, 3, 6, 6)
    xs = put(x)
    if library == "jax":
        return
    for view in (lambda x: x.swapaxes(2, 3), lambda x: x[1:], lambda x: x.reshape(-1)[1:], lambda x: x.swapaxes(0, 3)):
        np.testing.assert_array_equal(to_numpy(F.relu(view(xs))), np.maximum(view(x), 0))
    with pytest.raises(TypeError, match="x has gaps, .*pass a dense copy"):
        F.relu(xs[..., ::2])
    with pytest.raises(TypeError, match="x is float64, which GPU 0 .* does not compute; convert it to float32"):
        F.relu(put(x.astype(np.float64)))
    with pytest.raises(TypeError, match="x is bool"):
        F.relu(put(x > 0))
    with pytest.raises(ValueError, match="b is on the CPU, expected GPU 0"):
        F.add2(xs, x)


@gpu_libraries
def test_gpu_results_are_given_by_the_protocol(library):
    put = on_gpu(library)
    from ferrolayer._native import array_functions

    x = normal(2, 3)
    array = array_functions()["relu"](put(x))
    assert array.__dlpack_device__() == (2, 0) and array.device == "cuda:0"
    for stream in (None, -1, 1, 2):
        array.__dlpack__(stream=stream)
    for stream in (0, -2):
        with pytest.raises(ValueError, match=f"stream is {stream}, expected None, -1, 1, 2"):
            array.__dlpack__(stream=stream)
    with pytest.raises(TypeError, match="not in the CPU's memory"):
        np.asarray(array)
    with pytest.raises(BufferError, match="by a copy alone"):
        array.__dlpack__(dl_device=(1, 0), copy=False)

    class OnCpu:
        def __dlpack_device__(self):
            return 1, 0

        def __dlpack__(self, **options):
            return array.__dlpack__(dl_device=(1, 0), max_version=options.get("max_version"))

    np.testing.assert_array_equal(np.from_dlpack(OnCpu()), np.maximum(x, 0))


def slow_torch(torch):
    """Keeps the current stream busy for some tens of milliseconds."""
    torch.cuda._sleep(50_000_000)


@pytest.mark.parametrize("own_stream", [False, True])
def test_gpu_order_with_torch(own_stream):
    put = on_gpu("torch cuda")
    import torch

    size = 1 << 22
    with torch.cuda.stream(torch.cuda.Stream() if own_stream else torch.cuda.default_stream()):
        x = put(np.zeros(size, np.float32))
        for number in range(1, 11):
            # Ours waits for theirs.
            slow_torch(torch)
            x.fill_(number)
            y = F.relu(x)
            # Theirs for ours, also where it only overwrites the argument.
            x.fill_(-1)
            assert (y == number).all()
            # The argument's memory, which torch uses again at once, is not used by ours any more.
            given = torch.full((size,), float(number), device="cuda")
            y = F.scale_add(given, 2.0, 1.0)
            del given
            torch.full((size,), -7.0, device="cuda")
            assert (y == number * 2 + 1).all()
            # Ours does not use a result's memory again that theirs still reads.
            y = F.relu(torch.full((size,), float(number), device="cuda"))
            slow_torch(torch)
            copy = y * 1
            del y
            for _ in range(4):
                F.relu(torch.full((size,), 99.0, device="cuda"))
            assert (copy == number).all()


def test_gpu_order_with_cupy():
    put = on_gpu("cupy")
    import cupy

    size = 1 << 22
    spin = cupy.RawKernel(
        'extern "C" __global__ void spin() { long long t = clock64(); while (clock64() - t < 50000000); }', "spin"
    )
    for number in range(1, 11):
        with cupy.cuda.Stream(non_blocking=True):
            x = put(np.zeros(size, np.float32))
            spin((1,), (1,), ())
            x.fill(number)
            y = F.relu(x)
            x.fill(-1)
            assert (y == number).all()
            spin((1,), (1,), ())
            copy = y * 1
        # The stream's object goes before the result, whose memory's end is ordered by the stream.
        del y, x
        F.relu(put(np.full(size, 99, np.float32)))
        cupy.cuda.Device().synchronize()
        assert (copy == number).all()


def test_gpu_order_with_jax():
    put = on_gpu("jax")
    size = 1 << 22
    for number in range(1, 11):
        x = put(np.full(size, number, np.float32))
        y = F.scale_add(x, 2.0, 0.0)
        x.delete()
        others = [put(np.full(size, -1, np.float32)) for _ in range(4)]
        assert (y == 2 * number).all()
        z = y + 1
        del y
        F.relu(others[0])
        assert (z == 2 * number + 1).all()


def test_gpu_memory_does_not_grow():
    put = on_gpu("torch cuda")
    import torch

    x = put(normal(1 << 20))
    for _ in range(20):
        F.relu(x)
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(1000):
        F.relu(x)
    torch.cuda.synchronize()
    # Each call makes 4 MiB.
    assert before - torch.cuda.mem_get_info()[0] < 256 << 20


def test_gpu_is_not_captured():
    put = on_gpu("torch cuda")
    import torch

    x = put(normal(8))
    F.relu(x)
    torch.cuda.synchronize()
    with pytest.raises(RuntimeError, match="captured as a CUDA graph"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.mul_(1)
        F.relu(x)
    assert torch.equal(F.relu(x), x.relu())
