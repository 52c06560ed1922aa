"""Results as PNG: a bar a row, and time against size."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .rows import Row
from .shapes import label

MISSING = "plots need matplotlib: pip install matplotlib"

SIDES = (
    ("ours", "ours_us", "tab:orange"),
    ("PyTorch", "torch_us", "tab:blue"),
    ("compiled", "compiled_us", "tab:green"),
)


def available() -> bool:
    """Whether there is anything to plot with."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def draw(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Writes `share-OP.png` (on the CPU `time-OP.png`) and, where rows differ in size alone, `size-OP.png`."""
    import matplotlib

    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    by_op: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_op[row.op].append(row)
    written = []
    for op, some in by_op.items():
        written.append(_bars(op, some, folder))
        sizes = _sizes(op, some, folder)
        written += [sizes] if sizes else []
    return written


def _bars(op: str, rows: Sequence[Row], folder: Path) -> Path:
    """A group of bars for each row: the share of the copy rate, or without one the time over PyTorch's."""
    import matplotlib.pyplot as plt

    shares = rows[0].machine.copy_gbps is not None
    sides = [side for side in SIDES if any(getattr(row, side[1]) for row in rows)]
    figure, axes = plt.subplots(figsize=(10, 1.5 + 0.16 * len(rows) * (len(sides) + 0.6)), layout="constrained")
    thickness = 0.8 / len(sides)
    for number, (name, field, colour) in enumerate(sides):
        values = [_value(row, field, shares) for row in rows]
        axes.barh([i + number * thickness for i in range(len(rows))], values, thickness, label=name, color=colour)
    axes.set_yticks([i + 0.4 - thickness / 2 for i in range(len(rows))])
    axes.set_yticklabels([_name(row) for row in rows], fontsize=7)
    axes.set_ylim(-0.5, len(rows))
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel(
        "share of the copy rate (1: all that memory gives)" if shares else "time over PyTorch's (below 1: ahead)"
    )
    axes.set_title(f"{op}, {_machine(rows[0])}", fontsize=9)
    axes.legend(fontsize=7)
    path = folder / f"{'share' if shares else 'time'}-{op}.png"
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def _value(row: Row, field: str, shares: bool) -> float:
    times = getattr(row, field)
    if shares:
        return row.share_of(times) or 0.0
    return times.median / row.torch_us.median if times and row.torch_us else 0.0


def _sizes(op: str, rows: Sequence[Row], folder: Path) -> Path | None:
    """Time against fewest bytes, a panel a pass, for the type, layout and options of which there are most sizes."""
    import matplotlib.pyplot as plt

    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[(row.dtype, row.layout, label(row.options))].append(row)
    (dtype, layout, options), chosen = max(groups.items(), key=lambda item: len({row.shape for row in item[1]}))
    if len({row.shape for row in chosen}) < 2:
        return None
    passes = list(dict.fromkeys(row.pass_ for row in chosen))
    figure, panels = plt.subplots(1, len(passes), figsize=(5 * len(passes), 4), squeeze=False, layout="constrained")
    for axes, pass_ in zip(panels[0], passes, strict=True):
        some = sorted((row for row in chosen if row.pass_ == pass_), key=lambda row: row.bytes)
        _panel(axes, some)
        axes.set_title(pass_, fontsize=9)
    figure.suptitle(" ".join([op, dtype, layout, options]).rstrip() + f"\n{_machine(rows[0])}", fontsize=9)
    path = folder / f"size-{op}.png"
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def _panel(axes: Any, rows: Sequence[Row]) -> None:
    for name, field, colour in SIDES:
        points = [(row.bytes, getattr(row, field)) for row in rows if getattr(row, field)]
        if points:
            sizes = [size for size, _ in points]
            axes.plot(sizes, [time.median for _, time in points], "o-", markersize=3, label=name, color=colour)
            low, high = [time.p10 for _, time in points], [time.p90 for _, time in points]
            axes.fill_between(sizes, low, high, alpha=0.2, color=colour)
    rate = rows[0].machine.copy_gbps if rows else None
    if rate is not None:
        ends = [rows[0].bytes, rows[-1].bytes]
        axes.plot(ends, [size / (rate * 1e3) for size in ends], "k--", linewidth=0.8, label="copying as many bytes")
        lowest = min(row.ours_us.p10 for row in rows)
        axes.set_ylim(bottom=10 ** math.floor(math.log10(lowest)))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("fewest bytes")
    axes.set_ylabel("µs")
    axes.legend(fontsize=7)


def _name(row: Row) -> str:
    parts = [row.pass_, row.dtype, row.layout, "x".join(map(str, row.shape)), label(row.options)]
    return " ".join(part for part in parts if part)


def _machine(row: Row) -> str:
    torch = f", torch {row.machine.torch}" if row.machine.torch else ""
    return f"{row.machine.gpu or row.machine.device}{torch}, {row.machine.date[:10]}"
