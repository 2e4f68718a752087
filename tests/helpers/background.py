"""The pools' background threads, as a test sees them: by their names."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from respool import PoolLimits, PoolObserver, ResourcePool

from .invariants import assert_quiet
from .threads import Threads, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from .resources import Factory, Thing

REAPER = "respool-reaper"


ROOMS = 3
"""How many rooms a pool of `new_pool` has."""


def new_pool(factory: Factory, *, where: str, **limits: Any) -> ResourcePool[Any, Thing]:
    """Make a pool with few rooms and a silent observer."""
    return ResourcePool(
        factory.create,
        factory.destroy,
        limits=PoolLimits(max_size=ROOMS, **limits),
        destroy_in="background" if where == "background" else "caller",
        observer=PoolObserver(),
    )


def settle(pool: ResourcePool[Any, Any]) -> None:
    """Wait until nothing is being destroyed any more."""
    wait_until(lambda: not pool.stats().destroying, "the end of the destroying")


def close(pool: ResourcePool[Any, Any]) -> None:
    """Close, in another thread: before Python 3.13 the main one would find out a quarter of a second late, a thousand times."""
    with Threads() as threads:
        threads.start(pool.close, timeout=20)


def assert_whole(pool: ResourcePool[Any, Thing], factory: Factory, lost: int) -> None:
    """Check that all rooms can be had for good resources, that nothing was destroyed twice, and how much not to its end."""
    leases = [pool.lease("A", timeout=20) for _ in range(ROOMS)]
    assert all(lease.resource.alive for lease in leases)
    assert len({id(lease.resource) for lease in leases}) == ROOMS
    assert pool.try_lease("A") is None
    for lease in leases:
        lease.release()
    settle(pool)
    assert_quiet(pool, leased=0)
    close(pool)
    assert_quiet(pool, leased=0, idle=0)
    assert factory.misuse == []
    assert 0 <= factory.alive <= lost  # an interrupt may hit the hook itself
    wait_ended(lambda: destroyers(pool))


def named(name: str) -> list[threading.Thread]:
    """Return the threads of this name."""
    return [thread for thread in threading.enumerate() if thread.name == name]


def reapers() -> list[threading.Thread]:
    """Return the reaper threads; one that ends is in the list for a moment still."""
    return named(REAPER)


def destroyers(pool: ResourcePool[Any, Any]) -> list[threading.Thread]:
    """Return the threads that destroy for this pool, whose name no other one may have."""
    return named(f"respool-destroyer-{pool.name}")


def wait_ended(threads: Callable[[], list[threading.Thread]]) -> None:
    """Wait until there are no such threads any more."""
    wait_until(lambda: not threads(), f"the end of {threads()}")


def no_new_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no thread of a pool be started, as if there were too many."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("respool-"):
            msg = "can't start new thread"
            raise RuntimeError(msg)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
