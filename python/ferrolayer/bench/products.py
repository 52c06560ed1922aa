"""Products of matrices beside cuBLAS: the three of a dense layer in each precision, and the layer's real form.

Ours and `torch.mm` are captured into CUDA graphs of several calls each, inputs rotated past the cache, which run in
turns: what a call costs the host is not in it, and the clock that a GPU at its power limit takes is the same for both.
Of a layer with bias and PReLU whole passes are timed as other rows are (`measure`), beside eager and compiled PyTorch.

A ratio is PyTorch's time over ours: above 1 is ahead.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .cases import Case
from .machine import machine
from .measure import Bench, NoRoom
from .timing import GpuTimer, order

Shape = tuple[int, int, int]
"""Rows, inputs, outputs."""

SQUARES = (1024, 2048, 4096, 8192, 16384)
LAYERS: tuple[Shape, ...] = ((128, 4096, 4096), (512, 4096, 11008), (8192, 32000, 1024))
SHAPES: tuple[Shape, ...] = (*((side, side, side) for side in SQUARES), *LAYERS)
LARGE = (4096, 8192)
"""Squares that have goals of their own."""
PASSES = ("forward", "dx", "dw")


@dataclasses.dataclass(frozen=True)
class Mode:
    """How products are made."""

    dtype: torch.dtype
    precision: int
    """The operators' number; of 16 bits any."""
    tf32: bool
    """Whether PyTorch is to take tf32, too."""
    large: tuple[float, float, float]
    """What is to be reached of the large squares, of each pass."""
    other: float
    """What is to be reached of all others."""

    def goal(self, shape: Shape, pass_: str) -> float:
        """The ratio that is to be reached."""
        if min(shape) == max(shape) and shape[0] in LARGE:
            return self.large[PASSES.index(pass_)]
        return 1.25 if self.dtype.itemsize == 2 and shape == LAYERS[0] else self.other


MODES = {
    "f32": Mode(torch.float32, 0, False, (1.02, 1.02, 1.02), 1.0),
    "f32_split": Mode(torch.float32, 1, False, (2.0, 2.0, 2.0), 1.5),
    "tf32": Mode(torch.float32, 2, True, (1.03, 1.05, 1.3), 1.0),
    "bf16": Mode(torch.bfloat16, 1, False, (1.06, 1.06, 1.06), 1.0),
    "f16": Mode(torch.float16, 1, False, (1.06, 1.06, 1.06), 1.0),
}

ROUND_US = 4e3
"""What a graph takes, about."""
MOST_CALLS = 64
LEAST_CALLS = 2
"""Of a graph, whatever these take."""
WARM_UP = 2
"""Turns that are not counted."""


def layer_goals(shape: Shape, pass_: str) -> tuple[float, float | None]:
    """Of a layer with bias and PReLU in bf16: the ratios beside eager and, of forward, compiled PyTorch."""
    large = min(shape) == max(shape) and shape[0] in LARGE
    if pass_ == "forward":
        return (1.3, 1.08) if large else (1.1, 1.1)
    return (1.2 if large else 1.1), None


def random_shapes(count: int, seed: int = 0, multiple: int = 8) -> list[Shape]:
    """So many layers: rows, inputs, outputs such multiples from 64 to 16,384, small ones as likely as large ones.

    Of up to 2^37 products each, some 0.4 ms of a fast GPU in 16 bits.
    """
    numbers = random.Random(seed)
    least, most = math.log2(64 / multiple), math.log2(16384 / multiple)
    found: list[Shape] = []
    while len(found) < count:
        sides = [multiple * round(2 ** numbers.uniform(least, most)) for _ in range(3)]
        if math.prod(sides) <= 1 << 37:
            found.append((sides[0], sides[1], sides[2]))
    return found


def run(arguments: argparse.Namespace) -> int:
    """Measures; prints a table and, with `--output`, JSON lines. 1 where a row failed, 2 without a GPU."""
    if not torch.cuda.is_available():
        print(
            "--products compares with cuBLAS: PyTorch finds no GPU (see python -m ferrolayer doctor)", file=sys.stderr
        )
        return 2
    device = torch.device("cuda", torch.cuda.current_device())
    some = arguments.random and random_shapes(arguments.random, arguments.seed, arguments.multiple)
    shapes = some or SHAPES
    where = machine(device)
    print(f"{where.gpu}, driver {where.driver}, torch {where.torch}, ferrolayer {where.ferrolayer}, {where.date}")
    found: list[dict[str, Any]] = []
    failed = 0
    for measured in _layers(arguments, device, shapes) if arguments.layers else _products(arguments, device, shapes):
        if measured is None:
            failed += 1
            continue
        found.append(measured | dataclasses.asdict(where))
    print(summary(found))
    if arguments.output:
        arguments.output.write_text("".join(json.dumps(row) + "\n" for row in found))
    return 1 if failed else 0


def _products(
    arguments: argparse.Namespace, device: torch.device, shapes: Sequence[Shape]
) -> Iterator[dict[str, Any] | None]:
    """Each product of each mode; nothing for one that failed."""
    print(
        f"{'mode':<10} {'rows x inputs x outputs':<24} {'pass':<8} {'ours':>9} {'cuBLAS':>9} {'ratio':>6} {'goal':>5}"
    )
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    for name in arguments.modes or MODES:
        mode = MODES[name]
        for shape in shapes:
            for pass_ in PASSES:
                label = f"{name:<10} {'x'.join(map(str, shape)):<24} {pass_:<8}"
                try:
                    ours, theirs = _pair(mode, shape, pass_, device, cache, arguments.runs)
                except Exception as error:  # one that fails must not hide the others' rows
                    print(f"{label} failed: {type(error).__name__}: {str(error)[:200]}", flush=True)
                    yield None
                    continue
                ratio, goal = theirs / ours, mode.goal(shape, pass_)
                short = "" if round(ratio, 2) >= goal else "<"
                print(f"{label} {ours:>9.1f} {theirs:>9.1f} {ratio:>6.2f} {short + format(goal, '.2f'):>5}", flush=True)
                yield {
                    "bench": "products",
                    "mode": name,
                    "shape": list(shape),
                    "pass": pass_,
                    "ours_us": round(ours, 3),
                    "torch_us": round(theirs, 3),
                    "ratio": round(ratio, 4),
                    "goal": goal,
                }


def _layers(
    arguments: argparse.Namespace, device: torch.device, shapes: Sequence[Shape]
) -> Iterator[dict[str, Any] | None]:
    """Both passes of each layer in bf16; nothing for one that failed."""
    bench = Bench(device, machine(device), GpuTimer(device), arguments.runs, compiled=not arguments.no_compile)
    print(
        f"{'rows x inputs x outputs':<24} {'pass':<8} {'ours':>9} {'eager':>9} {'ratio':>6} {'goal':>5} {'compiled':>9}"
    )
    for shape in shapes:
        for pass_ in ("forward", "backward"):
            label = f"{'x'.join(map(str, shape)):<24} {pass_:<8}"
            try:
                row = bench.row(Case("dense", shape, {"activation": "prelu"}), pass_, "bf16", "rows")
            except (NoRoom, torch.OutOfMemoryError) as error:
                print(f"{label} failed: {type(error).__name__}: {str(error)[:100]}", flush=True)
                yield None
                continue
            ours = row.ours_us.median
            eager, compiled = (times.median if times else None for times in (row.torch_us, row.compiled_us))
            goals = layer_goals(shape, pass_)
            cells = [f"{label} {ours:>9.1f}"]
            for theirs, goal in ((eager, goals[0]), (compiled, goals[1])):
                if theirs is None:
                    cells.append(f"{'-':>9}")
                    continue
                ratio = theirs / ours
                short = "" if goal is None or round(ratio, 2) >= goal else "<"
                cells.append(f"{theirs:>9.1f} {ratio:>6.2f} {short + format(goal, '.2f') if goal else '':>5}")
            print(" ".join(cells), flush=True)
            yield {
                "bench": "products",
                "mode": "layer",
                "shape": list(shape),
                "pass": pass_,
                "ours_us": ours,
                "torch_us": eager,
                "compiled_us": compiled,
                "ratio": round(eager / ours, 4) if eager else None,
                "goal": goals[0],
            }


def summary(found: Sequence[dict[str, Any]]) -> str:
    """Of each mode and pass how many rows are ahead and reach their goals, and how the ratios lie."""
    lines = []
    for mode in dict.fromkeys(row["mode"] for row in found):
        for pass_ in dict.fromkeys(row["pass"] for row in found):
            rows = [row for row in found if (row["mode"], row["pass"]) == (mode, pass_) and row["ratio"] is not None]
            if not rows:
                continue
            ratios = sorted(row["ratio"] for row in rows)
            reached = sum(round(row["ratio"], 2) >= row["goal"] for row in rows)
            tenth = ratios[len(ratios) // 10]
            ahead = sum(ratio > 1 for ratio in ratios)
            lines.append(
                f"{mode} {pass_}: {reached} of {len(rows)} reach their goals, {ahead} ahead; "
                f"least {ratios[0]:.2f}, a tenth up to {tenth:.2f}, median {statistics.median(ratios):.2f}"
            )
    return "\n".join(lines)


def _pair(mode: Mode, shape: Shape, pass_: str, device: torch.device, cache: int, turns: int) -> tuple[float, float]:
    """Microseconds of a product, ours and cuBLAS's."""
    rows, inputs, outputs = shape
    size = mode.dtype.itemsize * (rows * inputs + outputs * inputs + rows * outputs)
    sets = max(2, min(MOST_CALLS, math.ceil(4 * cache / size)))

    def matrix(*sides: int) -> torch.Tensor:
        return torch.randn(*sides, device=device).to(mode.dtype)

    operands = [_operands(pass_, matrix, rows, inputs, outputs) for _ in range(sets)]
    with _tf32(mode.tf32), torch.no_grad():
        sides = [_ours(pass_, mode.precision), _theirs(pass_)]
        calls = max(LEAST_CALLS, min(MOST_CALLS, round(ROUND_US / min(_alone(side, operands) for side in sides))))
        graphs = [_graph(side, operands, calls) for side in sides]
        times: list[list[float]] = [[], []]
        for turn in range(turns + WARM_UP):
            for who in order(len(graphs), turn):
                elapsed = _microseconds(graphs[who].replay) / calls
                if turn >= WARM_UP:
                    times[who].append(elapsed)
    ours, theirs = (statistics.median(each) for each in times)
    return ours, theirs


def _operands(
    pass_: str, matrix: Callable[..., torch.Tensor], rows: int, inputs: int, outputs: int
) -> tuple[torch.Tensor, ...]:
    """`x` and `w`, `dy` and `w`, or `dy` and `x`."""
    x, w, dy = (rows, inputs), (outputs, inputs), (rows, outputs)
    return tuple(matrix(*sides) for sides in {"forward": (x, w), "dx": (dy, w), "dw": (dy, x)}[pass_])


def _ours(pass_: str, precision: int) -> Callable[..., object]:
    import ferrolayer.torch  # noqa: F401  (registers the operators)

    forward, backward = torch.ops.ferrolayer.linear, torch.ops.ferrolayer.linear_backward
    if pass_ == "forward":
        return lambda x, w: forward(x, w, None, precision)
    # Of the operand that a gradient is of nothing but its size counts.
    if pass_ == "dx":
        return lambda dy, w: backward(dy, dy.new_empty(len(dy), w.shape[1]), w, True, False, False, precision)
    return lambda dy, x: backward(dy, x, dy.new_empty(dy.shape[1], x.shape[1]), False, True, False, precision)


def _theirs(pass_: str) -> Callable[..., object]:
    if pass_ == "forward":
        return lambda x, w: torch.mm(x, w.t())
    if pass_ == "dx":
        return lambda dy, w: torch.mm(dy, w)
    return lambda dy, x: torch.mm(dy.t(), x)


def _alone(side: Callable[..., object], operands: Sequence[tuple[torch.Tensor, ...]]) -> float:
    """Microseconds of a call by itself, the least of some: the first loads kernels."""
    return min(_microseconds(lambda each=each: side(*each)) for each in (operands[0], operands[-1], *operands[:2]))


def _graph(
    side: Callable[..., object], operands: Sequence[tuple[torch.Tensor, ...]], calls: int
) -> torch.cuda.CUDAGraph:
    """So many calls."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(calls):
            side(*operands[number % len(operands)])
    return graph


def _microseconds(run: Callable[[], object]) -> float:
    """Of what is queued, by events."""
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before.record()
    run()
    after.record()
    after.synchronize()
    return 1e3 * before.elapsed_time(after)


@contextlib.contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    """PyTorch's setting, and afterwards what it was."""
    was = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = was
