"""Several threads at once: what they do between a start line and their end, and how long it takes.

This module owns the threads, and the loops that they run.  A loop is compiled with its names as its
locals, as those of one thread are, so that all contenders pay the same for what isn't theirs.  The
interpreter's switch interval is what it is by default.
"""

from __future__ import annotations

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from threading import Barrier
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from respool.cli.bench._peers import Pair

R = TypeVar("R")

#: From a start line and turns to when it began and ended, and waits that were noted.
Loop: TypeAlias = "Callable[[Callable[[], object], Iterable[object]], tuple[float, float, list[float]]]"

#: The least that `hashlib` hashes without the interpreter's lock.
_UNLOCKED = 2048
#: Runs until a number of operations is taken for good enough.
_TRIES = 6


def together(count: int, act: Callable[[Callable[[], object], int], R]) -> list[R]:
    """Run ``act(start, number)`` in so many threads; each calls `start`, which returns when all have.

    Raises
    ------
    Exception
        What the first of them raised, when all have ended.
    """
    barrier = Barrier(count)
    with ThreadPoolExecutor(count) as threads:
        acting = [threads.submit(act, barrier.wait, number) for number in range(count)]
    return [one.result() for one in acting]


class Work(NamedTuple):
    """What is done with a resource while it's held: a statement, and what its names mean."""

    statement: str
    names: Mapping[str, object]


NOTHING = Work("pass", {})


def hashing(seconds: float) -> Work:
    """Give work that takes about so long and needs no interpreter lock, as I/O does: a buffer is hashed."""
    sample = bytes(1 << 20)
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        hashlib.sha256(sample)
        best = min(best, time.perf_counter() - began)
    buffer = bytes(max(_UNLOCKED, round(len(sample) * seconds / best)))
    return Work("work_digest(work_buffer)", {"work_digest": hashlib.sha256, "work_buffer": buffer})


def loop_of(pair: Pair, work: Work, *, before: str = "pass", taken: str = "pass") -> Loop:
    """Compile ``loop(start, turns)``: take, work, give back for each turn; gives when it began and ended.

    Parameters
    ----------
    pair : Pair
        What takes and gives.  If its `take` ends in a colon it's a block, and the work is done inside.
    work : Work
        What is done in between.
    before, taken : str
        Statements before a take and right after it.  They may use `now`, `waits` (a list that the loop
        gives third), and `turns`, an iterable.
    """
    names = {**pair.names, **work.names}
    inner = "            " if pair.take.endswith(":") else "        "
    source = "\n".join(
        [
            f"def loop(start, turns, {', '.join(names)}):",
            "    waits = []",
            "    start()",
            "    began = now()",
            "    for _ in turns:",
            f"        {before}",
            f"        {pair.take}",
            f"{inner}{taken}",
            f"{inner}{work.statement}",
            f"        {pair.give}",
            "    return began, now(), waits",
        ]
    )
    space: dict[str, Any] = {"now": time.perf_counter}
    exec(source, space)  # noqa: S102 - this package's own statements
    compiled = space["loop"]

    def loop(start: Callable[[], object], turns: Iterable[object]) -> tuple[float, float, list[float]]:
        found: tuple[float, float, list[float]] = compiled(start, turns, **names)
        return found

    return loop


def throughput_seconds(loop: Loop, threads: int, count: int) -> float:
    """Run a loop `count` times in each thread; give the seconds of one, over all threads.

    From when the first thread left the start line to when the last had ended.
    """
    times = together(threads, lambda start, _: loop(start, repeat(None, count)))
    took = max(end for _, end, _ in times) - min(began for began, _, _ in times)
    return took / (threads * count)


def count_for(loop: Loop, threads: int, seconds: float) -> int:
    """Find how many turns of each thread take about so many seconds in all; by the way, warm up.

    Contention sets in only when threads run for longer than the switch interval, so what few turns
    cost tells little of what many cost: look again until it fits.
    """
    return _count(lambda count: throughput_seconds(loop, threads, count), threads, seconds)


def _count(run: Callable[[int], float], each: int, seconds: float) -> int:
    count = 32
    for _ in range(_TRIES):
        took = run(count) * each * count
        if seconds / 2 < took < seconds * 2:
            break
        count = max(1, round(count * min(8.0, seconds / took)))
    return count


def interleaved(
    loops: Mapping[str, Loop],
    threads: int,
    *,
    repeats: int,
    seconds: float = 0.0,
    count: int = 0,
    tick: Callable[[], object] = lambda: None,
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Run each contender's loop in turn, `repeats` times; give seconds of one by name, and failures by name.

    Each thread's work is the same in all repeats: `count` turns, or as many as take `seconds` in all.
    `tick` is called after each repeat.
    """
    runs = {name: _throughput(loop, threads) for name, loop in loops.items()}
    return interleaved_runs(runs, each=threads, repeats=repeats, seconds=seconds, count=count, tick=tick)


def _throughput(loop: Loop, threads: int) -> Callable[[int], float]:
    return lambda count: throughput_seconds(loop, threads, count)


def interleaved_runs(
    runs: Mapping[str, Callable[[int], float]],
    *,
    each: int = 1,
    repeats: int,
    seconds: float = 0.0,
    count: int = 0,
    tick: Callable[[], object] = lambda: None,
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Do the same with whatever can tell the seconds of one: of `each` times as many as it's asked to do."""
    failures: dict[str, str] = {}
    counts = dict.fromkeys(runs, count)
    if not count:
        for name, run in runs.items():
            _unless_it_fails(
                name,
                failures,
                lambda: counts.update({name: _count(run, each, seconds)}),  # noqa: B023 - run at once
            )
    order = list(runs)
    figures: dict[str, list[float]] = {name: [] for name in order}
    for _ in range(repeats):
        for name in order:
            if name not in failures:
                _unless_it_fails(
                    name,
                    failures,
                    lambda: figures[name].append(runs[name](counts[name])),  # noqa: B023 - run at once
                )
        tick()
        # So that nobody always runs after the same neighbour.
        order.append(order.pop(0))
    return {name: values for name, values in figures.items() if name not in failures}, failures


def _unless_it_fails(name: str, failures: dict[str, str], act: Callable[[], object]) -> None:
    try:
        act()
    except Exception as error:  # noqa: BLE001 - a pool that breaks under load is a gap in the table, not the end of it
        failures[name] = f"{type(error).__name__}: {error}"


def percentile(values: Sequence[float], share: float) -> float:
    """Give the value below which such a share of the (sorted) values lies."""
    return values[min(len(values) - 1, int(len(values) * share))]
