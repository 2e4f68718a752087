"""Releases from signal handlers, finalisers and the collector, at any point inside the pool (P77, P78, G5)."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    ALL,
    InvalidReleaseError,
    PoolClosedError,
    PoolLimits,
    PoolReentrancyError,
    PoolTimeoutError,
    ResourcePool,
)
from tests.helpers.checkpoints import every_checkpoint
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet, assert_within
from tests.helpers.promptly import woken
from tests.helpers.resources import Factory, Thing
from tests.helpers.storms import SignalStorm, weather
from tests.helpers.threads import Threads, wait_until, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool import Lease
    from tests.helpers.resources import MakePool

    Operation = Callable[[ResourcePool[Any, Thing]], object]

pytestmark = pytest.mark.usefixtures("no_backstop")


def scene(**options: Any) -> tuple[Factory, ResourcePool[Any, Thing]]:
    """Make a pool of four rooms with one idle resource of key A."""
    factory = Factory()
    pool = ResourcePool(factory.create, factory.destroy, limits=PoolLimits(max_size=4), **options)
    pool.lease("A").release()
    return factory, pool


def use_lease(pool: ResourcePool[Any, Thing]) -> None:
    """Lease and give back."""
    with pool.lease("A"):
        pass


def use_another_key(pool: ResourcePool[Any, Thing]) -> None:
    """Create, which may have to evict, and give back."""
    pool.release(pool.acquire("B"))


def use_discard(pool: ResourcePool[Any, Thing]) -> None:
    """Take one and destroy it."""
    pool.lease("A").discard()


def use_timeout(pool: ResourcePool[Any, Thing]) -> None:
    """Take all there is room for, then wait in vain."""
    leases = []
    while (lease := pool.try_lease("A")) is not None:
        leases.append(lease)
    try:
        leases.append(pool.lease("A", timeout=0.001))
    except PoolTimeoutError:
        pass
    for lease in leases:
        lease.release()


def use_close(pool: ResourcePool[Any, Thing]) -> None:
    """Close without waiting."""
    try:
        pool.close(timeout=0)
    except PoolTimeoutError:
        pass


OPERATIONS: dict[str, Operation] = {
    "stats": lambda pool: (pool.stats(), pool.stats("A")),
    "lease": use_lease,
    "another key": use_another_key,
    "discard": use_discard,
    "timeout": use_timeout,
    "clear": lambda pool: pool.clear(),
    "bind": lambda pool: pool.bind("C"),
    "close": use_close,
}


ENDS = ["release", "discard", "detach", "fast release"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operation", "end"),
    # A wait has many places, and to a wait all ends are alike.
    [(name, end) for name in OPERATIONS for end in ENDS if name != "timeout" or end == "release"],
)
def test_giving_back_at_every_point(operation: str, end: str) -> None:
    """P77, P78, G5: whatever it interrupts, a release works at once or is done when that call lets go."""
    for visit in every_checkpoint():
        factory, pool = scene()
        thing: Thing | None = None
        lease: Lease[Any, Thing] | None = None
        if end.startswith("fast"):
            thing = pool.acquire("A")
            give_back = lambda p=pool, t=thing: getattr(p, end.split()[1])(t)  # noqa: E731 - bound to this round
        else:
            lease = pool.lease("A")
            thing = lease.resource
            give_back = getattr(lease, end)
        with visit, pool:
            visit.run(lambda p=pool: OPERATIONS[operation](p), give_back)
            if not visit.reached:
                give_back()
            assert pool.stats().leased == 0
            pool.clear()  # the next ordinary call, which a destroy may be left to
            stats = assert_quiet(pool)
            if "discard" in end:
                assert not thing.alive
            assert (stats.detached, thing.alive) == (1, True) or end != "detach"
            if lease is None:
                with pytest.raises(InvalidReleaseError):
                    pool.release(thing)
            pool.close()
            assert factory.misuse == []
            assert factory.alive == stats.detached


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_acquiring_at_every_point(operation: str) -> None:
    """G5: an acquire from a handler works, or is PoolReentrancyError where it interrupts the locked section."""
    refused = 0
    for visit in every_checkpoint():
        factory, pool = scene()
        got: list[Lease[Any, Thing]] = []

        def acquire(pool: ResourcePool[Any, Thing] = pool, got: list[Lease[Any, Thing]] = got) -> None:
            nonlocal refused
            try:
                got.append(pool.lease("A", timeout=0))
            except PoolReentrancyError:
                refused += 1
            except PoolTimeoutError:
                assert operation == "timeout"
            except PoolClosedError:
                assert operation == "close"

        with visit, pool:
            visit.run(lambda p=pool: OPERATIONS[operation](p), acquire)
            for lease in got:
                assert lease.resource.alive
                lease.release()
            pool.clear()
            assert_quiet(pool, leased=0)
            pool.close()
            assert factory.misuse == []
            assert factory.alive == 0
    # A create takes its room under the lock, so some of the places are inside.
    assert refused or operation != "another key"


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["stats", "lease", "another key", "clear"])
def test_release_returns_while_another_thread_is_stopped_at_every_point(operation: str) -> None:
    """G5: a release waits for no thread, also for one that was stopped inside the pool, its lock held or not."""
    for visit in every_checkpoint():
        factory, pool = scene()
        gate = Gate()
        lease, thing = pool.lease("A"), pool.acquire("B")
        with visit, pool, Threads() as threads:
            worker = threads.start(visit.run, lambda p=pool: OPERATIONS[operation](p), gate.stop)
            wait_until(lambda g=gate, w=worker: g.arrived or w.ended, "the worker stops")
            lease.release()
            pool.release(thing)
            assert lease.released
            gate.open()
            worker.result()
            assert_quiet(pool, leased=0)
        assert factory.misuse == []


@pytest.mark.slow
@pytest.mark.parametrize("inner", ["clear", "close", "stats"])
@pytest.mark.parametrize("operation", ["stats", "lease", "another key", "clear"])
def test_other_calls_at_every_point(operation: str, inner: str) -> None:
    """G5, P78: clear and close from a handler work or are PoolReentrancyError; stats works; nothing hangs."""

    def call(pool: ResourcePool[Any, Thing]) -> None:
        try:
            if inner == "close":
                use_close(pool)
            elif inner == "clear":
                pool.clear()
            else:
                assert pool.stats(ALL).size >= 0
                assert pool.stats("A").size >= 0
        except PoolReentrancyError:
            pass

    for visit in every_checkpoint():
        factory, pool = scene()
        with visit, pool:
            try:
                visit.run(lambda p=pool: OPERATIONS[operation](p), lambda p=pool: call(p))
            except PoolClosedError:
                assert inner == "close"
            pool.clear()
            assert_quiet(pool, leased=0)
            pool.close()
            assert factory.misuse == []
            assert factory.alive == 0


def test_a_handler_s_release_serves_the_main_thread_s_wait(make_pool: MakePool) -> None:
    """P78: the main thread sleeps in acquire; a signal handler gives back; the main thread has it."""
    pool = make_pool(max_size=1)
    held = pool.lease("A")
    main = threading.get_ident()
    earlier = signal.signal(signal.SIGUSR1, lambda *args: held.release())

    def send() -> None:
        wait_until_queued(pool, 1)
        signal.pthread_kill(main, signal.SIGUSR1)

    try:
        with Threads() as threads:
            threads.start(send)
            with pool.lease("A", timeout=60) as thing:
                assert thing.number == 1
    finally:
        signal.signal(signal.SIGUSR1, earlier)
    assert_quiet(pool, leased=0, idle=1)


@pytest.mark.parametrize("end", ["release", "discard", "leak"])
def test_a_handler_serves_another_thread_s_wait(make_pool: MakePool, end: str) -> None:
    """P78, G5, G7: a thread that sleeps in acquire is woken though no other thread ever calls the pool."""
    pool = make_pool(max_size=1)
    held = [pool.lease("A")]

    def give_back(*args: object) -> None:
        if end == "leak":
            held.clear()
        else:
            getattr(held.pop(), end)()

    earlier = signal.signal(signal.SIGUSR1, give_back)
    try:
        with weather(), Threads() as threads:
            waiting = threads.start(pool.lease, "A")
            wait_until_queued(pool, 1)
            os.kill(os.getpid(), signal.SIGUSR1)
            lease = woken(waiting)
            assert lease.resource.number == (1 if end == "release" else 2)
            lease.release()
    finally:
        signal.signal(signal.SIGUSR1, earlier)
    assert_quiet(pool, leased=0, idle=1)


@pytest.mark.slow
@pytest.mark.timeout(60, method="thread")
def test_handlers_that_use_the_pool_by_the_thousand(make_pool: MakePool) -> None:
    """P78: 3000 handlers that lease, release and discard while the main thread does the same, all at its limits."""
    numbers = itertools.count(1)

    def destroy(key: object, thing: Thing) -> None:
        assert thing.alive
        thing.alive = False

    # Hooks without a lock: a handler that interrupts a hook may itself come to run one.
    pool = make_pool(create=lambda key: Thing(key, next(numbers)), destroy=destroy, max_size=4)
    kept: list[Lease[Any, Thing]] = []
    refused = served = 0

    def handler() -> None:
        nonlocal refused, served
        if kept:
            lease = kept.pop()
            lease.discard() if served % 7 == 0 else lease.release()
        try:
            taken = pool.try_lease("AB"[served % 2])
        except PoolReentrancyError:
            refused += 1
            return
        if taken is not None:
            served += 1
            kept.append(taken)

    with Threads() as threads, SignalStorm(handler, times=3000) as storm:

        def compete() -> None:
            while storm.blowing:
                with pool.lease("A"):
                    pass

        threads.start(compete)
        while storm.blowing:
            with pool.lease("A", timeout=30) as first:
                thing = pool.acquire("B", timeout=30)
                assert first.alive
                assert thing.alive
                pool.release(thing)
            assert_within(pool.stats(), pool.limits)
            pool.lease("B", timeout=30).discard()
    while kept:
        kept.pop().release()
    assert storm.handled == 3000
    assert served > 0
    stats = assert_quiet(pool, keys="AB", leased=0)
    assert stats.leaked == 0
    assert sum(stats.hook_errors.values()) == 0
