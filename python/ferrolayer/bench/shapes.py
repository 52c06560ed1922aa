"""The shapes that are measured: those of `shapes.json`, which the library's own bench measures too.

Of each op it has `tiny` ones for tests, those of the `tables` in `docs/perf`, `all` the others that are always
measured, and a wider `sweep`; the share of the copy rate that some of the tables' are to reach; and, of products,
those that have a goal on the CPU.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

OPS = ("relu", "add2", "scale_add", "prelu", "max_pool", "avg_pool", "stochastic_pool", "gaussian_pool", "dense")
"""Those that are compared with PyTorch."""

Shape = tuple[tuple[int, ...], dict[str, Any]]

CPU_BATCH = 0.1
"""Of the GPU's batches, what the CPU gets."""
ALLOWANCE = 0.05
"""By how much less of the copy rate is enough in 16 bits, and with the channels last."""


@functools.cache
def _file() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("shapes.json").read_text())


def of(op: str, which: str, *, cpu: bool = False) -> list[Shape]:
    """The shapes of an op, with options: `tiny`, `tables`, `sweep`, `targets`; `all` begins with the tables'.

    For the `cpu` a tenth of the GPU's batches; `tiny` ones, and products that have a goal there, as they are.
    """
    (group,) = (group for group in _file()["groups"] if op in group["ops"])
    batch = CPU_BATCH if cpu and which != "tiny" else 1
    if which == "targets" and cpu and "targets_on_cpu" in group:
        found, batch = group["targets_on_cpu"], 1
    elif which == "targets":
        found = [(goal["shape"], goal["options"]) for goal in _file()["targets"] if goal["op"] == op]
    else:
        found = group["tables"] + group["all"] if which == "all" else group[which]
    return [((max(1, round(batch * shape[0])), *shape[1:]), options) for shape, options in found]


def cpu_goal(op: str) -> float:
    """Of eager PyTorch's time on the CPU with as many threads, what ours is to take at most."""
    return 1.1 if op == "dense" else 1.5


def target(
    op: str, shape: tuple[int, ...], options: dict[str, Any], pass_: str, dtype: str, layout: str
) -> float | None:
    """The share of the copy rate that a pass is to reach, where there is such a goal."""
    for goal in _file()["targets"]:
        if (goal["op"], tuple(goal["shape"]), goal["options"]) == (op, shape, options) and pass_ in goal:
            exact = dtype == "f32" and layout != "NHWC"
            return goal[pass_] if exact else round(goal[pass_] - ALLOWANCE, 3)
    return None


def image_of(elements: int) -> tuple[int, int, int, int]:
    """Images with so many elements in all, a power of two: as nearly 64 × 64 × 128 × 128 in proportion as it goes."""
    side = 1
    # Height and width grow first, to 128, then channels to 64, then the batch.
    while side < 128 and elements // (4 * side * side) >= 1:
        side *= 2
    channels = min(64, elements // (side * side))
    return (elements // (side * side * channels), channels, side, side)


def label(options: dict[str, Any]) -> str:
    """Options in short: `3x3 s2 p1`, `11x11 s2 3/map learnt`."""
    words = []
    if "kernel" in options:
        words.append("x".join(map(str, options["kernel"])))
        for letter, name in (("s", "stride"), ("p", "padding")):
            a, b = options[name]
            if (a, b) != (0, 0):
                words.append(letter + (str(a) if a == b else f"{a}x{b}"))
    if options.get("kernels", 1) > 1:
        words.append(f"{options['kernels']}/map")
    if options.get("per_channel"):
        words.append("per channel")
    if options.get("learnable"):
        words.append("learnt")
    if "activation" in options:
        words.append("bias" if options["activation"] == "none" else f"bias {options['activation']}")
    if "precision" in options:
        words.append(options["precision"])
    return " ".join(words)
