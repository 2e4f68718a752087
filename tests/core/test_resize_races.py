"""Resizing while things are under way, limits given by a function, limits on time, and load (P62 to P64)."""

from __future__ import annotations

import itertools
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolClosedError, PoolExhaustedError, PoolLimits, ResourcePool
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.threads import Threads, wait_until, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")


def resize(pool: ResourcePool[Any, Any], **limits: Any) -> None:
    """Put these limits in force, and no others."""
    pool.resize(PoolLimits(**limits))


def test_a_function_is_asked_outside_locks(make_pool: MakePool) -> None:
    """P33, P62, G1: a new function is asked once for each key in use, before anything changes, with no lock held."""
    pool = make_pool(max_size=9)
    asked: list[tuple[str, bool, int | None]] = []

    def cap(key: str) -> int:
        asked.append((key, pool._core.lock.locked(), pool.limits.max_size))
        pool.lease(key).release()
        return 1

    for key in "ABC":
        pool.lease_many(2, key).release()
    pool.lease("gone").discard()
    resize(pool, max_per_key=cap)
    assert sorted(asked) == [(key, False, 9) for key in "ABC"]
    assert_quiet(pool, keys="ABC", leased=0, idle=3)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "x"])
def test_a_function_that_fails(
    make_pool: MakePool, recorder: Recorder, error: type[BaseException], value: object
) -> None:
    """P62: what it raises, or that it gives no limit, comes out of resize; the old limits stay in force, all of them."""
    failure = error("don't know B")

    def raises(key: str) -> int:
        if key == "B":
            raise failure
        return 1

    pool = make_pool(max_size=4, max_per_key=2, observer=recorder)
    before = pool.limits
    for key in "AB":
        pool.lease_many(2, key).release()
    with pytest.raises(error) as caught:
        resize(pool, max_size=1, max_per_key=raises)
    assert caught.value is failure
    with pytest.raises((TypeError, ValueError), match="max_per_key"):
        resize(pool, max_size=1, max_per_key=lambda key: value)
    assert pool.limits is before
    stats = assert_quiet(pool, keys="AB", leased=0, idle=4)
    assert (stats.destroyed, stats.hook_errors["max_per_key"]) == (0, 2)
    assert recorder.details("hook_failed") == ["max_per_key"] * 2
    with pytest.raises(PoolExhaustedError):
        pool.lease_many(3, "A", 0)


def test_a_key_first_used_meanwhile(make_pool: MakePool) -> None:
    """P62: a key that comes into use while resize asks is asked for too, and is within the new limits."""
    gate = Gate()

    def cap(key: str) -> int:
        gate.stop()
        return 1

    pool = make_pool()
    pool.lease("A").release()
    with Threads() as threads:
        resizing = threads.start(resize, pool, max_per_key=cap)
        gate.wait_arrived()
        pool.lease_many(3, "B").release()
        held = pool.lease_many(2, "C")
        gate.open()
        resizing.result()
    assert (pool.stats("B").idle, pool.stats("C").leased) == (1, 2)
    held.release()
    assert_quiet(pool, keys="ABC", leased=0, idle=3)


def test_a_key_first_used_by_the_old_function(make_pool: MakePool) -> None:
    """P62: whom the old function was being asked for when the limits changed has the new ones."""
    gate = Gate()

    def cap(key: str) -> int:
        gate.stop()
        return 1

    pool = make_pool(max_per_key=cap)
    with Threads() as threads:
        leasing = threads.start(pool.lease_many, 3, "A")
        gate.wait_arrived()
        resize(pool, max_per_key=3)
        gate.open()
        leasing.result().release()
    assert_quiet(pool, keys="A", leased=0, idle=3)


def test_two_at_once(make_pool: MakePool) -> None:
    """P62: of two that resize at once, one after the other is in force as a whole; the one that ends last wins."""
    gate = Gate()
    pool = make_pool()
    pool.lease_many(4, "A").release()

    def cap(key: str) -> int:
        gate.stop()
        return 2

    with Threads() as threads:
        slow = threads.start(resize, pool, max_per_key=cap, max_size=3)
        gate.wait_arrived()
        resize(pool, max_size=4)
        pool.lease_many(4, "A", 0).release()
        gate.open()
        slow.result()
    assert pool.limits.max_size == 3
    assert_quiet(pool, keys="A", leased=0, idle=2)


def test_closed_while_the_function_is_asked(make_pool: MakePool) -> None:
    """P62: a pool that is closed meanwhile is PoolClosedError."""
    pool = make_pool()
    pool.lease("A").release()

    def cap(key: str) -> int:
        pool.close()
        return 1

    with pytest.raises(PoolClosedError):
        resize(pool, max_per_key=cap)
    assert_quiet(pool, leased=0, idle=0)


def test_inside_hooks_and_observers(make_pool: MakePool, recorder: Recorder) -> None:
    """P81, P105: hooks and observers may resize: one who waits makes room for itself."""
    pool = make_pool(max_size=1, observer=recorder)
    recorder.on["queued"] = lambda *args: resize(pool, max_size=2)
    held = pool.lease("A")
    with pool.lease("A", 5):
        held.release()
    assert_quiet(pool, keys="A", leased=0, idle=2)


def test_limits_on_time_switched_on(make_pool: MakePool) -> None:
    """P62: what is idle already is reaped by a time limit that is set later, without anybody's call."""
    pool = make_pool()
    pool.lease_many(3, "A").release()
    resize(pool, idle_timeout=0.01)
    wait_until(lambda: pool.stats().destroyed == 3)
    assert assert_quiet(pool, leased=0, idle=0).destroyed_for["idle"] == 3
    resize(pool, max_lifetime=0.01)
    pool.lease_many(2, "A").release()
    wait_until(lambda: pool.stats().destroyed == 5)
    assert pool.stats().destroyed_for["lifetime"] == 2


def test_a_lifetime_begins_when_it_is_limited(make_pool: MakePool) -> None:
    """P62: what was made before lifetimes counted isn't overdue by that alone."""
    pool = make_pool()
    pool.lease("A").release()
    resize(pool, max_lifetime=1000, idle_timeout=1000)
    assert pool.reap() == 0
    with pool.lease("A", 0) as thing:
        assert thing.number == 1
    assert_quiet(pool, keys="A", leased=0, idle=1)


@pytest.mark.parametrize("limit", ["idle_timeout", "max_lifetime"])
def test_a_shorter_time_limit_is_noticed(make_pool: MakePool, limit: str) -> None:
    """P62: the thread that reaps comes when the new limit asks for it, not when the old one would have."""
    pool = make_pool(**{limit: 1000})
    pool.lease("A").release()
    wait_until(lambda: any(thread.name == "respool-reaper" for thread in threading.enumerate()))
    resize(pool, **{limit: 0.01})
    wait_until(lambda: pool.stats().destroyed == 1)
    assert_quiet(pool, leased=0, idle=0)


def test_limits_on_time_switched_off(make_pool: MakePool) -> None:
    """P62: without time limits nothing is overdue any more."""
    pool = make_pool(idle_timeout=1000, max_lifetime=1000)
    pool.lease("A").release()
    resize(pool)
    assert pool.reap() == 0
    assert pool._core.look_after_time() is None
    assert_quiet(pool, keys="A", leased=0, idle=1)


@pytest.mark.parametrize("batch", [False, True])
def test_while_one_is_created(make_pool: MakePool, factory: Factory, batch: bool) -> None:  # noqa: FBT001
    """P62: what is being created when limits shrink is handed out, and goes when it comes back."""
    gate = Gate()
    factory.before["create"] = lambda key: gate.stop()
    pool = make_pool(max_size=3)
    with Threads() as threads:
        tasks: list[Any] = [
            threads.start(pool.lease_many, 2, "A") if batch else threads.start(pool.lease, "A"),
            threads.start(pool.lease, "A"),
        ]
        gate.wait_arrived(2)
        resize(pool, max_size=1)
        gate.open()
        held = [task.result() for task in tasks]
        for lease in held:
            lease.release()
    stats = assert_quiet(pool, keys="A", leased=0, idle=1)
    assert stats.destroyed_for["surplus"] == stats.created - 1


def test_while_a_batch_waits_for_an_eviction(make_pool: MakePool, factory: Factory) -> None:
    """P62, P99: limits that shrink while room is being made for a batch are kept before it's served."""
    gate = Gate()
    factory.before["destroy"] = lambda key, thing: gate.stop()
    pool = make_pool(max_size=4)
    pool.lease_many(4, "B").release()
    with Threads() as threads:
        waiting = threads.start(pool.lease_many, 2, "A")
        gate.wait_arrived()
        resizing = threads.start(resize, pool, max_size=3)
        wait_until(lambda: pool.limits.max_size == 3)
        gate.open()
        woken(waiting).release()
        resizing.result()
    stats = assert_quiet(pool, keys="AB", leased=0, idle=3)
    assert (stats.created, stats.destroyed) == (6, 3)


def test_waiting_for_a_cap_that_goes(make_pool: MakePool) -> None:
    """P14, P63: when the cap that held a key back goes, those who waited for it are served in order of arrival."""
    pool = make_pool(max_size=3, max_per_key=1)
    held = {key: pool.lease(key) for key in "AB"}
    order: list[str] = []

    def use(name: str) -> None:
        with pool.lease(name[0]):
            order.append(name)

    with Threads() as threads:
        names = ["A1", "B1", "A2"]
        for place, name in enumerate(names, 1):
            threads.start(use, name)
            wait_until_queued(pool, place)
        resize(pool, max_size=3)
        wait_until(lambda: len(order) == 3)
        assert order[0] == "A1"
        for lease in held.values():
            lease.release()
    assert_quiet(pool, keys="AB", leased=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_under_load(make_pool: MakePool, factory: Factory, seed: int) -> None:
    """P62, P63, P64, G2: with limits that change all the time, everybody is served or refused, and none is passed at the end."""
    dice = random.Random(seed)  # noqa: S311 - a schedule, no secret
    pool = make_pool(max_size=4)
    rest = PoolLimits(max_size=3, max_per_key=2, max_idle=2)
    stop = threading.Event()

    def use(key: Hashable) -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            try:
                with pool.lease_many(number % 3 + 1, key, 30) as things:
                    assert all(thing.alive and thing.key == key for thing in things)
            except PoolExhaustedError:
                assert number % 3

    def shake() -> None:
        try:
            for _ in range(300):
                cap = dice.choice([None, 1, 2, 3, {"A": 1, "B": 2}.get])
                resize(
                    pool,
                    max_size=dice.choice([None, 1, 2, 4, 8]),
                    max_per_key=cap,
                    max_idle=dice.choice([None, 0, 2]),
                    max_cost=dice.choice([None, None, 3]),
                    idle_timeout=dice.choice([None, None, 0.001]),
                )
            pool.resize(rest)
        finally:
            stop.set()

    with Threads() as threads:
        for key in "AABB":
            threads.start(use, key)
        threads.start(shake)
    stats = assert_quiet(pool, keys="AB", leased=0)
    assert stats.timeouts == 0
    for key in "AB":
        pool.lease_many(2, key, 0).release()
