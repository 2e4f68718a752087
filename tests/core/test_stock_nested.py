"""What comes in between: a signal handler that uses the pool, or another thread's release, at every place (P18, P77, P78)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    PoolExhaustedError,
    PoolLimits,
    PoolReentrancyError,
    PoolTimeoutError,
    ResourcePool,
)
from tests.helpers.checkpoints import every_checkpoint
from tests.helpers.invariants import assert_quiet
from tests.helpers.recorder import Recorder
from tests.helpers.resources import Factory, Thing
from tests.helpers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.usefixtures("no_backstop", "bear"), pytest.mark.slow]

ROOMS = 4

Pool = ResourcePool[Any, Thing]


def new_pool(factory: Factory, **options: Any) -> Pool:
    """Make a pool with two idle ones of A."""
    pool = ResourcePool(factory.create, factory.destroy, limits=PoolLimits(max_size=ROOMS), **options)
    pool.lease_many(2, "A").release()
    return pool


def assert_whole(pool: Pool, factory: Factory) -> None:
    """Check that all rooms can be had, for distinct living resources."""
    pool.resize(PoolLimits(max_size=ROOMS))
    with pool.lease_many(ROOMS, "A", 0) as things:
        assert all(thing.alive for thing in things)
        assert len({id(thing) for thing in things}) == ROOMS
    stats = assert_quiet(pool, leased=0, idle=ROOMS)
    assert stats.leaked == 0
    assert factory.misuse == []
    assert factory.most_alive <= ROOMS + stats.abandoned + stats.adopted


ACTIONS: dict[str, Callable[[Pool], object]] = {
    "lease_many": lambda pool: pool.lease_many(2, "A", 0).release(),
    "lease_many of another key": lambda pool: pool.lease_many(2, "B", 0).discard(),
    "adopt": lambda pool: pool.adopt(Thing("A", 100), "A"),
    "prefill": lambda pool: pool.prefill(1, "A"),
    "forget": lambda pool: pool.forget("A"),
    "resize": lambda pool: pool.resize(PoolLimits(max_size=ROOMS, max_idle=3)),
    "reap": lambda pool: pool.reap(),
}

OPERATIONS: dict[str, Callable[[Pool], object]] = {
    "lease_many": lambda pool: pool.lease_many(3, "A", 0).release(),
    "adopt": lambda pool: pool.adopt(Thing("A", 101), "A"),
    "prefill": lambda pool: pool.prefill(2, "A"),
    "forget": lambda pool: pool.forget("A"),
    "resize": lambda pool: pool.resize(PoolLimits(max_size=3, max_per_key=lambda key: 2)),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("action", ACTIONS)
def test_a_handler_that_uses_the_pool(operation: str, action: str) -> None:
    """P78, G5: whatever a handler calls, wherever it interrupts, works or is PoolReentrancyError, and nothing is lost."""
    refused = done = 0
    for visit in every_checkpoint():
        factory = Factory()
        pool = new_pool(factory)

        def act(pool: Pool = pool) -> None:
            nonlocal refused, done
            try:
                ACTIONS[action](pool)
                done += 1
            except PoolReentrancyError:
                refused += 1
            except (PoolTimeoutError, PoolExhaustedError):
                done += 1  # there may be no room at that moment

        with visit, pool:
            with contextlib.suppress(PoolTimeoutError, PoolExhaustedError):
                visit.run(lambda p=pool: OPERATIONS[operation](p), act)
            assert_whole(pool, factory)
    assert done
    assert refused


@pytest.mark.parametrize("end", ["release", "discard", "detach", "release when free"])
def test_another_thread_s_release(end: str) -> None:
    """P18, G3, G5: a release that comes at any point of a batch's way into the line doesn't pass it unseen, nor waits."""
    for visit in every_checkpoint():
        factory, recorder = Factory(), Recorder()
        pool = new_pool(factory, observer=recorder)
        held = [pool.lease("A")]

        def give_back(*args: object, held: list[Any] = held) -> None:
            if held:
                lease = held.pop()
                with Threads() as threads:
                    if end == "release when free":
                        threads.start(lease.release, lambda: True)
                    else:
                        threads.start(getattr(lease, end))

        recorder.on["queued"] = give_back
        with visit, pool:
            visit.run(lambda p=pool: p.lease_many(ROOMS, "A", 20).release(), give_back)
            give_back()
            assert_whole(pool, factory) if end != "detach" else assert_quiet(pool, leased=0, idle=ROOMS)
