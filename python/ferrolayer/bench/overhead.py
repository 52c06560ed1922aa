"""What a call costs the host: eager calls of ops so small that nothing else counts, ours and PyTorch's own in turns.

On the GPU nothing waits for a result: the queue is drained between batches, which are short enough to fit into it.

In the same turns a third is measured, the floor: what a call costs an extension at least that does not bring C++ of its
own. It computes nothing and checks nothing, and on a GPU it starts nothing.

=====================  ===============================================================================================
no grad                a function in C that takes the op's tensors from Python's objects, asks PyTorch for memory like
                       the first's, and gives that as a new tensor
forward                that, as forward of a `torch.autograd.Function`, and the new tensor saved where the op saves any
forward and backward   that, with a backward that gives each tensor that wants one the gradient that came
=====================  ===============================================================================================

A row whose floor is above its target is not to be had that way, however fast the op is.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

import ferrolayer.torch.functional as ours
from ferrolayer.torch._library import find

from .machine import machine
from .rows import Machine
from .timing import order

SHAPE = (2, 4, 4, 4)
MODES = ("no grad", "forward", "forward and backward")
TARGETS = {"no grad": 0.9, "forward": 1.25, "forward and backward": 1.25}
"""Our time over PyTorch's, at most."""
CALLS = {"no grad": 200, "forward": 200, "forward and backward": 60}
"""Calls a batch."""

Call = Callable[..., torch.Tensor]


def floor(mode: str, saves: bool) -> Call | None:
    """What is measured as the floor; nothing where this PyTorch lacks the functions that it takes."""
    relu = find("ferrolayer::relu")
    if not hasattr(relu, "least"):
        return None
    if mode == "no grad":
        return relu.least  # type: ignore[no-any-return]

    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        return tuple(dy if wanted else None for wanted in ctx.needs_input_grad)

    # The context is a first object that is no tensor.
    forward = relu.least_keeping if saves else relu.least
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function = type("Least", (torch.autograd.Function,), members)
    return super(torch.autograd.Function, function).apply  # type: ignore[misc,no-any-return]


@dataclasses.dataclass(frozen=True)
class Pair:
    """Our op and PyTorch's of the same kind."""

    op: str
    ours: Call
    theirs: Call
    inputs: Callable[[torch.device], list[torch.Tensor]]
    saves: bool = True
    """Whether backward wants a tensor."""


def pairs() -> list[Pair]:
    """The ops that PyTorch has, too."""

    def x(device: torch.device) -> list[torch.Tensor]:
        return [torch.randn(SHAPE, device=device)]

    def settings(device: torch.device) -> list[torch.Tensor]:
        return [*x(device), torch.full((1,), 0.5, device=device), torch.full((1,), 0.5, device=device)]

    def two(device: torch.device) -> list[torch.Tensor]:
        return x(device) + x(device)

    def slopes(device: torch.device) -> list[torch.Tensor]:
        return [*x(device), torch.full(SHAPE[1:2], 0.25, device=device)]

    def product(device: torch.device) -> list[torch.Tensor]:
        return [torch.randn(shape, device=device) for shape in ((4, 8), (4, 8), (4,))]

    return [
        Pair("relu", ours.relu, F.relu, x),
        Pair("add2", ours.add2, torch.add, two, saves=False),
        Pair("scale_add", ours.scale_add, lambda x, scale, constant: torch.addcmul(constant, x, scale), settings),
        Pair("prelu", ours.prelu, F.prelu, slopes),
        Pair("max_pool", lambda x: ours.max_pool2d(x, 2), lambda x: F.max_pool2d(x, 2), x),
        Pair("avg_pool", lambda x: ours.avg_pool2d(x, 2), lambda x: F.avg_pool2d(x, 2), x, saves=False),
        Pair("dense", ours.linear, F.linear, product),
    ]


def run(arguments: argparse.Namespace) -> int:
    """Measures on the CPU, and on a GPU where there is one; prints a table and, with `--output`, JSON lines."""
    devices = [torch.device("cpu")]
    if torch.cuda.is_available():
        devices.append(torch.device("cuda", torch.cuda.current_device()))
    # One thread: a small op should wake no others, and what is measured is the call.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows = [row for device in devices for row in _device(device, arguments)]
    finally:
        torch.set_num_threads(threads)
    met = sum(row["ratio"] <= row["target"] for row in rows)
    beyond = sum(_verdict(row) == BEYOND for row in rows)
    print(f"{met} of {len(rows)} within their targets; of {beyond} more the floor is above the target")
    if arguments.output:
        arguments.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return 0


def _device(device: torch.device, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    where = machine(device)
    print(
        f"host µs of an eager call on {device.type} ({where.gpu}), torch {where.torch}, ferrolayer {where.ferrolayer}"
    )
    print(
        f"x {'x'.join(map(str, SHAPE))}, best (and median) of {arguments.runs} rounds in turns; ratios of the best; "
        "floor: the least that a call costs an extension"
    )
    print(
        f"{'op':<11} {'call':<21} {'ours':>7} {'':>9} {'torch':>7} {'':>9} {'floor':>7} "
        f"{'ours/torch':>10} {'floor/torch':>11} {'target':>7}"
    )
    rows = []
    for pair in pairs():
        if pair.op not in arguments.ops:
            continue
        for mode in MODES:
            row = _row(pair, mode, arguments.runs, where)
            rows.append(row)
            print(_line(row), flush=True)
    print()
    return rows


BEYOND = "floor above target"


def _verdict(row: dict[str, Any]) -> str:
    if row["ratio"] <= row["target"]:
        return ""
    return BEYOND if row["floor_ratio"] is not None and row["floor_ratio"] > row["target"] else "over"


def _line(row: dict[str, Any]) -> str:
    cells = [f"{row['op']:<11} {row['call']:<21}"]
    for side in ("ours_us", "torch_us"):
        median = f"({row[side]['median']:.2f})"
        cells.append(f"{row[side]['best']:>7.2f} {median:>9}")
    if row["floor_us"] is None:
        least, share = "-", "-"
    else:
        least, share = f"{row['floor_us']['best']:.2f}", f"{row['floor_ratio']:.2f}"
    numbers = f"{least:>7} {row['ratio']:>10.2f} {share:>11} {row['target']:>7.2f}"
    return " ".join([*cells, f"{numbers}  {_verdict(row)}".rstrip()])


def _row(pair: Pair, mode: str, rounds: int, where: Machine) -> dict[str, Any]:
    device = torch.device(where.device)
    inputs = pair.inputs(device)
    if mode != "no grad":
        # scale_add's settings get no gradient from us; PyTorch is not made to compute one either.
        for tensor in inputs[: 1 if pair.op == "scale_add" else None]:
            tensor.requires_grad_()
    with torch.enable_grad() if mode != "no grad" else torch.no_grad():
        batches = [_batch(call, inputs, mode) for call in (pair.ours, pair.theirs)]
        if (least := floor(mode, pair.saves)) is not None:
            # All of one shape, which is the gradients', too.
            alike = [torch.zeros_like(inputs[0]).requires_grad_(tensor.requires_grad) for tensor in inputs]
            batches.append(_batch(least, alike, mode))
        mine, theirs, *least_us = _in_turns(batches, CALLS[mode], rounds, device)
    return {
        "bench": "overhead",
        "op": pair.op,
        "call": mode,
        "dtype": "f32",
        "shape": list(inputs[0].shape),
        "ours_us": mine,
        "torch_us": theirs,
        "floor_us": least_us[0] if least_us else None,
        "ratio": round(mine["best"] / theirs["best"], 3),
        "floor_ratio": round(least_us[0]["best"] / theirs["best"], 3) if least_us else None,
        "target": TARGETS[mode],
        **dataclasses.asdict(where),
    }


def _batch(call: Call, inputs: list[torch.Tensor], mode: str) -> Callable[[int], None]:
    """So many calls in a loop with nothing else in it."""
    dy = torch.randn_like(call(*inputs)) if mode == "forward and backward" else None
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    if len(inputs) == 1:
        (x,) = inputs

        def forward(calls: int) -> None:
            for _ in range(calls):
                call(x)

    elif len(inputs) == 2:
        a, b = inputs

        def forward(calls: int) -> None:
            for _ in range(calls):
                call(a, b)

    else:

        def forward(calls: int) -> None:
            for _ in range(calls):
                call(*inputs)

    def both(calls: int) -> None:
        for _ in range(calls):
            torch.autograd.grad(call(*inputs), wanted, dy)

    return forward if dy is None else both


def _in_turns(
    batches: list[Callable[[int], None]], calls: int, rounds: int, device: torch.device
) -> list[dict[str, float]]:
    """Microseconds a call of each, best and median of the rounds."""
    times: list[list[float]] = [[] for _ in batches]
    collecting = gc.isenabled()
    gc.disable()
    try:
        for number in range(rounds + 2):
            for who in order(len(batches), number):
                batch, measured = batches[who], times[who]
                _drain(device)
                start = time.perf_counter_ns()
                batch(calls)
                end = time.perf_counter_ns()
                if number >= 2:  # the first rounds warm up
                    measured.append((end - start) / 1e3 / calls)
    finally:
        _drain(device)
        if collecting:
            gc.enable()
    return [{"best": round(min(each), 3), "median": round(statistics.median(each), 3)} for each in times]


def _drain(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
