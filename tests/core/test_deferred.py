"""Giving back what isn't free yet: what `release(when)` itself does (G8)."""

from __future__ import annotations

import gc
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

from respool import InvalidReleaseError, PoolTimeoutError
from tests.helpers.invariants import assert_quiet
from tests.helpers.whens import WAYS, When, hand_in, hold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool

pytestmark = [pytest.mark.usefixtures("no_backstop"), pytest.mark.filterwarnings("error")]

each_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def when() -> Iterator[When]:
    """Give a `when` that may never be asked by two at once, nor again after it has said yes."""
    when = When()
    yield when
    assert when.misuse == []


@each_way
def test_free_at_once(make_pool: MakePool, when: When, way: str) -> None:
    """G8: `when` is asked exactly once in release; if it says yes, the resource is idle as ever."""
    pool = make_pool(max_size=2)
    held = hold(pool, way)
    count = len(held.things)
    when.free = True
    held.release(when)
    assert when.asked == 1
    assert_quiet(pool, keys="A", leased=0, idle=count)
    assert pool.stats().pending == 0
    again = [pool.acquire("A", timeout=0) for _ in range(count)]
    assert set(again) == set(held.things)
    assert when.asked == 1
    for thing in again:
        pool.release(thing)


@each_way
def test_not_free_yet(make_pool: MakePool, when: When, way: str) -> None:
    """G8: if `when` says no, release has asked once and returns; the resource is pending, and neither leased nor idle."""
    pool = make_pool(max_size=3, cost=lambda key: 5)
    held = hold(pool, way)
    count = len(held.things)
    held.release(when=when)
    assert when.asked == 1
    stats = assert_quiet(pool, keys="A", leased=0, idle=0)
    assert (stats.pending, stats.size, stats.cost) == (count, count, 5 * count)
    assert pool.stats("A").pending == count


@each_way
def test_what_when_raises_reaches_the_caller(
    make_pool: MakePool, recorder: Recorder, when: When, way: str
) -> None:
    """G8: if `when` raises in release, that very error reaches the caller, who still holds the resource."""
    pool = make_pool(max_size=2, observer=recorder)
    held = hold(pool, way)
    count = len(held.things)
    errors = [ValueError("broken"), KeyboardInterrupt(), SystemExit(3)]
    for number, error in enumerate(errors, 1):
        when.errors = [error]
        with pytest.raises(type(error)) as caught:
            held.release(when)
        assert caught.value is error
        stats = assert_quiet(pool, leased=count, idle=0)
        assert stats.pending == stats.quarantined == 0
        assert stats.hook_errors["when"] == pool.stats("A").hook_errors["when"] == number
        assert [event.detail for event in recorder.of("hook_failed")][-1] == ("when", error)
        assert when.asked == number
    held.release()
    assert_quiet(pool, leased=0, idle=count)
    assert when.asked == len(errors)


@each_way
@pytest.mark.parametrize("bad", [1, True, "done", frozenset()], ids=repr)
def test_a_when_that_cannot_be_called(make_pool: MakePool, recorder: Recorder, way: str, bad: Any) -> None:
    """G8: a `when` that can't be called is a TypeError, no hook's failure, and the caller still holds the resource."""
    pool = make_pool(max_size=2, observer=recorder)
    held = hold(pool, way)
    with pytest.raises(TypeError, match="when must be callable"):
        held.release(when=bad)
    stats = assert_quiet(pool, leased=len(held.things))
    assert stats.hook_errors["when"] == 0
    assert recorder.of("hook_failed") == []
    held.release(None)
    assert_quiet(pool, leased=0, idle=len(held.things))


@each_way
def test_answers_count_by_their_truth(make_pool: MakePool, way: str) -> None:
    """G8: whatever `when` returns counts by its truth, as in an `if`; one whose truth can't be told is one that raises."""

    class Undecided:
        def __bool__(self) -> bool:
            raise LookupError

    pool = make_pool(max_size=2)
    for answer, pending in ([[], True], [0, True], [None, True], [1, False], ["done", False]):
        held = hold(pool, way)
        answers: list[Any] = [answer, True]
        held.release(lambda answers=answers: answers.pop(0))
        assert pool.stats().pending == pending * len(held.things)
        pool.reap()
    held = hold(pool, way)
    with pytest.raises(LookupError):
        held.release(Undecided)
    assert_quiet(pool, leased=len(held.things))
    held.release()


@each_way
def test_nobody_has_it_before_it_is_free(make_pool: MakePool, when: When, way: str) -> None:
    """G8: a pending resource is handed out only once `when` has said yes, and `when` isn't asked again after that."""
    pool = make_pool(max_size=2)
    held = hold(pool, way)
    rest = [pool.lease("A", timeout=0) for _ in range(2 - len(held.things))]
    held.release(when)
    for _ in range(5):
        assert pool.try_lease("A") is None
        assert pool.try_acquire("A") is None
        with pytest.raises(PoolTimeoutError):
            pool.lease("A", timeout=0)
        with pytest.raises(PoolTimeoutError):
            pool.lease_many(1, "A", timeout=0)
    when.free = True
    got = [pool.lease("A", timeout=0) for _ in held.things]
    assert {lease.resource for lease in got} == set(held.things)
    asked = when.asked
    for lease in got + rest:
        lease.release()
    with pool.lease_many(2, "A", timeout=0):
        pool.reap()
    assert when.asked == asked
    assert pool.stats().created == 2


@pytest.mark.parametrize("limit", ["max_size", "max_per_key", "max_cost"])
def test_pending_ones_count_against_all_limits(make_pool: MakePool, when: When, limit: str) -> None:
    """G2, G8: what is pending takes up its room, its key's room and its cost; an error of a full pool tells how many are pending."""
    pool = make_pool(**{limit: 6 if limit == "max_cost" else 2}, cost=lambda key: 3)
    hand_in(pool, when, when := When())
    stats = pool.stats()
    assert (stats.pending, stats.size, stats.cost) == (2, 2, 6)
    assert pool.try_lease("A") is None
    with pytest.raises(PoolTimeoutError) as caught:
        pool.lease("A", timeout=0.01)
    error = caught.value
    assert (error.pending, error.idle, error.leased) == (2, 0, 0)
    assert "pending" in str(error)
    when.free = True
    pool.lease("A", timeout=0).release()
    assert pool.stats().created == 2


def test_one_when_for_a_group(make_pool: MakePool, when: When) -> None:
    """G8: a group's `when` speaks for all of its resources: one yes frees them all, and it's not asked again for the others."""
    pool = make_pool(max_size=5)
    group = pool.lease_many(5, "A")
    group.release(when)
    assert when.asked == 1
    assert group.released
    assert pool.stats().pending == 5
    pool.reap()
    when.free = True
    before = when.asked
    assert pool.reap() == 0
    assert when.asked == before + 1
    assert_quiet(pool, leased=0, idle=5)
    with pool.lease_many(5, "A", timeout=0):
        pass
    assert when.asked == before + 1


@each_way
def test_once_given_back_it_is_nobodys(make_pool: MakePool, when: When, way: str) -> None:
    """G6, G8: what is pending can't be given back or discarded once more; a spent lease or group does nothing and asks nobody."""
    pool = make_pool(max_size=2)
    held = hold(pool, way)
    held.release(when)
    other = When()
    if way in {"lease", "group"}:
        held.release(other)
        held.release()
    else:
        for call in (lambda: held.release(other), held.release, lambda: pool.discard(held.things[0])):
            with pytest.raises(InvalidReleaseError):
                call()
    assert other.asked == 0
    assert when.asked == 1
    assert pool.stats().pending == len(held.things)


def test_a_release_that_is_a_mistake_asks_nobody(make_pool: MakePool, when: When) -> None:
    """P37, P38, P39, G8: a foreign, leased or idle resource is refused on the fast tier before `when` is asked."""
    pool, other = make_pool(), make_pool()
    foreign = other.acquire("A")
    idle = pool.acquire("A")
    lease = pool.lease("A")
    pool.release(idle)
    for face in (pool, pool.bind("A")):
        for thing in (foreign, idle, lease.resource):
            with pytest.raises(InvalidReleaseError):
                face.release(thing, when)
    assert when.asked == 0
    lease.release()
    other.release(foreign)


@pytest.mark.parametrize("fails", [False, True])
def test_inside_a_with_block(make_pool: MakePool, when: When, fails: bool) -> None:  # noqa: FBT001
    """G8: a lease or group given back with a `when` inside its block is spent at the block's end, also one that fails."""
    pool = make_pool(max_size=3, discard_on_error=True)

    def use(held: Any, when: When) -> None:
        with held:
            held.release(when)
            if fails:
                raise LookupError

    for held, its in ((pool.lease("A"), when), (pool.lease_many(2, "A"), When())):
        if fails:
            with pytest.raises(LookupError):
                use(held, its)
        else:
            use(held, its)
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.pending, stats.destroyed) == (3, 0)
    when.free = True
    with pool.lease("A", timeout=0):
        pass


@each_way
def test_reset_waits_too(make_pool: MakePool, factory: Factory, when: When, way: str) -> None:
    """G8: reset runs once the resource is free, not before; and so does validate, on what is handed out then."""
    pool = make_pool(max_size=2, reset=factory.reset, validate=factory.validate)
    held = hold(pool, way)
    held.release(when)
    pool.reap()
    assert factory.calls["reset"] == factory.calls["validate"] == 0
    when.free = True
    pool.reap()
    assert set(factory.reset_things) == set(held.things)
    assert factory.calls["reset"] == len(held.things)
    assert factory.calls["validate"] == 0
    assert_quiet(pool, leased=0, idle=len(held.things))
    pool.lease("A", timeout=0).release(lambda: True)
    assert factory.calls["validate"] == 1
    assert factory.calls["reset"] == len(held.things) + 1


def test_a_reset_that_fails_after_waiting(make_pool: MakePool, factory: Factory, when: When) -> None:
    """P32, G8: a reset that fails when the resource is free at last has it destroyed; whoever asked gets another one."""
    pool = make_pool(max_size=1, reset=factory.reset)
    (thing,) = hand_in(pool, when)
    factory.errors["reset"] = [ValueError("reset")]
    when.free = True
    with pool.lease("A", timeout=5) as other:
        assert other is not thing
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.destroyed_for["invalid"], stats.hook_errors["reset"], stats.pending) == (1, 1, 0)


def test_one_found_invalid_after_waiting(make_pool: MakePool, factory: Factory, when: When) -> None:
    """P29, G8: one that is free at last and proves invalid is destroyed, and the same acquire makes a new one."""
    pool = make_pool(max_size=1, validate=factory.validate)
    (thing,) = hand_in(pool, when)
    thing.healthy = False
    when.free = True
    with pool.lease("A", timeout=5) as other:
        assert other is not thing
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.destroyed_for["invalid"], stats.pending) == (1, 0)


@each_way
def test_what_is_pending_cannot_leak(make_pool: MakePool, when: When, way: str) -> None:
    """G7, G8: once given back, a lease may be dropped: nothing is leaked, and the resource stays pending."""
    pool = make_pool(max_size=2)
    held = hold(pool, way)
    held.release(when)
    count = len(held.things)
    del held
    gc.collect()
    pool.reap()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.pending, stats.leaked, stats.destroyed) == (count, 0, 0)


def test_a_lease_dropped_while_when_is_asked(make_pool: MakePool, when: When) -> None:
    """G7, G8: whoever lets go of the lease while its `when` is asked for the first time leaks nothing."""
    pool = make_pool(max_size=3)
    held: list[Any] = [pool.lease("A")]
    when.before = lambda: (held.clear(), gc.collect())
    held[0].release(when)
    group: list[Any] = [pool.lease_many(2, "A")]
    when.before = lambda: (group.clear(), gc.collect())
    group[0].release(when)
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.pending, stats.leaked) == (3, 0)


def test_a_cycle_through_its_when(make_pool: MakePool) -> None:
    """G8: a `when` that refers to its own lease keeps nothing once it has said yes."""
    pool = make_pool(max_size=1)

    class Job:
        lease: Any
        alive = 0

        def __init__(self) -> None:
            Job.alive += 1
            self.asked = 0

        def done(self) -> bool:
            self.asked += 1
            return self.asked > 1

        def __del__(self) -> None:
            Job.alive -= 1

    job = Job()
    job.lease = pool.lease("A")
    job.lease.release(job.done)
    del job
    pool.lease("A", timeout=0).release()
    assert Job.alive == 0, "kept until the collector comes"
    assert_quiet(pool, leased=0, idle=1)


def test_pending_ones_have_no_holder(make_pool: MakePool, when: When) -> None:
    """P10, G8: with track_leases a timeout names who holds the oldest lease, not who has given back long ago."""
    pool = make_pool(max_size=2, track_leases=True)

    def first() -> Any:
        return pool.lease("A")

    def second() -> Any:
        return pool.lease("A")

    first().release(when)
    lease = second()
    with pytest.raises(PoolTimeoutError) as caught:
        pool.lease("A", timeout=0)
    assert "in second" in str(caught.value)
    assert "in first" not in str(caught.value)
    lease.release()
    when.free = True
    with pool.lease("A", timeout=0):
        pass
    assert_quiet(pool, leased=0)


def test_futures_and_events_serve_as_when(make_pool: MakePool) -> None:
    """G8: `future.done` and the query of an event are a `when` as they are."""

    class Event:
        done = False

        def query(self) -> bool:
            return self.done

    pool = make_pool(max_size=2)
    future: Future[int] = Future()
    event = Event()
    first, second = hand_in(pool, future.done, event.query)
    assert pool.try_lease("A") is None
    event.done = True
    with pool.lease("A", timeout=0) as thing:
        assert thing is second
        future.set_result(1)
        with pool.lease("A", timeout=0) as other:
            assert other is first
    assert_quiet(pool, leased=0, idle=2)
