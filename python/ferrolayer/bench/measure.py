"""Measures one row: builds its inputs, binds both sides to them, and has them timed in turns."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence

import torch

from . import shapes
from .cases import Case
from .rows import Machine, Row, Times
from .timing import CpuTimer, GpuTimer, Run

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

Function = Callable[..., torch.Tensor]


class NoRoom(Exception):
    """The GPU's memory does not hold the row."""


class Bench:
    """Measures rows on one device."""

    def __init__(self, device: torch.device, machine: Machine, timer: CpuTimer | GpuTimer, runs: int, compiled: bool):
        self.device = device
        self.machine = machine
        self.timer = timer
        self.runs = runs
        self.compiled = compiled

    def row(self, case: Case, pass_: str, dtype: str, layout: str) -> Row:
        """Times one pass of a case. Ours must run; where PyTorch's cannot, standard error says so."""
        kind = DTYPES[dtype]
        written = case.bytes(pass_, kind.itemsize)
        contenders = 3 if self.compiled else 2
        read = kind.itemsize * _elements(case)
        sets = self.timer.copies(read, written * contenders)
        if sets == 0:
            raise NoRoom(f"needs {written * contenders / 2**30:.0f} GiB")
        inputs = [case.inputs(lambda shape: self._random(shape, kind, layout)) for _ in range(sets)]

        training = pass_ != "inference"
        with torch.enable_grad() if training else torch.no_grad():
            sides = [bind(case.ours(training), inputs, pass_, layout)]
            theirs = [case.their_inputs(each) for each in inputs]
            sides.append(_attempt(f"{case.baseline}", lambda: bind(case.theirs(training), theirs, pass_, layout)))
            sides.append(self._compiled(case, training, theirs, pass_, layout) if self.compiled else None)
            running = [side for side in sides if side is not None]
            measured = iter(self.timer.measure(running, self.runs))
        times: list[Times | None] = [next(measured) if side is not None else None for side in sides]
        ours, torchs, compiled = times
        assert ours is not None
        return Row(
            op=case.op,
            pass_=pass_,
            dtype=dtype,
            layout=layout,
            shape=case.shape,
            options=case.options,
            bytes=written,
            flops=case.flops(pass_),
            baseline=case.baseline,
            ours_us=ours,
            torch_us=torchs,
            compiled_us=compiled,
            machine=self.machine,
            target=shapes.target(case.op, case.shape, case.options, pass_, dtype, layout),
        )

    def _random(self, shape: Sequence[int], dtype: torch.dtype, layout: str) -> torch.Tensor:
        values = torch.randn(*shape, device=self.device).to(dtype)
        return values.contiguous(memory_format=torch.channels_last) if layout == "NHWC" and len(shape) == 4 else values

    def _compiled(
        self, case: Case, training: bool, inputs: list[list[torch.Tensor]], pass_: str, layout: str
    ) -> list[Run] | None:
        def compile_() -> list[Run]:
            # One compilation a row, of its own: nothing is left of those before.
            torch._dynamo.reset()
            with _graphs_kept():
                runs = bind(torch.compile(case.theirs(training), dynamic=False), inputs, pass_, layout)
                runs[0]()  # compiles, backward too
            return runs

        return _attempt("torch.compile", compile_)


def bind(function: Function, inputs: list[list[torch.Tensor]], pass_: str, layout: str) -> list[Run]:
    """One run for each set of inputs.

    Backward is timed alone: forward has been done, and each run asks autograd for the gradients of all inputs that want
    one, keeping the graph for the next run.
    """
    if pass_ != "backward":
        return [lambda each=each: function(*each) for each in inputs]
    runs: list[Run] = []
    for each in inputs:
        y = function(*each)
        dy = torch.randn(y.shape, device=y.device).to(y.dtype)
        if layout == "NHWC" and dy.dim() == 4:
            dy = dy.contiguous(memory_format=torch.channels_last)
        wanted = [tensor for tensor in each if tensor.requires_grad]
        runs.append(lambda y=y, wanted=wanted, dy=dy: torch.autograd.grad(y, wanted, dy, retain_graph=True))
    return runs


def _attempt(what: str, make: Callable[[], list[Run]]) -> list[Run] | None:
    """What PyTorch cannot do (a type that it lacks on this device) leaves its column empty, with the reason."""
    try:
        runs = make()
        runs[0]()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever PyTorch raises, the row is measured without it
        lines = str(error).strip().splitlines() or [type(error).__name__]
        print(f"  no {what}: {lines[0][:100]}", file=sys.stderr)
        return None
    return runs


@contextlib.contextmanager
def _graphs_kept() -> Iterator[None]:
    """Compiled backward passes usually reuse saved tensors' memory, which forbids running them twice."""
    import torch._functorch.config as config

    if not hasattr(config, "donated_buffer"):
        yield
        return
    with config.patch(donated_buffer=False):
        yield


def _elements(case: Case) -> int:
    """Of the input, and of a dense layer's weights."""
    if case.op == "dense":
        n, i, o = case.shape
        return i * (n + o)
    return math.prod(case.shape)
