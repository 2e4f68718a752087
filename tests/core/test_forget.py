"""forget: a key's world is gone, so all of it is left behind without destroy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from respool import ALL, PoolClosedError, PoolTimeoutError, Quarantine
from tests.helpers.forks import in_child
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.threads import Threads, run_together, wait_until, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Hashable

    from respool import PoolStats, ResourcePool
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")


def assert_abandoned(pool: ResourcePool[Any, Thing], factory: Factory, number: int) -> PoolStats:
    """Check that so many have been abandoned of an otherwise empty pool, and none of them destroyed."""
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.size, stats.cost, stats.abandoned) == (0, 0, number)
    assert stats.destroyed == len(factory.destroyed)
    return stats


def test_idle_ones(make_pool: MakePool, factory: Factory, recorder: Recorder) -> None:
    """G8: idle ones go at once, counted as abandoned, with no destroy and no event of one."""
    pool = make_pool(max_size=3, observer=recorder)
    pool.lease_many(3, "A").release()
    assert pool.forget("A") == 3
    assert_abandoned(pool, factory, 3)
    assert factory.destroyed == recorder.of("destroyed") == []
    assert pool.forget("A") == 0
    with pool.lease_many(3, "A", 0) as things:
        assert [thing.number for thing in things] == [4, 5, 6]
    assert pool.forget("A") == 3


def test_keys(make_pool: MakePool) -> None:
    """G8: one key at a time, None by default; ALL and unhashable ones are no keys, an unknown one has nothing."""
    pool = make_pool()
    pool.lease().release()
    pool.lease("A").release()
    assert pool.forget() == 1
    assert pool.forget("never seen") == 0
    for key in (ALL, []):
        with pytest.raises(TypeError):
            pool.forget(key)
    assert_quiet(pool, keys="A", leased=0, idle=1)


def test_other_keys_are_left_alone(make_pool: MakePool, factory: Factory) -> None:
    """G8: what other keys have idle, leased or pending is as before."""
    pool = make_pool()
    held = pool.lease("B")
    for key in "ABC":
        pool.lease_many(2, key).release()
    pool.lease("C").release(lambda: False)
    before = pool.stats("B"), pool.stats("C")
    assert pool.forget("A") == 2
    assert (pool.stats("B"), pool.stats("C")) == before
    held.release()
    assert pool.stats("B").idle == 3
    assert pool.forget("C") == 2


@pytest.mark.parametrize(
    "end",
    [
        "release",
        "release when free",
        "release when not free",
        "discard",
        "detach",
        "leak",
        "fast release",
        "fast discard",
    ],
)
@pytest.mark.filterwarnings("ignore::respool.LeaseLeakWarning")
def test_leased_ones(make_pool: MakePool, factory: Factory, end: str) -> None:
    """G8: a leased one is left behind when it's given back, in whatever way, without reset or destroy."""
    pool = make_pool(max_size=1, reset=factory.reset)
    held: list[Any] = [pool.acquire("A") if end.startswith("fast") else pool.lease("A")]
    assert pool.forget("A") == 0
    assert pool.stats().leased == 1
    thing = held.pop()
    free = "not" not in end
    if end.startswith("fast"):
        getattr(pool, end.split()[1])(thing)
    elif end.startswith("release when"):
        thing.release(lambda: free)
    elif end == "detach":
        assert thing.detach().alive
        assert pool.stats().detached == 1
        return
    elif end != "leak":
        getattr(thing, end)()
    del thing
    pool.reap()
    stats = assert_abandoned(pool, factory, 1)
    assert stats.leaked == (end == "leak")
    assert factory.calls["reset"] == factory.calls["destroy"] == 0
    with pool.lease("A", 0) as fresh:
        assert fresh.number == 2


def test_a_group(make_pool: MakePool, factory: Factory) -> None:
    """G8: a group leased before is left behind as a whole, one leased afterwards is pooled."""
    pool = make_pool()
    group = pool.lease_many(3, "A")
    assert pool.forget("A") == 0
    later = pool.lease_many(2, "A")
    group.release()
    later.release()
    stats = assert_quiet(pool, keys="A", leased=0, idle=2)
    assert (stats.abandoned, stats.destroyed) == (3, 0)


@pytest.mark.parametrize("reaped", [False, True])
def test_pending_ones(make_pool: MakePool, factory: Factory, reaped: bool) -> None:  # noqa: FBT001
    """G8: pending ones go at once, also those whose `when` had failed; it isn't asked any more."""
    asked: list[int] = []
    failing: list[bool] = []

    def when() -> bool:
        asked.append(1)
        if failing:
            raise OSError("context is gone")
        return False

    pool = make_pool(max_size=2)
    for lease in [pool.lease("A"), pool.lease("A")]:
        lease.release(when)
    if reaped:
        failing.append(True)
        pool.reap()
        assert pool.stats().quarantined == 2
    assert pool.forget("A") == 2
    assert_abandoned(pool, factory, 2)
    del asked[:]
    pool.reap()
    pool.lease_many(2, "A", 0).release()
    assert asked == []


def test_those_that_could_not_be_freed(make_pool: MakePool, factory: Factory) -> None:
    """G8: one quarantined by its destroy hook goes at once, and its room is free again."""
    factory.errors["destroy"] = [Quarantine("busy")]
    pool = make_pool(max_size=2)
    held = pool.lease("A")
    pool.lease("A").discard()
    assert (pool.stats().quarantined, pool.stats().size) == (1, 2)
    assert pool.forget("A") == 1
    assert (pool.stats().quarantined, pool.stats().size, pool.stats().abandoned) == (0, 1, 1)
    with pool.lease("A", 0):
        pass
    held.release()
    stats = assert_quiet(pool, keys="A", leased=0, idle=1)
    assert stats.abandoned == 2
    factory.alive += 1  # the factory takes what it couldn't destroy for gone


def test_one_that_is_asked_at_the_moment(make_pool: MakePool, factory: Factory) -> None:
    """G8: one whose `when` is under way is left behind when that has ended, whatever it says."""
    for answer in (True, False, OSError("gone")):
        gate = Gate(opened=True)

        def when(gate: Gate = gate, answer: Any = answer) -> bool:
            gate.stop()
            if gate.arrived == 1:
                return False
            if isinstance(answer, Exception):
                raise answer
            return bool(answer)

        pool = make_pool(max_size=1)
        pool.lease("A").release(when)
        gate.shut()
        with Threads() as threads:
            reaping = threads.start(pool.reap)
            gate.wait_arrived(2)
            pool.forget("A")
            gate.open()
            reaping.result()
        stats = assert_quiet(pool, leased=0, idle=0)
        assert (stats.abandoned, stats.quarantined, stats.destroyed) == (1, 0, 0)
    assert factory.destroyed == []


@pytest.mark.parametrize("batch", [False, True])
def test_one_being_created(make_pool: MakePool, factory: Factory, batch: bool) -> None:  # noqa: FBT001
    """G8: what is being created meanwhile is handed out, and left behind when it comes back."""
    gate = Gate()
    factory.before["create"] = lambda key: gate.stop()
    pool = make_pool()
    with Threads() as threads:
        creating: Any = threads.start(pool.lease_many, 2, "A") if batch else threads.start(pool.lease, "A")
        gate.wait_arrived()
        assert pool.forget("A") == 0
        gate.open()
        creating.result().release()
    stats = assert_quiet(pool, leased=0, idle=1 if batch else 0)  # the second was begun afterwards
    assert (stats.abandoned, stats.destroyed) == (1, 0)


def test_one_being_prefilled(make_pool: MakePool, factory: Factory) -> None:
    """G8: so is one that is being prefilled."""
    gate = Gate()
    factory.before["create"] = lambda key: gate.stop()
    pool = make_pool()
    with Threads() as threads:
        filling = threads.start(pool.prefill, 1, "A")
        gate.wait_arrived()
        pool.forget("A")
        gate.open()
        filling.result()
    assert_abandoned(pool, factory, 1)


@pytest.mark.parametrize("hook", ["validate", "reset"])
def test_one_in_a_hook(make_pool: MakePool, factory: Factory, hook: str) -> None:
    """G8: one that is being validated or reset meanwhile is left behind when it comes back."""
    gate = Gate(opened=True)
    factory.before[hook] = lambda key, thing: gate.stop()
    pool = make_pool(**{hook: getattr(factory, hook)})
    pool.lease("A").release()
    before = gate.arrived
    gate.shut()
    with Threads() as threads:
        using = threads.start(lambda: pool.lease("A").release())
        gate.wait_arrived(before + 1)
        pool.forget("A")
        gate.open()
        using.result()
    assert_abandoned(pool, factory, 1)


def test_condemned_but_not_destroyed_yet(make_pool: MakePool, factory: Factory) -> None:
    """G8: what waits for the background thread to destroy it is left behind; what it's at is destroyed."""
    gate = Gate()
    factory.before["destroy"] = lambda key, thing: gate.stop()
    pool = make_pool(max_size=3, destroy_in="background")
    pool.lease_many(3, "A").release()
    assert pool.clear("A") == 3
    gate.wait_arrived()
    assert pool.forget("A") == 0
    gate.open()
    wait_until(lambda: pool.stats().size == 0)
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.destroyed, stats.abandoned) == (1, 2)
    assert len(factory.destroyed) == 1


@pytest.mark.parametrize("key", ["A", "B"])
@pytest.mark.parametrize("state", ["pending", "leased"])
def test_waiters_have_the_rooms(make_pool: MakePool, factory: Factory, key: str, state: str) -> None:
    """G3: those who wait for the rooms, of that key or another, are served in order, with new ones."""
    pool = make_pool(max_size=2)
    held = pool.lease_many(2, "A")
    if state == "pending":
        held.release(lambda: False)
    with Threads() as threads:
        waiting = threads.start(pool.lease_many, 2, key)
        wait_until_queued(pool, 1)
        assert pool.forget("A") == (2 if state == "pending" else 0)
        held.release()
        with woken(waiting) as things:
            assert [thing.number for thing in things] == [3, 4]
    assert assert_quiet(pool, leased=0, idle=2).abandoned == 2
    assert factory.most_alive == 4  # the factory doesn't know that two are beyond


def test_a_key_at_its_cap(make_pool: MakePool) -> None:
    """G3, P14: those whom only the key's cap held back are served."""
    pool = make_pool(max_per_key=1)
    pool.lease("A").release(lambda: False)
    with Threads() as threads:
        waiting = threads.start(pool.lease, "A")
        wait_until_queued(pool, 1)
        assert pool.forget("A") == 1
        woken(waiting).release()
    assert_quiet(pool, keys="A", leased=0, idle=1)


def test_after_close(make_pool: MakePool, factory: Factory) -> None:
    """G9: a closed pool forgets what is out, so that a close that waits for it returns."""
    pool = make_pool()
    held = pool.lease("A")
    pool.lease("A").release(lambda: False)
    with pytest.raises(PoolTimeoutError):
        pool.close(0)
    with Threads() as threads:
        closing = threads.start(pool.close)
        wait_until(lambda: len(pool._core.closers) == 1)
        assert pool.forget("A") == 1
        held.release()
        woken(closing)
    assert_abandoned(pool, factory, 2)
    with pytest.raises(PoolClosedError):
        pool.lease("A")


def test_in_a_child(make_pool: MakePool, factory: Factory) -> None:
    """P73, P75: a child forgets its own only; its parent's are as before."""
    pool = make_pool()
    held = pool.lease("A")
    pool.lease("A").release()

    def child() -> None:
        assert pool.forget("A") == 0
        pool.lease("A").release()
        assert pool.forget("A") == 1
        held.release()
        assert_abandoned(pool, factory, 1)

    in_child(child)
    held.release()
    assert_quiet(pool, keys="A", leased=0, idle=2)


def test_inside_a_hook(make_pool: MakePool, factory: Factory) -> None:
    """P81: a hook may find out that the world is gone, and forget it there."""

    def look(key: Hashable, thing: Thing) -> None:
        if not gone:
            gone.append(pool.forget(key))

    gone: list[int] = []
    factory.before["validate"] = look
    pool = make_pool(validate=factory.validate)
    pool.lease_many(3, "A").release()
    pool.lease("A").release()
    assert gone == [2]
    assert_abandoned(pool, factory, 3)


def test_under_load(make_pool: MakePool, factory: Factory) -> None:
    """G2, G3, P108: while threads lease and give back, forgetting loses no room and destroys nothing."""
    pool = make_pool(max_size=4)

    def use() -> None:
        for number in range(150):
            with pool.lease_many(2, "A") if number % 3 else pool.lease("A"):
                pass

    def forget() -> None:
        for _ in range(150):
            pool.forget("A")

    run_together(use, use, use, forget)
    stats = assert_quiet(pool, leased=0)
    assert stats.created == stats.abandoned + stats.idle
    assert factory.destroyed == []
    pool.lease_many(4, "A", 0).release()
