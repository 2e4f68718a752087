"""destroy_in="background": where destroy runs, whom it keeps waiting, and what becomes of the room (G5, P33)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolLimits, ResourcePool
from tests.helpers.background import destroyers
from tests.helpers.clocks import Clock, fill
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.gates import Gate
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")


def test_a_word_that_is_none() -> None:
    """Where to destroy is one of two words."""
    with pytest.raises(ValueError, match="destroy_in"):
        ResourcePool(lambda key: object(), destroy_in="thread")  # type: ignore[arg-type]


# -- who destroys ---------------------------------------------------------------------------------------


def discarded(pool: ResourcePool[Any, Thing], factory: Factory, clock: Clock) -> None:
    """Discard a lease."""
    pool.lease("A").discard()


def discarded_fast(pool: ResourcePool[Any, Thing], factory: Factory, clock: Clock) -> None:
    """Discard on the fast tier."""
    pool.discard(pool.acquire("A"))


def discarded_group(pool: ResourcePool[Any, Thing], factory: Factory, clock: Clock) -> None:
    """Discard several at once."""
    pool.lease_many(1, "A").discard()


def reset_fails(pool: ResourcePool[Any, Thing], factory: Factory, clock: Clock) -> None:
    """Give back what can't be reset."""
    factory.errors["reset"] = [OSError()]
    pool.lease("A").release()


def cleared_on_release(pool: ResourcePool[Any, Thing], factory: Factory, clock: Clock) -> None:
    """Give back what is from before a clear."""
    lease = pool.lease("A")
    pool.clear()
    lease.release()


def cleared(pool: ResourcePool[Any, Thing], factory: Factory, clock: Clock) -> None:
    """Clear with one idle."""
    fill(pool, 1)
    assert pool.clear() == 1


def cleared_pending(pool: ResourcePool[Any, Thing], factory: Factory, clock: Clock) -> None:
    """Clear with one pending, which is free at the second time of asking."""
    answers = iter([False])
    pool.lease("A").release(when=lambda: next(answers, True))
    pool.clear()
    pool.reap()


def closed(pool: ResourcePool[Any, Thing], factory: Factory, clock: Clock) -> None:
    """Close with one idle."""
    fill(pool, 1)
    with pool:
        pass


def closed_on_release(pool: ResourcePool[Any, Thing], factory: Factory, clock: Clock) -> None:
    """Give back after close."""
    lease = pool.lease("A")
    with pool:
        pass
    lease.release()


def surplus(pool: ResourcePool[Any, Thing], factory: Factory, clock: Clock) -> None:
    """Give back more than may be idle."""
    pool.resize(PoolLimits(max_idle=1))
    fill(pool, 2)


def shrunk(pool: ResourcePool[Any, Thing], factory: Factory, clock: Clock) -> None:
    """Lower the limits."""
    fill(pool, 2)
    pool.resize(PoolLimits(max_size=1))


def leaked(pool: ResourcePool[Any, Thing], factory: Factory, clock: Clock) -> None:
    """Forget a lease."""
    pool.lease("A")
    pool.clear("B")  # the next ordinary call


def invalid(pool: ResourcePool[Any, Thing], factory: Factory, clock: Clock) -> None:
    """Take one that isn't good any more, and get a new one."""
    fill(pool, 1)[0].healthy = False
    pool.lease("A").release()


def evicted(pool: ResourcePool[Any, Thing], factory: Factory, clock: Clock) -> None:
    """Need the room of another key: this one waits, so it's run beside."""
    pool.resize(PoolLimits(max_size=1))
    fill(pool, 1)
    threading.Thread(target=lambda: pool.lease("B").release()).start()


def idle(pool: ResourcePool[Any, Thing], factory: Factory, clock: Clock) -> None:
    """Meet one that was idle for too long."""
    fill(pool, 1)
    clock.advance(60)
    pool.lease("A").release()


def reaped(pool: ResourcePool[Any, Thing], factory: Factory, clock: Clock) -> None:
    """Reap."""
    fill(pool, 1)
    clock.advance(60)
    assert pool.reap() == 1


def lifetime(pool: ResourcePool[Any, Thing], factory: Factory, clock: Clock) -> None:
    """Give back what is too old."""
    lease = pool.lease("A")
    clock.advance(100)
    lease.release()


WAYS: dict[Callable[..., None], str] = {
    discarded: "discarded",
    discarded_fast: "discarded",
    discarded_group: "discarded",
    reset_fails: "invalid",
    cleared_on_release: "cleared",
    cleared: "cleared",
    cleared_pending: "cleared",
    closed: "closed",
    closed_on_release: "closed",
    surplus: "surplus",
    shrunk: "surplus",
    leaked: "leaked",
    invalid: "invalid",
    evicted: "evicted",
    idle: "idle",
    reaped: "idle",
    lifetime: "lifetime",
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.filterwarnings("ignore::respool.LeaseLeakWarning")
def test_destroy_runs_on_the_pools_thread(  # noqa: PLR0917 - fixtures
    make_background: MakePool,
    factory: Factory,
    clock: Clock,
    destroy_gate: Gate,
    recorder: Recorder,
    way: Callable[..., None],
) -> None:
    """G5: whatever makes a resource go, its destroy runs on the pool's own thread, and the call that made it go ends meanwhile."""
    where: list[threading.Thread] = []

    def destroy(key: object, thing: Thing) -> None:
        where.append(threading.current_thread())
        destroy_gate.stop()

    factory.before["destroy"] = destroy
    pool = make_background(max_size=3, idle_timeout=60, max_lifetime=100, observer=recorder)
    way(pool, factory, clock)
    destroy_gate.wait_arrived()
    stats = pool.stats()
    assert (stats.destroying, stats.destroyed, recorder.of("destroyed")) == (1, 0, [])
    destroy_gate.open()
    recorder.wait_for("destroyed")
    wait_until(lambda: not (now := pool.stats()).destroying + now.creating + now.leased, "the end")
    reason = WAYS[way]
    assert where == destroyers(pool) or pool.closed
    assert [thread.name for thread in where] == [f"respool-destroyer-{pool.name}"]
    assert where[0].daemon
    assert recorder.details("destroyed") == [reason]
    stats = assert_quiet(pool, leased=0)
    assert stats.destroyed == stats.destroyed_for[reason] == 1
