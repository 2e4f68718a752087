"""Forks by a signal handler that strikes inside a call of the pool, at every place of it (P74, G10).

The child is still inside that call.  Whether it leaves by an exception or goes on, its pool is empty and has all rooms.
RESPOOL_STORM asks for more than CI does: all places, of which CI visits every fifth.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import traceback
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    LeaseReleasedError,
    PoolError,
    PoolLimits,
    PoolObserver,
    PoolTimeoutError,
    ResourcePool,
)
from tests.helpers.checkpoints import Interrupt, Visit, every_checkpoint
from tests.helpers.resources import Factory, Thing
from tests.helpers.threads import HANG_GUARD

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.usefixtures("no_backstop", "bear"), pytest.mark.slow]

ROOMS = 2
STEP = 1 if "RESPOOL_STORM" in os.environ else 5

Pool = ResourcePool[Any, Thing]


def hit(pool: Pool, hand: list[Any]) -> None:
    """Lease what is idle, and release."""
    with pool.lease("A"):
        pass


def fast(pool: Pool, hand: list[Any]) -> None:
    """Use the fast tier."""
    hand.append(pool.acquire("A"))
    pool.release(hand[0])


def create(pool: Pool, hand: list[Any]) -> None:
    """Evict and create."""
    hand.append(pool.lease("new"))
    hand.append(pool.acquire("new"))


def discard(pool: Pool, hand: list[Any]) -> None:
    """Destroy one."""
    hand.append(pool.lease("A"))
    hand[0].discard()


def detach(pool: Pool, hand: list[Any]) -> None:
    """Take one out of the pool."""
    pool.lease("A").detach()


def leak(pool: Pool, hand: list[Any]) -> None:
    """Forget a lease, and go on."""
    pool.lease("A")
    pool.lease("A", timeout=5).release()


def defer(pool: Pool, hand: list[Any]) -> None:
    """Give back what is free later."""
    answers = iter([False, False])
    hand.append(pool.lease("A"))
    hand[0].release(lambda: next(answers, True))
    pool.reap()
    pool.reap()


def many(pool: Pool, hand: list[Any]) -> None:
    """Lease two, of which one has to be created."""
    hand.append(pool.lease("A"))
    hand[0].discard()
    hand.append(pool.lease_many(2, "A"))
    hand[1].release()


def in_vain(pool: Pool, hand: list[Any]) -> None:
    """Wait in vain."""
    hand.append(pool.lease_many(2, "A"))
    with contextlib.suppress(PoolTimeoutError):
        pool.lease("B", timeout=0.001)


def stock(pool: Pool, hand: list[Any]) -> None:
    """Clear, fill up, take in, forget."""
    pool.clear()
    pool.prefill(1, "A")
    pool.adopt("B", Thing("B", 1000))
    pool.forget("A")


def resize(pool: Pool, hand: list[Any]) -> None:
    """Shrink, and grow again."""
    pool.resize(PoolLimits(max_size=1))
    pool.resize(PoolLimits(max_size=ROOMS))


def look(pool: Pool, hand: list[Any]) -> None:
    """Look around."""
    pool.stats()
    pool.stats("A")


USES = [hit, fast, create, discard, detach, leak, defer, many, in_vain, stock, resize, look]


def assert_good(pool: Pool, factory: Factory, hand: list[Any], inherited: set[int], destroyed: int) -> None:
    """Check in the child that the pool's counts are right, and that all rooms can be had for the child's own resources."""
    for held in hand:
        with contextlib.suppress(PoolError, LeaseReleasedError):
            held.release() if hasattr(held, "release") else pool.release(held)
    hand.clear()
    gc.collect()
    pool.reap()
    pool.reap()
    pool.resize(PoolLimits(max_size=ROOMS))
    stats = pool.stats()
    parts = stats.idle + stats.leased + stats.pending + stats.creating + stats.destroying + stats.quarantined
    assert parts == stats.size == stats.cost == stats.idle, stats
    assert min(stats.idle, stats.acquired, stats.created, stats.reused, stats.waiters) >= 0, stats
    for key in "AB":
        group = pool.lease_many(ROOMS, key, timeout=0)
        assert {thing.number for thing in group.resources}.isdisjoint(inherited)
        assert pool.try_lease("A") is None
        group.release()
    assert {thing.number for thing in factory.destroyed[destroyed:]}.isdisjoint(inherited)
    pool.close(timeout=0)
    assert pool.stats().size == 0


def visit_with_fork(
    visit: Visit, use: Callable[[Pool, list[Any]], None], *, hooked: bool, leaves: bool
) -> None:
    """Fork at the visit's place; the child goes on, or leaves by an exception, and then looks at its pool."""
    factory, hand = Factory(), list[Any]()
    hooks = {"validate": factory.validate, "reset": factory.reset} if hooked else {}
    pool: Pool = ResourcePool(
        factory.create,
        factory.destroy,
        limits=PoolLimits(max_size=ROOMS),
        observer=PoolObserver(),
        **hooks,  # type: ignore[arg-type]  # which of them is which is clear here
    )
    pool.lease_many(2, "A").release()
    parent, statuses = os.getpid(), list[int]()
    inherited, destroyed = set[int](), 0

    def fork() -> None:
        nonlocal destroyed
        inherited.update(thing.number for thing in factory.made)
        destroyed = len(factory.destroyed)
        child = os.fork()
        if child:
            statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            return
        signal.alarm(int(HANG_GUARD / 2))  # whose default ends a child that hangs
        if leaves:
            raise Interrupt

    try:
        with (
            contextlib.suppress(PoolError, LeaseReleasedError, Interrupt)
            if leaves
            else contextlib.suppress(PoolError)
        ):
            visit.run(lambda: use(pool, hand), fork)
        if os.getpid() != parent:
            assert_good(pool, factory, hand, inherited, destroyed)
            os._exit(0)
    except BaseException:
        if os.getpid() == parent:
            raise
        traceback.print_exc()
        os.write(2, f"in the child at {visit!r}\n".encode())
        os._exit(1)
    assert statuses in ([], [0])
    with contextlib.suppress(PoolTimeoutError):
        pool.close(timeout=0)


@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "goes on"])
@pytest.mark.parametrize(
    ("use", "hooked"),
    [*((use, False) for use in USES), *((use, True) for use in (hit, fast, create, many))],
    ids=lambda value: value.__name__ if callable(value) else "hooked" if value else "bare",
)
def test_fork_at_every_place(use: Callable[..., None], *, hooked: bool, leaves: bool) -> None:
    """P74, G10: wherever the handler's fork strikes, the child's pool begins empty, with all its rooms, and destroys nothing of the parent's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # leaks, and 3.12's word on forks with threads
        for visit in every_checkpoint(2 % STEP if leaves else 0, STEP):
            with visit:
                visit_with_fork(visit, use, hooked=hooked, leaves=leaves)
