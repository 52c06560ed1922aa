import io
import pickle

import laws
import pytest
import torch
import torch.nn.functional as F

from ferrolayer.torch import Linear, functional
from ferrolayer.torch.linear import dense, plain


def operands(*leading, device="cpu", dtype=torch.float32):
    shapes = [(*leading, 5), (4, 5), (4,)]
    return [torch.randn(shape, device=device).to(dtype) for shape in shapes]


def activated(name):
    def theirs(x, w, b, alpha=None):
        z = F.linear(x, w, b)
        return z if name is None else z.relu() if name == "relu" else torch.where(z > 0, z, alpha * z)

    def ours(x, w, b, alpha=None):
        return functional.linear(x, w, b, activation=name, alpha=alpha)

    return ours, theirs


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 1, 3), (0,), (0, 3)])
@pytest.mark.parametrize("activation", [None, "relu", "prelu"])
def test_is_torchs(device, activation, leading):
    inputs = operands(*leading, device=device)
    if activation == "prelu":
        inputs.append(torch.rand(4, device=device))
    laws.agree(*activated(activation), inputs, rtol=1e-4, atol=1e-4)
    without_bias = [inputs[0], inputs[1]]
    laws.agree(functional.linear, F.linear, without_bias, rtol=1e-4, atol=1e-4)


def test_strided():
    x, w, b = operands(6)
    laws.agree(functional.linear, F.linear, [x.T.contiguous().T, w.T.contiguous().T, b])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("activation", [None, "relu", "prelu"])
def test_16_bits(device, activation, dtype):
    inputs = operands(3, device=device, dtype=dtype)
    if activation == "prelu":
        inputs.append(torch.rand(1, device=device, dtype=dtype))
    laws.agree(*activated(activation), inputs, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize(
    "shapes",
    [
        [(3, 7), (5, 6), (5,)],
        [(3, 7, 7), (5, 6), (5,)],
        [(3, 6), (5, 6), (4,)],
        [(), (5, 6), (5,)],
    ],
)
def test_refuses_what_torch_refuses(shapes):
    inputs = [torch.randn(shape) for shape in shapes]
    with pytest.raises(RuntimeError):
        F.linear(*inputs)
    with pytest.raises(RuntimeError):
        functional.linear(*inputs)


def test_refusals_say_what_is_wrong():
    x, w, b = operands(3)
    with pytest.raises(RuntimeError, match="must have the same dtype"):
        functional.linear(x.half(), w, b)
    with pytest.raises(RuntimeError, match=r"cannot be multiplied \(3x4 and 5x4\)"):
        functional.linear(x[:, :4], w, b)
    with pytest.raises(ValueError, match="alpha goes with activation"):
        functional.linear(x, w, b, activation="prelu")
    with pytest.raises(ValueError, match="activation must be"):
        Linear(3, 4, activation="gelu")


@pytest.mark.parametrize(
    "shapes", [[(8, 3), (3,)], [(3,), (3,)], [(2, 4, 3), (3,)], [(8, 3), (4, 3), (1,)], [(8, 3), (4, 3), ()]]
)
def test_odd_shapes(shapes):
    laws.agree(functional.linear, F.linear, [torch.randn(shape) for shape in shapes], rtol=1e-4, atol=1e-4)


def test_empty_sizes():
    torch.testing.assert_close(functional.linear(torch.ones(3, 0), torch.ones(5, 0), torch.ones(5)), torch.ones(3, 5))
    assert functional.linear(torch.ones(3, 6), torch.ones(0, 6)).shape == (3, 0)


@pytest.mark.parametrize("activation", [None, "relu", "prelu"])
def test_derivatives_and_transforms(activation):
    ours, _ = activated(activation)
    inputs = operands(3) + ([torch.rand(4)] if activation == "prelu" else [])
    laws.differentiable(ours, [x.double() for x in inputs])
    laws.transformable(ours, inputs)
    laws.compilable(ours, inputs)
    laws.exportable(ours, inputs)


@pytest.mark.parametrize("activation", [0, 1, 2])
def test_operator_is_registered_fully(activation):
    x, w, b = operands(3)
    alpha = torch.rand(4) if activation == 2 else None
    y, saved = torch.ops.ferrolayer.dense(x, w, b, alpha, activation, True)
    saved = y if activation == 1 else saved
    backward = torch.ops.ferrolayer.dense_backward.default
    laws.registered(backward, [y, x, w, alpha, saved, activation, True, True, True, activation == 2])
    laws.registered(backward, [y, x, w, alpha, saved, activation, False, True, False, False])
    inputs = laws.fresh([x, w, b]) + [None if alpha is None else alpha.requires_grad_()]
    laws.registered(dense.traced, [*inputs, activation, True])


def test_operator_without_activation_is_registered_fully():
    x, w, b = operands(3)
    backward = torch.ops.ferrolayer.linear_backward.default
    laws.registered(backward, [torch.ops.ferrolayer.linear(x, w, b), x, w, True, True, True])
    laws.registered(backward, [torch.ops.ferrolayer.linear(x, w, None), x, w, False, True, False])
    laws.registered(plain.traced, laws.fresh([x, w, b]))
    laws.registered(plain.traced, [*laws.fresh([x, w]), None])


PRECISIONS = ["f32", "f32_split", "tf32"]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("activation", [None, "relu", "prelu"])
def test_precision(device, activation, precision):
    inputs = operands(2, 3, device=device) + ([torch.rand(4, device=device)] if activation == "prelu" else [])
    _, theirs = activated(activation)

    def ours(x, w, b, alpha=None):
        return functional.linear(x, w, b, activation=activation, alpha=alpha, precision=precision)

    # So few rows go by f32 arithmetic, whatever is allowed.
    laws.agree(ours, theirs, inputs, rtol=1e-4, atol=1e-4)
    if device == "cpu":
        laws.differentiable(ours, [x.double() for x in inputs])
        laws.transformable(ours, inputs)
        laws.compilable(ours, inputs)
        laws.exportable(ours, inputs)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert ours(*inputs).dtype is torch.bfloat16


def test_a_wrong_precision_is_refused_by_name():
    x, w, b = operands(3)
    for wrong in ("TF32", "highest", None, 2):
        with pytest.raises(ValueError, match="linear: precision must be 'f32', 'f32_split' or 'tf32', but got"):
            functional.linear(x, w, b, precision=wrong)
        with pytest.raises(ValueError, match="Linear: precision must be 'f32', "):
            Linear(5, 4, precision=wrong)
    layer = Linear(5, 4)
    layer.precision = "tf23"
    with pytest.raises(ValueError, match="but got 'tf23'"):
        layer(x)
    with pytest.raises(RuntimeError, match=r"precision is 7, expected 0 \(f32\), 1 \(f32_split\) or 2 \(tf32\)"):
        torch.ops.ferrolayer.linear(x, w, b, 7)


@pytest.mark.parametrize("activation", [None, "prelu"])
def test_module_with_a_precision(activation):
    layer = Linear(5, 4, activation=activation, precision="tf32")
    assert "precision='tf32'" in repr(layer)
    laws.module_laws(layer, torch.randn(2, 5))
    assert pickle.loads(pickle.dumps(layer)).precision == "tf32"
    # As those were pickled that knew of none.
    del layer.__dict__["precision"]
    again = pickle.loads(pickle.dumps(layer))
    assert again.precision == "f32_split"
    assert again(torch.randn(2, 5)).shape == (2, 4)


def test_operators_take_what_knew_of_no_precision():
    """Graphs and programs that were made before the operators had that argument."""
    x, w, b = operands(3)
    ops = torch.ops.ferrolayer
    assert torch.equal(ops.linear(x, w, b), ops.linear(x, w, b, 1))
    y, saved = ops.dense(x, w, b, None, 1, True)
    assert torch.equal(y, ops.dense(x, w, b, None, 1, True, 2)[0])
    assert len(ops.linear_backward(y, x, w, True, True, True)) == 3
    assert len(ops.dense_backward(y, x, w, None, y, 1, True, True, True, False)) == 4

    class Old(torch.nn.Module):
        def forward(self, x, w, b):
            return torch.ops.ferrolayer_autograd.linear(x, w, b) + torch.ops.ferrolayer.linear(x, w, b)

    program = torch.export.export(Old(), (x, w, b))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    torch.testing.assert_close(torch.export.load(file).module()(x, w, b), 2 * F.linear(x, w, b))


@pytest.mark.gpu
@pytest.mark.parametrize("activation", [None, "relu"])
def test_precisions_on_a_gpu(activation):
    """Each has its own error; backward keeps forward's precision, eagerly and compiled."""
    x, w, dy = (torch.randn(512, 512, device="cuda") for _ in range(3))
    exact = x.double() @ w.double().T

    def both(function, precision):
        leaf = w.clone().requires_grad_()
        y = function(x, leaf, activation=activation, precision=precision)
        y.backward(dy)
        z = exact.relu() if activation else exact
        # Which sums are positive is the precision's own: of those near zero another may say otherwise.
        dz = dy.double() * (y > 0) if activation else dy.double()
        return [((a - b).norm() / b.norm()).item() for a, b in ((y, z), (leaf.grad, dz.T @ x.double()))]

    for function in (functional.linear, torch.compile(functional.linear, fullgraph=True, dynamic=False)):
        for exactly in ("f32", "f32_split"):
            assert all(error < 1e-6 for error in both(function, exactly))
        if torch.cuda.get_device_capability() == (9, 0):
            # Rounded to 11 digits: 2⁻¹² of each factor at most.
            assert all(1e-5 < error < 1e-3 for error in both(function, "tf32"))


def test_starts_as_torchs():
    torch.manual_seed(5)
    ours = Linear(5, 4)
    torch.manual_seed(5)
    theirs = torch.nn.Linear(5, 4)
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)
    assert repr(ours) == repr(theirs)
    theirs.load_state_dict(ours.state_dict())
    ours.load_state_dict(theirs.state_dict())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(device, dtype):
    layer = Linear(5, 4, device=device, activation="prelu", num_parameters=4)
    theirs = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.PReLU(4)).to(device)
    theirs[0].load_state_dict({"weight": layer.weight, "bias": layer.bias})
    x = torch.randn(3, 5, device=device)
    with torch.autocast(device, dtype=dtype):
        y = layer(x)
        torch.testing.assert_close(y, theirs(x), rtol=3e-2, atol=3e-2)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(compiled, y)
    y.float().sum().backward()
    assert {p.grad.dtype for p in layer.parameters()} == {torch.float32}


@pytest.mark.parametrize("activation", [None, "relu", "prelu"])
def test_module(activation):
    layer = Linear(5, 4, activation=activation)
    laws.module_laws(layer, torch.randn(2, 5))
    assert set(layer.state_dict()) == {"weight", "bias"} | ({"alpha"} if activation == "prelu" else set())
    assert Linear(5, 4, bias=False).bias is None
