"""The shapes that are measured. The first ones of each op are those of the tables in `docs/perf`."""

from __future__ import annotations

from typing import Any

OPS = ("relu", "add2", "scale_add", "prelu", "max_pool", "avg_pool", "stochastic_pool", "gaussian_pool", "dense")

Shape = tuple[tuple[int, ...], dict[str, Any]]

ACTIVATIONS = (64, 256, 56, 56)
IMAGES = (64, 64, 112, 112)


def window(kernel: int, stride: int, padding: int = 0) -> dict[str, Any]:
    """A square window."""
    return {"kernel": [kernel, kernel], "stride": [stride, stride], "padding": [padding, padding]}


def gaussian(kernel: int, stride: int, kernels: int = 1, learnable: bool = False) -> dict[str, Any]:
    """A Gaussian over a square window."""
    return {**window(kernel, stride), "kernels": kernels, "learnable": learnable}


_ELEMENTWISE = {
    "tiny": [((2, 4, 6, 5), {})],
    "first": [(ACTIVATIONS, {})],
    "all": [((256, 1, 28, 28), {}), ((16, 4096, 7, 7), {}), ((1, 16, 1024, 1024), {}), ((63, 31, 57, 55), {})],
}

# Just beside the tables' geometry, global pooling, windows from 2 to 32, one channel and thousands, large images.
_POOLING = {
    "tiny": [((2, 4, 6, 5), window(3, 2, 1))],
    "first": [(IMAGES, window(3, 2, 1)), (IMAGES, window(2, 2))],
    "all": [
        ((64, 64, 111, 113), window(3, 2, 1)),
        ((64, 64, 111, 113), window(9, 3, 4)),
        ((64, 64, 112, 112), window(5, 1, 2)),
        ((256, 2048, 7, 7), window(7, 7)),
        ((16, 4096, 14, 14), window(2, 2)),
        ((256, 1, 28, 28), window(2, 2)),
        ((16, 64, 128, 128), window(32, 32)),
        ((1, 16, 1024, 1024), window(2, 2)),
    ],
}

_STOCHASTIC = {
    "tiny": [((2, 4, 6, 5), window(2, 2))],
    "first": [(IMAGES, window(2, 2)), (IMAGES, window(3, 2))],
    "all": [
        ((64, 64, 111, 113), window(3, 3)),
        ((16, 4096, 14, 14), window(2, 2)),
        ((1, 16, 1024, 1024), window(2, 2)),
    ],
}

_GAUSSIAN = {
    "tiny": [((2, 4, 6, 5), gaussian(3, 2)), ((2, 4, 6, 5), gaussian(3, 2, 2, learnable=True))],
    "first": [
        (IMAGES, gaussian(3, 2)),
        (IMAGES, gaussian(11, 2)),
        (IMAGES, gaussian(11, 2, 3)),
        (IMAGES, gaussian(11, 2, learnable=True)),
    ],
    "all": [
        (IMAGES, gaussian(5, 2)),
        ((64, 64, 111, 113), gaussian(11, 3, learnable=True)),
        ((256, 2048, 7, 7), gaussian(7, 7)),
        ((1, 16, 1024, 1024), gaussian(5, 2, learnable=True)),
    ],
}

_DENSE = {
    "tiny": [((4, 8, 6), {"activation": "none"}), ((4, 8, 6), {"activation": "prelu"})],
    "first": [
        ((1024, 1024, 1024), {"activation": "none"}),
        ((4096, 4096, 4096), {"activation": "none"}),
        ((4096, 4096, 4096), {"activation": "prelu"}),
        ((128, 4096, 4096), {"activation": "relu"}),
    ],
    "all": [((8192, 8192, 8192), {"activation": "none"}), ((1000, 1000, 1000), {"activation": "none"})],
}

_BY_OP: dict[str, dict[str, list[Shape]]] = {
    **dict.fromkeys(("relu", "add2", "scale_add", "prelu"), _ELEMENTWISE),
    **dict.fromkeys(("max_pool", "avg_pool"), _POOLING),
    "stochastic_pool": _STOCHASTIC,
    "gaussian_pool": _GAUSSIAN,
    "dense": _DENSE,
}


def of(op: str, which: str) -> list[Shape]:
    """The shapes of an op, with options: `tiny`, `first`, or `all`, which begins with the first."""
    shapes = _BY_OP[op]
    return shapes["first"] + shapes["all"] if which == "all" else shapes[which]


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
    if options.get("learnable"):
        words.append("learnt")
    if "activation" in options:
        words.append("bias" if options["activation"] == "none" else f"bias {options['activation']}")
    return " ".join(words)
