"""One result as one line of JSON.

The library's own bench (`cargo xtask bench`) writes the same lines, and each report reads both.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Times:
    """Microseconds: the 10th percentile, the median and the 90th percentile of the timed runs."""

    p10: float
    median: float
    p90: float

    @staticmethod
    def of(microseconds: Sequence[float]) -> Times:
        """Of the runs' times; one run is its own percentile."""
        if len(microseconds) == 1:
            return Times(*[round(microseconds[0], 3)] * 3)
        tenths = statistics.quantiles(microseconds, n=10, method="inclusive")
        return Times(round(tenths[0], 3), round(statistics.median(microseconds), 3), round(tenths[8], 3))


@dataclasses.dataclass(frozen=True)
class Machine:
    """What a result was measured on, and when."""

    device: str
    """`cuda` or `cpu`."""
    gpu: str | None
    """The GPU's name; without one the processor's."""
    driver: str | None
    torch: str | None
    """PyTorch's version; None of the library's own bench, which has no PyTorch beside it."""
    ferrolayer: str
    date: str
    """UTC, as `2026-11-21T14:00:00Z`."""
    copy_gbps: float | None
    """What copying within the GPU reached in the same run, bytes read plus bytes written, 1e9 a second."""
    commit: str | None = None
    """What was built, as `git describe` says it, where that is known."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One pass of one op on one shape."""

    op: str
    pass_: str
    """`forward` (of training), `backward`, or `inference` where that is another kernel."""
    dtype: str
    layout: str
    shape: tuple[int, ...]
    options: dict[str, Any]
    bytes: int
    """The fewest that the pass can move: each input read once, each output written once."""
    flops: int | None
    """Floating-point operations, for what is bound by arithmetic."""
    baseline: str
    """What stands on PyTorch's side."""
    ours_us: Times
    torch_us: Times | None
    compiled_us: Times | None
    machine: Machine
    target: float | None = None
    """The share that is to be reached, where there is such a goal."""

    @property
    def reached(self) -> bool | None:
        """Whether the share is what it is to be, to three digits as it is shown."""
        if self.target is None or self.share is None:
            return None
        return round(self.share, 3) >= self.target

    @property
    def ratio(self) -> float | None:
        """Our time over PyTorch's: below 1 is ahead."""
        return self.ours_us.median / self.torch_us.median if self.torch_us else None

    @property
    def compiled_ratio(self) -> float | None:
        """Our time over that of the compiled one: below 1 is ahead."""
        return self.ours_us.median / self.compiled_us.median if self.compiled_us else None

    @property
    def share(self) -> float | None:
        """The time of copying the fewest bytes over the time of the pass: 1 is all that memory gives."""
        return self.share_of(self.ours_us)

    def share_of(self, times: Times | None) -> float | None:
        """The share that these times would be."""
        if times is None or self.machine.copy_gbps is None:
            return None
        return self.bytes / (self.machine.copy_gbps * 1e3) / times.median

    @property
    def key(self) -> tuple[str, ...]:
        """What two runs have in common when they measured the same."""
        options = json.dumps(self.options, sort_keys=True)
        return (self.machine.device, self.op, self.pass_, self.dtype, self.layout, str(tuple(self.shape)), options)

    def to_json(self) -> str:
        """One line."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        machine = dataclasses.asdict(fields.pop("machine"))
        row = {("pass" if name == "pass_" else name): value for name, value in fields.items()}
        for name in ("ours_us", "torch_us", "compiled_us"):
            row[name] = dataclasses.asdict(row[name]) if row[name] else None
        for name in ("ratio", "compiled_ratio", "share"):
            value = getattr(self, name)
            row[name] = None if value is None else round(value, 4)
        return json.dumps({"bench": "pass", **row, **machine})

    @staticmethod
    def from_json(line: str) -> Row | None:
        """Of one line; None where the line is a result of another kind."""
        row = json.loads(line)
        if row.get("bench", "pass") != "pass":
            return None
        machine = Machine(**{field.name: row.get(field.name) for field in dataclasses.fields(Machine)})
        times = {name: Times(**row[name]) if row.get(name) else None for name in ("torch_us", "compiled_us")}
        return Row(
            op=row["op"],
            pass_=row["pass"],
            dtype=row["dtype"],
            layout=row["layout"],
            shape=tuple(row["shape"]),
            options=row["options"],
            bytes=row["bytes"],
            flops=row.get("flops"),
            baseline=row.get("baseline", ""),
            ours_us=Times(**row["ours_us"]),
            machine=machine,
            target=row.get("target"),
            **times,
        )


def read(path: Path) -> list[Row]:
    """The rows of a file of JSON lines."""
    rows = (Row.from_json(line) for line in path.read_text().splitlines() if line.strip())
    return [row for row in rows if row is not None]


def write(path: Path, rows: Iterable[Row]) -> None:
    """Writes rows as JSON lines."""
    path.write_text("".join(row.to_json() + "\n" for row in rows))
