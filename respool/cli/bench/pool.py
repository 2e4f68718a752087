"""``respool bench pool``: what an uncontended acquire and release costs, and what an import does.

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
from respool.cli.bench._measure import (
    REPEATS,
    ROUNDS,
    Claim,
    Contender,
    Missing,
    Result,
    Row,
    Spread,
    measure,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

UNIT = "queue.SimpleQueue put+get"
_BOUND = "bound acquire+release"
_KEYED = "acquire+release, str key"
_WITH = "with pool.lease(key)"
_VALIDATED = "acquire+release, str key, validate hook"
_AT_MOST = {_BOUND: 4.5, _KEYED: 5.0, _WITH: 7.0, _VALIDATED: 14.0}
#: How much cheaper than any pool with limits the fast tier and the lease should be.
_FASTER = {_BOUND: 15.0, _WITH: 10.0}
_IMPORT_MS = 30.0
_IMPORT_ROUNDS = 6


def steps() -> int:
    """Tell how often `run` will call `tick`."""
    return REPEATS * (ROUNDS + _IMPORT_ROUNDS)


def run(tick: Callable[[], object]) -> Result:
    """Measure, and hold the results to the targets."""
    found = _peers.peers()
    missing = [peer for peer in found if isinstance(peer, Missing)]
    peers = [peer for peer in found if isinstance(peer, Contender)]
    contenders = [*_floors(), *_own(), *peers]
    try:
        seconds = measure(contenders, tick=tick)
    finally:
        for contender in contenders:
            if contender.close is not None:
                contender.close()
    unit = seconds[UNIT]
    claims = [
        Claim(text=name, unit=f"x {UNIT}", figure=seconds[name].over(unit), target=target, at_most=True)
        for name, target in _AT_MOST.items()
    ]
    claims += [
        Claim(
            text=f"{name}: cheaper than {peer.name}",
            unit="times",
            figure=seconds[peer.name].over(seconds[name]),
            target=target,
            at_most=False,
        )
        for name, target in _FASTER.items()
        for peer in peers
        if peer.limited
    ]
    claims.append(
        Claim(
            text="import respool, above the interpreter's start",
            unit="ms",
            figure=_import_cost(tick),
            target=_IMPORT_MS,
            at_most=True,
        )
    )
    return Result(
        bench="pool",
        title="An uncontended acquire and release",
        what=(
            "One thread takes a resource that is idle and gives it back. "
            "Figures are in units of `queue.SimpleQueue` put+get, the cheapest way to hand an object "
            "through a thread-safe container, measured in the same run. "
            "All pools are set up with a limit of a few resources where they have limits, and with resources that cost nothing."
        ),
        unit=UNIT,
        rows=[
            Row(name=c.name, role=c.role, seconds=seconds[c.name], ratio=seconds[c.name].over(unit))
            for c in contenders
        ],
        claims=claims,
        missing=missing,
        packages=_peers.PACKAGES,
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
    validated = pool(limited, lambda _key, _resource: True)

    def contender(
        name: str, statement: str, of: ResourcePool[str, object], *, bound: bool = False
    ) -> Contender:
        return Contender(
            name=name,
            role="respool",
            statement=statement,
            names={"pool": of.bind("key") if bound else of},
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
        contender("bound acquire+release, no limits", pair, free, bound=True),
        contender("with pool.lease(key), no limits", lease, free),
        contender("bound acquire+release, validate hook", pair, validated, bound=True),
        contender(_VALIDATED, keyed, validated),
        contender("with pool.lease(key), validate hook", lease, validated),
    )


def _import_cost(tick: Callable[[], object]) -> Spread:
    """Milliseconds that ``import respool`` adds to an interpreter that does nothing else.

    Starting a process varies far more than a loop does, so a repeat takes the best of several.
    """
    # As installed: with its modules compiled, whatever this shell's settings say.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def start(code: str) -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)  # noqa: S603 - this very interpreter
        return time.perf_counter() - begin

    figures: list[float] = []
    start("import respool")
    for _ in range(REPEATS):
        bare = full = float("inf")
        for _ in range(_IMPORT_ROUNDS):
            bare = min(bare, start("pass"))
            full = min(full, start("import respool"))
            tick()
        figures.append((full - bare) * 1e3)
    return Spread(tuple(figures))
