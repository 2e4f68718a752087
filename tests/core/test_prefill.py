"""What is made ahead of those who will want it: within limits, and passing nobody (P51)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    LeaseLeakWarning,
    PoolClosedError,
    PoolExhaustedError,
    PoolTimeoutError,
)
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet, assert_within
from tests.helpers.promptly import woken
from tests.helpers.threads import Threads, run_together, wait_until, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")


@pytest.mark.parametrize("bound", [False, True])
def test_prefill(make_pool: MakePool, factory: Factory, recorder: Recorder, bound: bool) -> None:  # noqa: FBT001
    """P51: so many more are created and idle; they count as created, not as acquired."""
    pool = make_pool(observer=recorder)
    prefill: Callable[[int], int] = (
        pool.bind("A").prefill if bound else lambda number: pool.prefill(number, "A")
    )
    assert prefill(0) == 0
    assert prefill(3) == 3
    assert prefill(2) == 2
    stats = assert_quiet(pool, keys="A", leased=0, idle=5)
    assert (stats.created, stats.acquired, stats.reused) == (5, 0, 0)
    assert len(recorder.of("created")) == 5
    pool.lease_many(5, "A", 0).release()
    assert factory.calls["create"] == 5
    assert (pool.stats().acquired, pool.stats().reused) == (5, 0)


@pytest.mark.parametrize(
    ("number", "error"), [(-1, ValueError), (1.5, TypeError), (True, TypeError), (None, TypeError)]
)
def test_prefill_numbers_that_are_none(make_pool: MakePool, number: Any, error: type[Exception]) -> None:
    """P51: how many is an int of at least 0."""
    pool = make_pool()
    with pytest.raises(error, match="n must be"):
        pool.prefill(number, "A")
    assert_quiet(pool, leased=0, idle=0)


@pytest.mark.parametrize(
    ("limits", "made"),
    [
        ({"max_size": 4}, 2),
        ({"max_per_key": 3}, 2),
        ({"max_per_key": lambda key: 3}, 2),
        ({"max_cost": 9}, 2),
        ({"max_idle": 3}, 2),
        ({"max_idle": 0}, 0),
        ({"max_size": 2}, 0),
    ],
)
def test_prefill_within_limits(
    make_pool: MakePool, factory: Factory, limits: dict[str, Any], made: int
) -> None:
    """P51: it stops at the first limit, evicts nothing for it, and tells how many there are more."""
    pool = make_pool(cost=lambda key: 2, **limits)
    held = pool.lease("A")
    pool.lease("B").release()
    assert pool.prefill(10**30, "A") == made
    assert pool.prefill(1, "A") == 0
    assert factory.calls["create"] == 2 + made
    assert (pool.stats("A").leased, pool.stats("A").idle) == (1, made)
    assert_quiet(pool, keys="AB")
    held.release()


@pytest.mark.parametrize("waits_for", ["A", "B"])
def test_prefill_passes_nobody(make_pool: MakePool, waits_for: str) -> None:
    """P51: while somebody waits for the room, or for that key, nothing is made ahead of them."""
    pool = make_pool(max_cost=10, cost={"A": 1, "B": 5}.__getitem__, max_per_key={"A": 1, "B": None}.get)
    held = [pool.lease(key) for key in ("A", "B")]
    with Threads() as threads:
        waiting = threads.start(pool.lease, waits_for)
        wait_until_queued(pool, 1)
        assert pool.prefill(1, "A") == 0
        for lease in held:
            lease.release()
        woken(waiting).discard()
    pool.clear()
    assert pool.prefill(2, "A") == 1


def test_who_comes_while_it_is_made(make_pool: MakePool, factory: Factory) -> None:
    """P51, G4: a caller who comes while the last room is being prefilled has what is made."""
    gate = Gate()
    factory.before["create"] = lambda key: gate.stop()
    pool = make_pool(max_size=1)
    with Threads() as threads:
        filling = threads.start(pool.prefill, 2, "A")
        gate.wait_arrived()
        waiting = threads.start(pool.lease, "A")
        wait_until_queued(pool, 1)
        gate.open()
        woken(waiting).release()
        assert filling.result() == 1
    assert_quiet(pool, keys="A", leased=0, idle=1)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_prefill_fails_midway(make_pool: MakePool, factory: Factory, error: type[BaseException]) -> None:
    """P24, P51: what the create hook raises comes out; those made before stay, and the room is given back."""
    pool = make_pool(max_size=3)
    failure = error("no more")
    factory.errors["create"] = [None, failure]
    with pytest.raises(error) as caught:
        pool.prefill(3, "A")
    assert caught.value is failure
    stats = assert_quiet(pool, keys="A", leased=0, idle=1)
    assert (stats.created, stats.hook_errors["create"]) == (1, 1)
    assert pool.prefill(3, "A") == 2


@pytest.mark.parametrize("number", [0, 1])
def test_prefill_after_close(make_pool: MakePool, number: int) -> None:
    """P51: a closed pool is PoolClosedError, also for a key that it has still something of."""
    pool = make_pool()
    lease = pool.lease("A")
    with pytest.raises(PoolTimeoutError):
        pool.close(0)
    for key in "AB":
        with pytest.raises(PoolClosedError):
            pool.prefill(number, key)
    lease.release()


@pytest.mark.parametrize("number", [1, 2])
def test_prefill_while_it_is_closed(make_pool: MakePool, factory: Factory, number: int) -> None:
    """P70: a create under way when the pool closes ends in destroy and PoolClosedError."""
    gate = Gate()
    factory.before["create"] = lambda key: gate.stop()
    pool = make_pool()
    with Threads() as threads:
        filling = threads.start(pool.prefill, number, "A")
        gate.wait_arrived()
        closing = threads.start(pool.close)
        wait_until(lambda: pool.closed)
        gate.open()
        assert isinstance(filling.error(), PoolClosedError)
        closing.result()
    assert assert_quiet(pool, leased=0, idle=0).destroyed_for["closed"] == 1


def test_prefilled_by_many_at_once(make_pool: MakePool, factory: Factory) -> None:
    """P51, P108, G2: threads that prefill and use a pool at once pass no limit."""
    pool = make_pool(max_size=5, max_per_key=3)

    def fill(key: str) -> int:
        made = 0
        for _ in range(30):
            made += pool.prefill(2, key)
            assert_within(pool.stats(), pool.limits)
            with pool.lease(key):
                pass
            pool.lease(key).discard()
        return made

    made = run_together(*(lambda key=key: fill(key) for key in "AABB"))
    stats = assert_quiet(pool, keys="AB", leased=0)
    assert 0 < sum(made) <= stats.created
    assert factory.most_alive <= 5
    assert stats.leaked == 0


def test_no_leak_is_reported(make_pool: MakePool, factory: Factory, recwarn: pytest.WarningsRecorder) -> None:
    """G7: what is refused or fails to be made is no leak."""
    pool = make_pool(max_size=1)
    factory.errors["create"] = [ValueError("no")]
    with pytest.raises(ValueError, match="no"):
        pool.prefill(1, "A")
    assert pool.prefill(2, "A") == 1
    with pytest.raises(PoolExhaustedError):
        pool.adopt(object(), "A")
    pool.reap()
    assert [one for one in recwarn if one.category is LeaseLeakWarning] == []
