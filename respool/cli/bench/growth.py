"""``respool bench pool:growth``: whether costs grow with how much there is of everything else.

This module owns the list of what is measured and the targets that the growth is held to.  How the
time of a hand-over is measured is in `_handover`.

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

from respool import PoolLimits, ResourcePool
from respool.cli.bench._handover import Crowd, queue_for_locks, queue_for_pool
from respool.cli.bench._measure import Contender, measure
from respool.cli.bench._results import Claim, Curves, Line, Missing, Result, Spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from respool import Lease
    from respool.cli.bench._handover import Queue
    from respool.cli.bench._measure import Effort

_KEYS = (1, 10_000, 1_000_000)
_IDLE = (1, 1_000, 100_000)
_WAITERS = (10, 1_000, 10_000)
_EVICTING = (10, 1_000, 100_000)
#: Rounds for the best of, which are fewer here: a large pool disturbs itself less than it's disturbed.
_ROUNDS = 30
_SECTIONS = 4

_HIT = "hit: bound acquire+release"
_MISS = "miss: acquire of a key not seen before + discard"
_EVICT = "evicting miss: acquire of a key not seen before, at the limit, + release"
_REFUSED = "refused: try_acquire at the limit, all keys' resources leased"
_HANDOVER = "hand-over to the next in line"
_LOCKS = "hand-over through a deque of locks"
#: What doesn't grow may do so by this much: caches and tables of the machine are larger too.
_LEVEL = 1.5


def steps(effort: Effort) -> int:
    """Tell how often `run` will call `tick`."""
    return _SECTIONS + _SECTIONS * effort.runs


def run(effort: Effort, tick: Callable[[], object]) -> Result:
    """Measure, and hold the growth to the targets."""
    missing: list[Missing] = []
    sections = [
        _with_keys(effort, tick),
        _with_idle(effort, tick),
        _with_waiters(effort, tick, missing),
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
        small, large = min(line.seconds), max(line.seconds)
        if line.role != "respool" or small == large:
            continue
        if line.name in {_HIT, _MISS, _REFUSED}:
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


def _pool(size: int, per_key: int | None = None) -> ResourcePool[Any, object]:
    return ResourcePool(
        lambda _key: object(),
        limits=PoolLimits(max_size=size, max_per_key=per_key),
        name="bench",
    )


def _pool_of(room: int) -> ResourcePool[Any, object]:
    """Give a pool with this much in it and some room left."""
    return _pool(room + 16)


def _contender(name: str, size: int, statement: str, **names: object) -> Contender:
    return Contender(name=f"{name} {size}", role="respool", statement=statement, names=names)


def _hit(pool: ResourcePool[Any, object], key: object, size: int) -> Contender:
    return _contender(_HIT, size, "resource = pool.acquire(); pool.release(resource)", pool=pool.bind(key))


def _miss(pool: ResourcePool[Any, object], size: int) -> Contender:
    statement = "resource = pool.acquire(next(keys)); pool.discard(resource)"
    return _contender(_MISS, size, statement, pool=pool, keys=_fresh())


def _fresh() -> itertools.count[int]:
    """Give keys that aren't there: those that are there are below."""
    return itertools.count(1 << 40)


def _best(contenders: Sequence[Contender], effort: Effort, tick: Callable[[], object]) -> dict[str, Spread]:
    """Measure, with fewer rounds and a tick for each repeat."""
    rounds = min(_ROUNDS, effort.rounds)
    shorter = dataclasses.replace(effort, repeats=effort.runs, rounds=rounds)
    done = itertools.count(1)
    return measure(contenders, shorter, tick=lambda: None if next(done) % rounds else tick())


def _line(name: str, sizes: Sequence[int], seconds: dict[str, Spread]) -> Line:
    return Line(name=name, role="respool", seconds={size: seconds[f"{name} {size}"] for size in sizes})


def _sizes(effort: Effort, full: Sequence[int]) -> list[int]:
    return sorted({effort.scaled(size) for size in full})


def _with_keys(effort: Effort, tick: Callable[[], object]) -> Curves:
    sizes = _sizes(effort, _KEYS)
    contenders: list[Contender] = []
    with ExitStack() as ends:
        for size in sizes:
            pool = ends.enter_context(_pool_of(size))
            for key in range(size):
                pool.release(pool.acquire(key))
            contenders += [_hit(pool, size // 2, size), _miss(pool, size)]
        tick()
        seconds = _best(contenders, effort, tick)
    lines = [_line(name, sizes, seconds) for name in (_HIT, _MISS)]
    return Curves(title="More keys", over="keys with an idle resource each", lines=lines)


def _with_idle(effort: Effort, tick: Callable[[], object]) -> Curves:
    sizes = _sizes(effort, _IDLE)
    contenders: list[Contender] = []
    with ExitStack() as ends:
        for size in sizes:
            pool = ends.enter_context(_pool_of(size))
            pool.prefill(size, "key")
            contenders += [_hit(pool, "key", size), _miss(pool, size)]
        tick()
        seconds = _best(contenders, effort, tick)
    lines = [_line(name, sizes, seconds) for name in (_HIT, _MISS)]
    return Curves(title="More idle resources", over="idle resources of one key", lines=lines)


def _with_waiters(effort: Effort, tick: Callable[[], object], missing: list[Missing]) -> Curves:
    sizes = _sizes(effort, _WAITERS)
    contenders: list[Contender] = []
    crowds: dict[int, Crowd] = {}
    with ExitStack() as ends:
        for size in sizes:
            pool = ends.enter_context(_pool(64, per_key=1))
            if (crowd := _crowd(size, queue_for_pool(pool, "busy"), ends, missing)) is not None:
                crowds[size] = crowd
                pool.release(pool.acquire("other"))
                contenders += [_hit(pool, "other", size), _miss(pool, size)]
        tick()
        seconds = _best(contenders, effort, lambda: None)
        handed = _chains(crowds, effort, tick)
    lines = [
        Line(name=_HANDOVER, role="respool", seconds=handed),
        _line(_HIT, list(crowds), seconds),
        _line(_MISS, list(crowds), seconds),
    ]
    # Afterwards, as twice as many threads are more than some systems give.
    crowds = {}
    with ExitStack() as ends:
        for size in sizes:
            if (crowd := _crowd(size, queue_for_locks(), ends, missing)) is not None:
                crowds[size] = crowd
        lines.insert(1, Line(name=_LOCKS, role="floor", seconds=_chains(crowds, effort, lambda: None)))
    return Curves(title="More waiters", over="threads asleep in the queue for another key", lines=lines)


def _crowd(size: int, queue: Queue, ends: ExitStack, missing: list[Missing]) -> Crowd | None:
    try:
        return ends.enter_context(Crowd(size, *queue))
    except RuntimeError as error:  # the system has no more threads
        gap = Missing(name=f"{size:,} waiters", why=str(error))
        if gap not in missing:
            missing.append(gap)
        return None


def _chains(crowds: dict[int, Crowd], effort: Effort, tick: Callable[[], object]) -> dict[int, Spread]:
    figures: dict[int, list[float]] = {size: [] for size in crowds}
    for _ in range(effort.runs):
        for size, crowd in crowds.items():
            figures[size].append(min(crowd.seconds(_turns(effort)) for _ in range(3)))
        tick()
    return {size: Spread(tuple(values)) for size, values in figures.items()}


def _turns(effort: Effort) -> int:
    return 10 if effort.quick else 300


def _with_evicting(effort: Effort, tick: Callable[[], object]) -> Curves:
    sizes = _sizes(effort, _EVICTING)
    means: dict[int, list[float]] = {size: [] for size in sizes}
    contenders: list[Contender] = []
    held: list[Lease[Any, object]] = []
    with ExitStack() as ends:
        pools: dict[int, ResourcePool[Any, object]] = {}
        for size in sizes:
            pools[size] = pool = ends.enter_context(_pool(size))
            for key in range(size):
                pool.release(pool.acquire(key))
            full = ends.enter_context(_pool(size))
            held += [full.lease(key) for key in range(size)]
            contenders += [
                _contender(_EVICT, size, "pool.release(pool.acquire(next(keys)))", pool=pool, keys=_fresh()),
                _contender(_REFUSED, size, 'pool.try_acquire("other")', pool=full),
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
