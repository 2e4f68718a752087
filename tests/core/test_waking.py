"""Nobody sleeps beside what could serve him, or wakes for nothing (P17 to P23, P109)."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolTimeoutError, ResourcePool, _waiter
from respool._free import FREE_THREADED
from tests.helpers.gates import RemoteHook
from tests.helpers.invariants import assert_quiet
from tests.helpers.resources import Thing
from tests.helpers.threads import (
    Threads,
    let_pass,
    run_together,
    wait_asleep,
    wait_until_queued,
    wake_ups,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")

LOOK = "NAP" if FREE_THREADED else "BACKSTOP"
"""What says how often a sleeper looks."""


@pytest.mark.parametrize("kind", ["release", "discard"])
def test_a_timeout_in_the_moment_of_a_release(make_pool: MakePool, kind: str) -> None:
    """P17: whichever wins, the resource is with the waiter or idle, never lost."""
    pool = make_pool(max_size=1)
    rng = random.Random(17)  # noqa: S311 - no secrets here

    def wait(timeout: float) -> bool:
        try:
            pool.release(pool.acquire("A", timeout=timeout))
        except PoolTimeoutError:
            return False
        return True

    outcomes = set()
    for _ in range(300):
        thing = pool.acquire("A", timeout=0)
        timeout = rng.uniform(1e-6, 4e-4)
        with Threads() as threads:
            task = threads.start(wait, timeout)
            let_pass(time.monotonic() + rng.uniform(0, 6e-4))
            getattr(pool, kind)(thing)
        outcomes.add(task.result())
        assert_quiet(pool, keys="A", leased=0)
    stats = pool.stats()
    assert stats.acquired + stats.timeouts == 600


def test_a_release_while_the_caller_is_queueing(make_pool: MakePool, recorder: Recorder) -> None:
    """P18: what is released when the caller has looked and doesn't wait yet is found."""
    pool = make_pool(max_size=1, observer=recorder)
    lease = pool.lease()
    recorder.on["queued"] = lambda pool, key: lease.release()
    with pool.lease() as thing:
        assert thing.number == 1
    assert recorder.details("waited", 1) == ["served"]
    assert_quiet(pool, leased=0, idle=1)


def test_a_discard_while_the_caller_is_queueing(make_pool: MakePool, recorder: Recorder) -> None:
    """P18: the same for room that comes free by a discard."""
    pool = make_pool(max_size=1, observer=recorder)
    lease = pool.lease("A")
    recorder.on["queued"] = lambda pool, key: lease.discard()
    with pool.lease("B") as thing:
        assert thing.number == 2
    assert_quiet(pool, keys="AB", leased=0, idle=1)


def test_two_threads_hand_one_resource_to_and_fro(make_pool: MakePool) -> None:
    """P18: thousands of hand-overs, and nobody is left asleep beside an idle resource."""
    pool = make_pool(max_size=1)

    def use() -> None:
        for _ in range(2000):
            pool.release(pool.acquire("A"))

    run_together(use, use, use)
    stats = assert_quiet(pool, keys="A", leased=0, idle=1)
    assert (stats.acquired, stats.created) == (6000, 1)


@pytest.mark.parametrize("how", ["discard", "detach"])
def test_a_discard_wakes_a_waiter_to_create(make_pool: MakePool, how: str) -> None:
    """P19: room that comes free without a resource is enough for a waiter."""
    pool = make_pool(max_size=1)
    lease = pool.lease()
    with Threads() as threads:
        waiting = threads.start(pool.lease)
        wait_until_queued(pool, 1)
        getattr(lease, how)()
        assert waiting.result().resource.number == 2
        waiting.result().release()
    stats = assert_quiet(pool, leased=0, idle=1)
    assert stats.created == 2


def test_a_failed_create_passes_the_room_on(make_pool: MakePool) -> None:
    """P20: the caller whose create fails gets the error, and the next waiter creates at once."""
    create: RemoteHook[Thing] = RemoteHook()
    pool = make_pool(create=create, max_size=1)
    with Threads() as threads:
        tasks = [threads.start(pool.lease, "A")]
        calls = [create.next_call()]
        for n in (1, 2):
            tasks.append(threads.start(pool.lease, "A"))
            wait_until_queued(pool, n)
        errors = [OSError("no"), KeyboardInterrupt("no")]
        for n, error in enumerate(errors):
            assert not create.has_call()
            calls[n].raises(error)
            assert tasks[n].error() is error
            calls.append(create.next_call())
        calls[2].returns(Thing("A", 1))
        assert tasks[2].result().resource.number == 1
        tasks[2].result().release()
    stats = assert_quiet(pool, keys="A", leased=0, idle=1)
    assert stats.created == 1


def test_one_release_wakes_one_waiter(make_pool: MakePool, recorder: Recorder) -> None:
    """P21: of 100 waiters one wakes; the others sleep on."""
    pool = make_pool(max_size=1, observer=recorder)
    lease = pool.lease("A")
    done = threading.Event()

    def use() -> None:
        with pool.lease("A"):
            assert done.wait(30)

    with Threads() as threads:
        tasks = [threads.start(use) for _ in range(100)]
        wait_until_queued(pool, 100)
        before = wait_asleep([task.thread for task in tasks])
        lease.release()
        recorder.wait_for("waited")
        after = wait_asleep([task.thread for task in tasks])
        assert sum(now != then for now, then in zip(after, before, strict=True)) == 1
        assert pool.stats().waiters == 99
        done.set()
    assert recorder.details("waited", 1) == ["served"] * 100
    assert_quiet(pool, keys="A", leased=0, idle=1)


def test_waiting_for_oneself_ends_by_the_timeout(make_pool: MakePool) -> None:
    """P22: who holds the only one and asks again gets the timeout; the first lease stays good."""
    pool = make_pool(max_size=1)
    with pool.lease("A") as thing:
        begun = time.monotonic()
        with pytest.raises(PoolTimeoutError):
            pool.lease("A", timeout=0.05)
        assert time.monotonic() >= begun + 0.05
        assert thing.alive
        assert pool.stats().leased == 1
    assert_quiet(pool, leased=0, idle=1)


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_waiter_sleeps(make_pool: MakePool, timeout: float | None) -> None:
    """P23: a waiter uses no processor time and does not wake to look; a release wakes it."""
    pool = make_pool(max_size=1)
    lease = pool.lease("A")
    with Threads() as threads:
        task = threads.start(pool.lease, "A", timeout)
        wait_until_queued(pool, 1)
        wait_asleep([task.thread])
        clock = time.pthread_getcpuclockid(task.thread.ident or 0)
        before = wake_ups(task.thread), time.clock_gettime_ns(clock)
        let_pass(time.monotonic() + 0.5)
        assert (wake_ups(task.thread), time.clock_gettime_ns(clock)) == before
        lease.release()
        task.result().release()
    assert_quiet(pool, keys="A", leased=0, idle=1)


@pytest.mark.parametrize("sleepers", [1, 2, 16, 17, 100, 10_000])
def test_a_crowd_does_not_look_more_often_than_a_few(monkeypatch: pytest.MonkeyPatch, sleepers: int) -> None:
    """P23: however many sleep, their own looks, in case all else has failed, are a few a second together, and never all given up."""
    monkeypatch.setattr(_waiter, LOOK, 5.0)
    looks = sleepers / _waiter.backstop(sleepers)
    assert looks == pytest.approx(min(sleepers, 16) / 5)


def test_who_goes_to_sleep_counts_the_others(make_pool: MakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    """P23: who goes to sleep behind many others looks for itself the more seldom."""
    monkeypatch.setattr(_waiter, LOOK, 5.0)
    slept: list[float] = []
    listen = _waiter.Waiter.listen

    def listening(self: _waiter.Waiter, nap: Any, notes: Any, seconds: float) -> None:
        slept.append(seconds)
        listen(self, nap, notes, seconds)

    monkeypatch.setattr(_waiter.Waiter, "listen", listening)
    pool = make_pool(max_size=1)
    lease = pool.lease("A")
    with Threads() as threads:
        tasks = []
        for count in range(1, 41):
            tasks.append(threads.start(lambda: pool.lease("A").release()))
            wait_until_queued(pool, count)
        wait_asleep([task.thread for task in tasks])
        assert (min(slept), max(slept)) == (5.0, 5.0 * 40 / 16)
        lease.release()
    assert_quiet(pool, keys="A", leased=0, idle=1)


def test_first_use_from_two_threads_at_once() -> None:
    """P109: what a pool makes on first use is made once, whoever comes first."""
    for _ in range(200):
        made: list[object] = []

        def create(key: str, made: list[object] = made) -> object:
            made.append(object())
            return made[-1]

        gone: list[object] = []
        with ResourcePool(create, lambda key, thing, gone=gone: gone.append(thing)) as pool:
            calls: list[Callable[[], None]] = [lambda pool=pool: pool.lease("A").release()] * 2  # type: ignore[misc]
            run_together(*calls)
            stats = assert_quiet(pool, keys="A", leased=0)
            assert stats.acquired == 2
            assert stats.created == len(made) == stats.idle
        assert sorted(map(id, gone)) == sorted(map(id, made))
