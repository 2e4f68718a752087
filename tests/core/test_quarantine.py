"""What nobody can tell when it's free: a `when` that raises later on, and a destroy that can't free (G8)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolLimits, PoolTimeoutError, Quarantine
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.threads import Threads, wait_until, wait_until_queued
from tests.helpers.whens import WAYS, When, hand_in, hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from respool import ResourcePool
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")

BROKEN = ValueError("can't tell")


@pytest.fixture
def when() -> Iterator[When]:
    """Give a `when` that is asked as it should be."""
    when = When()
    yield when
    assert when.misuse == []


def miss(pool: ResourcePool[Any, Thing]) -> None:
    """Ask as an acquire does."""
    assert pool.try_lease("A") is None


def wait(pool: ResourcePool[Any, Thing]) -> None:
    """Ask as a waiter does."""
    with pytest.raises(PoolTimeoutError):
        pool.lease("A", timeout=0.05)


def reap(pool: ResourcePool[Any, Thing]) -> None:
    """Ask as reap does."""
    pool.reap()


@pytest.mark.parametrize("ask", [miss, wait, reap])
@pytest.mark.parametrize("way", WAYS)
def test_a_when_that_raises_later(  # noqa: PLR0917 - fixtures
    make_pool: MakePool,
    factory: Factory,
    recorder: Recorder,
    when: When,
    way: str,
    ask: Callable[[ResourcePool[Any, Thing]], None],
) -> None:
    """G8: its resource is quarantined: it counts, is neither handed out nor destroyed, and it's reported, not raised, once."""
    pool = make_pool(max_size=2, observer=recorder, cost=lambda key: 5)
    held = hold(pool, way)
    count = len(held.things)
    rest = [pool.lease("A") for _ in range(2 - count)]
    held.release(when)
    when.errors = [BROKEN] * count  # each of a group's resources is asked about
    ask(pool)
    stats = assert_quiet(pool, keys="A", idle=0, leased=len(rest))
    assert (stats.pending, stats.quarantined, stats.size, stats.cost) == (0, count, 2, 10)
    assert stats.hook_errors["when"] == pool.stats("A").hook_errors["when"] == count
    assert [event.detail for event in recorder.of("hook_failed")] == [("when", BROKEN)] * count
    asked = when.asked
    for _ in range(3):
        miss(pool)
        wait(pool)
    pool.clear()
    assert when.asked == asked, "asked by somebody who isn't reap()"
    assert factory.destroyed == []
    for lease in rest:
        lease.release()
    when.free = True
    pool.reap()
    assert pool.stats().quarantined == 0
    assert_quiet(pool, leased=0)


def quarantine(pool: ResourcePool[Any, Thing], when: When, key: str = "A") -> Thing:
    """Bring one of the pool's resources into quarantine."""
    (thing,) = hand_in(pool, when, key=key)
    when.errors.insert(0, BROKEN)
    pool.reap()
    assert pool.stats(key).quarantined == 1
    return thing


def test_reap_asks_again(make_pool: MakePool, recorder: Recorder, when: When) -> None:
    """G8: reap() asks what is quarantined again: it stays if that raises, is pending if the answer is no, idle if it's yes; all unreported."""
    pool = make_pool(max_size=1, observer=recorder)
    thing = quarantine(pool, when)
    for _ in range(3):
        when.errors = [RuntimeError("still")]
        assert pool.reap() == 0
        stats = assert_quiet(pool, leased=0, idle=0)
        assert (stats.quarantined, stats.pending, stats.hook_errors["when"]) == (1, 0, 1)
    pool.reap()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.quarantined, stats.pending) == (0, 1)
    miss(pool)
    when.errors = [RuntimeError("again")]
    miss(pool)
    assert pool.stats().quarantined == 1
    assert len(recorder.of("hook_failed")) == 1
    when.free = True
    pool.reap()
    assert_quiet(pool, leased=0, idle=1)
    with pool.lease("A", timeout=0) as got:
        assert got is thing


def test_a_new_trouble_is_reported_anew(make_pool: MakePool, recorder: Recorder) -> None:
    """G8: a resource that has been free since is reported again if it comes into quarantine once more."""
    pool = make_pool(max_size=1, observer=recorder)
    for number in range(1, 4):
        when = When()
        quarantine(pool, when)
        assert len(recorder.of("hook_failed")) == number
        when.free = True
        pool.reap()
    assert pool.stats().hook_errors["when"] == 3
    assert_quiet(pool, leased=0, idle=1)


def test_reap_serves_who_waits(make_pool: MakePool, when: When) -> None:
    """G8: a waiter can't get what is quarantined; once reap() has found it free, or pending at least, it's served."""
    pool = make_pool(max_size=1)
    thing = quarantine(pool, when)
    with Threads() as threads:
        waiting = threads.start(pool.lease, "A")
        wait_until_queued(pool, 1)
        asked = when.asked
        when.errors = [BROKEN]
        pool.reap()
        assert not waiting.ended
        assert when.asked == asked + 1
        pool.reap()  # it's pending now: whoever waits asks from here on
        wait_until(lambda: when.asked > asked + 5, "asking")
        when.free = True
        lease = woken(waiting)
        assert lease.resource is thing
        lease.release()
    assert_quiet(pool, leased=0, idle=1)


def test_others_go_on(make_pool: MakePool, when: When) -> None:
    """G8: a `when` that raises ends nobody's search: the others are asked, and who waits is served by one of them."""
    pool = make_pool(max_size=3)
    good = When()
    things = hand_in(pool, when, When(), good)
    when.errors = [BROKEN]
    good.free = True
    with pool.lease("A", timeout=0) as got:
        assert got is things[2]
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.quarantined, stats.pending) == (1, 1)
    when.free = True
    pool.reap()
    assert_quiet(pool, leased=0, idle=2)


def test_an_interrupt_out_of_when_in_reap(make_pool: MakePool) -> None:
    """G3, G8: an interrupt out of a quarantined one's `when` leaves all of them to be asked by whoever comes next."""
    pool = make_pool(max_size=3)
    whens = [When() for _ in range(3)]
    hand_in(pool, *whens)
    for when in whens:
        when.errors = [BROKEN]
    pool.reap()
    assert pool.stats().quarantined == 3
    whens[1].errors = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        pool.reap()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.pending + stats.quarantined == 3
    for when in whens:
        when.free = True
    pool.reap()
    assert_quiet(pool, leased=0, idle=3)
    assert [when.misuse for when in whens] == [[], [], []]


def test_forget_abandons_it(make_pool: MakePool, factory: Factory, when: When) -> None:
    """G8: forget abandons what is quarantined, by a `when` or a destroy; its room is free, and nobody asks any more."""
    pool = make_pool(max_size=2)
    quarantine(pool, when)
    factory.errors["destroy"] = [Quarantine("no way")]
    pool.lease("A").discard()
    assert pool.stats().quarantined == 2
    asked = when.asked
    with Threads() as threads:
        waiting = threads.start(pool.lease, "B")
        wait_until_queued(pool, 1)
        assert pool.forget("A") == 2
        woken(waiting).release()
    pool.reap()
    assert when.asked == asked
    stats = assert_quiet(pool, keys="B", leased=0, idle=1)
    assert (stats.abandoned, stats.quarantined) == (2, 0)
    factory.alive += 1  # destroyed by its hook's own account, abandoned by the pool's


def test_it_counts_when_limits_shrink(make_pool: MakePool, factory: Factory, when: When) -> None:
    """G8, P62: it takes up room of smaller limits too, and isn't destroyed as surplus before it's free."""
    pool = make_pool(max_size=2)
    idle = pool.lease("A")
    thing = quarantine(pool, when)
    idle.release()
    pool.resize(PoolLimits(max_size=1))
    assert thing not in factory.destroyed
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.quarantined, stats.size) == (1, 1)
    miss(pool)
    when.free = True
    pool.reap()
    with pool.lease("A", timeout=0) as got:
        assert got is thing


@pytest.mark.parametrize("kind", ["when", "destroy", "both"])
def test_close_leaves_and_logs_it(
    make_pool: MakePool, factory: Factory, when: When, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """G8, G9: close doesn't wait for what is quarantined: it ends, leaves it counted, and logs how many there are."""
    pool = make_pool(max_size=3, name="the pool")
    expected = 0
    if kind != "destroy":
        quarantine(pool, when)
        expected += 1
    if kind != "when":
        factory.errors["destroy"] = [Quarantine("no way")]
        pool.lease("A").discard()
        expected += 1
    pool.lease("A").release()
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="respool"):
        pool.close()
    (record,) = caplog.records
    assert "the pool" in record.getMessage()
    assert f"{expected} of its resources stay quarantined" in record.getMessage()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.quarantined, stats.size) == (expected, expected)
    if kind != "destroy":
        when.free = True
        pool.reap()  # which works after close: what is free then is destroyed
        assert pool.stats().destroyed_for["closed"] == 2
    assert pool.stats().quarantined == (kind != "when")


def test_a_when_that_raises_while_close_waits(make_pool: MakePool, when: When) -> None:
    """G8, G9: one that comes into quarantine while close waits for it ends the wait."""
    pool = make_pool(max_size=1)
    hand_in(pool, when)
    with Threads() as threads:
        closing = threads.start(pool.close)
        wait_until(lambda: when.asked > 3, "asking")
        when.errors = [BROKEN]
        woken(closing)
    assert pool.stats().quarantined == 1
    when.free = True
    pool.reap()
    assert_quiet(pool, leased=0, idle=0)
    assert pool.stats().size == 0


def test_no_two_ask_what_is_quarantined(make_pool: MakePool, when: When) -> None:
    """G8: two reaps at a time don't ask the same."""
    pool = make_pool(max_size=1)
    quarantine(pool, when)
    gate = Gate()
    when.before = gate.stop
    asked = when.asked
    with Threads() as threads:
        first = threads.start(pool.reap)
        gate.wait_arrived(1)
        pool.reap()
        miss(pool)
        assert when.asked == asked + 1
        when.free = True
        gate.open()
        first.result()
    assert_quiet(pool, leased=0, idle=1)


def test_a_destroy_that_cannot_free(make_pool: MakePool, factory: Factory, recorder: Recorder) -> None:
    """P27, G8: a destroy that raises Quarantine keeps its resource counted for good: never handed out, nor destroyed once more."""
    pool = make_pool(max_size=2, observer=recorder)
    error = Quarantine("no way")
    factory.errors["destroy"] = [error]
    pool.lease("A").discard()
    for _ in range(2):
        pool.reap()
        pool.clear()
        with pool.lease("A", timeout=0) as thing:
            assert thing.number > 1
            miss(pool)
    stats = assert_quiet(pool, keys="A", leased=0, idle=1)
    assert (stats.quarantined, stats.size) == (1, 2)
    assert stats.hook_errors["destroy"] == 1
    assert [event.detail for event in recorder.of("hook_failed")] == [("destroy", error)]
    assert factory.numbers_destroyed().count(1) == 1


def test_what_is_free_at_last_but_cannot_be_destroyed(
    make_pool: MakePool, factory: Factory, when: When
) -> None:
    """G8: one that was pending, cleared, and can't be destroyed once it's free, is quarantined for good; its `when` is done with."""
    pool = make_pool(max_size=1)
    hand_in(pool, when)
    pool.clear()
    factory.errors["destroy"] = [Quarantine("no way")]
    when.free = True
    pool.reap()
    asked = when.asked
    pool.reap()
    assert when.asked == asked
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.quarantined, stats.pending) == (1, 0)
