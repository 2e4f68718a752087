"""Interrupts at every place inside the pool, and in the very moment of a hand-over (P79, G3).

An interrupt may cost the resource that was in hand, never its room.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from respool import (
    InvalidReleaseError,
    PoolClosedError,
    PoolLimits,
    PoolObserver,
    PoolTimeoutError,
    ResourcePool,
)
from tests.helpers.checkpoints import Interrupt, every_checkpoint, interrupt
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.recorder import Recorder
from tests.helpers.resources import Factory
from tests.helpers.threads import Threads, wait_asleep, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool import Lease
    from tests.helpers.resources import MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop", "bear")

ROOMS = 2
SILENT = PoolObserver()


def new_pool(factory: Factory, observer: PoolObserver = SILENT, **options: Any) -> ResourcePool[Any, Thing]:
    """Make a pool with a silent observer: the logging module itself is not proof against interrupts."""
    limits = PoolLimits(max_size=ROOMS)
    return ResourcePool(factory.create, factory.destroy, limits=limits, observer=observer, **options)


def assert_whole(pool: ResourcePool[Any, Thing], factory: Factory, lost: int = 1) -> None:
    """Check that all rooms can be had for good resources, and that no more than ``lost`` got lost."""
    leases = [pool.lease("A", timeout=5) for _ in range(ROOMS)]
    assert all(lease.resource.alive for lease in leases)
    assert len({id(lease.resource) for lease in leases}) == ROOMS
    assert pool.try_lease("A") is None
    for lease in leases:
        lease.release()
    assert_quiet(pool, leased=0, idle=ROOMS)
    pool.close()
    assert_quiet(pool, leased=0, idle=0)
    assert factory.misuse == []
    assert 0 <= factory.alive <= lost


def give_back(pool: ResourcePool[Any, Thing], hand: list[Any]) -> None:
    """Give back what a caller who was interrupted may still have: once more does no harm."""
    for held in hand:
        if hasattr(held, "release"):
            held.release()
            continue
        with contextlib.suppress(InvalidReleaseError):
            pool.release(held)
    hand.clear()


def close_at_once(pool: ResourcePool[Any, Thing], *args: object) -> None:
    """Close without waiting for what is out."""
    with contextlib.suppress(PoolTimeoutError):
        pool.close(timeout=0)


def use_lease(pool: ResourcePool[Any, Thing], hand: list[Any]) -> None:
    """Lease in a block."""
    with pool.lease("A"):
        pass


def use_try_lease(pool: ResourcePool[Any, Thing], hand: list[Any]) -> None:
    """Try, then release by hand."""
    hand.append(pool.try_lease("A"))
    hand[0].release()


def use_fast(pool: ResourcePool[Any, Thing], hand: list[Any]) -> None:
    """Use the fast tier."""
    hand.append(pool.acquire("A"))
    pool.release(hand[0])


def use_bound(pool: ResourcePool[Any, Thing], hand: list[Any]) -> None:
    """Use the fast tier of a bound pool."""
    bound = pool.bind("A")
    hand.append(bound.try_acquire())
    bound.release(hand[0])


def use_create(pool: ResourcePool[Any, Thing], hand: list[Any]) -> None:
    """Miss and create."""
    hand.append(pool.lease("new"))
    hand.append(pool.acquire("new"))


def use_discard(pool: ResourcePool[Any, Thing], hand: list[Any]) -> None:
    """Destroy from both tiers."""
    pool.lease("A").discard()
    hand.append(pool.acquire("A"))
    pool.discard(hand[0])


def use_detach(pool: ResourcePool[Any, Thing], hand: list[Any]) -> None:
    """Take one out of the pool."""
    pool.lease("A").detach()


def use_clear(pool: ResourcePool[Any, Thing], hand: list[Any]) -> None:
    """Clear with one leased and one idle."""
    hand.append(pool.lease("A"))
    pool.clear()
    hand[0].release()


def use_refused(pool: ResourcePool[Any, Thing], hand: list[Any]) -> None:
    """Fill the pool, then wait in vain."""
    for key in "AB":
        hand.append(pool.lease(key))  # noqa: PERF401 - what was got must be in hand at once
    with contextlib.suppress(PoolTimeoutError):
        pool.lease("C", timeout=0.001)


def use_leak(pool: ResourcePool[Any, Thing], hand: list[Any]) -> None:
    """Forget a lease, and go on."""
    pool.lease("A")
    pool.lease("A", timeout=5).release()


def use_stats(pool: ResourcePool[Any, Thing], hand: list[Any]) -> None:
    """Look around."""
    pool.stats()
    pool.stats("A")
    repr(pool)


USES = [
    use_lease,
    use_try_lease,
    use_fast,
    use_bound,
    use_create,
    use_discard,
    use_detach,
    use_clear,
    use_refused,
    use_leak,
    use_stats,
]


# Where validate and reset run too: on the ways that are others with them.
HOOKED = [use_lease, use_try_lease, use_fast, use_bound, use_discard, use_clear]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("use", "hooked"),
    [*((use, False) for use in USES), *((use, True) for use in HOOKED)],
    ids=lambda value: value.__name__ if callable(value) else "hooked" if value else "bare",
)
def test_an_interrupt_at_every_place(use: Callable[..., None], hooked: bool) -> None:  # noqa: FBT001
    """G3: wherever a call is interrupted, all rooms are back afterwards, and at most one resource is lost."""
    for visit in every_checkpoint():
        factory = Factory()
        options = {"validate": factory.validate, "reset": factory.reset} if hooked else {}
        pool = new_pool(factory, **options)
        for lease in [pool.lease("A"), pool.lease("A")]:
            lease.release()
        hand: list[Any] = []
        with visit, pool:
            try:
                visit.run(lambda p=pool, h=hand: use(p, h), interrupt)
            except Interrupt:
                assert visit.reached
            give_back(pool, hand)
            del lease
            assert_whole(pool, factory, lost=1 + pool.stats().detached)


@pytest.mark.slow
@pytest.mark.parametrize("outcome", ["served", "timeout", "closed"])
def test_an_interrupt_at_every_place_of_a_wait(outcome: str) -> None:
    """P79, G3: a caller interrupted while it queues, waits, or is just served leaves no trace in the queue."""
    for visit in every_checkpoint():
        factory, recorder = Factory(), Recorder()
        pool = new_pool(factory, observer=recorder)
        held = [pool.lease("A"), pool.lease("A")]
        if outcome == "served":
            recorder.on["queued"] = lambda *args, held=held: held[0].release()
        elif outcome == "closed":
            recorder.on["queued"] = close_at_once

        def use(pool: ResourcePool[Any, Thing] = pool) -> None:
            with contextlib.suppress(PoolTimeoutError, PoolClosedError):
                pool.lease("A", timeout=0.001 if outcome == "timeout" else 5).release()

        with visit, pool:
            try:
                visit.run(use, interrupt)
            except Interrupt:
                assert visit.reached
            assert pool.stats().waiters == 0
            recorder.on.clear()
            for lease in held:
                lease.release()
            if pool.closed:
                pool.close()
                assert_quiet(pool, leased=0, idle=0)
            else:
                assert_whole(pool, factory)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["release", "discard", "detach", "fast release", "fast discard", "leak"])
def test_an_interrupt_at_every_place_of_a_hand_over(end: str) -> None:
    """G3: whoever gives back is interrupted: the waiter behind is served although nobody calls the pool again."""
    for visit in every_checkpoint():
        factory = Factory()
        pool = new_pool(factory)
        other = pool.lease("A")
        hand: list[Any] = [pool.acquire("A") if "fast" in end else pool.lease("A")]

        def finish(pool: ResourcePool[Any, Thing] = pool, hand: list[Any] = hand) -> None:
            if "fast" in end:
                getattr(pool, end.split()[1])(hand[0])
            elif end == "leak":
                hand.clear()
            else:
                getattr(hand[0], end)()

        with visit, pool, Threads() as threads:
            waiting = threads.start(pool.lease, "A")
            wait_until_queued(pool, 1)
            try:
                visit.run(finish, interrupt)
            except Interrupt:
                give_back(pool, hand)
            hand.clear()
            lease: Lease[Any, Thing] = woken(waiting)
            assert lease.resource.alive
            lease.release()
            other.release()
            assert_whole(pool, factory, lost=1 + pool.stats().detached)
        if end == "leak" and not visit.place:
            return  # dropping a lease may run no Python code of the pool at all


def test_ctrl_c_while_waiting(make_pool: MakePool, recorder: Recorder) -> None:
    """P79: a main thread asleep in acquire is woken by Ctrl-C: raised, counted, and out of the queue."""
    pool = make_pool(max_size=1, observer=recorder)
    held = pool.lease("A")
    main = threading.get_ident()
    earlier = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with Threads() as threads:

            def send() -> None:
                wait_until_queued(pool, 1)
                wait_asleep([threading.main_thread()])
                signal.pthread_kill(main, signal.SIGUSR1)

            for call in (pool.lease, pool.acquire, pool.bind("B").lease):
                threads.start(send)
                with pytest.raises(Interrupt):
                    call()
                assert pool.stats().waiters == 0
    finally:
        signal.signal(signal.SIGUSR1, earlier)
    assert recorder.details("waited", 1) == ["cancelled"] * 3
    stats = pool.stats()
    assert (stats.cancelled, stats.timeouts, stats.waits) == (3, 0, 3)
    held.release()
    with pool.lease("A", timeout=0) as thing:
        assert thing.number == 1
    assert_quiet(pool, leased=0, idle=1)


@pytest.mark.parametrize("end", ["release", "discard"])
@pytest.mark.parametrize("others", [0, 2])
def test_ctrl_c_in_the_moment_of_the_hand_over(make_pool: MakePool, end: str, others: int) -> None:
    """P79: what was handed to the one who is interrupted at that moment goes to the next, or to idle."""
    pool = make_pool(max_size=1)
    held = pool.lease("A")
    main = threading.get_ident()

    def hand_over_and_interrupt(*args: object) -> NoReturn:
        getattr(held, end)()
        raise Interrupt

    earlier = signal.signal(signal.SIGUSR1, hand_over_and_interrupt)
    try:
        with Threads() as threads:

            def send() -> list[Any]:
                wait_until_queued(pool, 1)
                behind = [threads.start(lambda: pool.lease("A").release()) for _ in range(others)]
                wait_until_queued(pool, 1 + others)
                signal.pthread_kill(main, signal.SIGUSR1)
                return behind

            sending = threads.start(send)
            with pytest.raises(Interrupt):
                pool.lease("A")
            for task in sending.result():
                woken(task)
    finally:
        signal.signal(signal.SIGUSR1, earlier)
    assert pool.stats().cancelled == 1
    pool.lease("A", timeout=0).release()
    assert_quiet(pool, leased=0, idle=1)


@pytest.mark.parametrize("tier", ["lease", "acquire"])
def test_an_asynchronous_exception_meets_the_hand_over(make_pool: MakePool, tier: str) -> None:
    """P79, G3: a thread that is interrupted as it wakes up with its resource passes it on."""
    pool = make_pool(max_size=1)
    held = pool.lease("A")
    with Threads() as threads:
        first = threads.start(getattr(pool, tier), "A")
        wait_until_queued(pool, 1)
        second = threads.start(lambda: pool.lease("A").release())
        wait_until_queued(pool, 2)
        wait_asleep([first.thread])
        sent = ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(first.thread.ident or 0), ctypes.py_object(Interrupt)
        )
        assert sent == 1
        held.release()  # its wake-up call is where the exception waits for it
        assert isinstance(first.error(), Interrupt)
        woken(second)
    assert_quiet(pool, leased=0)
    pool.lease("A", timeout=5).release()
    assert_quiet(pool, leased=0, idle=1)


def test_ctrl_c_while_close_waits(make_pool: MakePool) -> None:
    """P79, G9: an interrupted close leaves the pool closed, and can be called again."""
    pool = make_pool(max_size=1)
    held = pool.lease("A")
    main = threading.get_ident()
    earlier = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with Threads() as threads:

            def send() -> None:
                while not pool.closed:
                    os.sched_yield()
                wait_asleep([threading.main_thread()])
                signal.pthread_kill(main, signal.SIGUSR1)

            threads.start(send)
            with pytest.raises(Interrupt):
                pool.close()
    finally:
        signal.signal(signal.SIGUSR1, earlier)
    assert pool.closed
    with Threads() as threads:
        closing = threads.start(pool.close)
        held.release()
        closing.result()
    assert_quiet(pool, leased=0, idle=0)
