"""Leases that nobody gives back: seen, counted, told of, and their rooms free again (P45 to P47, P98, G7)."""

from __future__ import annotations

import gc
import sys
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from respool import LeaseLeakWarning, PoolTimeoutError
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.threads import Threads, run_together, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from respool import Lease, ResourcePool
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool, Thing

    Lose = Callable[[ResourcePool[Any, Thing]], None]

pytestmark = pytest.mark.usefixtures("no_backstop")


@contextmanager
def leaks_told() -> Iterator[list[str]]:
    """Collect the texts of the leak warnings in the block; any other warning fails the test."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    for warning in caught:
        assert issubclass(warning.category, LeaseLeakWarning), warning
        assert issubclass(warning.category, ResourceWarning)
        texts.append(str(warning.message))


def lose_by_name(pool: ResourcePool[Any, Thing]) -> None:
    """Drop a lease with its last name."""
    lease = pool.lease("k")
    del lease


class Holder:
    """Something that refers to itself, so that only the collector ends it."""

    def __init__(self, lease: Lease[Any, Thing]) -> None:
        self.me = self
        self.lease = lease


def lose_in_a_cycle(pool: ResourcePool[Any, Thing]) -> None:
    """Drop a lease in cyclic garbage, and collect it."""
    Holder(pool.lease("k"))
    gc.collect()


def lose_in_a_thread(pool: ResourcePool[Any, Thing]) -> None:
    """Let a thread end that holds a lease in its locals."""

    def work() -> int:
        lease = pool.lease("k")
        return lease.resource.number

    with Threads() as threads:
        threads.start(work)


def lose_by_an_error(pool: ResourcePool[Any, Thing]) -> None:
    """Drop a lease because what follows fails."""

    def work() -> None:
        lease = pool.lease("k")
        raise KeyError(lease.resource.number)

    with pytest.raises(KeyError):
        work()
    gc.collect()


WAYS = [lose_by_name, lose_in_a_cycle, lose_in_a_thread, lose_by_an_error]


@pytest.mark.parametrize("lose", WAYS)
def test_a_dropped_lease_gives_its_room_back(
    make_pool: MakePool, factory: Factory, recorder: Recorder, lose: Lose
) -> None:
    """P45, P46, P47: the room comes back, the resource is destroyed once, one warning and one count."""
    pool = make_pool(max_size=1, observer=recorder, name="things")
    with leaks_told() as told:
        lose(pool)
        with pool.lease("k") as thing:
            assert thing.number == 2
        assert_quiet(pool, keys=["k"], leased=0, idle=1)
    assert len(told) == 1
    assert "'k'" in told[0]
    assert "things" in told[0]
    assert factory.numbers_destroyed() == [1]
    assert recorder.details("destroyed") == ["leaked"]
    assert recorder.details("leaked") == [None]
    stats = pool.stats()
    assert (stats.leaked, stats.destroyed_for["leaked"]) == (1, 1)
    assert pool.stats("k").leaked == 1


def test_stats_counts_a_dropped_lease_at_once(make_pool: MakePool) -> None:
    """P47, G7: stats() sees the leak before any other call."""
    pool = make_pool(max_size=2)
    with leaks_told() as told:
        lose_by_name(pool)
        stats = pool.stats()
        assert (stats.leaked, stats.leased) == (1, 0)
        assert pool.stats("k").leaked == 1
        pool.lease("k").release()
    assert len(told) == 1


def close_at_once(pool: ResourcePool[Any, Any]) -> None:
    """Close without waiting for the one that is still out."""
    with pytest.raises(PoolTimeoutError):
        pool.close(timeout=0)


CALLS: dict[str, Callable[[ResourcePool[Any, Any], Any], object]] = {
    "lease": lambda pool, spare: pool.lease("k").release(),
    "try_lease": lambda pool, spare: pool.try_lease("k").release(),
    "acquire": lambda pool, spare: pool.release(pool.acquire("k")),
    "try_acquire": lambda pool, spare: pool.release(pool.try_acquire("k")),
    "acquire of another key": lambda pool, spare: pool.release(pool.acquire("other")),
    "bound": lambda pool, spare: pool.bind("k").lease().release(),
    "release": lambda pool, spare: pool.release(spare),
    "discard": lambda pool, spare: pool.discard(spare),
    "clear": lambda pool, spare: pool.clear(),
    "close": lambda pool, spare: close_at_once(pool),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("lose", [lose_by_name, lose_in_a_cycle])
def test_the_next_call_warns_and_destroys(
    make_pool: MakePool, factory: Factory, lose: Lose, call: str
) -> None:
    """G7: whatever the next ordinary call is, it brings the warning, the count and the destroy."""
    pool = make_pool(max_size=3)
    spare = pool.acquire("k")
    with leaks_told() as told:
        lose(pool)
        CALLS[call](pool, spare)
        assert pool.stats().leaked == 1
        assert 2 in factory.numbers_destroyed()
    assert len(told) == 1
    if spare.alive and pool.stats().leased:
        pool.release(spare)
    assert_quiet(pool, leased=0)


@pytest.mark.parametrize("lose", WAYS)
def test_a_leak_with_free_rooms_leaves_the_others_alone(
    make_pool: MakePool, factory: Factory, lose: Lose
) -> None:
    """P45: the lost resource is never handed out again; idle ones and other leases stay."""
    pool = make_pool(max_size=4)
    with leaks_told() as told:
        lose(pool)
        lose(pool)
        leases = [pool.lease("k") for _ in range(4)]
        assert sorted(lease.resource.number for lease in leases) == [3, 4, 5, 6]
        for lease in leases:
            lease.release()
    assert len(told) == 2
    assert sorted(factory.numbers_destroyed()) == [1, 2]
    stats = assert_quiet(pool, leased=0, idle=4)
    assert stats.leaked == 2


@pytest.mark.parametrize("where", ["by name", "in a cycle"])
def test_a_leak_wakes_a_waiter_although_nobody_calls(
    make_pool: MakePool, factory: Factory, where: str
) -> None:
    """P45, G5, G7: somebody asleep in acquire gets the room of a lease that is dropped."""
    pool = make_pool(max_size=1)
    holders = [Holder(pool.lease("k"))]
    if where == "by name":
        del holders[0].me
    with leaks_told() as told, Threads() as threads:
        waiting = threads.start(pool.lease, "k")
        wait_until_queued(pool, 1)
        holders.clear()
        gc.collect()
        lease = woken(waiting)
        assert lease.resource.number == 2
        assert factory.numbers_destroyed() == [1]
        lease.release()
    assert len(told) == 1
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.leaked, stats.waits) == (1, 1)


def test_a_leak_wakes_the_waiters_in_turn(make_pool: MakePool) -> None:
    """P45: several waiters for several lost leases: each gets one, nobody is forgotten."""
    pool = make_pool(max_size=3)
    leases = [pool.lease("k") for _ in range(3)]
    with leaks_told() as told, Threads() as threads:
        waiting = [threads.start(pool.lease, key) for key in ("k", "other", "k")]
        wait_until_queued(pool, 3)
        leases.clear()
        for task in waiting:
            task.wait()
        for task in waiting:
            task.result().release()
    assert len(told) == 3
    stats = assert_quiet(pool, leased=0, idle=3)
    assert stats.leaked == 3


def test_a_leak_ends_the_waiting_of_close(make_pool: MakePool, factory: Factory) -> None:
    """G7, G9: close() that waits for a lease returns when that lease is dropped."""
    pool = make_pool(max_size=1)
    leases = [pool.lease("k")]
    with leaks_told() as told, Threads() as threads:
        with pytest.raises(PoolTimeoutError):
            pool.close(timeout=0)
        closing = threads.start(pool.close)
        leases.clear()
        woken(closing)
    assert len(told) == 1
    assert factory.numbers_destroyed() == [1]
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.leaked, stats.size) == (1, 0)


def test_the_warning_names_the_acquiring_line(make_pool: MakePool, recorder: Recorder) -> None:
    """P45: with track_leases the warning and the observer tell where the lease was acquired."""
    pool = make_pool(max_size=2, track_leases=True, observer=recorder)
    line = lose_by_name.__code__.co_firstlineno + 2
    with leaks_told() as told:
        lose_by_name(pool)
        pool.lease("k").release()
    assert len(told) == 1
    for text in (told[0], str(recorder.details("leaked")[0])):
        assert "lose_by_name" in text
        assert "test_leaks.py" in text
        assert str(line) in text


def test_bound_leases_are_tracked_too(make_pool: MakePool) -> None:
    """P45: so it does for a lease taken through a bound pool, and by try_lease."""
    pool = make_pool(max_size=2, track_leases=True)
    bound = pool.bind("k")

    def forgetful() -> None:
        bound.lease()

    def try_forgetful() -> None:
        pool.try_lease("k")

    with leaks_told() as told:
        forgetful()
        try_forgetful()
        pool.lease("k").release()
    assert len(told) == 2
    assert any("in try_forgetful" in text for text in told)
    assert any("in forgetful" in text for text in told)


def test_the_cost_of_a_leak_comes_back(make_pool: MakePool) -> None:
    """P98: a leaked resource's bytes come back with its room, and serve a waiter."""
    pool = make_pool(max_cost=10, cost=lambda key: 10)
    leases = [pool.lease("k")]
    with leaks_told() as told, Threads() as threads:
        waiting = threads.start(pool.lease, "big")
        wait_until_queued(pool, 1)
        leases.clear()
        woken(waiting).release()
    assert len(told) == 1
    stats = assert_quiet(pool, keys=["big", "k"], leased=0, idle=1)
    assert stats.cost == 10


def test_a_failing_destroy_of_a_leak_costs_no_room(
    make_pool: MakePool, factory: Factory, recorder: Recorder
) -> None:
    """P27, P45: the leak is counted, the hook's error is reported, nothing is raised."""
    pool = make_pool(max_size=1, observer=recorder)
    factory.errors["destroy"] = [RuntimeError("destroy")]
    with leaks_told() as told:
        lose_by_name(pool)
        with pool.lease("k") as thing:
            assert thing.number == 2
    assert len(told) == 1
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.leaked, stats.hook_errors["destroy"]) == (1, 1)
    assert recorder.details("hook_failed") == ["destroy"]


def test_a_warning_turned_into_an_error_costs_no_room(
    make_pool: MakePool, factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G7: where warnings are errors, it is told once as one, the room comes back and the resource is destroyed."""
    told: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(unraisable.exc_value))
    pool = make_pool(max_size=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LeaseLeakWarning)
        lose_by_name(pool)
        try:
            pool.lease("k").release()
        except LeaseLeakWarning as error:
            told.append(error)
        pool.lease("k").release()
    assert [type(error) for error in told] == [LeaseLeakWarning]
    assert factory.numbers_destroyed() == [1]
    stats = assert_quiet(pool, leased=0, idle=1)
    assert stats.leaked == 1


@pytest.mark.parametrize("end", ["release", "discard", "detach", "with"])
def test_a_lease_ended_properly_is_no_leak(make_pool: MakePool, recorder: Recorder, end: str) -> None:
    """P45: nothing is told of a lease that was ended before it was dropped, also in garbage."""
    pool = make_pool(max_size=2, observer=recorder)
    with leaks_told() as told:
        for _ in range(2):
            holder = Holder(pool.lease("k"))
            if end == "with":
                with holder.lease:
                    pass
            else:
                getattr(holder.lease, end)()
            del holder
            gc.collect()
            pool.lease("k").release()
    assert told == []
    assert recorder.of("leaked") == []
    assert assert_quiet(pool, leased=0).leaked == 0


def test_the_fast_tier_holds_by_itself(make_pool: MakePool) -> None:
    """G7: a bare resource is no lease: dropping its name is no leak, it stays leased."""
    pool = make_pool(max_size=1)
    with leaks_told() as told:
        number = pool.acquire("k").number
        gc.collect()
        assert pool.try_acquire("k") is None
        assert pool.stats().leased == 1
    assert number == 1
    assert told == []


@pytest.mark.slow
def test_many_leaks_from_many_threads(make_pool: MakePool, recorder: Recorder) -> None:
    """P45, P47: every one of 800 leaks is counted, told once and destroyed once, under contention."""
    pool = make_pool(max_size=3, observer=recorder)

    def leak_and_use() -> None:
        for _ in range(200):
            pool.lease("k")
            with pool.lease("k"):
                pass

    with leaks_told() as told:
        run_together(*[leak_and_use] * 4)
        pool.clear()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.leaked == stats.destroyed_for["leaked"] == len(told) == len(recorder.of("leaked")) == 800
