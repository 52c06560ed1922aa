"""What is measured: the ops, the shapes, our side, PyTorch's side, and the fewest bytes."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import shapes
from .sides import OURS, THEIRS, gaussian_weights

Make = Callable[[Sequence[int]], torch.Tensor]
"""Makes a tensor of random numbers of this shape, in the type and the layout of the row."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One op on one shape. `shape` is the input's, for `dense` [N, I, O]."""

    op: str
    shape: tuple[int, ...]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def window(self) -> tuple[int, int, int, int, int, int]:
        """Height and width of the window, of the stride, of the padding."""
        (kh, kw), (sh, sw), (ph, pw) = (self.options[name] for name in ("kernel", "stride", "padding"))
        return kh, kw, sh, sw, ph, pw

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The output's shape."""
        if self.op == "dense":
            return (self.shape[0], self.shape[2])
        if "kernel" not in self.options:
            return self.shape
        kh, kw, sh, sw, ph, pw = self.window
        n, c, h, w = self.shape
        return (n, c * self.options.get("kernels", 1), (h + 2 * ph - kh) // sh + 1, (w + 2 * pw - kw) // sw + 1)

    @property
    def label(self) -> str:
        """The options in short: `3x3 s2 p1`."""
        return shapes.label(self.options)

    def inputs(self, make: Make) -> list[torch.Tensor]:
        """The op's inputs. Those that a gradient is wanted of say so."""
        x = make(self.shape if self.op != "dense" else self.shape[:2]).requires_grad_()
        settings = torch.float64 if x.dtype == torch.float64 else torch.float32
        if self.op == "add2":
            return [x, make(self.shape).requires_grad_()]
        if self.op == "scale_add":
            return [x, *(torch.full((1,), 0.5, dtype=settings, device=x.device) for _ in range(2))]
        if self.op == "prelu":
            return [x, torch.full((self.shape[1],), 0.25, dtype=x.dtype, device=x.device).requires_grad_()]
        if self.op == "dense":
            _, i, o = self.shape
            parameters = [make((o, i)) / math.sqrt(i), make((o,))]
            if self.options["activation"] == "prelu":
                parameters.append(torch.full((o,), 0.25, dtype=x.dtype, device=x.device))
            return [x, *(parameter.detach().requires_grad_() for parameter in parameters)]
        if self.op == "gaussian_pool":
            k, learnable = self.options["kernels"], self.options["learnable"]
            sets = self.shape[1] if self.options.get("per_channel") else 1
            mean = torch.zeros(sets, k, 2, dtype=settings, device=x.device).requires_grad_(learnable)
            var = torch.full((sets, k, 1), 4.0, dtype=settings, device=x.device).requires_grad_(learnable)
            return [x, mean, var]
        return [x]

    def ours(self, training: bool) -> Callable[..., torch.Tensor]:
        """Our op, of the inputs."""
        return OURS[self.op](self, training)

    def theirs(self, training: bool) -> Callable[..., torch.Tensor]:
        """PyTorch's op or a composition of its primitives, of `their_inputs`."""
        return THEIRS[self.op][1](self, training)

    @property
    def baseline(self) -> str:
        """What stands on PyTorch's side, in words."""
        words = THEIRS[self.op][0]
        if self.op == "gaussian_pool" and not self.options["learnable"]:
            words += ", weights made before"
        if self.op == "dense" and self.options["activation"] != "none":
            words += f" and {self.options['activation']}"
        return words

    def their_inputs(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """What PyTorch's side computes of."""
        if self.op == "gaussian_pool" and not self.options["learnable"]:
            # Nobody who uses a convolution for this would make its weights anew at each call.
            x, mean, var = inputs
            return [x, gaussian_weights(self, x, mean, var)]
        if self.op == "scale_add":
            # Wider settings would widen PyTorch's result.
            return [inputs[0], *(setting.to(inputs[0].dtype) for setting in inputs[1:])]
        return inputs

    def bytes(self, pass_: str, size: int) -> int:
        """The fewest bytes of a pass with elements of `size` bytes: each input read once, each output written once.

        What forward saves for backward is an output of one and an input of the other, where it is not the input itself.
        """
        x, y = math.prod(self.shape), math.prod(self.output_shape)
        backward = pass_ == "backward"
        if self.op == "dense":
            n, i, o = self.shape
            saved = n * o if self.options["activation"] != "none" else 0
            if backward:
                return size * (n * o + saved + 2 * n * i + 2 * i * o + o)
            written_too = saved if self.options["activation"] == "prelu" and pass_ == "forward" else 0
            return size * (n * i + i * o + o + n * o + written_too)
        if self.op == "add2":
            return 3 * size * x
        if self.op in ("relu", "prelu"):
            return (3 if backward else 2) * size * x
        indices = 0
        if self.op in ("max_pool", "stochastic_pool") and pass_ != "inference":
            kh, kw = self.window[:2]
            indices = y * (1 if kh * kw <= 256 else 2)
        read_again = size * x if backward and self.options.get("learnable") else 0
        return size * (x + y) + indices + read_again

    def flops(self, pass_: str) -> int | None:
        """Floating-point operations of a product; None for what memory bounds."""
        if self.op != "dense":
            return None
        return 2 * math.prod(self.shape) * (2 if pass_ == "backward" else 1)


def passes(op: str) -> tuple[str, ...]:
    """The passes of an op: inference apart only where it is another kernel."""
    if op == "add2":
        return ("forward",)  # backward hands on dy
    return ("forward", "backward", "inference") if op in ("max_pool", "stochastic_pool") else ("forward", "backward")


def layouts(op: str) -> tuple[str, ...]:
    """The layouts that make a difference to an op."""
    if op == "dense":
        return ("rows",)
    return ("flat",) if op in ("relu", "add2", "scale_add") else ("NCHW", "NHWC")


def cases(ops: Sequence[str], *, which: str, cpu: bool = False) -> list[Case]:
    """The cases of these ops: `which` and `cpu` as in `shapes.of`."""
    return [Case(op, shape, options) for op in ops for shape, options in shapes.of(op, which, cpu=cpu)]


def random_cases(op: str, count: int, seed: int = 0) -> list[Case]:
    """So many images and, for pooling, windows on them: what people have, and odd sizes beside it.

    Images of 1 to 2,048 channels and 2^13 to 2^25 elements in all, windows of 2x2 to the whole image, of which at
    most 130 cover a pixel; Gaussians of all channels or of each, one to three a map, learnt or not. None for ops that
    have no images.
    """
    if layouts(op) == ("flat",) or op == "dense":
        return []
    numbers = random.Random(seed)
    sides = (7, 8, 13, 14, 16, 28, 31, 32, 56, 64, 100, 112, 127, 128, 224, 255, 256, 300, 512, 1024)
    planes = (1, 2, 3, 4, 6, 8, 16, 31, 32, 48, 64, 96, 128, 256, 512, 1000, 2048)
    found: list[Case] = []
    while len(found) < count:
        height = numbers.choice(sides)
        width = height if numbers.random() < 0.6 else numbers.choice(sides)
        shape = (numbers.choice((1, 1, 2, 4, 8, 16, 32, 64, 128, 256)), numbers.choice(planes), height, width)
        size = numbers.choice((2, 2, 3, 3, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 20, 32, 0))
        stride = numbers.choice((1, 2, 2, 3, 4, max(1, size // 2), size, size))
        padding = numbers.choice((0, 0, size // 2))
        kernel = [size, size] if size else [height, width]
        # Maxima remember up to 65,536 positions.
        fits = size <= min(height, width) and math.prod(kernel) <= 1 << 16
        if not 1 << 13 <= math.prod(shape) <= 1 << 25 or not fits or size > 11 * max(1, stride):
            continue
        if op == "prelu":
            found.append(Case(op, shape))
            continue
        options: dict[str, Any] = {
            "kernel": kernel,
            "stride": [stride] * 2 if size else kernel,
            "padding": [padding] * 2,
        }
        if op == "gaussian_pool":
            options |= {"kernels": numbers.choice((1, 1, 2, 3)), "learnable": numbers.random() < 0.3}
            if numbers.random() < 0.3:
                options["per_channel"] = True
        found.append(Case(op, shape, options))
    return found


def sizes(ops: Sequence[str], largest: int, size: int) -> list[Case]:
    """One case of each op at inputs of 1 kB, 8 kB, … and `largest` bytes, a power of two; elements of `size` bytes."""
    found = []
    for op in ops:
        if op == "dense":
            continue
        _, options = shapes.of(op, "tables")[0]
        bytes_ = 1024
        while bytes_ < largest:
            found.append(Case(op, shapes.image_of(bytes_ // size), options))
            bytes_ *= 8
        found.append(Case(op, shapes.image_of(largest // size), options))
    return found
