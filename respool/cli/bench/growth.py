"""``respool bench pool:growth``: whether costs grow with how much there is of everything else.

This module owns the list of what is measured and the targets that the growth is held to.  How the
time of a hand-over is measured is in `_waiters_probe` and `_handover`.

Costs in one thread are those of the best round, so that they tell what the pool does, and not what else
runs.  What is done now and then for many at once (a table is rebuilt) falls out of such a figure; hence
the lines that say "mean", over as many operations as there are keys.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from respool.cli.bench import _waiters_probe
from respool.cli.bench._measure import measure
from respool.cli.bench._operations import (
    HIT,
    MISS,
    ROUNDS,
    fresh_keys,
    hit,
    miss,
    of_size,
    operation,
    pool_of,
)
from respool.cli.bench._probes import ProbeError, ask
from respool.cli.bench._results import Claim, Curves, Line, Missing, Result, Spread
from respool.cli.bench._waiters_probe import HANDOVER, LOCKS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from respool import Lease, ResourcePool
    from respool.cli.bench._measure import Contender, Effort

_KEYS = (1, 10_000, 1_000_000)
_IDLE = (1, 1_000, 100_000)
_WAITERS = (10, 1_000, 10_000)
_EVICTING = (10, 1_000, 100_000)
#: Room that a pool has left beside what is in it.
_ROOM = 16
#: Seconds that a process with waiters may take.
_PATIENCE = 180.0
_SECTIONS = 4

_EVICT = "evicting miss: acquire of a key not seen before, at the limit, + release"
_REFUSED = "refused: try_acquire at the limit, all keys' resources leased"
#: What doesn't grow may do so by this much: caches and tables of the machine are larger too.
_LEVEL = 1.5


def steps(effort: Effort) -> int:
    """Tell how often `run` will call `tick`."""
    return _SECTIONS + _SECTIONS * effort.runs


def run(effort: Effort, tick: Callable[[], object]) -> Result:
    """Measure, and hold the growth to the targets."""
    missing: list[Missing] = []
    sections = [
        _with_waiters(effort, tick, missing),
        _with_keys(effort, tick),
        _with_idle(effort, tick),
        _with_evicting(effort, tick),
    ]
    return Result(
        name="pool:growth",
        title="Growth",
        what=(
            "What an acquire and a release cost, as there are more and more of something else in the pool: keys with an "
            "idle resource each, idle resources of one key, threads asleep in the queue, idle keys of which one must be evicted. "
            "The pool has a limit on its size throughout. A hit finds an idle resource of its key; a miss creates "
            "one, for a key that wasn't there before. Figures are ratios to the smallest number in the same repeat. "
            "The cyclic collector is off while single operations are timed. A hand-over is timed as a chain: each thread "
            "that is served gives back at once, and queues again; beside it, the same with a deque of locks, "
            "which has the system's own part of the cost and its growth."
        ),
        repeats=effort.runs,
        sections=sections,
        claims=[claim for section in sections for claim in _claims(section)],
        missing=missing,
        packages=(),
        quick=effort.quick,
    )


def _claims(section: Curves) -> list[Claim]:
    claims: list[Claim] = []
    for line in section.lines:
        if line.role != "respool" or len(line.seconds) < 2:  # noqa: PLR2004 - there's nothing to compare
            continue
        small, large = min(line.seconds), max(line.seconds)
        if line.name in {HIT, MISS, _REFUSED}:
            target, unit = _LEVEL, "times"
        else:
            target = math.log(large) / math.log(max(2, small))
            unit = "times; as the logarithm"
        claims.append(
            Claim(
                text=f"{section.over}: {line.name}, {large:,} against {small:,}",
                unit=unit,
                figure=line.ratio(large),
                target=round(target, 2),
                at_most=True,
            )
        )
    return claims


def _best(contenders: Sequence[Contender], effort: Effort, tick: Callable[[], object]) -> dict[str, Spread]:
    """Measure, with fewer rounds and a tick for each repeat."""
    rounds = min(ROUNDS, effort.rounds)
    shorter = dataclasses.replace(effort, repeats=effort.runs, rounds=rounds)
    done = itertools.count(1)
    return measure(contenders, shorter, tick=lambda: None if next(done) % rounds else tick())


def _line(name: str, sizes: Sequence[int], seconds: dict[str, Spread]) -> Line:
    return Line(name=name, role="respool", seconds={size: of_size(name, size, seconds) for size in sizes})


def _sizes(effort: Effort, full: Sequence[int]) -> list[int]:
    return sorted({effort.scaled(size) for size in full})


def _with_keys(effort: Effort, tick: Callable[[], object]) -> Curves:
    sizes = _sizes(effort, _KEYS)
    contenders: list[Contender] = []
    with ExitStack() as ends:
        for size in sizes:
            pool = ends.enter_context(pool_of(size + _ROOM))
            for key in range(size):
                pool.release(pool.acquire(key))
            contenders += [hit(pool, size // 2, size), miss(pool, size)]
        tick()
        seconds = _best(contenders, effort, tick)
    lines = [_line(name, sizes, seconds) for name in (HIT, MISS)]
    return Curves(title="More keys", over="keys with an idle resource each", lines=lines)


def _with_idle(effort: Effort, tick: Callable[[], object]) -> Curves:
    sizes = _sizes(effort, _IDLE)
    contenders: list[Contender] = []
    with ExitStack() as ends:
        for size in sizes:
            pool = ends.enter_context(pool_of(size + _ROOM))
            pool.prefill(size, "key")
            contenders += [hit(pool, "key", size), miss(pool, size)]
        tick()
        seconds = _best(contenders, effort, tick)
    lines = [_line(name, sizes, seconds) for name in (HIT, MISS)]
    return Curves(title="More idle resources", over="idle resources of one key", lines=lines)


def _with_waiters(effort: Effort, tick: Callable[[], object], missing: list[Missing]) -> Curves:
    # Each in a process of its own, again for each repeat: ten thousand threads are in everybody's way, even
    # asleep, and if they're too many for the machine, they can be got rid of.
    sizes = _sizes(effort, _WAITERS)
    figures: dict[str, dict[int, list[float]]] = {
        name: {size: [] for size in sizes} for name in (HANDOVER, LOCKS, HIT, MISS)
    }
    gone: set[int] = set()
    tick()
    for _ in range(effort.runs):
        for size in sizes:
            if size in gone:
                continue
            arguments = (size, "quick") if effort.quick else (size,)
            try:
                found = ask(_waiters_probe.__name__, *arguments, patience=_PATIENCE)
            except ProbeError as error:
                gone.add(size)
                missing.append(Missing(name=f"{size:,} waiters", why=str(error)))
                continue
            for name, seconds in found.items():
                figures[name][size].append(seconds)
        tick()
    lines = [
        Line(
            name=name,
            role="floor" if name == LOCKS else "respool",
            seconds={size: Spread(tuple(each[size])) for size in sizes if size not in gone},
        )
        for name, each in figures.items()
    ]
    return Curves(title="More waiters", over="threads asleep in the queue for another key", lines=lines)


def _with_evicting(effort: Effort, tick: Callable[[], object]) -> Curves:
    sizes = _sizes(effort, _EVICTING)
    means: dict[int, list[float]] = {size: [] for size in sizes}
    contenders: list[Contender] = []
    held: list[Lease[Any, object]] = []
    with ExitStack() as ends:
        pools: dict[int, ResourcePool[Any, object]] = {}
        for size in sizes:
            pools[size] = pool = ends.enter_context(pool_of(size))
            for key in range(size):
                pool.release(pool.acquire(key))
            full = ends.enter_context(pool_of(size))
            held += [full.lease(key) for key in range(size)]
            contenders += [
                operation(
                    _EVICT, size, "pool.release(pool.acquire(next(keys)))", pool=pool, keys=fresh_keys()
                ),
                operation(_REFUSED, size, 'pool.try_acquire("other")', pool=full),
            ]
        tick()
        seconds = _best(contenders, effort, lambda: None)
        keys = itertools.count(1 << 50)
        for _ in range(effort.runs):
            for size, pool in pools.items():
                count = max(size, effort.scaled(20_000))
                began = time.perf_counter()
                for key in itertools.islice(keys, count):
                    pool.release(pool.acquire(key))
                means[size].append((time.perf_counter() - began) / count)
            tick()
        for lease in held:
            lease.release()
    mean = {size: Spread(tuple(values)) for size, values in means.items()}
    lines = [
        _line(_EVICT, sizes, seconds),
        Line(name="evicting miss, mean", role="respool", seconds=mean),
        _line(_REFUSED, sizes, seconds),
    ]
    return Curves(title="More keys at the limit", over="keys, as many as the limit allows", lines=lines)
