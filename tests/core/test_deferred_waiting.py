"""Waiting for what is pending: one of those who wait asks, time and again, up to its timeout (G8)."""

from __future__ import annotations

import ctypes
import signal
import threading
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from respool import PoolExhaustedError, PoolTimeoutError
from tests.helpers.checkpoints import Interrupt
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.threads import Threads, wait_asleep, wait_until, wait_until_queued
from tests.helpers.whens import WAYS, When, hand_in, hold

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool import Lease, ResourcePool
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import MakePool, Thing
    from tests.helpers.threads import Task

pytestmark = pytest.mark.usefixtures("no_backstop")


def asked_more(*whens: When, n: int = 5) -> None:
    """Wait until each has been asked some more times."""
    for when in whens:
        before = when.asked
        wait_until(lambda when=when, before=before: when.asked >= before + n, "more asking")


def take(pool: ResourcePool[Any, Thing], key: str = "A") -> Thing:
    """Wait for one as long as it takes, and give it back."""
    with pool.lease(key) as thing:
        return thing


@pytest.mark.parametrize("where", ["main thread", "another thread"])
@pytest.mark.parametrize("way", WAYS)
def test_a_waiter_asks_until_it_is_free(make_pool: MakePool, way: str, where: str) -> None:
    """G8: if only pending ones could serve, whoever waits asks again and again, and is served once it's free."""
    pool = make_pool(max_size=2)
    held, when = hold(pool, way), When(after=8)
    rest = [pool.lease("A") for _ in range(2 - len(held.things))]
    held.release(when)
    if where == "main thread":
        got = take(pool)
    else:
        with Threads() as threads:
            got = woken(threads.start(take, pool))
    assert got in held.things
    assert when.asked == 8
    assert when.misuse == []
    for lease in rest:
        lease.release()
    assert_quiet(pool, leased=0, idle=2)
    assert pool.stats().created == 2


@pytest.mark.parametrize("where", ["main thread", "another thread"])
@pytest.mark.parametrize("way", WAYS)
def test_a_sleeper_is_woken_to_ask(make_pool: MakePool, way: str, where: str) -> None:
    """G8: a waiter that sleeps while all is leased is woken when something comes back that isn't free yet, and asks from then on."""
    pool = make_pool(max_size=2)
    held, when = hold(pool, way), When(after=6)
    rest = [pool.lease("A") for _ in range(2 - len(held.things))]

    def give_back() -> None:
        wait_until_queued(pool, 1)
        wait_asleep([sleeper])
        held.release(when)

    with Threads() as threads:
        if where == "main thread":
            sleeper = threading.main_thread()
            threads.start(give_back)
            got = take(pool)
        else:
            task = threads.start(take, pool)
            sleeper = task.thread
            give_back()
            got = woken(task)
    assert got in held.things
    assert when.asked == 6
    for lease in rest:
        lease.release()
    assert_quiet(pool, leased=0, idle=2)


def test_a_waiter_asks_up_to_its_timeout(make_pool: MakePool) -> None:
    """G8: it gives up at its timeout, with an error that says what is pending; nothing is lost by that."""
    pool = make_pool(max_size=2)
    whens = [When(), When()]
    things = hand_in(pool, *whens)
    with pytest.raises(PoolTimeoutError) as caught:
        pool.lease("A", timeout=0.1)
    assert (caught.value.pending, caught.value.leased, caught.value.idle) == (2, 0, 0)
    assert all(when.asked >= 3 for when in whens)
    stats = assert_quiet(pool, leased=0)
    assert (stats.pending, stats.timeouts, stats.waits) == (2, 1, 1)
    whens[1].free = True
    with pool.lease("A", timeout=0) as thing:
        assert thing is things[1]


def test_it_asks_less_and_less_often(make_pool: MakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    """G8: the pauses grow from a fraction of a millisecond, and stay within some 20: neither a busy loop nor a long delay."""
    from respool import _line

    pauses: list[float] = []
    longer = _line.longer

    def note(pause: float) -> float:
        following = longer(pause)
        pauses.append(following)
        return following

    monkeypatch.setattr(_line, "longer", note)
    pool = make_pool(max_size=1)
    when = When()
    hand_in(pool, when)
    with pytest.raises(PoolTimeoutError):
        pool.lease("A", timeout=0.4)
    assert pauses == sorted(pauses)
    assert 0 < pauses[0] < 0.001
    assert max(pauses) <= 0.02
    # Each ask is followed by a pause: so many fit into the time, fewer on a busy machine.
    assert when.asked <= 12 + 0.4 / 0.02


def test_it_asks_often_again_when_something_has_become_free(make_pool: MakePool) -> None:
    """G8: a batch that waits for several pending ones finds each as it becomes free, and is served with the last."""
    pool = make_pool(max_size=9)
    whens = [When(after=number + 2) for number in range(9)]
    things = hand_in(pool, *whens)
    with pool.lease_many(9, "A", timeout=20) as got:
        assert set(got) == set(things)
    assert [when.misuse for when in whens] == [[]] * 9
    assert_quiet(pool, leased=0, idle=9)


def test_one_of_many_asks(make_pool: MakePool) -> None:
    """G8: of all who wait one thread asks, while the others sleep; what it finds free goes to the oldest, whoever asked."""
    pool = make_pool(max_size=1)
    when = When()
    (thing,) = hand_in(pool, when)
    served: list[int] = []

    def wait(number: int) -> None:
        with pool.lease("A") as got:
            assert got is thing
            served.append(number)

    with Threads() as threads:
        tasks = []
        for number in range(5):
            tasks.append(threads.start(wait, number))
            wait_until_queued(pool, number + 1)
        asked_more(when)
        known = len(when.threads)
        asked_more(when, n=20)
        assert len(set(when.threads[known:])) == 1
        (poller,) = set(when.threads[known:])
        wait_asleep([task.thread for task in tasks if task.thread is not poller])
        when.free = True
        for task in tasks:
            woken(task)
    assert served == [0, 1, 2, 3, 4]
    assert when.misuse == []
    assert_quiet(pool, leased=0, idle=1)


def start_line(pool: ResourcePool[Any, Thing], threads: Threads, *timeouts: float | None) -> list[Task[Any]]:
    """Start callers that wait one behind the other."""
    tasks = []
    for number, timeout in enumerate(timeouts, 1):
        tasks.append(threads.start(pool.lease, "A", timeout))
        wait_until_queued(pool, number)
    return tasks


def served(task: Task[Lease[str, Thing]]) -> Thing:
    """Wait until a caller has got its lease, and give that back."""
    with woken(task) as thing:
        return thing


def test_another_takes_over_when_the_one_who_asks_gives_up(make_pool: MakePool) -> None:
    """G8: if the one who asks times out, another of those who sleep does it from then on."""
    pool = make_pool(max_size=1)
    when = When()
    (thing,) = hand_in(pool, when)
    with Threads() as threads:
        first, second, third = start_line(pool, threads, 0.2, None, None)
        asked_more(when)
        assert isinstance(first.error(), PoolTimeoutError)
        asked_more(when)
        assert when.threads[-1] in {second.thread, third.thread}
        when.free = True
        assert served(second) is thing
        assert served(third) is thing
    assert_quiet(pool, leased=0, idle=1)


@pytest.mark.parametrize("kind", ["out of when", "asynchronous"])
def test_another_takes_over_when_the_one_who_asks_is_interrupted(make_pool: MakePool, kind: str) -> None:
    """P79, G8: if the one who asks is interrupted, by its `when` even, nothing is lost: another asks from then on."""
    pool = make_pool(max_size=1)
    when = When()
    (thing,) = hand_in(pool, when)
    with Threads() as threads:
        first, second = start_line(pool, threads, None, None)
        wait_until(lambda: when.asked > 20, "asking")
        poller = when.threads[-1]
        if kind == "asynchronous":
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(poller.ident or 0), ctypes.py_object(Interrupt)
            )
        else:
            when.errors.append(Interrupt())
        hit, other = (first, second) if poller is first.thread else (second, first)
        assert isinstance(hit.error(), Interrupt)
        stats = pool.stats()
        assert (stats.pending, stats.quarantined, stats.cancelled) == (1, 0, 1)
        asked_more(when)
        when.free = True
        assert served(other) is thing
    assert_quiet(pool, leased=0, idle=1)


def test_ctrl_c_while_the_main_thread_asks(make_pool: MakePool) -> None:
    """P79, G8: Ctrl-C ends a wait that asks; the resource is pending still, and to be had once it's free."""
    pool = make_pool(max_size=1)
    when = When()
    (thing,) = hand_in(pool, when)

    def interrupt(*args: object) -> NoReturn:
        raise Interrupt

    earlier = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with Threads() as threads:

            def send() -> None:
                wait_until_queued(pool, 1)
                asked_more(when, n=3)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

            for _ in range(3):
                threads.start(send)
                with pytest.raises(Interrupt):
                    pool.lease("A")
    finally:
        signal.signal(signal.SIGUSR1, earlier)
    stats = assert_quiet(pool, leased=0)
    assert (stats.pending, stats.cancelled) == (1, 3)
    when.free = True
    assert take(pool) is thing


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()], ids=repr)
@pytest.mark.parametrize("call", ["lease", "try_lease", "acquire", "lease_many", "reap"])
def test_an_interrupt_out_of_when(make_pool: MakePool, error: BaseException, call: str) -> None:
    """G3, G8: what `when` raises that is no Exception reaches the one who asks, and its resource is pending as before."""
    pool = make_pool(max_size=2)
    when, other = When(), When()
    hand_in(pool, when, other)
    calls: dict[str, Callable[[], object]] = {
        "lease": lambda: pool.lease("A", timeout=5),
        "try_lease": lambda: pool.try_lease("A"),
        "acquire": lambda: pool.acquire("A", timeout=0),
        "lease_many": lambda: pool.lease_many(2, "A", timeout=5),
        "reap": pool.reap,
    }
    when.errors = [error]
    with pytest.raises(type(error)) as caught:
        calls[call]()
    assert caught.value is error
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.pending, stats.quarantined) == (2, 0)
    when.free = other.free = True
    with pool.lease_many(2, "A", timeout=5):
        pass
    assert when.misuse == other.misuse == []


def test_what_becomes_free_serves_another_key(make_pool: MakePool) -> None:
    """G4, G8: at the total limit, whoever waits for another key gets the room of what has become free."""
    pool = make_pool(max_size=1)
    when = When(after=6)
    hand_in(pool, when)
    with pool.lease("B", timeout=20) as thing:
        assert thing.key == "B"
    assert pool.stats().destroyed_for["evicted"] == 1
    assert_quiet(pool, leased=0, idle=1)


def test_a_poller_asks_for_those_who_want_other_keys(make_pool: MakePool) -> None:
    """G8: the one who asks does so for all who wait: neither its own key's unfinished ones nor its place keep it from that."""
    pool = make_pool(max_size=9, max_per_key=8)
    never, when = [When() for _ in range(8)], When()
    hand_in(pool, *never)
    (thing,) = hand_in(pool, when, key="B")
    with Threads() as threads:
        (first,) = start_line(pool, threads, None)  # parked at its key's own limit
        second = threads.start(pool.lease, "B")
        wait_until_queued(pool, 2)
        asked_more(*never, when)
        when.free = True
        assert served(second) is thing
        never[3].free = True
        assert served(first).key == "A"
    assert_quiet(pool, leased=0, idle=2)


def test_nobody_asks_when_nothing_is_pending(make_pool: MakePool) -> None:
    """P23, G8: once nothing is pending any more, those who wait sleep, the one who has asked too."""
    pool = make_pool(max_size=2)
    held, when = pool.lease("A"), When()
    hand_in(pool, when)
    with Threads() as threads:
        tasks = start_line(pool, threads, None, None, None)
        asked_more(when)
        when.free = True
        lease = woken(tasks[0])
        wait_asleep([task.thread for task in tasks[1:]])
        assert pool.stats().waiters == 2
        lease.release()
        held.release()
        served(tasks[1])
        served(tasks[2])
    assert when.misuse == []
    assert_quiet(pool, leased=0, idle=2)


@pytest.mark.parametrize("limits", [{"max_waiters": 0}, {"max_waiters": 1}])
def test_a_queue_that_is_full(make_pool: MakePool, limits: dict[str, int]) -> None:
    """P06, G8: whoever may not wait has asked once all the same before it's refused."""
    pool = make_pool(max_size=1, **limits)
    when = When()
    (thing,) = hand_in(pool, when)
    with Threads() as threads:
        behind = start_line(pool, threads, None) if limits["max_waiters"] else []
        with pytest.raises(PoolExhaustedError):
            pool.lease("A")
        assert pool.stats().rejected == 1
        if not behind:
            assert when.asked > 1
        when.free = True
        for task in behind:
            assert served(task) is thing
    with pool.lease("A") as got:
        assert got is thing


def test_an_observer_hears_of_the_wait(make_pool: MakePool, recorder: Recorder) -> None:
    """P106, G8: a wait for what is pending counts, and is told, like any other."""
    pool = make_pool(max_size=1, observer=recorder)
    when = When(after=5)
    hand_in(pool, when)
    take(pool)
    assert recorder.details("waited", 1) == ["served"]
    stats = assert_quiet(pool, leased=0)
    assert (stats.waits, stats.timeouts, stats.cancelled) == (1, 0, 0)
    assert stats.wait_seconds > 0


def test_those_who_wait_at_a_close(make_pool: MakePool) -> None:
    """P67, G8, G9: a close wakes the one who asks like the others; the pending one is destroyed once it's free."""
    pool = make_pool(max_size=1)
    when = When()
    hand_in(pool, when)
    with Threads() as threads:
        tasks = start_line(pool, threads, None, None)
        asked_more(when)
        closing = threads.start(pool.close)
        for task in tasks:
            assert type(task.error()).__name__ == "PoolClosedError"
        asked_more(when)
        assert not closing.ended
        when.free = True
        closing.result()
    assert when.misuse == []
    assert pool.stats().destroyed_for["closed"] == 1
