"""Every op against what PyTorch computes, over the stored cases of tests/vectors: forward and every gradient.

Where an op is to differ from PyTorch its check quotes docs/SPEC.md, "Differences from PyTorch", and holds the op to
that.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import vectors
from torch import Tensor
from vectors import Trial
from windows import Windows

from ferrolayer.torch import GaussianPool2d, functional

# What the vectors hold and the package does not: losses and optimisers are PyTorch's there.
ABSENT = {"softmax_cross_entropy", "sgd", "adam"}


def arguments(case: dict[str, Any]) -> dict[str, Any]:
    return {
        "kernel_size": tuple(case["size"]),
        "stride": tuple(case["stride"]),
        "padding": tuple(case["padding"]),
        "ceil_mode": case["ceil_mode"],
    }


def windows_of(case: dict[str, Any]) -> Windows:
    outputs = case["outputs"]["y"][2:]
    return Windows(case["x"][2:], outputs, case["size"], case["stride"], case["padding"], case["dilation"])


def slopes(trial: Trial, y: Tensor, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The gradient of each input, by the name that the case's outputs have."""
    gradients = torch.autograd.grad(y, list(inputs.values()), trial.gradient().to(y.device))
    return dict(zip(inputs, gradients, strict=True))


def same_without_gradients(trial: Trial, y: Tensor, again: Tensor) -> None:
    """Where no gradient is wanted other kernels run, which give the same bits."""
    trial.exact("y", again, y.detach().cpu())


def max_pool(trial: Trial) -> None:
    case = trial.case
    window = {**arguments(case), "dilation": tuple(case["dilation"])}
    x = trial.leaf(case["values"], 0, case["x"])
    y, index = functional.max_pool2d(x, **window, return_indices=True)
    trial.exact("y", y)
    same_without_gradients(trial, y, functional.max_pool2d(x.detach(), **window))
    if index.dtype is not torch.int64:
        trial.wrong.append(f"index is {index.dtype}")

    # "Max: of several NaN in a window the first wins, as of other equals; PyTorch keeps the last. A window whose
    # positions all lie outside the image has minus infinity and passes no gradient on; PyTorch's index points outside
    # the image."
    windows = windows_of(case)
    nan = windows.take(x.detach().cpu()).isnan() & windows.inside
    first = torch.where(nan, windows.pixel, windows.height * windows.width).flatten(-2).amin(-1)
    expected = trial.expected("index").long()
    corrected = torch.where(nan.flatten(-2).any(-1), first, expected)
    somewhere = windows.inside.flatten(-2).any(-1).expand_as(expected)
    got, wanted = (torch.where(somewhere, t, 0).to(trial.dtype) for t in (index.cpu(), corrected))
    trial.exact("index", got, wanted)

    dy, flat = (torch.where(somewhere, t, 0).flatten(2) for t in (trial.gradient().double(), corrected))
    plane = torch.zeros(*dy.shape[:2], windows.height * windows.width, dtype=torch.float64)
    routed = plane.scatter_add(2, flat, dy).reshape(case["x"]).to(trial.dtype)
    sizes = plane.scatter_add(2, flat, dy.abs())
    dx = trial.expected("dx") if torch.equal(expected, corrected) else routed
    trial.close("dx", slopes(trial, functional.max_pool2d(x, **window), {"dx": x})["dx"], windows.positions, sizes, dx)
    trial.close("dx", slopes(trial, y, {"dx": x})["dx"], windows.positions, sizes, dx)


def avg_pool(trial: Trial) -> None:
    case = trial.case
    window = {**arguments(case), "count_include_pad": case["count_include_pad"], "divisor_override": case["divisor"]}
    x = trial.leaf(case["values"], 0, case["x"])
    y = functional.avg_pool2d(x, **window)
    same_without_gradients(trial, y, functional.avg_pool2d(x.detach(), **window))
    windows = windows_of(case)
    if case["divisor"] is None:
        counted = windows.padded if case["count_include_pad"] else windows.inside
        divisor = counted.flatten(-2).sum(-1).double()
    else:
        divisor = torch.tensor(abs(case["divisor"]), dtype=torch.float64)
    x_size, dy_size = x.detach().cpu().double().abs(), trial.gradient().double().abs()
    trial.close("y", y, windows.positions, windows.take(x_size).sum((-2, -1)) / divisor)
    terms = (dy_size / divisor)[..., None, None].expand(*dy_size.shape, *case["size"])
    trial.close("dx", slopes(trial, y, {"dx": x})["dx"], windows.positions, windows.put(terms))


def stochastic_pool(trial: Trial) -> None:
    case = trial.case
    x = trial.leaf(case["values"], 0, case["x"])
    y = functional.stochastic_pool2d(x, **arguments(case), training=False)
    same_without_gradients(trial, y, functional.stochastic_pool2d(x.detach(), **arguments(case), training=False))
    windows = windows_of(case)
    # A mean is at most its largest element, and none counts but those above zero.
    sizes = windows.take(x.detach().cpu()).relu().nan_to_num(nan=0.0, posinf=torch.inf).amax((-2, -1))
    # Of an infinity the formula makes NaN, as infinity by infinity; here it is NaN or infinite.
    got = y.detach().cpu()
    expected = torch.where(sizes.isinf() & ~got.isfinite(), got, trial.expected("y"))
    # A sum, a quotient and another sum for each position.
    trial.close("y", y, 3 * windows.positions, sizes, expected)


def gaussian_pool(trial: Trial) -> None:
    case = trial.case
    channels, kernels = case["x"][1], case["kernels"]
    sets, axes = 1 if case["shared"] else channels, 2 if case["per_axis"] else 1
    x = trial.leaf(case["values"], 0, case["x"])
    mean = trial.leaf(case["means"], 2, [sets, kernels, 2])
    var = trial.leaf("variances", 3, [sets, kernels, axes])
    window = {**arguments(case), "normalize": case["normalize"]}
    y = functional.gaussian_pool2d(x, mean, var, **window)
    same_without_gradients(trial, y, functional.gaussian_pool2d(x.detach(), mean.detach(), var.detach(), **window))
    got = slopes(trial, y, {"dx": x, "dmean": mean, "dvar": var})
    windows = windows_of(case)
    sizes = gaussian_sizes(trial, windows, *(t.detach().cpu().double() for t in (x, mean, var)))
    sums = y.numel() // (sets * kernels) * windows.positions
    trial.close("y", y, windows.positions, sizes["y"])
    trial.close("dx", got["dx"], windows.positions * kernels, sizes["dx"])
    for name in ("dmean", "dvar"):
        # "Of infinite inputs dmean and dvar are only required not to be finite."
        found, expected = got[name].cpu(), trial.expected(name)
        expected = torch.where(expected.isfinite() | found.isfinite(), expected, found)
        trial.close(name, got[name], sums, sizes[name], expected)


def gaussian_sizes(trial: Trial, windows: Windows, x: Tensor, mean: Tensor, var: Tensor) -> dict[str, Tensor]:
    """What the roundings of each result are relative to.

    A weight's relative error is as many roundings as its exponents are large, and its derivative is a weight times a
    difference. Dimensions: image, channel (or 1), kernel, Ho, Wo, kh, kw.
    """
    case = trial.case
    distance, slope_mean, slope_var = [], [], []
    for axis, size in enumerate(case["size"]):
        steps = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
        steps = steps[:, None] if axis == 0 else steps[None, :]
        away = (steps - mean[:, :, axis, None, None]).expand(*mean.shape[:2], *case["size"])
        variance = var[:, :, -1 if axis == 1 else 0, None, None]
        distance.append(away**2 / (2 * variance))
        slope_mean.append(away.abs() / variance)
        slope_var.append(away**2 / (2 * variance**2))

    def spread(t: Tensor) -> Tensor:
        return t[None, :, :, None, None]

    exponent = spread(-(distance[0] + distance[1]))
    counted = windows.inside if case["normalize"] == "valid" else torch.ones_like(windows.inside)
    masked = torch.where(counted, exponent, -torch.inf)
    largest = masked.amax((-2, -1), keepdim=True)
    weight = (masked - largest).exp()
    weight = weight / weight.sum((-2, -1), keepdim=True)
    size = weight * (1 + exponent.abs() + largest.abs())
    dy = trial.gradient().double().abs().unflatten(1, (case["x"][1], case["kernels"]))[..., None, None]
    pixels = windows.take(x.abs()).unsqueeze(2)

    def derivative(slope: Tensor) -> Tensor:
        slope = spread(slope)
        terms = size * (slope + (weight * slope).sum((-2, -1), keepdim=True)) * pixels * dy
        sums = torch.where(windows.inside, terms, 0).sum((0, 3, 4, 5, 6))
        return sums.sum(0, keepdim=True) if case["shared"] else sums

    of_mean, of_var = ([derivative(slope) for slope in slopes] for slopes in (slope_mean, slope_var))
    return {
        "y": torch.where(windows.inside, size * pixels, 0).sum((-2, -1)).flatten(1, 2),
        "dx": windows.put((size * dy).sum(2).expand(case["x"][0], case["x"][1], *windows.inside.shape)),
        "dmean": torch.stack(of_mean, -1),
        "dvar": torch.stack(of_var, -1) if case["per_axis"] else (of_var[0] + of_var[1]).unsqueeze(-1),
    }


def prelu(trial: Trial) -> None:
    case = trial.case
    x = trial.leaf(case["values"], 0, case["x"])
    alpha = trial.leaf(case["alpha"], 2, [case["slopes"]])
    y = functional.prelu(x, alpha)
    same_without_gradients(trial, y, functional.prelu(x.detach(), alpha.detach()))
    got = slopes(trial, y, {"dx": x, "dalpha": alpha})
    host, a, dy = (t.detach().cpu().double() for t in (x, alpha, trial.gradient()))
    slope = torch.where(host > 0, 1.0, a.reshape(-1, *(1,) * (host.dim() - 2)))
    trial.close("y", y, 1, (slope * host).abs())
    trial.close("dx", got["dx"], 1, (slope * dy).abs())
    terms = torch.where(host > 0, 0, (host * dy).abs()).movedim(1, 0).flatten(1).sum(1)
    trial.close(
        "dalpha", got["dalpha"], host.numel() // case["slopes"], terms if case["slopes"] > 1 else terms.sum(0, True)
    )


def relu(trial: Trial) -> None:
    x = trial.leaf(trial.case["values"], 0, trial.case["x"])
    y = functional.relu(x)
    same_without_gradients(trial, y, functional.relu(x.detach()))
    same_without_gradients(trial, y, functional.relu(x.detach().clone(), inplace=True))
    # "ReLU: -0 gives 0, since it is not above 0." The sum of -0 and 0 is 0.
    trial.exact("y", y, trial.expected("y") + 0.0)
    trial.exact("dx", slopes(trial, y, {"dx": x})["dx"])
    trial.exact("dx", slopes(trial, functional.relu(x.clone(), inplace=True), {"dx": x})["dx"])


def dense(trial: Trial) -> None:
    case = trial.case
    features, activation = case["features"], None if case["activation"] == "identity" else case["activation"]
    inputs = {
        "dx": trial.leaf(case["values"], 0, case["x"]),
        "dw": trial.leaf(case["weights"], 2, [features, case["x"][1]]),
    }
    if case["bias"]:
        inputs["db"] = trial.leaf(case["weights"], 3, [features])
    if activation == "prelu":
        inputs["dalpha"] = trial.leaf("plain", 4, [case["slopes"]])

    def ours(inputs: dict[str, Tensor]) -> Tensor:
        x, w, b, alpha = (inputs.get(name) for name in ("dx", "dw", "db", "dalpha"))
        return functional.linear(x, w, b, activation=activation, alpha=alpha)

    y = ours(inputs)
    same_without_gradients(trial, y, ours({name: t.detach() for name, t in inputs.items()}))
    got = slopes(trial, y, inputs)
    host = {name: t.detach().cpu().double() for name, t in inputs.items()}
    x, w, b = host["dx"], host["dw"], host.get("db", torch.zeros(features, dtype=torch.float64))
    z, z_size = x @ w.T + b, x.abs() @ w.abs().T + b.abs()
    slope = torch.ones_like(z)
    if activation == "relu":
        slope = torch.where(z <= 0, 0.0, slope)
    elif activation == "prelu":
        slope = torch.where(z > 0, slope, host["dalpha"].abs())
    dy = trial.gradient().double().abs()
    dz = slope * dy
    through = torch.where(z > 0, 0, z_size * dy)
    batch = case["x"][0]
    sums = {
        "dx": (features, dz @ w.abs()),
        "dw": (batch, dz.T @ x.abs()),
        "db": (batch, dz.sum(0)),
        "dalpha": (y.numel() + case["x"][1], through.sum(0) if case["slopes"] > 1 else through.sum().reshape(1)),
    }
    trial.close("y", y, case["x"][1] + 1, slope * z_size)
    for name, gradient in got.items():
        trial.close(name, gradient, *sums[name])


def add2(trial: Trial) -> None:
    a, b = (trial.leaf(trial.case["values"], number, trial.case["x"]) for number in (0, 2))
    y = functional.add2(a, b)
    same_without_gradients(trial, y, functional.add2(a.detach(), b.detach()))
    # One rounding, and none: all right results have the same bits.
    trial.exact("y", y)
    for name, gradient in slopes(trial, y, {"da": a, "db": b}).items():
        trial.exact(name, gradient)


def scale_add(trial: Trial) -> None:
    x = trial.leaf(trial.case["values"], 0, trial.case["x"])
    scale, constant = (trial.host("plain", number, [1]).to(trial.device) for number in (2, 3))
    y = functional.scale_add(x, scale, constant)
    same_without_gradients(trial, y, functional.scale_add(x.detach(), scale, constant))
    sizes = (x.detach() * scale).cpu().double().abs() + constant.cpu().double().abs()
    trial.close("y", y, 2, sizes)
    trial.exact("dx", slopes(trial, y, {"dx": x})["dx"])


def exp(trial: Trial) -> None:
    """The variances of a Gaussian pooling layer, which are `exp` of what it learns."""
    case = trial.case
    x = trial.host(case["values"], 0, case["x"])
    layer = GaussianPool2d(2, kernels=x.numel(), dtype=trial.dtype, device=trial.device)
    with torch.no_grad():
        layer.log_var.copy_(x.reshape(1, -1, 1))
    y = layer.var
    sizes = trial.expected("y").double()
    trial.close("y", y.reshape(case["x"]), 1, sizes)
    (dx,) = torch.autograd.grad(y, layer.log_var, trial.gradient().to(trial.device).reshape(y.shape))
    trial.close("dx", dx.reshape(case["x"]), 1, (sizes * trial.gradient().double()).abs())


CHECKS = {
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "gaussian_pool": gaussian_pool,
    "stochastic_pool": stochastic_pool,
    "prelu": prelu,
    "relu": relu,
    "dense": dense,
    "add2": add2,
    "scale_add": scale_add,
    "exp": exp,
}


def check(op: str, dtype: torch.dtype, device: str) -> None:
    """All cases of an op; reports those that fail, the first few in full."""
    cases = [case for case in vectors.cases() if case["op"] == op]
    assert cases, f"there is no case of {op}"
    failed = []
    for case in cases:
        trial = Trial(case, dtype, device)
        CHECKS[op](trial)
        if trial.wrong:
            failed.append(f"case {case['number']}, {case['line']}\n  " + "\n  ".join(trial.wrong))
    count = f"{op}, {dtype}, {device}: {len(failed)} of {len(cases)} cases differ from PyTorch"
    assert not failed, "\n".join([count, *failed[:5]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("op", CHECKS)
def test_cpu(op, dtype):
    check(op, dtype, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("op", CHECKS)
def test_cuda(op):
    check(op, torch.float32, "cuda")


def test_every_case_is_checked_or_left_out_by_name():
    ops = [case["op"] for case in vectors.cases()]
    assert set(ops) == set(CHECKS) | ABSENT
    assert sum(op in CHECKS for op in ops) == 2180


def test_the_comparison_sees_a_wrong_element():
    case = next(case for case in vectors.cases() if case["op"] == "add2")
    trial = Trial(case, torch.float32, "cpu")
    good = trial.expected("y").nan_to_num()
    bad = good.clone()
    bad.view(-1)[0] += max(1e-3, bad.view(-1)[0].abs().item() * 1e-3)
    for got, count in ((good, 0), (bad, 1)):
        trial.wrong.clear()
        trial.exact("y", got, good)
        assert len(trial.wrong) == count
        trial.close("y", got, 1, good.abs(), good)
        assert len(trial.wrong) == 2 * count
