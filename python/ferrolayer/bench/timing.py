"""Times passes: inputs rotated past the caches, contenders in turns, events on the GPU.

On the GPU a run is a pass several times after itself, about as long as a copy that the copy rate is measured with,
timed by two events around it. So that they measure the GPU and not the host, the queue is kept full: a batch of runs is
queued behind a wait long enough for the host to queue all of it, and once more, behind a longer one, if it was not.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence

import torch

from .rows import Times

Run = Callable[[], object]
"""Queues one run of a pass, or does it on the CPU, and returns what it computed."""

WARM_UP = 3
"""Runs of each contender before any is timed."""
BATCH = 64
"""Passes of each contender that are queued at once: few enough that the queue's thousand launches hold them."""
MOST_ROUNDS = 10
"""Rounds that are queued at once, at most."""
MOST_LATE = 2
"""Batches that are measured again, at most, where the host was slower than the wait."""
MOST_IN_A_RUN = 16
"""Passes of a run at most."""
MOST_COPIES = 128
"""Sets of inputs at most. Where so many do not outgrow the cache, something else is read between the runs."""
CPU_ROTATED = 64 << 20
"""Bytes to rotate among on the CPU: more than its caches."""
CPU_COPIES = 16
CPU_BLOCK = 5
"""Runs of one contender in a row on the CPU. The first is not timed: the other's threads may still be spinning."""


def order(contenders: int, turn: int) -> list[int]:
    """Who runs after whom, every other turn the other way round: none profits from what the one before it left."""
    return list(range(contenders))[:: 1 if turn % 2 == 0 else -1]


class CpuTimer:
    """Times on the CPU: by the clock, or, with one thread, by the time that the process ran, whatever else did."""

    copy_gbps: float | None = None

    def __init__(self, threads: int) -> None:
        self.clock = time.process_time_ns if threads == 1 else time.perf_counter_ns

    def copies(self, input_bytes: int, all_bytes: int) -> int:
        """Sets of inputs to rotate among."""
        del all_bytes  # of the shapes that are measured here any memory holds a few
        return max(2, min(CPU_COPIES, math.ceil(CPU_ROTATED / max(1, input_bytes))))

    def measure(self, contenders: Sequence[Sequence[Run]], runs: int) -> list[Times]:
        """Times each contender, a list with one run for each set of inputs, at least `runs` times."""
        times: list[list[float]] = [[] for _ in contenders]
        for contender in contenders:
            for number in range(WARM_UP):
                contender[number % len(contender)]()
        count = 0
        for turn in range(math.ceil(runs / (CPU_BLOCK - 1))):
            for who in order(len(contenders), turn):
                contender, measured = contenders[who], times[who]
                for number in range(CPU_BLOCK):
                    run = contender[count % len(contender)]
                    count += 1
                    start = self.clock()
                    result = run()
                    end = self.clock()
                    # Freed here, outside of the time, as a caller who goes on using it would.
                    del result
                    if number > 0:
                        measured.append((end - start) / 1e3)
        return [Times.of(measured) for measured in times]


class GpuTimer:
    """Times on a GPU by events; knows the GPU's cache and its copy rate."""

    def __init__(self, device: torch.device, copy_bytes: int = 2 << 30) -> None:
        self.device = device
        self.cache = torch.cuda.get_device_properties(device).L2_cache_size
        self.copy_us = self._copy_us(copy_bytes)
        self.copy_gbps: float | None = round(2 * copy_bytes / (self.copy_us * 1e3), 1)
        self.cycles_per_us = self._cycles_per_us()
        # Twice the cache; read between the runs where the inputs cannot outgrow it.
        self.scratch = torch.ones(2 * self.cache // 4, device=device)

    def copies(self, input_bytes: int, all_bytes: int) -> int:
        """Sets of inputs to rotate among, together four times the cache; 0 where memory does not hold them.

        `all_bytes` is what one set takes with the results of all contenders and what they saved.
        """
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(self.device)
        fitting = int(0.9 * free / max(1, all_bytes))
        outgrown = math.ceil(4 * self.cache / max(1, input_bytes))
        return 0 if fitting < min(outgrown, 2) else min(MOST_COPIES, fitting, max(2, outgrown))

    def measure(self, contenders: Sequence[Sequence[Run]], runs: int) -> list[Times]:
        """Times each contender, a list with one run for each set of inputs, at least `runs` times."""
        sets = len(contenders[0])
        evict = sets >= MOST_COPIES
        # Results live until as many others have been made: their memory is not written again while the cache holds it.
        kept: deque[object] = deque(maxlen=sets)
        alone = [self._alone(contender, kept) for contender in contenders]
        torch.cuda.synchronize(self.device)
        start = time.perf_counter()
        for contender in contenders:
            kept.append(contender[0]())
        host_us = 1e6 * (time.perf_counter() - start) + 40.0 * len(contenders)
        torch.cuda.synchronize(self.device)
        passes = [1 if evict else max(1, min(MOST_IN_A_RUN, round(self.copy_us / us))) for us in alone]
        rounds = max(1, min(MOST_ROUNDS, BATCH // max(passes)))

        times: list[list[float]] = [[] for _ in contenders]
        counts = [0] * len(contenders)
        again = MOST_LATE
        while len(times[0]) < runs:
            events: list[tuple[int, torch.cuda.Event, torch.cuda.Event]] = []
            for turn in range(rounds):
                for number in order(len(contenders), turn):
                    events.append((number, torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)))
            torch.cuda._sleep(int(1.5 * rounds * max(passes) * host_us * self.cycles_per_us))
            waited = torch.cuda.Event()
            waited.record()
            for number, before, after in events:
                contender, first = contenders[number], counts[number]
                counts[number] += passes[number]
                if evict:
                    self.scratch.sum()
                before.record()
                for count in range(first, counts[number]):
                    kept.append(contender[count % sets]())
                after.record()
            late = waited.query()
            torch.cuda.synchronize(self.device)
            if late and again > 0:
                # The GPU waited for the host, which asks for memory in the first batch, or does something else.
                again -= 1
                host_us *= 2.0
                continue
            for number, before, after in events:
                times[number].append(1e3 * before.elapsed_time(after) / passes[number])
        return [Times.of(measured) for measured in times]

    def _alone(self, contender: Sequence[Run], kept: deque[object]) -> float:
        """Warms a contender up; the least microseconds of a pass by itself, the host's included where it is slower."""
        events = [torch.cuda.Event(enable_timing=True) for _ in range(WARM_UP + 1)]
        events[0].record()
        for number, after in enumerate(events[1:]):
            kept.append(contender[number % len(contender)]())
            after.record()
        torch.cuda.synchronize(self.device)
        return 1e3 * min(before.elapsed_time(after) for before, after in zip(events, events[1:], strict=False))

    def _copy_us(self, size: int) -> float:
        """Microseconds of a copy of so many bytes within the GPU; half a second of them warms the clocks."""
        source = torch.empty(size, dtype=torch.uint8, device=self.device).random_()
        target = torch.empty_like(source)
        end = time.perf_counter() + 0.5
        while time.perf_counter() < end:
            target.copy_(source)
            torch.cuda.synchronize(self.device)
        pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(50)]
        for before, after in pairs:
            before.record()
            target.copy_(source)
            after.record()
        torch.cuda.synchronize(self.device)
        return Times.of([1e3 * before.elapsed_time(after) for before, after in pairs]).median

    def _cycles_per_us(self) -> float:
        cycles = 10_000_000
        for _ in range(2):  # the first loads the kernel
            before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            before.record()
            torch.cuda._sleep(cycles)
            after.record()
            torch.cuda.synchronize(self.device)
        return cycles / (1e3 * before.elapsed_time(after))
