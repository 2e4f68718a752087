"""reap(): what it destroys, and what happens when it meets others (P56, P57, P72)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolClosedError, PoolTimeoutError
from tests.helpers.checkpoints import every_checkpoint
from tests.helpers.clocks import Clock, fill, without_reaper
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.threads import Threads, wait_asleep, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool import ResourcePool
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool, Thing
    from tests.helpers.threads import Task

pytestmark = pytest.mark.usefixtures("no_backstop")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Give the pools' clock, and keep the reaper thread out of it."""
    return without_reaper(monkeypatch)


def test_reap_over_all_keys(make_pool: MakePool, factory: Factory, clock: Clock, recorder: Recorder) -> None:
    """P57: reap destroys what is overdue of every key, each once, and nothing else; it says how many."""
    pool = make_pool(idle_timeout=60, observer=recorder)
    for key in "ABC":
        fill(pool, 2, key)
    held = pool.lease("B")
    clock.advance(40)
    fill(pool, 1, "C")
    pool.lease("D").release()
    clock.advance(20)
    assert pool.reap() == 4
    assert sorted(factory.numbers_destroyed()) == [1, 2, 3, 5]
    assert recorder.details("destroyed") == ["idle"] * 4
    held.release()
    stats = assert_quiet(pool, keys="BCD", leased=0, idle=3)
    assert stats.destroyed_for["idle"] == stats.destroyed == 4
    assert pool.reap() == 0


def test_reap_without_time_limits(make_pool: MakePool) -> None:
    """A pool without time limits has nothing to reap; nor has an empty or a closed one."""
    pool = make_pool(max_idle=3)
    assert pool.reap() == 0
    fill(pool, 3)
    assert pool.reap() == 0
    pool.close()
    assert pool.reap() == 0


@pytest.mark.parametrize("error", [OSError("gone"), KeyboardInterrupt(), SystemExit(1)], ids=repr)
def test_a_destroy_that_fails(
    make_pool: MakePool, factory: Factory, clock: Clock, error: BaseException
) -> None:
    """P57: whatever one of the destroy hooks raises, all that is overdue is destroyed; an interrupt comes out then."""
    pool = make_pool(idle_timeout=60, max_size=3)
    fill(pool, 3)
    clock.advance(60)
    factory.errors["destroy"] = [None, error, None]
    if isinstance(error, Exception):
        assert pool.reap() == 3
    else:
        with pytest.raises(type(error)):
            pool.reap()
    assert sorted(factory.numbers_destroyed()) == [1, 2, 3]
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.hook_errors["destroy"] == 1
    assert stats.destroyed_for["idle"] == 3


def test_hooks_that_come_back_into_the_pool(make_pool: MakePool, factory: Factory, clock: Clock) -> None:
    """P57: a destroy hook that reaps, clears or leases in the midst of a reap disturbs nothing: each goes once, none is forgotten."""
    pool = make_pool(idle_timeout=60)
    for key in "ABCD":
        fill(pool, 3, key)
    clock.advance(60)

    def again(key: object, thing: Thing) -> None:
        assert pool.reap() == 0  # they are all condemned already
        assert pool.clear("E") == 0
        with pool.lease(thing.number) as other:  # a new key each time
            assert other.alive

    factory.before["destroy"] = again
    assert pool.reap() == 12
    assert sorted(factory.numbers_destroyed()) == list(range(1, 13))
    factory.before.clear()
    stats = assert_quiet(pool, leased=0, idle=12)
    assert stats.destroyed_for["idle"] == 12


# -- waiters --------------------------------------------------------------------------------------------


def test_what_reap_frees_wakes_a_waiter(make_pool: MakePool, factory: Factory, clock: Clock) -> None:
    """P57: a room that only reap can free (nobody could tell whether its resource is free) goes to a waiter of another key."""
    pool = make_pool(max_size=1, max_lifetime=60)
    answers: list[Any] = [False, OSError("no answer")]

    def when() -> bool:
        answer = answers[0] if len(answers) == 1 else answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    pool.lease("A").release(when=when)
    with Threads() as threads:
        waiting = threads.start(pool.lease, "B")
        wait_until_queued(pool, 1)
        wait_asleep([waiting.thread])
        assert pool.stats().quarantined == 1
        clock.advance(60)
        answers[0] = True
        pool.reap()
        lease = woken(waiting)
    assert (lease.key, lease.resource.number) == ("B", 2)
    assert factory.numbers_destroyed() == [1]
    lease.release()
    stats = assert_quiet(pool, keys="B", leased=0, idle=1)
    assert stats.destroyed_for["lifetime"] == 1


def test_what_reap_frees_counts_for_a_batch(make_pool: MakePool, factory: Factory, clock: Clock) -> None:
    """P57: one who waits for several of another key gets the rooms that reap has freed, once there are enough."""
    pool = make_pool(max_size=3, idle_timeout=60)
    held = [pool.lease("B"), pool.lease("B")]
    fill(pool, 1, "A")
    with Threads() as threads:
        waiting = threads.start(pool.lease_many, 3, "C")
        wait_until_queued(pool, 1)
        clock.advance(60)
        assert pool.reap() == 1
        assert factory.numbers_destroyed() == [3]
        assert pool.stats().waiters == 1
        for lease in held:
            lease.discard()
        group = woken(waiting)
    assert [thing.key for thing in group.resources] == ["C"] * 3
    group.release()
    assert_quiet(pool, keys="C", leased=0, idle=3)


def test_a_waiter_while_reap_destroys(make_pool: MakePool, factory: Factory, clock: Clock) -> None:
    """P57: whoever comes while reap destroys waits for the room, however slow the hook, and is woken by its end."""
    gate = Gate()
    factory.before["destroy"] = lambda key, thing: gate.stop()
    pool = make_pool(max_size=1, idle_timeout=60)
    fill(pool, 1, "A")
    clock.advance(60)
    with Threads() as threads:
        reaping = threads.start(pool.reap)
        gate.wait_arrived()
        assert pool.stats().destroying == 1
        assert pool.try_lease("B") is None
        assert pool.reap() == 0
        waiting = threads.start(pool.lease, "B")
        wait_until_queued(pool, 1)
        wait_asleep([waiting.thread])
        gate.open()
        assert reaping.result() == 1
        woken(waiting).release()
    assert_quiet(pool, keys="B", leased=0, idle=1)


# -- reap meets others ----------------------------------------------------------------------------------


def run_beside(
    threads: Threads, pool: ResourcePool[Any, Thing], call: Callable[[], object], tasks: list[Task[object]]
) -> None:
    """Run a call in another thread: to its end if it can get there while this thread stands still."""
    locked = pool._core.lock.locked()
    task = threads.start(call)
    tasks.append(task)
    if not locked:
        task.wait()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["lease", "try_lease", "acquire", "lease_many"])
def test_reap_comes_while_someone_takes(
    clock: Clock, make_pool: MakePool, factory: Factory, way: str
) -> None:
    """P56: a resource expires, and is reaped, at any place inside an acquire: its caller has it, or the reaper, never both."""
    outcomes = set()
    for visit in every_checkpoint():
        pool = make_pool(max_size=2, idle_timeout=60)
        [thing] = fill(pool, 1)
        tasks: list[Task[object]] = []
        with Threads() as threads, visit:

            def reap(pool: Any = pool, tasks: list[Any] = tasks, threads: Threads = threads) -> None:
                clock.advance(60)
                run_beside(threads, pool, pool.reap, tasks)

            def use(pool: Any = pool) -> list[Any]:
                if way == "lease_many":
                    group = pool.lease_many(1, "A")
                    return [group.resources[0], group.release]
                held = getattr(pool, way)("A")
                if way == "acquire":
                    return [held, lambda: pool.release(held)]
                return [held.resource, held.release]

            got, give_back = visit.run(use, reap)
            for task in tasks:
                task.wait()
            reaped = tasks[0].result() if tasks else 0
            assert got.alive
            assert got.number in {thing.number, thing.number + 1}
            assert (got is thing) == thing.alive
            assert not reaped or got is not thing
            outcomes.add((got is thing, bool(reaped)))
            assert pool.stats().leased == 1
            give_back()
            stats = assert_quiet(pool, keys="A", leased=0)
            assert stats.created == stats.size + stats.destroyed
            assert stats.destroyed == factory.destroyed.count(thing)
            pool.close()
    assert {True, False} == {taken for taken, _ in outcomes}, "the two never met"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["lease", "try_lease", "clear", "close", "reap"])
def test_someone_comes_while_reap_runs(clock: Clock, make_pool: MakePool, factory: Factory, way: str) -> None:
    """P56, P72: at any place inside a reap another thread takes, clears, closes or reaps: each resource goes once, or has one holder."""

    def come(pool: ResourcePool[Any, Thing]) -> Any:
        if "lease" in way:
            return getattr(pool, way)("A")
        if way != "close":
            return getattr(pool, way)()
        with contextlib.suppress(PoolTimeoutError):
            pool.close(timeout=0)  # what the other one is destroying can't end before this does
        return None

    for visit in every_checkpoint():
        pool = make_pool(max_size=3, max_lifetime=60, lifetime_jitter=0)
        old = fill(pool, 2)
        clock.advance(30)
        held = [pool.lease("A") for _ in range(3)]
        young = held[2].resource
        for lease in held:
            lease.release()
        clock.advance(30)
        tasks: list[Task[object]] = []
        with Threads() as threads, visit:

            def other(pool: Any = pool, tasks: list[Any] = tasks, threads: Threads = threads) -> None:
                run_beside(threads, pool, lambda: come(pool), tasks)

            visit.run(pool.reap, other)
            if tasks and "lease" in way:
                lease = tasks[0].result()
                assert lease.resource is young
                assert young.alive
                lease.release()
            for task in tasks:
                task.result()
            if pool.closed:
                pool.close()
            assert not any(thing.alive for thing in old)
            gone = way in {"clear", "close"} and bool(tasks)
            assert young.alive != gone
            stats = assert_quiet(pool, leased=0, idle=0 if gone else 1)
            assert stats.destroyed == 2 + gone
            pool.close()


def test_close_while_reap_destroys(make_pool: MakePool, factory: Factory, clock: Clock) -> None:
    """P72: close waits until a reap under way has destroyed, and destroys the rest; each goes once, and both return."""
    gate = Gate()
    pool = make_pool(idle_timeout=60)
    fill(pool, 2, "old")
    clock.advance(60)
    fill(pool, 2, "young")
    factory.before["destroy"] = lambda key, thing: gate.stop() if key == "old" else None
    with Threads() as threads:
        reaping = threads.start(pool.reap)
        gate.wait_arrived()
        closing = threads.start(pool.close)
        wait_asleep([closing.thread])
        assert pool.closed
        assert sorted(thing.number for thing in factory.destroyed) == [1, 3, 4]
        with pytest.raises(PoolClosedError):
            pool.lease("young")
        assert pool.reap() == 0
        gate.open()
        assert reaping.result() == 2
        woken(closing)
    assert sorted(factory.numbers_destroyed()) == [1, 2, 3, 4]
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.destroyed_for["idle"], stats.destroyed_for["closed"]) == (2, 2)
