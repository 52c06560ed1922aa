"""The command: its options, and what it does in which order."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from . import plots, report, rows
from .rows import Row
from .shapes import OPS

if TYPE_CHECKING:
    import torch

    from .cases import Case
    from .measure import Bench

TYPES = ("f32", "f16", "bf16")
LAYOUTS = ("NCHW", "NHWC")
PASSES = ("forward", "backward", "inference")
MODES = ("f32", "f32_split", "tf32", "bf16", "f16")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    several = {"nargs": "+", "metavar": "NAME"}
    parser.add_argument("--ops", choices=OPS, default=list(OPS), help=f"only these: {', '.join(OPS)}", **several)
    parser.add_argument("--types", choices=TYPES, help=f"only these: {', '.join(TYPES)}", **several)
    parser.add_argument("--layouts", choices=LAYOUTS, help=f"only these, of images: {', '.join(LAYOUTS)}", **several)
    parser.add_argument(
        "--passes", choices=PASSES, default=list(PASSES), help=f"only these: {', '.join(PASSES)}", **several
    )
    parser.add_argument(
        "--device", default="cuda", help="cuda, cuda:N, or cpu (batches a tenth as large, and no shares)"
    )
    parser.add_argument(
        "--threads", type=_positive, metavar="N", help="of each side on the CPU (default: as many as PyTorch's)"
    )
    parser.add_argument(
        "--runs",
        type=_positive,
        default=50,
        metavar="N",
        help="timed runs of each side, or --overhead's rounds (default: 50)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="f32, NCHW, few shapes (on the CPU tiny ones), not compiled"
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--targets", action="store_true", help="only the passes that have a goal (on the CPU a time, beside PyTorch's)"
    )
    instead.add_argument(
        "--sweep",
        action="store_true",
        help="instead of the tables' shapes a wide sweep: 7x7 to 1024x1024, windows of 2 to the whole image",
    )
    instead.add_argument(
        "--sizes",
        action="store_true",
        help="instead of the tables' shapes inputs of 1 kB to 8 GB (on the CPU 64 MB), for the plots",
    )
    instead.add_argument(
        "--random",
        type=_positive,
        metavar="N",
        help="instead of the tables' shapes N random images of each op, and windows on them; of --products layers",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of --random's numbers: others than with 0")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out, which takes seconds a row")
    parser.add_argument("--output", "--json", type=Path, metavar="FILE", help="write one JSON object a row")
    parser.add_argument("--plot", type=Path, metavar="DIR", help="write PNGs (needs matplotlib)")
    parser.add_argument("--compare", type=Path, metavar="OLD", help="list what is slower than in this earlier --output")
    parser.add_argument(
        "--report",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="measure nothing: show and plot these, of --output or of the library's own bench",
    )
    parser.add_argument("--overhead", action="store_true", help="instead: host microseconds of a call of a small op")
    parser.add_argument("--products", action="store_true", help="instead: products of matrices beside cuBLAS, on a GPU")
    products = parser.add_argument_group("of --products")
    products.add_argument("--modes", nargs="+", metavar="NAME", choices=MODES, help=f"only these: {', '.join(MODES)}")
    products.add_argument("--layers", action="store_true", help="whole layers with bias and PReLU, in bf16")
    products.add_argument(
        "--multiple",
        type=int,
        default=8,
        metavar="N",
        choices=(1, 2, 4, 8, 16, 32, 64),
        help="sizes of --random are multiples of N, a power of two up to 64 (8)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; exit status 1 where a row failed or is slower than in `--compare`, 2 where nothing can run."""
    if arguments.plot is not None and not arguments.overhead and not plots.available():
        return _refuse(plots.MISSING)
    try:
        earlier = rows.read(arguments.compare) if arguments.compare else []
        if arguments.report:
            return _show(arguments, [row for file in arguments.report for row in rows.read(file)], earlier)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return _refuse(f"not a file that --output wrote: {type(error).__name__}: {error}")
    try:
        import torch
    except ImportError:
        return _refuse("the bench compares with PyTorch, which is not installed: pip install torch")
    if arguments.overhead:
        from . import overhead

        return overhead.run(arguments)
    if arguments.products:
        from . import products

        return products.run(arguments)
    kind, _, number = arguments.device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        return _refuse(f"--device {arguments.device}: expected cuda, cuda:N or cpu")
    if kind == "cpu":
        threads = arguments.threads or torch.get_num_threads()
        torch.set_num_threads(threads)
        # Read when the first pass starts the library's threads.
        os.environ["RAYON_NUM_THREADS"] = str(threads)
        return _measure(arguments, torch.device("cpu"), earlier)
    if not torch.cuda.is_available():
        return _refuse("PyTorch finds no GPU (see python -m ferrolayer doctor); --device cpu measures the CPU")
    if int(number or 0) >= torch.cuda.device_count():
        return _refuse(f"--device {arguments.device}: PyTorch numbers {torch.cuda.device_count()} GPU(s) from 0")
    with torch.cuda.device(int(number or torch.cuda.current_device())):
        return _measure(arguments, torch.device("cuda", torch.cuda.current_device()), earlier)


def _show(arguments: argparse.Namespace, measured: list[Row], earlier: list[Row]) -> int:
    """The report of an earlier run."""
    if not measured:
        return _refuse(f"--report {' '.join(map(str, arguments.report))}: no row in it")
    print(report.heading(measured[0].machine))
    for row in measured:
        print(report.line(row))
    return _conclude(arguments, measured, earlier)


def _conclude(arguments: argparse.Namespace, measured: list[Row], earlier: list[Row]) -> int:
    """What comes under the table; 1 where a row is slower than it was."""
    print()
    print(report.summary(measured))
    slower: list[Row] = []
    if arguments.compare:
        text, slower = report.compare(earlier, measured)
        print(f"compared with {arguments.compare}: {text}")
    if arguments.plot and measured:
        paths = plots.draw(measured, arguments.plot)
        print(f"{arguments.plot}: {', '.join(path.name for path in paths)}")
    return 1 if slower else 0


def _measure(arguments: argparse.Namespace, device: torch.device, earlier: list[Row]) -> int:
    """Measures and reports."""
    import torch

    from .machine import machine
    from .measure import Bench
    from .timing import CpuTimer, GpuTimer

    timer = CpuTimer(torch.get_num_threads()) if device.type == "cpu" else GpuTimer(device)
    where = machine(device, timer.copy_gbps)
    bench = Bench(device, where, timer, arguments.runs, compiled=not (arguments.no_compile or arguments.quick))
    method = f"medians of {arguments.runs} runs or more a side, in turns; backward alone, by torch.autograd.grad; "
    if device.type == "cpu":
        threads = torch.get_num_threads()
        method += "one thread a side, its own time" if threads == 1 else f"{threads} threads a side, by the clock"
    else:
        method += "by events, inputs rotated past the cache"
    print(report.heading(where, method), flush=True)
    output = arguments.output.open("w") if arguments.output else None
    try:
        measured, failed = _rows(bench, arguments, output)
    finally:
        if output:
            output.close()
    return _conclude(arguments, measured, earlier) or (1 if failed else 0)


def _rows(bench: Bench, arguments: argparse.Namespace, output: TextIO | None) -> tuple[list[Row], int]:
    """Measures all that the arguments choose; what fails or does not fit is said, and the rest goes on."""
    import torch

    from .measure import NoRoom

    measured: list[Row] = []
    failed = 0
    for case, pass_, dtype, layout in _plan(arguments, bench.device):
        name = f"{case.op} {pass_} {dtype} {layout} {'x'.join(map(str, case.shape))} {case.label}"
        try:
            row = bench.row(case, pass_, dtype, layout)
        except (NoRoom, torch.OutOfMemoryError) as error:
            print(f"{name}: left out, more than the memory there is ({str(error).splitlines()[0][:60]})", flush=True)
            continue
        except Exception as error:  # one op that fails must not hide the others' rows
            print(f"{name}: failed: {type(error).__name__}: {str(error)[:200]}", flush=True)
            failed += 1
            continue
        measured.append(row)
        print(report.line(row), flush=True)
        if output:
            output.write(row.to_json() + "\n")
            output.flush()
    return measured, failed


def _plan(arguments: argparse.Namespace, device: torch.device) -> Iterator[tuple[Case, str, str, str]]:
    """Case, pass, type and layout of each row, in the table's order."""
    from .cases import cases, layouts, passes, random_cases, sizes
    from .measure import DTYPES

    cpu = device.type == "cpu"
    types = arguments.types or (["f32"] if arguments.quick else list(TYPES))
    wanted = arguments.layouts or (["NCHW"] if arguments.quick else list(LAYOUTS))
    for op in arguments.ops:
        if arguments.sizes:
            some = sizes([op], 64 << 20 if cpu else 8 << 30, DTYPES[types[0]].itemsize)
        elif arguments.random:
            some = random_cases(op, arguments.random, arguments.seed)
        else:
            some = cases([op], which=_which(arguments, cpu), cpu=cpu)
        for case in some:
            # A series of sizes is of one type and one layout.
            for dtype in types[:1] if arguments.sizes else types:
                # The layouts of what is no image are no choice.
                possible = [layout for layout in layouts(op) if layout not in LAYOUTS or layout in wanted]
                for layout in possible[:1] if arguments.sizes else possible:
                    for pass_ in passes(op):
                        # Inference has no goal.
                        if pass_ in arguments.passes and not (arguments.targets and pass_ == "inference"):
                            yield case, pass_, dtype, layout


def _which(arguments: argparse.Namespace, cpu: bool) -> str:
    """The list of shapes."""
    if arguments.sweep:
        return "sweep"
    if arguments.targets:
        return "targets"
    if arguments.quick:
        return "tiny" if cpu else "tables"
    return "all"


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _refuse(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 2
