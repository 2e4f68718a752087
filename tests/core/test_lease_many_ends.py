"""How the wait of a batch ends, and what goes on meanwhile (P99, G3)."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from respool import (
    PoolClosedError,
    PoolExhaustedError,
    PoolLimits,
    PoolTimeoutError,
)
from tests.helpers.forks import in_child
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.threads import Threads, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool import Lease, LeaseGroup, ResourcePool
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool, Thing
    from tests.helpers.threads import Task

pytestmark = pytest.mark.usefixtures("no_backstop")


ENDS: list[tuple[str, Callable[[ResourcePool[Any, Thing]], object], type[Exception] | None]] = [
    ("close", lambda pool: pool.close(0), PoolClosedError),
    ("clear", lambda pool: pool.clear(), None),
    ("forget", lambda pool: pool.forget("A"), None),
    ("grow", lambda pool: pool.resize(PoolLimits(max_size=5)), None),
    ("shrink", lambda pool: pool.resize(PoolLimits(max_size=2)), PoolExhaustedError),
]
"""What may happen while a batch of 3 waits with 1 idle and 2 leased, and how it ends."""


@pytest.mark.parametrize(("name", "act", "error"), ENDS, ids=[end[0] for end in ENDS])
def test_what_happens_while_it_waits(
    make_pool: MakePool,
    recorder: Recorder,
    name: str,
    act: Callable[[ResourcePool[Any, Thing]], object],
    error: type[Exception] | None,
) -> None:
    """P63, P66, P67, P99: close, clear, forget or resize while a batch waits: refused, or served with what's there then."""
    pool = make_pool(max_size=3, observer=recorder)
    pool.lease_many(3, "A").release()
    held = pool.lease_many(2, "A")
    with Threads() as threads:
        waiting: Task[LeaseGroup[Any, Thing]] = threads.start(pool.lease_many, 3, "A")
        wait_until_queued(pool, 1)
        if name == "close":
            with pytest.raises(PoolTimeoutError):
                act(pool)
        else:
            act(pool)
        if error is not None:
            with pytest.raises(error):
                woken(waiting)
        elif name == "grow":
            woken(waiting).release()
        if name != "grow":
            held.release()
        if name in {"clear", "forget"}:
            assert {thing.number for thing in woken(waiting).resources} == {4, 5, 6}
            waiting.result().release()
        if name == "grow":
            held.release()
    assert recorder.details("waited", 1) == [
        {"close": "closed", "shrink": "failed"}.get(name, "served"),
    ]
    stats = assert_quiet(pool, leased=0)
    assert stats.idle == {"close": 0, "shrink": 2, "grow": 5}.get(name, 3)
    assert (stats.rejected, stats.timeouts) == (name == "shrink", 0)


@pytest.mark.filterwarnings("ignore::respool.LeaseLeakWarning")
@pytest.mark.parametrize("end", ["discard", "detach", "leak"])
def test_rooms_that_come_back_otherwise(make_pool: MakePool, end: str) -> None:
    """P19, P45, P50, P99: a batch that waits has the rooms of what is discarded, detached or leaked."""
    pool = make_pool(max_size=3)
    held: list[Lease[Any, Thing]] = [pool.lease("A") for _ in range(3)]
    with Threads() as threads:
        waiting = threads.start(pool.lease_many, 3, "A")
        wait_until_queued(pool, 1)
        held.pop().release()
        while held:
            if end == "leak":
                held.pop()
            else:
                getattr(held.pop(), end)()
        with woken(waiting) as things:
            assert sorted(thing.number for thing in things)[1:] == [4, 5]
    assert_quiet(pool, keys="A", leased=0, idle=3)


def test_creating_holds_nobody_up(make_pool: MakePool, factory: Factory) -> None:
    """P34, G1: while a batch creates, others are served, and a clear makes only what is there then stale."""
    gate = Gate()
    pool = make_pool(max_size=5)
    with pool.lease("A"):
        pass
    factory.before["create"] = lambda key: gate.stop() if key == "A" else None
    with Threads() as threads:
        creating = threads.start(pool.lease_many, 3, "A")
        gate.wait_arrived()
        stats = pool.stats()
        assert (stats.leased, stats.creating, stats.idle) == (1, 2, 0)
        pool.lease_many(2, "B", 0).release()
        assert pool.clear() == 2
        gate.open()
        creating.result().release()
    assert assert_quiet(pool, leased=0, idle=1).destroyed_for["cleared"] == 4


def test_those_behind_a_batch_that_gave_up(make_pool: MakePool, recorder: Recorder) -> None:
    """P17, G3: when a batch times out, what it was collecting goes to those behind it, and it's counted."""
    pool = make_pool(max_size=3, observer=recorder)
    held = pool.lease("A")
    with Threads() as threads:
        batch = threads.start(pool.lease_many, 3, "A", 0.1)
        recorder.wait_for("queued")
        behind = [threads.start(pool.lease, "A") for _ in range(2)]
        assert isinstance(batch.error(), PoolTimeoutError)
        for task in behind:
            woken(task).release()
    held.release()
    stats = assert_quiet(pool, keys="A", leased=0, idle=3)
    assert (stats.timeouts, recorder.details("waited", 1).count("timeout")) == (1, 1)
    assert stats.wait_seconds >= 0.1


def test_the_queue_is_full(make_pool: MakePool) -> None:
    """P06, P99: a batch counts as one waiter; one that finds the queue full is refused at once."""
    pool = make_pool(max_size=2, max_waiters=1)
    held = pool.lease_many(2, "A")
    with Threads() as threads:
        waiting = threads.start(pool.lease_many, 2, "A")
        wait_until_queued(pool, 1)
        with pytest.raises(PoolExhaustedError, match="max_waiters"):
            pool.lease_many(2, "A", 5)
        held.release()
        woken(waiting).release()
    stats = assert_quiet(pool, keys="A", leased=0, idle=2)
    assert (stats.rejected, stats.waits) == (1, 1)


def test_ctrl_c_while_it_waits(make_pool: MakePool, recorder: Recorder) -> None:
    """P79: a main thread asleep in lease_many is woken by Ctrl-C: raised, counted, and what it collected is the others'."""

    def interrupt(*args: object) -> NoReturn:
        raise KeyboardInterrupt

    pool = make_pool(max_size=2, observer=recorder)
    held = pool.lease("A")
    pool.lease("A").release()
    main = threading.get_ident()
    earlier = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with Threads() as threads:

            def send() -> Task[Lease[Any, Thing]]:
                wait_until_queued(pool, 1)
                behind = threads.start(pool.lease, "A")
                wait_until_queued(pool, 2)
                signal.pthread_kill(main, signal.SIGUSR1)
                return behind

            sending = threads.start(send)
            with pytest.raises(KeyboardInterrupt):
                pool.lease_many(2, "A")
            woken(sending.result()).release()
    finally:
        signal.signal(signal.SIGUSR1, earlier)
    # Each thread tells what has become of its own wait.
    assert sorted(recorder.details("waited", 1)) == ["cancelled", "served"]
    held.release()
    stats = assert_quiet(pool, keys="A", leased=0, idle=2)
    assert (stats.cancelled, stats.timeouts, stats.waits) == (1, 0, 2)


def test_a_fork_while_it_waits(make_pool: MakePool) -> None:
    """P74, P76, G10: a child has nothing of a batch that waits in its parent, whose wait goes on."""
    pool = make_pool(max_size=3)
    held = [pool.lease("A") for _ in range(3)]

    def child() -> None:
        assert_quiet(pool, leased=0, idle=0)
        pool.lease_many(3, "A", 0).release()
        for lease in held:
            lease.release()
        assert_quiet(pool, keys="A", leased=0, idle=3)

    with Threads() as threads:
        waiting = threads.start(pool.lease_many, 3, "A")
        wait_until_queued(pool, 1)
        held.pop().release()
        in_child(child)
        for lease in held:
            lease.release()
        with woken(waiting) as things:
            assert sorted(thing.number for thing in things) == [1, 2, 3]
    assert_quiet(pool, keys="A", leased=0, idle=3)


def test_what_an_observer_is_told(make_pool: MakePool, recorder: Recorder) -> None:
    """P106, P107: one wait for the batch as a whole, a creation and a destruction for each resource."""
    pool = make_pool(max_size=3, observer=recorder)
    held = pool.lease("B")
    with Threads() as threads:
        waiting = threads.start(pool.lease_many, 3, "A", 100)
        recorder.wait_for("queued")
        held.release()
        group = woken(waiting)
    group.discard()
    kinds = [(event.kind, event.key) for event in recorder.events]
    assert kinds == [
        ("created", "B"),
        ("queued", "A"),
        ("destroyed", "B"),
        *[("created", "A")] * 3,
        ("waited", "A"),
        *[("destroyed", "A")] * 3,
    ]
    assert recorder.details("destroyed") == ["evicted", *["discarded"] * 3]
    assert recorder.details("waited", 1) == ["served"]
    assert all(seconds >= 0 for seconds in recorder.details("created"))
