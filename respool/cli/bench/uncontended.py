"""``respool bench pool:uncontended``: what an acquire and release of one thread costs, and what an import does.

This module owns the list of what is measured and the targets that the results are held to.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from respool import PoolLimits, ResourcePool
from respool.cli.bench import _peers
from respool.cli.bench._measure import Contender, Effort, bars, close_all, measure
from respool.cli.bench._results import Claim, Missing, Result, Spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

UNIT = "queue.SimpleQueue put+get"
_BOUND = "bound acquire+release"
_KEYED = "acquire+release, str key"
_WITH = "with pool.lease(key)"
_VALIDATED = "acquire+release, str key, validate hook"
_MANY = 64
_BATCH = f"pool.lease_many({_MANY}).release(), for each"
_AT_MOST = {_BOUND: 4.5, _KEYED: 5.0, _WITH: 7.0, _VALIDATED: 14.0, _BATCH: 2.0}
#: How much cheaper than any pool with limits the fast tier and the lease should be.
_FASTER = {_BOUND: 15.0, _WITH: 10.0}
_IMPORT_MS = 30.0


def steps(effort: Effort) -> int:
    """Tell how often `run` will call `tick`."""
    return effort.repeats * (effort.rounds + effort.starts)


def run(effort: Effort, tick: Callable[[], object]) -> Result:
    """Measure, and hold the results to the targets."""
    found = _peers.peers()
    pairs = [peer for peer in found if isinstance(peer, _peers.Pair)]
    contenders = [*_floors(), *_own(), *(pair.contender() for pair in pairs)]
    try:
        seconds = measure(contenders, effort, tick=tick)
    finally:
        close_all(contenders)
    unit = seconds[UNIT]
    claims = [
        Claim(text=name, unit=f"x {UNIT}", figure=seconds[name].over(unit), target=target, at_most=True)
        for name, target in _AT_MOST.items()
    ]
    claims += [
        Claim(
            text=f"{name}: cheaper than {pair.name}",
            unit="times",
            figure=seconds[pair.name].over(seconds[name]),
            target=target,
            at_most=False,
        )
        for name, target in _FASTER.items()
        for pair in pairs
        if pair.limited
    ]
    claims.append(
        Claim(
            text="from respool import ResourcePool, above the interpreter's start",
            unit="ms",
            figure=_import_cost(effort, tick),
            target=_IMPORT_MS,
            at_most=True,
        )
    )
    return Result(
        name="pool:uncontended",
        title="An uncontended acquire and release",
        what=(
            "One thread takes a resource that is idle and gives it back. "
            "Figures are in units of `queue.SimpleQueue` put+get, the cheapest way to hand an object "
            "through a thread-safe container, measured in the same run. "
            "All pools are set up with a limit of a few resources where they have limits, and with resources that cost nothing."
        ),
        repeats=effort.repeats,
        sections=[bars("What it costs", UNIT, contenders, seconds)],
        claims=claims,
        missing=[peer for peer in found if isinstance(peer, Missing)],
        packages=_peers.PACKAGES,
        quick=effort.quick,
    )


class _Empty:
    """Two methods and a context manager that do nothing: what any pool in Python pays at least."""

    __slots__ = ()

    def acquire(self) -> None:
        pass

    def release(self, resource: object) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        pass


class _EmptyLease:
    """A lease that does nothing."""

    __slots__ = ("resource",)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        pass

    def release(self) -> None:
        pass


class _EmptyLeases:
    """A pool that does nothing but make a lease: what any lease in Python that is an object of its own pays at least."""

    __slots__ = ()

    def lease(self, key: object) -> _EmptyLease:
        del key
        return _EmptyLease()


def _floors() -> Sequence[Contender]:
    empty = _Empty()
    simple: queue.SimpleQueue[object] = queue.SimpleQueue()
    return (
        Contender(
            name=UNIT,
            role="floor",
            statement="pool.put(resource); pool.get()",
            names={"pool": simple, "resource": object()},
        ),
        Contender(
            name="two empty methods",
            role="floor",
            statement="resource = pool.acquire(); pool.release(resource)",
            names={"pool": empty},
        ),
        Contender(
            name="an empty with", role="floor", statement="with pool:\n    pass", names={"pool": empty}
        ),
        Contender(
            name="an empty lease: with a new object that does nothing",
            role="floor",
            statement='with pool.lease("key"):\n    pass',
            names={"pool": _EmptyLeases()},
        ),
        Contender(
            name="an empty lease, released without with",
            role="floor",
            statement='pool.lease("key").release()',
            names={"pool": _EmptyLeases()},
        ),
        Contender(
            name="with a threading.Lock",
            role="floor",
            statement="with lock:\n    pass",
            names={"lock": threading.Lock()},
        ),
        Contender(
            name="with threading.Lock(), made each time",
            role="floor",
            statement="with Lock():\n    pass",
            names={"Lock": threading.Lock},
        ),
    )


def _own() -> Sequence[Contender]:
    limited = PoolLimits(max_size=4)

    def pool(
        limits: PoolLimits, validate: Callable[[str, object], bool] | None = None
    ) -> ResourcePool[str, object]:
        made = ResourcePool[str, object](lambda _key: object(), validate=validate, limits=limits)
        made.release(made.acquire("key"))
        return made

    plain, free = pool(limited), pool(PoolLimits())
    many = pool(PoolLimits(max_size=_MANY))
    many.prefill(_MANY, "key")
    validated = pool(limited, lambda _key, _resource: True)

    def contender(
        name: str, statement: str, of: ResourcePool[str, object], *, bound: bool = False, per: int = 1
    ) -> Contender:
        return Contender(
            name=name,
            role="respool",
            statement=statement,
            names={"pool": of.bind("key") if bound else of},
            per=per,
            close=of.close,
        )

    pair = "resource = pool.acquire(); pool.release(resource)"
    keyed = 'resource = pool.acquire("key"); pool.release(resource)'
    lease = 'with pool.lease("key") as resource:\n    pass'
    return (
        contender(_BOUND, pair, plain, bound=True),
        contender(_KEYED, keyed, plain),
        contender(_WITH, lease, plain),
        contender("pool.lease(key).release()", 'pool.lease("key").release()', plain),
        contender(_BATCH, f'pool.lease_many({_MANY}, "key").release()', many, per=_MANY),
        contender("bound acquire+release, no limits", pair, free, bound=True),
        contender("with pool.lease(key), no limits", lease, free),
        contender("bound acquire+release, validate hook", pair, validated, bound=True),
        contender(_VALIDATED, keyed, validated),
        contender("with pool.lease(key), validate hook", lease, validated),
    )


def _import_cost(effort: Effort, tick: Callable[[], object]) -> Spread:
    """Milliseconds that respool's core adds to an interpreter that does nothing else.

    All of it: ``import respool`` alone loads nothing until a name is used.

    Starting a process varies far more than a loop does, so a repeat takes the best of several.
    """
    # As installed: with its modules compiled, whatever this shell's settings say.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def start(code: str) -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)  # noqa: S603 - this very interpreter
        return time.perf_counter() - begin

    figures: list[float] = []
    start("from respool import ResourcePool")
    for _ in range(effort.repeats):
        bare = full = float("inf")
        for _ in range(effort.starts):
            bare = min(bare, start("pass"))
            full = min(full, start("from respool import ResourcePool"))
            tick()
        figures.append((full - bare) * 1e3)
    return Spread(tuple(figures))
