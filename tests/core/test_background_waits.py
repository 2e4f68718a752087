"""destroy_in="background": who waits for a slow destroy, in which order, how it ends, and what hooks may do (G3, G4, G9, P28, P33)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolTimeoutError, Quarantine
from tests.helpers.background import destroyers, settle, wait_ended
from tests.helpers.clocks import Clock, fill
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.threads import Threads, wait_asleep, wait_until, wait_until_queued

if TYPE_CHECKING:
    from tests.helpers.gates import Gate
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")


# -- who waits ------------------------------------------------------------------------------------------


def test_only_who_needs_the_room_waits(
    make_background: MakePool, factory: Factory, destroy_gate: Gate
) -> None:
    """P33: during a slow destroy all others take, make, give back, clear and ask; one who needs its room waits, and gets it."""
    pool = make_background(max_size=3)
    old = pool.lease("A")
    fill(pool, 1)
    old.discard()
    destroy_gate.wait_arrived()
    with pool.lease("A", timeout=0) as thing, pool.lease("A", timeout=0) as new:
        assert (thing.number, new.number) == (2, 3)
        assert pool.try_lease("A") is None
        with pytest.raises(PoolTimeoutError):
            pool.lease("A", timeout=0)
        with Threads() as threads:
            waiting = threads.start(pool.lease, "B")
            wait_until_queued(pool, 1)
            wait_asleep([waiting.thread])
            assert pool.stats().size == 3
            destroy_gate.open()
            woken(waiting).release()
    assert factory.most_alive == 3
    assert_quiet(pool, keys="AB", leased=0, idle=3)


def test_no_eviction_for_those_who_may_not_wait(
    make_background: MakePool, factory: Factory, destroy_gate: Gate
) -> None:
    """try_ calls and timeout=0 don't evict what the background would have to free first; with a free room they get it."""
    pool = make_background(max_size=2)
    fill(pool, 2)
    assert pool.try_lease("B") is None
    assert pool.try_acquire("B") is None
    assert pool.bind("B").try_lease() is None
    for call in (pool.lease, pool.acquire, pool.bind("B").lease):
        arguments = () if call not in (pool.lease, pool.acquire) else ("B",)
        with pytest.raises(PoolTimeoutError):
            call(*arguments, timeout=0)  # type: ignore[operator]
    with pytest.raises(PoolTimeoutError):
        pool.lease_many(2, "B", timeout=0)
    stats = assert_quiet(pool, keys="A", leased=0, idle=2)
    assert (stats.destroyed, stats.timeouts) == (0, 4)
    pool.lease("A").detach()
    lease = pool.try_lease("B")
    assert lease is not None
    lease.release()


def test_one_who_may_wait_evicts(make_background: MakePool, factory: Factory, destroy_gate: Gate) -> None:
    """G4: an acquire that may wait evicts, waits for the background to destroy, and gets the room; nobody overtakes it."""
    pool = make_background(max_size=2)
    fill(pool, 2)
    with Threads() as threads:
        waiting = threads.start(pool.lease, "B")
        destroy_gate.wait_arrived()
        assert factory.numbers_destroyed() == [1]
        assert (pool.stats().destroying, pool.stats().idle, pool.stats().waiters) == (1, 1, 1)
        behind = threads.start(pool.lease, "A")
        wait_until_queued(pool, 2)
        assert pool.try_lease("A") is None
        destroy_gate.open()
        lease = woken(waiting)
        assert lease.resource.key == "B"
        other = woken(behind)
        assert other.resource.number == 2
        lease.release()
        other.release()
    stats = assert_quiet(pool, keys="AB", leased=0, idle=2)
    assert (stats.destroyed_for["evicted"], stats.waits) == (1, 2)


def test_one_who_evicts_may_give_up(make_background: MakePool, factory: Factory, destroy_gate: Gate) -> None:
    """G3: if its time is over before the destroy is, it gets its timeout, and the room is free when the destroy has ended."""
    pool = make_background(max_size=1)
    fill(pool, 1)
    with pytest.raises(PoolTimeoutError):
        pool.lease("B", timeout=0.01)
    destroy_gate.wait_arrived()
    assert pool.try_lease("B") is None
    destroy_gate.open()
    settle(pool)
    with pool.lease("B", timeout=0):
        pass
    assert_quiet(pool, keys="B", leased=0, idle=1)


def test_an_expired_one_in_the_only_room(
    make_background: MakePool, factory: Factory, clock: Clock, destroy_gate: Gate
) -> None:
    """Who may not wait gets nothing where only an expired resource lies; who may gets a new one once that is destroyed."""
    pool = make_background(max_size=1, idle_timeout=60)
    fill(pool, 1)
    clock.advance(60)
    assert pool.try_lease("A") is None
    destroy_gate.wait_arrived()
    with Threads() as threads:
        waiting = threads.start(pool.lease, "A")
        wait_until_queued(pool, 1)
        destroy_gate.open()
        with woken(waiting) as thing:
            assert thing.number == 2
    stats = assert_quiet(pool, keys="A", leased=0, idle=1)
    assert stats.destroyed_for["idle"] == 1


# -- order and end --------------------------------------------------------------------------------------


def test_one_after_the_other(make_background: MakePool, factory: Factory, destroy_gate: Gate) -> None:
    """What has to go goes in the order in which that was decided, one at a time, and once."""
    pool = make_background()
    leases = [pool.lease("A") for _ in range(6)]
    for number in (3, 1, 5):
        leases[number].discard()
    for number in (0, 2, 4):
        leases[number].release()
    assert pool.clear() == 3
    assert pool.stats().destroying == 6
    assert pool.clear() == 0
    for turn in range(1, 7):
        destroy_gate.wait_arrived(turn)
        assert destroy_gate.inside == 1
        destroy_gate.let()
    settle(pool)
    assert factory.numbers_destroyed() == [4, 2, 6, 1, 3, 5]
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.destroyed_for["discarded"], stats.destroyed_for["cleared"]) == (3, 3)


def test_close_waits_for_the_background(
    make_background: MakePool, factory: Factory, destroy_gate: Gate
) -> None:
    """G9, P72: close waits for what the background destroys, or says that it's out; the thread ends with the pool."""
    pool = make_background()
    fill(pool, 3)
    held = pool.lease("A")
    held.discard()
    destroy_gate.wait_arrived()
    with pytest.raises(PoolTimeoutError, match="3"):
        pool.close(timeout=0)
    stats = pool.stats()
    assert (stats.destroying, stats.idle, stats.size) == (3, 0, 3)
    with Threads() as threads:
        closing = [threads.start(pool.close) for _ in range(2)]
        wait_asleep([task.thread for task in closing])
        destroy_gate.let(2)
        destroy_gate.wait_arrived(3)
        wait_asleep([task.thread for task in closing])
        assert not any(task.ended for task in closing)
        destroy_gate.open()
        for task in closing:
            woken(task)
    assert sorted(factory.numbers_destroyed()) == [1, 2, 3]
    assert_quiet(pool, leased=0, idle=0)
    wait_ended(lambda: destroyers(pool))


def test_the_order_of_leaving_the_block(
    make_background: MakePool, factory: Factory, destroy_gate: Gate
) -> None:
    """G9: the end of a with-block doesn't wait; what was idle is destroyed all the same, and the thread ends then."""
    with make_background() as pool:
        fill(pool, 2)
    assert pool.closed
    assert pool.stats().destroying == 2
    destroy_gate.open()
    settle(pool)
    wait_ended(lambda: destroyers(pool))
    assert_quiet(pool, leased=0, idle=0)


# -- what a hook does -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [OSError("gone"), KeyboardInterrupt(), SystemExit(1), GeneratorExit()], ids=repr
)
def test_a_hook_raises(
    make_background: MakePool,
    factory: Factory,
    destroy_gate: Gate,
    capfd: pytest.CaptureFixture[str],
    error: BaseException,
) -> None:
    """P28: whatever destroy raises in the background, the room is free, it's counted, nothing is printed, and the thread goes on."""
    destroy_gate.open()
    factory.errors["destroy"] = [error, None, error]
    pool = make_background(max_size=1)
    for number in range(1, 5):
        with pool.lease("A") as thing:
            assert thing.number == number
        [thread] = destroyers(pool)
        pool.clear()
        settle(pool)
    assert destroyers(pool) == [thread]
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.destroyed, stats.hook_errors["destroy"]) == (4, 2)
    assert capfd.readouterr().err == ""


def test_quarantine(make_pool: MakePool, factory: Factory, recorder: Recorder) -> None:
    """G8: a destroy in the background may say that the resource can't be freed: it keeps its room, for good; close leaves it."""
    factory.errors["destroy"] = [Quarantine("no answer")]
    pool = make_pool(max_size=2, destroy_in="background", observer=recorder)
    first = pool.lease("A")
    second = pool.lease("A")
    first.discard()
    recorder.wait_for("hook_failed")
    settle(pool)
    assert pool.stats().quarantined == 1
    with Threads() as threads:
        waiting = threads.start(pool.lease, "B")
        wait_until_queued(pool, 1)
        assert pool.try_lease("B") is None
        second.discard()
        woken(waiting).release()
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.quarantined, stats.size, stats.destroyed) == (1, 2, 1)
    pool.close()
    assert_quiet(pool, leased=0, idle=0)
    wait_ended(lambda: destroyers(pool))


def test_a_hook_uses_its_pool(make_pool: MakePool, factory: Factory) -> None:
    """P81, G9: a destroy hook in the background may read stats, lease, discard, clear, and close its pool."""
    seen: list[Any] = []

    def use(key: object, thing: Thing) -> None:
        if key == "A":
            seen.append(pool.stats().destroying)
            with pool.lease("B", timeout=0) as other:
                seen.append(other.key)
            pool.lease("C", timeout=0).discard()
            seen.append(pool.clear("B"))
            pool.close()

    factory.before["destroy"] = use
    pool = make_pool(max_size=3, destroy_in="background")
    pool.lease("A").discard()
    wait_until(lambda: pool.closed and not pool.stats().size, "the end")
    assert seen == [1, "B", 1]
    assert [thing.key for thing in factory.destroyed] == ["A", "C", "B"]
    wait_ended(lambda: destroyers(pool))
