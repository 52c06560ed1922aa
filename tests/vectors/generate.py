#!/usr/bin/env python3
"""Makes the vectors of the oracle: what PyTorch computes on its CPU, in float64 and float32, for every op that it has.

    python3 -m venv venv && venv/bin/pip install torch==2.15.0 numpy==2.4.6
    venv/bin/python tests/vectors/generate.py

writes `cases.jsonl` and `outputs.safetensors` beside this file. README.md there says what is in them. The same machine
gives the same bytes at each run; another CPU may round the last bit of a sum otherwise.

Cases are drawn by seed. Inputs are not stored: both this file and the test make them from a case's seed (see `values`).
Ops that PyTorch lacks, Gaussian and stochastic pooling, are composed from its primitives by their formulas.
"""

import json
import random
import struct
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

HERE = Path(__file__).parent
DTYPES = [("f64", torch.float64), ("f32", torch.float32)]


# ---- Inputs -----------------------------------------------------------------------------------------------------------

GOLDEN = 0x9E37_79B9_7F4A_7C15
TIES = [-1.0, -0.0, 0.0, 0.5, 1.0]


def mix(z):
    """The finaliser of SplitMix64 (Steele, Lea & Flood 2014)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return z ^ (z >> np.uint64(31))


def bits(seed, tensor, count):
    """64 random bits for each element of input number `tensor`: a function of seed, number and element alone."""
    stream = mix(np.array([(seed + GOLDEN * (tensor + 1)) % 2**64], dtype=np.uint64))
    return mix(stream + np.uint64(GOLDEN) * np.arange(1, count + 1, dtype=np.uint64))


def values(kind, seed, tensor, shape, dtype):
    """An input. Every operation here is exact, so that another language gets the same numbers.

    The upper bits of `bits` make a number in [-4, 4) that fills the type's mantissa, the lowest eight choose what else
    an element may be.
    """
    count = int(np.prod(shape))
    h = bits(seed, tensor, count)
    digits, smallest = (53, 2.0**-1074) if dtype == torch.float64 else (24, 2.0**-149)
    number = (h >> np.uint64(64 - digits)).astype(np.float64) * 2.0 ** (3 - digits) - 4.0
    low = (h & np.uint64(0xFF)).astype(np.int64)
    # Signed, of 20 bits: below the smallest normal number of both types.
    subnormal = ((h >> np.uint64(43)).astype(np.float64) - 2.0**20) * smallest

    def unless(*choices):
        """`number`, unless the low bits are below a choice's limit."""
        result = number
        for limit, value in reversed(choices):
            result = np.where(low < limit, value, result)
        return result

    if kind == "plain":
        result = number
    elif kind == "ties":
        result = np.array(TIES)[(h >> np.uint64(32)) % np.uint64(len(TIES))]
    elif kind == "special":
        result = unless((4, np.nan), (8, np.inf), (12, -np.inf), (20, -0.0), (28, 0.0), (36, subnormal))
    elif kind == "hostile":
        result = unless((48, np.nan), (72, np.inf), (128, -np.inf), (144, -0.0), (160, 0.0), (176, subnormal))
    elif kind == "subnormal":
        result = subnormal
    elif kind == "wide":
        result = number * np.exp2(low % 64 - 32)
    elif kind == "exponents":
        result = np.where(low < 16, 40.0, np.where(low < 32, -40.0, number * 16.0))
    elif kind == "variances":
        result = (np.abs(number) + 2.0**-6) * np.exp2(low % 8 - 4)
    else:
        raise ValueError(kind)
    return torch.from_numpy(result).to(dtype).reshape(shape)


def labels(seed, tensor, count, classes):
    return torch.from_numpy((bits(seed, tensor, count) % np.uint64(classes)).astype(np.int64))


# ---- Drawing ----------------------------------------------------------------------------------------------------------


class Impossible(Exception):
    """The drawn parameters are none: draw others."""


def weighted(rng, **weights):
    return rng.choices(list(weights), list(weights.values()))[0]


def draw_image(rng, large=False):
    if large:
        return [1, rng.randint(1, 2), rng.randint(12, 24), rng.randint(12, 24)]
    return [rng.choice([1, 1, 2]), rng.choice([1, 1, 2, 3]), rng.randint(1, 9), rng.randint(1, 9)]


def draw_window(rng, dilated=False, large=False):
    side = (lambda: rng.randint(9, 19)) if large else (lambda: rng.choice([1, 2, 2, 3, 3, 4, 5]))
    size = [side(), side()]
    return {
        "size": size,
        "stride": [rng.choice([1, 1, 2, 2, 3, 4, 7]) for _ in range(2)],
        "padding": [rng.choice([0, rng.randint(0, k // 2), k // 2]) for k in size],
        "dilation": [rng.choice([1, 1, 2, 3]) if dilated else 1 for _ in range(2)],
        "ceil_mode": rng.random() < 0.5,
    }


def outputs_along(length, case, axis):
    """How many windows PyTorch has along an axis, from PyTorch itself."""
    k, s, p, d = (case[name][axis] for name in ("size", "stride", "padding", "dilation"))
    try:
        line = torch.zeros(1, 1, 1, length)
        return F.max_pool2d(line, (1, k), (1, s), (0, p), (1, d), ceil_mode=case["ceil_mode"]).shape[3]
    except RuntimeError as error:
        raise Impossible(error) from error


def outputs_of(case):
    return [outputs_along(length, case, axis) for axis, length in enumerate(case["x"][2:])]


# ---- Ops: for each, how a case is drawn, and what PyTorch makes of it -------------------------------------------------


def gradients(y, dy, *inputs):
    return torch.autograd.grad(y, inputs, dy)


def draw_max_pool(rng):
    large = rng.random() < 0.04
    case = {"x": draw_image(rng, large), **draw_window(rng, dilated=not large, large=large)}
    outputs_of(case)
    case["values"] = weighted(rng, plain=3, ties=3, special=2, hostile=2, subnormal=1, wide=1)
    case["gradient"] = weighted(rng, plain=5, ties=1, special=1, subnormal=1)
    return case


def max_pool(case, dtype):
    x = values(case["values"], case["seed"], 0, case["x"], dtype)
    window = [case[name] for name in ("size", "stride", "padding", "dilation", "ceil_mode")]
    y, index = F.max_pool2d(x, *window, return_indices=True)
    dy = values(case["gradient"], case["seed"], 1, y.shape, dtype)
    # With dilation a window may have no position in the image at all. PyTorch's index of such a window is that of a
    # position outside, and its backward writes there: these are left out of `dx`.
    inside = [
        torch.tensor([any(0 <= o * s + i * d - p < length for i in range(k)) for o in range(outputs)])
        for outputs, length, k, s, p, d in zip(
            y.shape[2:], case["x"][2:], case["size"], case["stride"], case["padding"], case["dilation"]
        )
    ]
    inside = inside[0][:, None] & inside[1][None, :]
    given = [torch.where(inside, tensor, torch.zeros_like(tensor)) for tensor in (dy, index)]
    dx = torch.ops.aten.max_pool2d_with_indices_backward(given[0], x, *window, given[1])
    return {"y": y, "index": index.to(dtype), "dx": dx}


def draw_avg_pool(rng):
    large = rng.random() < 0.04
    case = {"x": draw_image(rng, large), **draw_window(rng, large=large)}
    outputs_of(case)
    case["count_include_pad"] = rng.random() < 0.5
    case["divisor"] = rng.choice([None, None, None, 1, 3, 7, -2])
    case["values"] = weighted(rng, plain=4, ties=1, special=2, hostile=1, subnormal=1, wide=1)
    case["gradient"] = weighted(rng, plain=5, ties=1, special=1, subnormal=1, wide=1)
    return case


def avg_pool(case, dtype):
    x = values(case["values"], case["seed"], 0, case["x"], dtype).requires_grad_()
    names = ("size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor")
    y = F.avg_pool2d(x, *[case[name] for name in names])
    dy = values(case["gradient"], case["seed"], 1, y.shape, dtype)
    (dx,) = gradients(y, dy, x)
    return {"y": y, "dx": dx}


def windows(x, case):
    """Each window's elements, `[.., Ho, Wo, kh, kw]`, with 0 for positions outside the image; and which are inside."""
    ahead, behind = [], []
    for axis, outputs in enumerate(outputs_of(case)):
        last = (outputs - 1) * case["stride"][axis] + case["size"][axis]
        ahead.append(case["padding"][axis])
        behind.append(max(0, last - x.shape[2 + axis] - case["padding"][axis]))
    around = (ahead[1], behind[1], ahead[0], behind[0])

    def unfold(image):
        for axis in (0, 1):
            image = image.unfold(2 + axis, case["size"][axis], case["stride"][axis])
        outputs = outputs_of(case)
        return image[:, :, : outputs[0], : outputs[1]]

    return unfold(F.pad(x, around)), unfold(F.pad(torch.ones_like(x), around)) == 1


def draw_gaussian_pool(rng):
    large = rng.random() < 0.03
    case = {"x": draw_image(rng, large), **draw_window(rng, large=large)}
    outputs_of(case)
    case["kernels"] = rng.choice([1, 1, 2, 3])
    case["shared"] = rng.random() < 0.5
    case["per_axis"] = rng.random() < 0.5
    case["normalize"] = rng.choice(["window", "valid"])
    case["values"] = weighted(rng, plain=5, ties=1, special=2, subnormal=1, wide=1)
    case["means"] = weighted(rng, plain=3, ties=2)
    case["gradient"] = weighted(rng, plain=6, ties=1, special=1)
    return case


def gaussian_pool(case, dtype):
    n, c, _, _ = case["x"]
    k, sets = case["kernels"], 1 if case["shared"] else c
    x = values(case["values"], case["seed"], 0, case["x"], dtype).requires_grad_()
    mean = values(case["means"], case["seed"], 2, [sets, k, 2], dtype).requires_grad_()
    var = values("variances", case["seed"], 3, [sets, k, 2 if case["per_axis"] else 1], dtype).requires_grad_()

    # g = exp(-d_y²/(2 var_y) - d_x²/(2 var_x)), d = i - (k-1)/2 - mu, for each set and kernel: [P, K, kh, kw].
    exponent = 0
    for axis, size in enumerate(case["size"]):
        d = torch.arange(size, dtype=dtype) - (size - 1) / 2 - mean[:, :, axis, None]
        along = -(d**2) / (2 * var[:, :, axis if case["per_axis"] else 0, None])
        exponent = exponent + (along[..., :, None] if axis == 0 else along[..., None, :])
    # [N, C, K, Ho, Wo, kh, kw] from here on.
    exponent = exponent.expand(c, -1, -1, -1)[None, :, :, None, None]
    pixels, inside = (tensor.unsqueeze(2) for tensor in windows(x, case))
    counts = inside if case["normalize"] == "valid" else torch.ones_like(inside)
    exponent = torch.where(counts, exponent, -torch.inf)
    g = torch.exp(exponent - exponent.amax((-2, -1), keepdim=True).detach())
    w = g / g.sum((-2, -1), keepdim=True)
    # A position outside reads as 0; `where` keeps an infinity of a weight's derivative away from it.
    y = torch.where(inside, w * pixels, 0).sum((-2, -1)).reshape(n, c * k, *pixels.shape[3:5])

    dy = values(case["gradient"], case["seed"], 1, y.shape, dtype)
    if ((w == 0) & counts).any() and not (x.isfinite().all() and dy.isfinite().all()):
        raise Impossible("a weight below the type's range makes NaN of an infinity, one just above it does not")
    dx, dmean, dvar = gradients(y, dy, x, mean, var)
    return {"y": y, "dx": dx, "dmean": dmean, "dvar": dvar}


def draw_stochastic_pool(rng):
    case = {"x": draw_image(rng), **draw_window(rng)}
    outputs_of(case)
    case["values"] = weighted(rng, plain=4, ties=3, special=1, subnormal=1, wide=1)
    return case


def stochastic_pool(case, dtype):
    """Inference: the sum of p a with a = max(x, 0) and p = a / sum a, and 0 for a window whose sum is 0."""
    pixels, _ = windows(values(case["values"], case["seed"], 0, case["x"], dtype), case)
    a = torch.relu(pixels)
    total = a.sum((-2, -1), keepdim=True)
    p = a / total
    y = torch.where(total == 0, 0, p * a).sum((-2, -1))
    return {"y": y}


def draw_shape(rng):
    if rng.random() < 0.5:
        return [rng.randint(1, 9), rng.randint(1, 17)]
    return [rng.randint(1, 3), rng.randint(1, 4), rng.randint(1, 5), rng.randint(1, 5)]


def draw_elementwise(rng):
    case = {"x": draw_shape(rng)}
    case["values"] = weighted(rng, plain=3, ties=2, special=2, hostile=1, subnormal=1, wide=1)
    case["gradient"] = weighted(rng, plain=4, ties=1, special=1, subnormal=1)
    return case


def draw_prelu(rng):
    case = draw_elementwise(rng)
    case["slopes"] = rng.choice([1, case["x"][1]])
    case["alpha"] = weighted(rng, plain=4, ties=1)
    return case


def prelu(case, dtype):
    x = values(case["values"], case["seed"], 0, case["x"], dtype).requires_grad_()
    alpha = values(case["alpha"], case["seed"], 2, [case["slopes"]], dtype).requires_grad_()
    y = F.prelu(x, alpha)
    dx, dalpha = gradients(y, values(case["gradient"], case["seed"], 1, y.shape, dtype), x, alpha)
    return {"y": y, "dx": dx, "dalpha": dalpha}


def relu(case, dtype):
    x = values(case["values"], case["seed"], 0, case["x"], dtype).requires_grad_()
    y = F.relu(x)
    (dx,) = gradients(y, values(case["gradient"], case["seed"], 1, y.shape, dtype), x)
    return {"y": y, "dx": dx}


def draw_dense(rng):
    case = {"x": [rng.randint(1, 7), rng.choice([1, 2, 3, 5, 8, 13, 20])], "features": rng.choice([1, 2, 3, 4, 7, 11])}
    case["bias"] = rng.random() < 0.5
    case["activation"] = rng.choice(["identity", "relu", "prelu", "prelu"])
    case["slopes"] = rng.choice([1, case["features"]])
    case["values"] = weighted(rng, plain=5, ties=2, special=2, subnormal=1, wide=1)
    case["weights"] = weighted(rng, plain=5, ties=2, special=1, wide=1)
    case["gradient"] = weighted(rng, plain=5, ties=1, special=1)
    return case


def dense(case, dtype):
    features, seed = case["features"], case["seed"]
    x = values(case["values"], seed, 0, case["x"], dtype).requires_grad_()
    w = values(case["weights"], seed, 2, [features, case["x"][1]], dtype).requires_grad_()
    b = values(case["weights"], seed, 3, [features], dtype).requires_grad_()
    alpha = values("plain", seed, 4, [case["slopes"]], dtype).requires_grad_()
    z = F.linear(x, w, b if case["bias"] else None)
    inputs = {"dx": x, "dw": w}
    if case["bias"]:
        inputs["db"] = b
    if case["activation"] == "identity":
        y = z
    else:
        # A sum that rounding can carry to the other side of the kink says nothing about an implementation.
        size = F.linear(x.detach().double().abs(), w.detach().double().abs(), b.detach().double().abs())
        if ((z != 0) & (z.double().abs() < 1e-4 * size)).any():
            raise Impossible("too near to the activation's kink")
        if case["activation"] == "relu":
            y = F.relu(z)
        else:
            y = F.prelu(z, alpha)
            inputs["dalpha"] = alpha
    dy = values(case["gradient"], seed, 1, y.shape, dtype)
    return {"y": y, **dict(zip(inputs, gradients(y, dy, *inputs.values())))}


def add2(case, dtype):
    a, b = (values(case["values"], case["seed"], tensor, case["x"], dtype).requires_grad_() for tensor in (0, 2))
    y = a + b
    da, db = gradients(y, values(case["gradient"], case["seed"], 1, y.shape, dtype), a, b)
    return {"y": y, "da": da, "db": db}


def scale_add(case, dtype):
    x = values(case["values"], case["seed"], 0, case["x"], dtype).requires_grad_()
    s, c = (values("plain", case["seed"], tensor, [1], dtype) for tensor in (2, 3))
    y = x * s + c
    (dx,) = gradients(y, values(case["gradient"], case["seed"], 1, y.shape, dtype), x)
    return {"y": y, "dx": dx}


def draw_exp(rng):
    case = draw_elementwise(rng)
    case["values"] = weighted(rng, exponents=4, plain=1, special=2, hostile=1, subnormal=1)
    return case


def exp(case, dtype):
    x = values(case["values"], case["seed"], 0, case["x"], dtype).requires_grad_()
    # By comparisons: the gradient of `clamp` is 0 at the bounds themselves and at NaN.
    bounded = torch.where(x > 40, 40, torch.where(x < -40, -40, x))
    y = torch.exp(bounded)
    (dx,) = gradients(y, values(case["gradient"], case["seed"], 1, y.shape, dtype), x)
    return {"y": y, "dx": dx}


def draw_softmax_cross_entropy(rng):
    case = {"x": [rng.randint(1, 9), rng.choice([1, 2, 3, 5, 10, 31, 33])]}
    case["values"] = weighted(rng, plain=4, ties=1, exponents=2, special=2, hostile=1, subnormal=1, wide=1)
    return case


def softmax_cross_entropy(case, dtype):
    x = values(case["values"], case["seed"], 0, case["x"], dtype).requires_grad_()
    dloss = values("plain", case["seed"], 1, [1], dtype)
    loss = F.cross_entropy(x, labels(case["seed"], 2, *case["x"])).reshape(1)
    (dx,) = gradients(loss, dloss, x)
    return {"loss": loss, "log_sum": torch.logsumexp(x, 1), "dx": dx}


def draw_steps(rng):
    case = {"x": [rng.choice([1, 3, 4, 17, 30])], "steps": rng.choice([1, 1, 2, 5])}
    case["gradient"] = weighted(rng, plain=4, ties=1, subnormal=1, wide=1, special=2)
    if case["gradient"] == "special":
        # See draw_adam.
        case["steps"] = 1
    case["learning_rate"] = rng.choice([0.5, 0.1, 1e-3])
    case["weight_decay"] = rng.choice([0.0, 0.01])
    return case


def draw_sgd(rng):
    momentum = rng.choice([0.0, 0.5, 0.9])
    return {**draw_steps(rng), "momentum": momentum, "nesterov": momentum > 0 and rng.random() < 0.5}


def draw_adam(rng):
    case = {**draw_steps(rng), "betas": rng.choice([[0.9, 0.999], [0.5, 0.9], [0.0, 0.99]])}
    if case["gradient"] == "special":
        # PyTorch writes the first moment as `lerp`, which takes a difference of two infinities where the formula of its
        # documentation has none: from the second step on, and with a beta of up to a half in the first.
        case["betas"] = [0.9, 0.999]
    return case


def after_steps(case, dtype, optimiser, **options):
    """The value after the steps, and what the optimiser keeps of it."""
    value = torch.nn.Parameter(values("plain", case["seed"], 0, case["x"], dtype))
    options = {"lr": case["learning_rate"], "weight_decay": case["weight_decay"], "foreach": False, **options}
    optimiser = optimiser([value], **options)
    for step in range(case["steps"]):
        value.grad = values(case["gradient"], case["seed"], 1 + step, case["x"], dtype)
        optimiser.step()
    return value, optimiser.state[value]


def sgd(case, dtype):
    options = {name: case[name] for name in ("momentum", "nesterov")}
    value, state = after_steps(case, dtype, torch.optim.SGD, **options)
    return {"value": value, **({"velocity": state["momentum_buffer"]} if case["momentum"] else {})}


def adam(case, dtype):
    value, state = after_steps(case, dtype, torch.optim.Adam, betas=case["betas"])
    return {"value": value, "first": state["exp_avg"], "second": state["exp_avg_sq"]}


OPS = {
    "max_pool": (500, draw_max_pool, max_pool),
    "avg_pool": (380, draw_avg_pool, avg_pool),
    "gaussian_pool": (360, draw_gaussian_pool, gaussian_pool),
    "stochastic_pool": (200, draw_stochastic_pool, stochastic_pool),
    "prelu": (160, draw_prelu, prelu),
    "relu": (80, draw_elementwise, relu),
    "dense": (300, draw_dense, dense),
    "add2": (60, draw_elementwise, add2),
    "scale_add": (60, draw_elementwise, scale_add),
    "exp": (80, draw_exp, exp),
    "softmax_cross_entropy": (120, draw_softmax_cross_entropy, softmax_cross_entropy),
    "sgd": (80, draw_sgd, sgd),
    "adam": (80, draw_adam, adam),
}


# ---- Files ------------------------------------------------------------------------------------------------------------


def make(op, number, draw, compute):
    """Case `number` of an op and its outputs in both types; drawn anew until it is possible."""
    for attempt in range(1000):
        # Not a hash of Python's: those differ from process to process.
        rng = random.Random(f"{op} {number} {attempt}")
        try:
            case = {"op": op, **draw(rng), "seed": rng.getrandbits(32)}
            return case, {name: compute(case, dtype) for name, dtype in DTYPES}
        except Impossible:
            continue
    raise RuntimeError(f"{op} {number}: nothing possible was drawn")


def write_safetensors(path, metadata, tensors):
    """The format, https://github.com/huggingface/safetensors: a header's length, the header as JSON, the data."""
    header, data = {"__metadata__": metadata}, b""
    for name, dtype, array in tensors:
        begin = len(data)
        data += array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    # One thread: how a sum is split between threads decides how it rounds.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    lines, stored = [], {name: [] for name, _ in DTYPES}
    for op, (count, draw, compute) in OPS.items():
        for number in range(count):
            case, outputs = make(op, number, draw, compute)
            shapes = {name: list(tensor.shape) for name, tensor in sorted(outputs["f64"].items())}
            lines.append(json.dumps({**case, "outputs": shapes}, separators=(",", ":")))
            for dtype in stored:
                for name in shapes:
                    stored[dtype].append(outputs[dtype][name].detach().contiguous().numpy().reshape(-1))
    (HERE / "cases.jsonl").write_text("\n".join(lines) + "\n")
    # Without the name of the build: its CPU part is the same in all of them.
    version = torch.__version__.split("+")[0]
    metadata = {"torch": version, "command": "python tests/vectors/generate.py"}
    tensors = [(name, name.upper(), np.concatenate(arrays)) for name, arrays in stored.items()]
    write_safetensors(HERE / "outputs.safetensors", metadata, tensors)
    print(f"{len(lines)} cases, {tensors[0][2].size} numbers of each type, torch {version}")


if __name__ == "__main__":
    main()
