"""`ferrolayer.functional`: arrays of NumPy and other libraries, by DLPack."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

np = pytest.importorskip("numpy")

from ferrolayer import functional as F  # noqa: E402

RNG = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def windows(x, size, stride, padding, dilation=1, fill=0.0):
    """`[N, C, Ho, Wo, size, size]`: the elements of each window of `x: [N, C, H, W]`."""
    padded = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)], constant_values=fill)
    extent = dilation * (size - 1) + 1
    views = np.lib.stride_tricks.sliding_window_view(padded, (extent, extent), axis=(2, 3))
    return views[:, :, ::stride, ::stride, ::dilation, ::dilation]


def scattered(values, shape, size, stride, padding, dilation=1):
    """The transpose of `windows`."""
    n, c, h, w = shape
    padded = np.zeros((n, c, h + 2 * padding, w + 2 * padding), np.float64)
    for i in range(size):
        for j in range(size):
            rows = slice(i * dilation, i * dilation + values.shape[2] * stride, stride)
            columns = slice(j * dilation, j * dilation + values.shape[3] * stride, stride)
            padded[:, :, rows, columns][:, :, : values.shape[2], : values.shape[3]] += values[..., i, j]
    return padded[:, :, padding : padding + h, padding : padding + w]


def close(got, expected, dtype=np.float32):
    tolerance = {2: 1e-2, 4: 1e-5, 8: 1e-12}[np.dtype(dtype).itemsize]
    np.testing.assert_allclose(np.asarray(got, np.float64), expected, rtol=tolerance, atol=tolerance)


# What is computed, against the formulas.


def test_elementwise():
    x, dy = normal(2, 3, 4), normal(2, 3, 4)
    y = F.relu(x)
    assert type(y) is np.ndarray and y.dtype == np.float32 and y.flags.writeable
    close(y, np.maximum(x, 0))
    close(F.relu_backward(dy, y), dy * (x > 0))
    slopes = np.array([0.1, 0.2, 0.3], np.float32)
    slope = slopes[:, None]
    close(F.prelu(x, slopes), np.where(x > 0, x, slope * x))
    dx, dslopes = F.prelu_backward(dy, x, slopes)
    close(dx, np.where(x > 0, dy, slope * dy))
    close(dslopes, np.where(x > 0, 0, x * dy).sum((0, 2)))
    assert F.prelu_backward(dy, x, slopes, needs=(True, False))[1] is None
    close(F.add2(x, dy), x + dy)
    assert F.add2_backward(dy) == (dy, dy)
    close(F.scale_add(x, 2, 0.5), x * 2 + 0.5)
    close(F.scale_add(x, np.float32([2]), 0.5), x * 2 + 0.5)
    close(F.scale_add_backward(dy, 2.0), dy * 2)


@pytest.mark.parametrize("precision", ["f32", "f32_split", "tf32"])
def test_linears_precision(precision):
    x, w, dy = normal(2, 4), normal(3, 4), normal(2, 3)
    close(F.linear(x, w, precision=precision), x @ w.T)
    assert F.linear_forward(x, w, precision=precision)[1] is None
    dx, *_ = F.linear_backward(dy, x, w, precision=precision)
    close(dx, dy @ w)


@pytest.mark.parametrize("activation", [None, "relu", "prelu"])
def test_linear(activation):
    x, w, b, dy = normal(2, 5, 4), normal(3, 4), normal(3), normal(2, 5, 3)
    alpha = np.array([0.1, 0.2, 0.3], np.float32) if activation == "prelu" else None
    z = x @ w.T + b
    slope = {None: np.ones_like(z), "relu": (z > 0) * 1.0}.get(activation, np.where(z > 0, 1, alpha))
    y, saved = F.linear_forward(x, w, b, activation=activation, alpha=alpha)
    close(y, z * slope)
    close(F.linear(x, w, b, activation=activation, alpha=alpha), z * slope)
    dx, dw, db, dalpha = F.linear_backward(dy, x, w, saved, activation=activation, alpha=alpha)
    dz = dy * slope
    close(dx, dz @ w)
    close(dw, np.einsum("bno,bni->oi", dz, x))
    close(db, dz.sum((0, 1)))
    if activation == "prelu":
        close(dalpha, np.where(z > 0, 0, z * dy).sum((0, 1)))
    else:
        assert dalpha is None


@pytest.mark.parametrize(("size", "stride", "padding", "dilation"), [(2, 2, 0, 1), (3, 2, 1, 1), (2, 1, 1, 2)])
def test_max_pool(size, stride, padding, dilation):
    x = normal(2, 3, 7, 7)
    arguments = (size, stride, padding, dilation)
    seen = windows(x, *arguments, fill=-np.inf).reshape(2, 3, -1, size * size)
    y, indices = F.max_pool2d(x, *arguments, return_indices=True)
    close(y, seen.max(-1).reshape(y.shape))
    assert indices.dtype == np.int32
    np.testing.assert_array_equal(
        np.take_along_axis(x.reshape(2, 3, 49), indices.reshape(2, 3, -1), -1).ravel(), y.ravel()
    )
    np.testing.assert_array_equal(F.max_pool2d(x, *arguments), y)
    again, positions = F.max_pool2d_forward(x, *arguments)
    np.testing.assert_array_equal(again, y)
    assert positions.dtype == np.uint8
    np.testing.assert_array_equal(positions.reshape(2, 3, -1), seen.argmax(-1))
    dy = normal(*y.shape)
    expected = np.zeros((2, 3, 49))
    np.add.at(expected.reshape(6, 49), (np.repeat(np.arange(6), y[0, 0].size), indices.ravel()), dy.ravel())
    close(F.max_pool2d_backward(dy, positions, x.shape, *arguments), expected.reshape(x.shape))


def test_avg_pool():
    x = normal(2, 3, 7, 7)
    arguments = (3, 2, 1)
    seen = windows(x, *arguments)
    counts = windows(np.ones_like(x), *arguments).sum((-1, -2), keepdims=True)
    dy = normal(*seen.shape[:4])
    for options, divisor in [({}, 9), ({"count_include_pad": False}, counts), ({"divisor_override": 4}, 4)]:
        close(F.avg_pool2d(x, *arguments, **options), (seen / divisor).sum((-1, -2)))
        spread = dy[..., None, None] / divisor * np.ones((3, 3))
        close(F.avg_pool2d_backward(dy, x.shape, *arguments, **options), scattered(spread, x.shape, *arguments))


def test_stochastic_pool():
    x = np.maximum(normal(2, 3, 6, 6), -0.5)
    positive = np.maximum(windows(x, 2, 2, 0), 0)
    total = positive.sum((-1, -2))
    close(
        F.stochastic_pool2d(x, 2, training=False),
        np.divide((positive**2).sum((-1, -2)), total, out=np.zeros_like(total), where=total > 0),
    )
    y, positions = F.stochastic_pool2d_forward(x, 2, seed=7, offset=3)
    np.testing.assert_array_equal(F.stochastic_pool2d(x, 2, seed=7, offset=3), y)
    assert (F.stochastic_pool2d(x, 2, seed=7, offset=4) != y).any()
    drawn = positions < 4
    chosen = np.take_along_axis(
        positive.reshape(2, 3, 3, 3, 4), np.where(drawn, positions, 0)[..., None].astype(int), -1
    )
    np.testing.assert_array_equal(np.where(drawn, chosen[..., 0], 0), y)
    dy = normal(*y.shape)
    at = (positions[..., None] == np.arange(4)).reshape(*y.shape, 2, 2) * dy[..., None, None]
    close(F.stochastic_pool2d_backward(dy, positions, x.shape, 2), scattered(at, x.shape, 2, 2, 0))
    with pytest.raises(TypeError, match="seed is None"):
        F.stochastic_pool2d(x, 2)


def test_gaussian_pool():
    x, dy = normal(2, 3, 6, 6), normal(2, 6, 3, 3)
    mean, var = normal(1, 2, 2) * np.float32(0.5), np.exp(normal(1, 2, 2) * np.float32(0.5))

    def weights(mean, var):
        distance = (np.arange(2) - 0.5) - mean.astype(np.float64)[0, ..., None]
        g = np.exp(-(distance**2) / (2 * var.astype(np.float64)[0, ..., None]))
        g = g / g.sum(-1, keepdims=True)
        return g[:, 0, :, None] * g[:, 1, None, :]

    def forward(mean, var):
        y = np.einsum("nchwij,kij->nckhw", windows(x, 2, 2, 0), weights(mean, var))
        return y.reshape(2, 6, 3, 3)

    close(F.gaussian_pool2d(x, mean, var, 2), forward(mean, var))
    dx, dmean, dvar = F.gaussian_pool2d_backward(dy, x, mean, var, 2)
    spread = np.einsum("nckhw,kij->nchwij", dy.reshape(2, 3, 2, 3, 3), weights(mean, var))
    close(dx, scattered(spread, x.shape, 2, 2, 0))
    for index in np.ndindex(1, 2, 2):
        step = np.zeros((1, 2, 2))
        step[index] = 1e-4
        slope = ((forward(mean + step, var) - forward(mean - step, var)) * dy).sum() / 2e-4
        np.testing.assert_allclose(dmean[index], slope, rtol=1e-3, atol=1e-3)
        slope = ((forward(mean, var + step) - forward(mean, var - step)) * dy).sum() / 2e-4
        np.testing.assert_allclose(dvar[index], slope, rtol=1e-3, atol=1e-3)
    assert F.gaussian_pool2d_backward(dy, x, mean, var, 2, needs=(False, False, True))[:2] == (None, None)


def test_a_single_image_is_a_batch_of_one():
    x = normal(3, 6, 6)
    mean, var = np.zeros((1, 1, 2), np.float32), np.ones((1, 1, 1), np.float32)
    for function, arguments, options in [
        (F.max_pool2d, (2,), {}),
        (F.avg_pool2d, (2,), {}),
        (F.stochastic_pool2d, (2,), {"seed": 1}),
        (F.gaussian_pool2d, (mean, var, 2), {}),
    ]:
        y = function(x, *arguments, **options)
        np.testing.assert_array_equal(y, function(x[None], *arguments, **options)[0])
    y, positions = F.max_pool2d_forward(x, 2)
    assert F.max_pool2d_backward(y, positions, x.shape, 2).shape == x.shape
    assert F.avg_pool2d_backward(y, x.shape, 2).shape == x.shape
    assert F.gaussian_pool2d_backward(y, x, mean, var, 2)[0].shape == x.shape


# What is taken.


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_types(dtype):
    x, w = normal(4, 3, dtype=dtype), normal(2, 3, dtype=dtype)
    y = F.linear(x, w)
    assert y.dtype == dtype
    close(y, x.astype(np.float64) @ w.astype(np.float64).T, dtype)
    assert F.prelu(x, np.array([0.25], dtype)).dtype == dtype
    dx, dslope = F.prelu_backward(x, x, np.array([0.25], dtype))
    assert dx.dtype == dtype and dslope.dtype == (np.float64 if dtype == np.float64 else np.float32)


def test_bfloat16():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x = normal(2, 3, 4, 4).astype(bfloat16)
    for given in (x, x[:, :, ::-1], read_only(x)):
        y = F.relu(given)
        assert y.dtype == bfloat16 and y.shape == x.shape
        np.testing.assert_array_equal(y.astype(np.float32), np.maximum(given.astype(np.float32), 0))
    close(F.avg_pool2d(x, 2).astype(np.float32), windows(x.astype(np.float64), 2, 2, 0).mean((-1, -2)), np.float16)


def read_only(x):
    x = x.view()
    x.flags.writeable = False
    return x


VIEWS = {
    "read-only": read_only,
    "transposed": lambda x: x.transpose(0, 1, 3, 2),
    "channels last": lambda x: np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
    "reversed dimensions": lambda x: np.ascontiguousarray(x.T).T,
    "sliced": lambda x: np.repeat(x, 2, -1)[..., ::2],
    "cropped": lambda x: np.pad(x, 1)[1:-1, 1:-1, 1:-1, 1:-1],
    "reversed": lambda x: x[:, ::-1, :, ::-1],
    "broadcast": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "broadcast element": lambda x: np.broadcast_to(x[0, 0, 0, 0], x.shape),
    "a field of records": lambda x: np.rec.fromarrays([x.astype(np.int8), x], names="a,b")["b"],
    "misaligned": lambda x: np.frombuffer(b"." + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),
    "one image": lambda x: x[1:2],
    "one channel": lambda x: x[:, 1:2],
    "no images": lambda x: x[:0],
    "Fortran": np.asfortranarray,
}


@pytest.mark.parametrize("view", VIEWS)
def test_views(view):
    x = VIEWS[view](normal(2, 3, 6, 6))
    before = x.copy()
    np.testing.assert_array_equal(F.relu(x), np.maximum(x, 0))
    np.testing.assert_array_equal(F.add2(x, np.ascontiguousarray(x)), x + x)
    close(F.avg_pool2d(x, 2), windows(x, 2, 2, 0).mean((-1, -2)))
    y, positions = F.max_pool2d_forward(x, 2)
    np.testing.assert_array_equal(y, windows(x, 2, 2, 0).max((-1, -2), initial=-np.inf))
    dx = F.max_pool2d_backward(VIEWS["reversed"](y), positions, x.shape, 2)
    np.testing.assert_array_equal(dx, F.max_pool2d_backward(y[:, ::-1, :, ::-1].copy(), positions, x.shape, 2))
    np.testing.assert_array_equal(x, before)


def test_images_with_the_channels_last_stay_so():
    x = VIEWS["channels last"](normal(2, 3, 6, 6))
    y = F.avg_pool2d(x, 2)
    assert y.strides == (3 * 9 * 4, 4, 3 * 3 * 4, 3 * 4)
    assert F.avg_pool2d(x[0], 2).strides == y.strides[1:]


def test_no_dimensions_and_no_elements():
    y = F.relu(np.array(-3.0, np.float32))
    assert y.shape == () and y == 0
    assert F.prelu(np.array(-4.0), np.array([0.5])) == -2
    assert F.relu(np.zeros((0, 5), np.float32)).shape == (0, 5)
    assert F.linear(np.zeros((0, 5), np.float32), np.ones((2, 5), np.float32)).shape == (0, 2)
    with pytest.raises(ValueError, match="shape"):
        F.linear(np.float32([[]]), np.zeros((2, 0), np.float32))


def test_results_of_other_libraries_are_arguments():
    x = normal(3, 4)

    class Foreign:
        """Of a library that no one knows, with DLPack as it was before versions."""

        def __init__(self, array):
            self.array = array
            self.shape, self.dtype = array.shape, array.dtype

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __dlpack__(self, stream=None):
            return self.array.__dlpack__()

    y = F.relu(Foreign(x))
    assert type(y) is F.Array
    assert (y.shape, y.ndim, y.dtype, y.device) == ((3, 4), 2, "float32", "cpu")
    assert repr(y) == "ferrolayer.functional.Array(shape=[3, 4], dtype=float32, device=cpu)"
    np.testing.assert_array_equal(np.asarray(F.scale_add(y, 2.0, 0.0)), np.maximum(x, 0) * 2)
    assert F.linear(Foreign(x.reshape(3, 2, 2)[:, 0]), np.ones((1, 2), np.float32)).shape == (3, 1)


def test_threads():
    x = normal(8, 3, 16, 16)
    expected = F.avg_pool2d(x, 3)
    wrong = []

    def work():
        for _ in range(50):
            if not np.array_equal(F.avg_pool2d(x, 3), expected):
                wrong.append(True)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_no_library_is_imported():
    code = (
        "import sys; import ferrolayer.functional; "
        "print([name for name in ('numpy', 'torch', 'jax', 'cupy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


# What is refused.


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones(3, bool), "relu: x is bool, expected float32, float64, float16 or bfloat16; convert it"),
        (np.ones(3, np.int64), "relu: x is int64, expected float32"),
        (np.ones(3, np.int8), "relu: x is int8, expected float32"),
        (np.ones(3, np.complex64), "relu: x is complex64, expected float32"),
        (np.ones(3, object), "relu: x is object, expected float32"),
        (np.ones(3, ">f4"), r'relu: x is float32 with the bytes of the other order; use .astype\("float32"\)'),
        ([1.0, 2.0], "relu: x is of type list, expected an array with __dlpack__"),
        ("x", "relu: x is of type str, expected an array"),
        (None, "relu: x is None, expected an array"),
    ],
)
def test_what_is_no_array_of_numbers(x, message):
    with pytest.raises(TypeError, match=message):
        F.relu(x)


@pytest.mark.parametrize(
    ("device", "name"), [((10, 0), "ROCm memory"), ((13, 0), "CUDA's managed memory"), ((99, 0), "DLPack's device 99")]
)
def test_other_devices(device, name):
    class Elsewhere:
        shape, dtype = (1,), "float32"

        def __dlpack_device__(self):
            return device

        def __dlpack__(self, **_):
            raise AssertionError

    with pytest.raises(TypeError, match=f"relu: x is in {name}; move it to the CPU or a CUDA GPU"):
        F.relu(Elsewhere())


def test_a_library_may_refuse():
    class Refusing:
        shape, dtype = (1,), "float32"

        def __dlpack_device__(self):
            return 1, 0

        def __dlpack__(self, **_):
            raise BufferError("not today")

    with pytest.raises(TypeError, match="relu: x is not handed over by its library: not today") as caught:
        F.relu(Refusing())
    assert isinstance(caught.value.__cause__, BufferError)


def test_wrong_arguments():
    x = normal(2, 3, 6, 6)
    with pytest.raises(ValueError, match=r"b has shape \[2, 3\]"):
        F.add2(x, x[:, :, 0, 0])
    with pytest.raises(TypeError, match="b is float64, expected float32"):
        F.add2(x, x.astype(np.float64))
    with pytest.raises(TypeError, match="must be tuple of ints, not float"):
        F.max_pool2d(x, 2.0)
    with pytest.raises(ValueError, match=r"input has shape \(6, 6\)"):
        F.avg_pool2d(x[0, 0], 2)
    with pytest.raises(ValueError, match="expected"):
        F.avg_pool2d(x, 2, padding=3)
    with pytest.raises(ValueError, match="divisor_override is 0"):
        F.avg_pool2d(x, 2, divisor_override=0)
    with pytest.raises(ValueError, match="normalize must be"):
        F.gaussian_pool2d(x, x, x, 2, normalize="none")
    with pytest.raises(ValueError, match="alpha goes with"):
        F.linear(x, x, activation="prelu")
    with pytest.raises(ValueError, match="saved is None"):
        F.linear_backward(x, x, x, activation="relu")
    with pytest.raises(ValueError, match="precision must be 'f32', 'f32_split' or 'tf32', but got 'tf23'"):
        F.linear(x, x, precision="tf23")
    y = F.max_pool2d(x, 2)
    with pytest.raises(TypeError, match="indices is float32, expected uint8 or"):
        F.max_pool2d_backward(y, y, x.shape, 2)
