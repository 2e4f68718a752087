"""Background threads ask what is pending, where a pool has one (G8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolClosedError, PoolLimits
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import wait_until
from tests.helpers.whens import WAYS, When, hand_in, hold

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from tests.helpers.resources import Factory, MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")

KINDS: dict[str, dict[str, Any]] = {
    "destroyer": {"destroy_in": "background"},
    "reaper by idle_timeout": {"idle_timeout": 1000.0},
    "reaper by max_lifetime": {"max_lifetime": 1000.0},
    "both": {"destroy_in": "background", "max_lifetime": 1000.0},
}

each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def when() -> Iterator[When]:
    """Give a `when` that is asked as it should be."""
    when = When()
    yield when
    assert when.misuse == []


def in_background(threads: list[threading.Thread]) -> bool:
    """Tell whether all of these are threads of the package."""
    return all(thread.name.startswith("respool-") for thread in threads)


@each_kind
@pytest.mark.parametrize("way", WAYS)
def test_it_asks_although_nobody_calls(make_pool: MakePool, when: When, kind: str, way: str) -> None:
    """G8: the background thread of a pool that has one asks what is pending, again and again, until it's free: it's idle then."""
    pool = make_pool(max_size=2, **KINDS[kind])
    held = hold(pool, way)
    held.release(when)
    wait_until(lambda: when.asked >= 4, "asking")
    assert pool.stats().pending == len(held.things)
    when.free = True
    wait_until(lambda: pool.stats().idle == len(held.things), "it's idle")
    assert in_background(when.threads[1:])
    assert_quiet(pool, leased=0)


@each_kind
def test_it_asks_all_in_turn(make_pool: MakePool, kind: str) -> None:
    """G8: it asks a few at a time, in turn, so that all are asked."""
    pool = make_pool(**KINDS[kind])
    whens = [When() for _ in range(30)]
    hand_in(pool, *whens[:20])
    hand_in(pool, *whens[20:], key="B")
    wait_until(lambda: all(when.asked >= 3 for when in whens), "asking all")
    for when in whens:
        when.free = True
    wait_until(lambda: pool.stats().idle == 30, "all are idle")
    assert [when.misuse for when in whens] == [[]] * 30


@each_kind
def test_it_asks_again_after_a_pause(make_pool: MakePool, kind: str) -> None:
    """G8: it begins anew whenever something is pending, also after there was nothing for a while."""
    pool = make_pool(**KINDS[kind])
    for _ in range(3):
        when = When(after=4)
        hand_in(pool, when)
        wait_until(lambda: pool.stats().pending == 0, "it's idle")
        assert when.misuse == []
    assert_quiet(pool, leased=0, idle=1)


@each_kind
def test_what_raises_there(make_pool: MakePool, kind: str) -> None:
    """G8: a `when` that raises in the background thread quarantines its resource; one that interrupts does neither harm nor end the thread."""
    pool = make_pool(max_size=2, **KINDS[kind])
    bad, worse = When(), When()
    leases = [pool.lease("A"), pool.lease("A")]
    leases[0].release(bad)
    bad.errors = [ValueError("can't tell")]
    wait_until(lambda: pool.stats().quarantined == 1, "quarantine")
    leases[1].release(worse)
    worse.errors = [KeyboardInterrupt()]
    wait_until(lambda: not worse.errors and worse.asked >= 5, "asking on")
    assert pool.stats().pending == 1
    bad.free = worse.free = True
    wait_until(lambda: pool.stats().pending == 0, "it's idle")
    pool.reap()
    assert_quiet(pool, leased=0, idle=2)


@each_kind
def test_after_a_close_that_does_not_wait(
    make_pool: MakePool, factory: Factory, when: When, kind: str
) -> None:
    """G8, G9: after a close that didn't wait, it goes on asking, and what is free then is destroyed."""
    pool = make_pool(**KINDS[kind])
    hand_in(pool, when)
    with pool:
        pass
    with pytest.raises(PoolClosedError):
        pool.lease("A")
    when.free = True
    wait_until(lambda: pool.stats().size == 0, "the end of all")
    assert factory.alive == 0


def test_a_pool_that_gets_limits_on_time_later(make_pool: MakePool, when: When) -> None:
    """G8: what is pending already when a pool gets limits on time is asked by the reaper from then on."""
    pool = make_pool()
    hand_in(pool, when)
    pool.resize(PoolLimits(idle_timeout=1000.0))
    wait_until(lambda: when.asked >= 4, "asking")
    when.free = True
    wait_until(lambda: pool.stats().idle == 1, "it's idle")
    assert in_background(when.threads[1:])
