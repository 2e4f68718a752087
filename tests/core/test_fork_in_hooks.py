"""A fork inside the pool's own calls: in hooks, and on a thread that waits (G10, P73, P74)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from respool import LeaseLostError, PoolLimits, PoolObserver, ResourcePool

if TYPE_CHECKING:
    from collections.abc import Callable


def run(act: Callable[[], bool]) -> None:
    """Run the act, which forks somewhere inside; the child ends with 0 if the act tells that all is well there."""
    parent = os.getpid()
    fine = False
    try:
        fine = act()
    finally:
        if os.getpid() != parent:
            os._exit(0 if fine else 1)


class Forks:
    """A hook that forks at its first call; the parent's side waits for the child's verdict."""

    def __init__(self) -> None:
        self.child = False
        self.status: int | None = None

    def __call__(self, *_: object) -> bool:
        """Fork, the first time."""
        if self.status is None and not self.child:
            pid = os.fork()
            if pid == 0:
                self.child = True
            else:
                self.status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return True


def is_empty_and_whole(pool: ResourcePool[None, object]) -> bool:
    """Tell whether a child's pool has nothing, and gives just as much as its limits allow."""
    stats = pool.stats()
    if (stats.size, stats.leased, stats.cost, stats.destroyed, stats.cancelled, stats.waits) != (0,) * 6:
        return False
    with pool.lease(timeout=10):
        return pool.try_lease() is None and pool.stats().leased == 1


@pytest.mark.parametrize("hook", ["destroy", "reset", "validate"])
def test_a_hook_forks(hook: str) -> None:
    """P73: a fork inside a hook leaves the child's pool empty, with counts at 0 and its limits intact."""
    forks = Forks()
    pool: ResourcePool[None, object] = ResourcePool(
        lambda _: object(), limits=PoolLimits(max_size=1), **{hook: forks}
    )

    def act() -> bool:
        lease = pool.lease()
        if hook == "destroy":
            lease.discard()
        else:
            lease.release()
        if hook == "validate":
            try:
                pool.lease().release()
            except LeaseLostError:
                return forks.child and is_empty_and_whole(pool)
        return not forks.child or is_empty_and_whole(pool)

    run(act)
    assert forks.status == 0
    assert pool.stats().size == (0 if hook == "destroy" else 1)
    pool.clear()


def test_a_waiting_thread_forks() -> None:
    """P74: a fork on a thread that waits, in its observer here, ends the wait in the child; the parent's goes on."""
    forks = Forks()

    class Observer(PoolObserver):
        def queued(self, pool: object, key: object) -> None:
            forks()
            if not forks.child:
                held.release()

    pool: ResourcePool[None, object] = ResourcePool(
        lambda _: object(), limits=PoolLimits(max_size=1), observer=Observer()
    )
    held = pool.lease()

    def act() -> bool:
        try:
            pool.lease(timeout=30).release()
        except LeaseLostError:
            return forks.child and is_empty_and_whole(pool)
        return not forks.child

    run(act)
    assert forks.status == 0
    assert pool.stats().idle == 1
    pool.close()
