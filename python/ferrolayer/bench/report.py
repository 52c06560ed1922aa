"""The table, the summary, and the comparison with an earlier run."""

from __future__ import annotations

from collections.abc import Sequence

from .rows import Machine, Row, Times
from .shapes import cpu_goal, label

LEVEL = 0.02
"""Times that differ by no more are level."""

HEAD = (
    f"{'op':<15} {'pass':<9} {'type':<4} {'lay.':<4} {'shape':<14} {'options':<22} "
    f"{'ours µs':>7} {'p10..p90':>14} {'torch':>7} {'compiled':>8} {'ours/t.':>7} {'/comp.':>6}"
)


def heading(machine: Machine, method: str | None = None) -> str:
    """What was measured on, how, and the table's head."""
    versions = (("driver", machine.driver), ("torch", machine.torch), ("ferrolayer", machine.ferrolayer))
    named = [f"{name} {version}" for name, version in (*versions, ("commit", machine.commit)) if version is not None]
    lines = [", ".join([machine.gpu or machine.device, *named, machine.date])]
    if machine.copy_gbps is not None:
        lines.append(f"copies within the GPU: {machine.copy_gbps:.0f} GB/s (bytes read plus bytes written)")
    if method:
        lines.append(method)
    lines.append("ours/t., /comp.: our time over eager and over compiled PyTorch's, below 1 is ahead")
    head = HEAD + (f" {'share':>5} {'goal':>5}" if machine.copy_gbps is not None else "")
    return "\n".join([*lines, "", head, "-" * len(head)])


def line(row: Row) -> str:
    """One row of the table."""
    shape = "x".join(map(str, row.shape))
    spread = f"{_number(row.ours_us.p10)}..{_number(row.ours_us.p90)}"
    text = (
        f"{row.op:<15} {row.pass_:<9} {row.dtype:<4} {row.layout:<4} {shape:<14} {label(row.options):<22} "
        f"{_number(row.ours_us.median):>7} {spread:>14} {_median(row.torch_us):>7} {_median(row.compiled_us):>8} "
        f"{_ratio(row.ratio):>7} {_ratio(row.compiled_ratio):>6}"
    )
    if row.machine.copy_gbps is None:
        return text
    if row.flops is not None:
        return f"{text} {row.flops / row.ours_us.median / 1e6:>5.0f}TF"
    goal = "" if row.target is None else f"{'' if row.reached else '<'}{row.target:.2f}"
    return f"{text} {_ratio(row.share):>5} {goal:>5}".rstrip()


def summary(rows: Sequence[Row]) -> str:
    """How many rows are ahead, how many behind, and the worst of them."""
    lines = []
    for name, of in (("eager PyTorch", lambda row: row.ratio), ("compiled PyTorch", lambda row: row.compiled_ratio)):
        judged = sorted(((of(row), row) for row in rows if of(row) is not None), key=lambda pair: -pair[0])
        if not judged:
            continue
        behind = [(ratio, row) for ratio, row in judged if ratio > 1 + LEVEL]
        ahead = sum(ratio < 1 - LEVEL for ratio, _ in judged)
        level = len(judged) - ahead - len(behind)
        lines.append(f"against {name}: {ahead} rows ahead, {len(behind)} behind, {level} level (within {LEVEL:.0%})")
        lines += [f"  {ratio:6.2f} times its time: {_name(row)}" for ratio, row in behind[:10]]
        if len(behind) > 10:
            lines.append(f"  and {len(behind) - 10} more")
    on_cpu = [row for row in rows if row.machine.device == "cpu" and row.ratio is not None]
    for goal in sorted({cpu_goal(row.op) for row in on_cpu}):
        ratios = [row.ratio for row in on_cpu if cpu_goal(row.op) == goal]
        within = sum(ratio <= goal for ratio in ratios)
        lines.append(f"on the CPU: {within} of {len(ratios)} rows within {goal} times eager PyTorch's time")
    judged_targets = [row for row in rows if row.reached is not None]
    if judged_targets:
        missed = sorted((row for row in judged_targets if not row.reached), key=lambda row: row.share - row.target)
        lines.append(f"targets: {len(judged_targets) - len(missed)} of {len(judged_targets)} rows reach theirs")
        lines += [f"  {row.share:.3f} of {row.target:.3f}: {_name(row)}" for row in missed]
    shares = sorted(
        ((row.share, row) for row in rows if row.share is not None and row.flops is None), key=lambda p: p[0]
    )
    if shares:
        middle = shares[len(shares) // 2][0]
        lines.append(f"share of the copy rate: {shares[0][0]:.3f} to {shares[-1][0]:.3f}, median {middle:.3f}; lowest:")
        lines += [f"  {share:6.3f}: {_name(row)}" for share, row in shares[:5]]
    return "\n".join(lines)


def noise(old: Row, new: Row) -> float:
    """What two medians may differ by for no reason.

    Half of each run's spread from the 10th to the 90th percentile, and at least [`LEVEL`] of the earlier one.
    """
    spread = (old.ours_us.p90 - old.ours_us.p10 + new.ours_us.p90 - new.ours_us.p10) / 2
    return max(LEVEL * old.ours_us.median, spread)


def compare(old: Sequence[Row], new: Sequence[Row]) -> tuple[str, list[Row]]:
    """What got slower or faster by more than the noise, in words, and the rows that got slower."""
    before = {row.key: row for row in old}
    pairs = [(before[row.key], row) for row in new if row.key in before]
    if not pairs:
        return "no row of this run is in the earlier one", []
    slower = [(a, b) for a, b in pairs if b.ours_us.median - a.ours_us.median > noise(a, b)]
    faster = [(a, b) for a, b in pairs if a.ours_us.median - b.ours_us.median > noise(a, b)]
    counts = f"{len(slower)} slower and {len(faster)} faster by more than the noise"
    lines = [f"of {len(pairs)} rows that both runs have, {counts}"]
    hardware = {row.machine.gpu for pair in pairs for row in pair}
    if len(hardware) > 1:
        lines.append(f"  measured on different machines: {', '.join(sorted(str(name) for name in hardware))}")
    for word, some in (("slower", slower), ("faster", faster)):
        for a, b in sorted(some, key=lambda pair: -pair[1].ours_us.median / pair[0].ours_us.median):
            change = 100 * (b.ours_us.median / a.ours_us.median - 1)
            times = f"{_number(a.ours_us.median)} -> {_number(b.ours_us.median)} µs"
            lines.append(f"  {word} {change:+6.1f} % ({times}): {_name(b)}")
    return "\n".join(lines), [b for _, b in slower]


def _name(row: Row) -> str:
    return " ".join(
        [row.op, row.pass_, row.dtype, row.layout, "x".join(map(str, row.shape)), label(row.options)]
    ).rstrip()


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def _median(times: Times | None) -> str:
    return _number(times.median) if times else "-"


def _ratio(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"
