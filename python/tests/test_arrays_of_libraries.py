"""`ferrolayer.functional`: arrays of PyTorch, JAX and others on the CPU."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from test_array_results import result  # noqa: E402
from test_arrays import normal  # noqa: E402

from ferrolayer import functional as F  # noqa: E402


def test_torch():
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    x = torch.randn(2, 3, 7, 7)
    y = F.relu(x)
    assert type(y) is torch.Tensor and torch.equal(y, x.relu())
    pooled, positions = F.max_pool2d_forward(x, 3, 2, 1)
    assert torch.equal(pooled, functional.max_pool2d(x, 3, 2, 1)) and positions.dtype is torch.uint8
    _, indices = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    assert torch.equal(indices.long(), functional.max_pool2d(x, 3, 2, 1, return_indices=True)[1])
    _, positions = F.max_pool2d_forward(torch.randn(1, 1, 20, 20), 17)
    assert positions.dtype is torch.uint16
    torch.testing.assert_close(F.avg_pool2d(x, 3, 2, 1), functional.avg_pool2d(x, 3, 2, 1))
    assert F.avg_pool2d(x.contiguous(memory_format=torch.channels_last), 2).is_contiguous(
        memory_format=torch.channels_last
    )
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        low = x.to(dtype)
        torch.testing.assert_close(
            F.prelu(low, torch.full((3,), 0.25, dtype=dtype)), functional.prelu(low, low.new_full((3,), 0.25))
        )
    wants = x.clone().requires_grad_()
    with pytest.raises(TypeError, match=r"relu: x is not handed over by its library: .*detach\(\)"):
        F.relu(wants)
    torch.testing.assert_close(F.relu(x[:, :, ::2, 1:]), x[:, :, ::2, 1:].relu())
    # Either library's arrays may be the others' arguments; results are the first's.
    assert type(F.add2(x.numpy(), x)) is np.ndarray
    assert torch.equal(torch.from_dlpack(result()[0]), torch.arange(6.0).reshape(2, 3))


def test_torch_gradients_by_hand():
    torch = pytest.importorskip("torch")
    x, w, b = torch.randn(4, 5), torch.randn(3, 5), torch.randn(3)
    alpha = torch.tensor([0.2])
    leaves = [t.clone().requires_grad_() for t in (x, w, b, alpha)]
    dy = torch.randn(4, 3)
    torch.nn.functional.prelu(torch.nn.functional.linear(*leaves[:3]), leaves[3]).backward(dy)
    _, saved = F.linear_forward(x, w, b, activation="prelu", alpha=alpha)
    gradients = F.linear_backward(dy, x, w, saved, activation="prelu", alpha=alpha)
    for gradient, leaf in zip(gradients, leaves, strict=True):
        torch.testing.assert_close(gradient, leaf.grad)


def test_jax():
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(normal(2, 3, 6, 6))
    y = F.relu(x)
    assert isinstance(y, jax.Array)
    np.testing.assert_array_equal(np.asarray(y), np.maximum(np.asarray(x), 0))
    low = F.avg_pool2d(x.astype("bfloat16"), 2)
    assert low.dtype == jax.numpy.bfloat16

    @jax.custom_vjp
    def pool(x):
        return F.max_pool2d(x, 2)

    def forward(x):
        y, positions = F.max_pool2d_forward(x, 2)
        return y, (positions, x.shape)

    def backward(saved, dy):
        return (F.max_pool2d_backward(dy, *saved, 2),)

    pool.defvjp(forward, backward)
    y, back = jax.vjp(pool, x)
    (dx,) = back(jax.numpy.ones_like(y))
    assert dx.shape == x.shape and float(dx.sum()) == y.size
    with pytest.raises(TypeError, match="pure_callback"):
        jax.jit(F.relu)(x)


def test_jax_in_a_traced_function():
    jax = pytest.importorskip("jax")
    from ferrolayer.functional import _jax

    x = normal(2, 3)
    expected = jax.ShapeDtypeStruct(x.shape, x.dtype)

    @jax.jit
    def traced(x):
        # Of a JAX for the CPU there is nothing to wait for.
        _jax.fence(99, 1)
        return jax.pure_callback(lambda x: np.asarray(F.relu(np.asarray(x))), expected, x) + 1

    np.testing.assert_allclose(np.asarray(traced(x)), np.maximum(x, 0) + 1)


def test_array_api_strict():
    strict = pytest.importorskip("array_api_strict")
    x = strict.asarray(normal(2, 3))
    y = F.relu(x)
    assert type(y) is F.Array
    np.testing.assert_array_equal(np.asarray(strict.from_dlpack(y)), np.maximum(np.asarray(x), 0))
