"""Corners that other tests do not come by: rare, but each with one right outcome."""

from __future__ import annotations

import gc
import logging
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    ALL,
    BoundPool,
    Lease,
    LeaseLostError,
    LoggingObserver,
    PoolError,
    PoolObserver,
    PoolTimeoutError,
    Quarantine,
    ResourcePool,
)
from tests.helpers.callers import Callers
from tests.helpers.forks import in_child
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet, still_works
from tests.helpers.threads import Threads, wait_until, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helpers.resources import Factory, MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")


def test_leases_and_bound_pools_are_made_by_pools_only(make_pool: MakePool) -> None:
    """A lease made by hand would hold nothing: the class says how one comes by one."""
    for arguments in ((), (make_pool(), "A")):
        with pytest.raises(TypeError):
            Lease(*arguments)  # type: ignore[call-arg]


def test_repr_of_a_bound_pool(make_pool: MakePool) -> None:
    """A bound pool's repr tells its key and its pool."""
    bound: BoundPool[Any, Any] = make_pool(name="handles").bind("the key")
    assert "'the key'" in repr(bound)
    assert "handles" in repr(bound)
    assert bound.key == "the key"


def test_one_who_was_offered_a_broken_one_waits_for_those_before_him(
    make_pool: MakePool, factory: Factory
) -> None:
    """G4: the room of what proved invalid goes to whoever is first in line, not to who found it out."""
    gate = Gate()
    costs = iter([1, 1, 3, 1])
    pool = make_pool(max_per_key=1, max_cost=3, cost=lambda key: next(costs), validate=factory.validate)
    held_b, held_a = pool.lease("B"), pool.lease("A")
    held_a.resource.healthy = False
    with Threads() as threads:
        callers = Callers(pool, threads)
        callers.join("first, on B", "B")  # held back by its key's limit, then for want of budget
        callers.join("second, on A", "A")
        factory.before["validate"] = lambda key, thing: gate.stop()
        held_a.release()
        gate.wait_arrived()
        held_b.discard()
        assert callers.served == []
        gate.open()
        callers.wait_served("first, on B")
        wait_until_queued(pool, 1)
        callers.let_go("first, on B")
        callers.wait_served("first, on B", "second, on A")
        callers.let_go("second, on A")
    stats = assert_quiet(pool, keys="AB", leased=0, idle=1)
    assert (stats.waits, stats.destroyed_for["invalid"], stats.destroyed_for["evicted"]) == (2, 1, 1)


class Loud(logging.Handler):
    """A handler that raises."""

    def emit(self, record: logging.LogRecord) -> None:
        """Raise instead of logging."""
        raise ZeroDivisionError("in the handler")


@pytest.fixture
def loud() -> Iterator[None]:
    """Let each record of the logger ``respool`` raise."""
    handler = Loud()
    logging.getLogger("respool").addHandler(handler)
    yield
    logging.getLogger("respool").removeHandler(handler)


@pytest.mark.usefixtures("loud")
@pytest.mark.parametrize("own", [False, True])
def test_a_logging_handler_that_raises(make_pool: MakePool, factory: Factory, *, own: bool) -> None:
    """P104: not even a logging handler that raises gets into the pool's work."""

    class Own(PoolObserver):
        def hook_failed(self, *args: object) -> None:
            raise LookupError("in the observer")

    pool = make_pool(observer=Own() if own else LoggingObserver(), max_size=1)
    factory.errors["destroy"] = [OSError("no")]
    pool.lease("A").discard()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.hook_errors["destroy"], stats.hook_errors["observer"]) == (1, 1)
    still_works(pool)


@pytest.mark.parametrize("end", ["release", "discard", "detach", "with"])
def test_a_lease_outlives_its_pool(factory: Factory, end: str) -> None:
    """G11: a pool dropped without close warns and runs no hook, also not when its last lease ends."""
    pool: ResourcePool[str, Any] = ResourcePool(factory.create, factory.destroy, reset=factory.reset)
    pool.lease("A").release()
    leases = [pool.lease("A"), pool.lease("A")]
    pool.release(pool.acquire("B"))
    calls = factory.calls.copy()
    with pytest.warns(ResourceWarning, match="close"):
        del pool
    gc.collect()
    for lease in leases:
        thing = lease.resource
        assert thing.alive
        if end == "with":
            with lease:
                pass
        else:
            getattr(lease, end)()
        assert lease.released
    assert factory.calls == calls


def test_a_fork_inside_create(make_pool: MakePool) -> None:
    """G10: what a create hook that forks makes in its child belongs to no pool there: LeaseLostError."""
    parent = os.getpid()
    statuses: list[int] = []

    def create(key: str) -> object:
        if os.getpid() != parent and not statuses:
            grandchild = os.fork()
            if grandchild:
                _, status = os.waitpid(grandchild, 0)
                statuses.append(os.waitstatus_to_exitcode(status))
        return object()

    pool = make_pool(create=create, destroy=lambda key, thing: None)

    def child() -> tuple[list[int], int]:
        me = os.getpid()
        told = ""
        try:
            pool.lease("A").release()
        except LeaseLostError as error:
            told = str(error)
        if os.getpid() != me:  # the grandchild: its exit status says whether all is well
            well = "fork" in told and pool.stats().size == 0
            statuses.append(0)  # its own create needn't fork
            os._exit(0 if well and _serves(pool) else 1)
        return statuses, pool.stats().idle

    assert in_child(child) == ([0], 1)
    still_works(pool, idle=0)


def _serves(pool: ResourcePool[str, Any]) -> bool:
    with pool.lease("B"):
        return pool.stats().leased == 1


def test_a_type_error_out_of_a_keys_comparison_is_its_own(make_pool: MakePool) -> None:
    """A TypeError that a key's eq raises isn't taken for an unhashable key."""

    class Key:
        def __hash__(self) -> int:
            return 7

        def __eq__(self, other: object) -> bool:
            raise TypeError("can't compare apples with pears")

    pool = make_pool()
    key = Key()
    pool.lease(key).release()
    with pytest.raises(TypeError, match="apples"):
        pool.lease(Key())
    pool.lease(key).release()
    still_works(pool, idle=1)


def test_two_keys_of_one_hash(make_pool: MakePool) -> None:
    """Keys that share a hash and are not equal have each their own state, also after one is gone."""

    class Key:
        def __hash__(self) -> int:
            return 7

    pool = make_pool(max_per_key=1)
    keys = [Key() for _ in range(3)]
    leases = [pool.lease(key) for key in keys]
    for key in keys:
        assert pool.try_lease(key) is None
        assert pool.stats(key).leased == 1
    leases[1].discard()
    assert [pool.stats(key).size for key in keys] == [1, 0, 1]
    leases[1] = pool.lease(keys[1])
    for lease in leases:
        lease.release()
    assert pool.clear(keys[0]) == 1
    assert_quiet(pool, keys=keys, leased=0, idle=2)


def test_two_creates_that_give_the_same_object(make_pool: MakePool) -> None:
    """P26: when two creates at once give one and the same object, one caller gets it, the other PoolError."""
    creating, holding = Gate(), Gate()
    only = object()

    def create(key: str) -> object:
        creating.stop()
        return only

    def use() -> str:
        try:
            with pool.lease("A"):
                holding.stop()
        except PoolError as error:
            return type(error).__name__
        return "served"

    pool = make_pool(create=create, destroy=lambda key, thing: None, max_size=2)
    with Threads() as threads:
        tasks = [threads.start(use) for _ in range(2)]
        creating.wait_arrived(2)
        creating.open()
        wait_until(lambda: any(task.ended for task in tasks), "one refused")
        holding.open()
    assert sorted(task.result() for task in tasks) == ["PoolError", "served"]
    assert_quiet(pool, keys="A", leased=0, idle=1)


def test_one_that_cannot_be_evicted_gives_way_to_another(make_pool: MakePool, factory: Factory) -> None:
    """G4: when the one destroyed to make room is quarantined instead, the next one goes."""
    pool = make_pool(max_size=3)
    leases = [pool.lease("A") for _ in range(3)]
    for lease in leases:
        lease.release()
    factory.errors["destroy"] = [Quarantine("still in use")]
    with pool.lease("B") as thing:
        assert thing.key == "B"
    stats = assert_quiet(pool, keys="AB", leased=0, idle=2)
    assert (stats.quarantined, stats.destroyed_for["evicted"], stats.size) == (1, 1, 3)
    assert factory.numbers_destroyed() == [1, 2]


@pytest.mark.parametrize("reason", ["invalid", "evicted", "discarded"])
def test_the_last_room_in_quarantine(make_pool: MakePool, factory: Factory, reason: str) -> None:
    """G2: a quarantined resource keeps its room: with the last one gone so, nobody is served, or waits for it twice."""
    pool = make_pool(max_size=1, validate=factory.validate)
    factory.errors["destroy"] = [Quarantine("still in use")]
    lease = pool.lease("A")
    lease.resource.healthy = reason != "invalid"
    if reason == "discarded":
        lease.discard()
    else:
        lease.release()
    key = "B" if reason == "evicted" else "A"
    assert pool.try_lease(key) is None
    for timeout in (0, 0.01):
        with pytest.raises(PoolTimeoutError):
            pool.lease(key, timeout)
    stats = assert_quiet(pool, keys="AB", leased=0, idle=0)
    assert (stats.quarantined, stats.size, stats.destroyed) == (1, 1, 0)
    assert factory.calls["destroy"] == 1


class Undecided:
    """Neither true nor false."""

    def __bool__(self) -> bool:
        raise ZeroDivisionError("neither")


@pytest.mark.parametrize(
    ("verdict", "good"), [(1, True), ([0], True), (0, False), ("", False), (None, False)]
)
def test_a_verdict_counts_by_its_truth(make_pool: MakePool, *, verdict: object, good: bool) -> None:
    """P29: what validate returns counts as true or false, whatever it is."""
    pool = make_pool(validate=lambda key, thing: verdict)
    pool.lease("A").release()
    with pool.lease("A") as thing:
        assert thing.number == (1 if good else 2)


def test_a_verdict_without_truth(make_pool: MakePool) -> None:
    """P30: a verdict whose truth can't be told is an error of validate, and so a no."""
    pool = make_pool(validate=lambda key, thing: Undecided())
    pool.lease("A").release()
    with pool.lease("A") as thing:
        assert thing.number == 2
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.hook_errors["validate"], stats.destroyed_for["invalid"]) == (1, 1)


@pytest.mark.parametrize("timeout", [1e10, 1e300, 10**400])
def test_timeouts_beyond_all_clocks(make_pool: MakePool, timeout: float) -> None:
    """P08: a timeout longer than the system's timers can count is a long one, not an error."""
    pool = make_pool(max_size=1)
    lease = pool.lease("A", timeout)
    with Threads() as threads:
        waiting = threads.start(pool.lease, "A", timeout)
        wait_until_queued(pool, 1)
        lease.release()
        waiting.result().release()
    pool.close(timeout=timeout)
    assert_quiet(pool, leased=0, idle=0)


def test_no_key_is_the_key_none(make_pool: MakePool) -> None:
    """Left out, the key is None, a key like any other; what counts all keys is ALL."""
    pool = make_pool(max_per_key=2)
    leases = [pool.lease(), pool.lease(None), pool.lease(key="A")]
    assert leases[0].key is None
    assert pool.try_lease() is None
    assert (pool.stats(None).leased, pool.stats("A").leased, pool.stats().leased) == (2, 1, 3)
    for lease in leases:
        lease.release()
    assert pool.clear(None) == 2
    assert pool.clear(key=ALL) == 1
    assert_quiet(pool, keys=[None, "A"], leased=0, idle=0)


def test_nothing_is_started_or_logged_by_a_quiet_life(
    make_pool: MakePool, caplog: pytest.LogCaptureFixture
) -> None:
    """A pool that is used as meant logs nothing and starts no thread."""
    before = threading.active_count()
    pool = make_pool(max_size=2, max_idle=1)
    for key in "ABC":
        pool.lease(key).release()
    pool.clear()
    pool.close()
    assert threading.active_count() == before
    assert caplog.records == []
