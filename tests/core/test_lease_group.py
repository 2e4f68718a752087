"""A LeaseGroup: what it knows, how it ends, and what becomes of one that is dropped."""

from __future__ import annotations

import gc
import pickle
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from respool import LeaseGroup, LeaseLeakWarning, LeaseLostError, LeaseReleasedError, ResourcePool
from tests.helpers.forks import in_child
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.resources import Factory
from tests.helpers.threads import Threads, wait_until_queued

if TYPE_CHECKING:
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")


def take_idle(pool: ResourcePool[Any, Thing], n: int, key: str = "A") -> list[Thing]:
    """Take idle ones only; they must be distinct and alive."""
    with pool.lease_many(n, key, timeout=0) as things:
        assert len({id(thing) for thing in things}) == n
        assert all(thing.alive for thing in things)
        return list(things)


def test_a_group_knows_its_resources(make_pool: MakePool) -> None:
    """P99, G6: a group has a tuple of distinct resources, a key and a state; its block gives the tuple."""
    pool = make_pool(name="things")
    key = ("host", 443)
    group = pool.lease_many(3, key)
    assert isinstance(group, LeaseGroup)
    assert type(group.resources) is tuple
    assert group.key is key
    assert not group.released
    assert len({id(thing) for thing in group.resources}) == 3
    assert {thing.key for thing in group.resources} == {key}
    with group as things:
        assert things == group.resources
        assert pool.stats(key).leased == 3
    assert group.released
    assert group.key is key
    assert_quiet(pool, keys=[key], leased=0, idle=3)


def test_a_group_s_repr_tells_its_state(make_pool: MakePool) -> None:
    """G6: the repr is a line that names pool, key and how many there are."""
    pool = make_pool(name="things")
    group = pool.lease_many(3, "left-key")
    for word in ("LeaseGroup", "'left-key'", "things", "3 leased"):
        assert word in repr(group)
    group.release()
    assert "released" in repr(group)
    assert "\n" not in repr(group)


def test_a_spent_group(make_pool: MakePool) -> None:
    """P35, P41: releasing again does nothing; what would need the resources is LeaseReleasedError."""
    pool = make_pool(max_size=2)
    group = pool.lease_many(2)
    group.release()
    other = pool.lease_many(2)
    group.release()
    group.release(lambda: False)
    with pytest.raises(LeaseReleasedError):
        group.discard()
    with pytest.raises(LeaseReleasedError):
        _ = group.resources
    with pytest.raises(LeaseReleasedError), group:
        pytest.fail("the block of a spent group was entered")
    assert pool.stats().leased == 2
    other.release()
    assert_quiet(pool, leased=0, idle=2)


def test_a_group_is_not_made_pickled_or_copied(make_pool: MakePool) -> None:
    """G6: only a pool makes groups, and there's one of each."""
    pool = make_pool()
    with pytest.raises(TypeError, match="lease_many"):
        LeaseGroup()
    with pool.lease_many(2):
        group = pool.lease_many(1)
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(group)
        group.release()


@pytest.mark.parametrize("discards", [False, True])
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_error_in_the_body(
    make_pool: MakePool,
    discards: bool,  # noqa: FBT001
    kind: type[BaseException],
) -> None:
    """P48: all of the group is given back, or discarded where the pool is told so; the error leaves unchanged."""
    pool = make_pool(discard_on_error=discards)
    error = kind("body")
    with pytest.raises(kind) as caught, pool.lease_many(3):
        raise error
    assert caught.value is error
    stats = assert_quiet(pool, leased=0, idle=0 if discards else 3)
    assert stats.destroyed_for["discarded"] == (3 if discards else 0)


def test_ended_inside_its_own_block(make_pool: MakePool) -> None:
    """P35: a group released or discarded inside its block is left alone at the end of it, by an error too."""
    pool = make_pool(discard_on_error=True)
    group = pool.lease_many(2)
    with group:
        group.release()
    group = pool.lease_many(2)
    with pytest.raises(ValueError, match="body"):
        release_and_fail(group)
    with pool.lease_many(2):
        assert_quiet(pool, leased=2, idle=0)
    group = pool.lease_many(2)
    with group:
        group.discard()
    assert assert_quiet(pool, leased=0, idle=0).destroyed_for["discarded"] == 2


def release_and_fail(group: LeaseGroup[Any, Thing]) -> None:
    """Leave a group's block by an error, having released it."""
    with group:
        group.release()
        raise ValueError("body")


def test_only_what_is_stale_is_destroyed(make_pool: MakePool) -> None:
    """P65: of a group of which some were leased when clear() came, those go and the others are pooled."""
    gate, factory = Gate(opened=True), Factory()
    factory.before["create"] = lambda key: gate.stop()
    pool = make_pool(create=factory.create, destroy=factory.destroy)
    with Threads() as threads:
        gate.shut()
        task = threads.start(pool.lease_many, 3, "A")
        gate.let(1)
        gate.wait_arrived(2)
        pool.clear("A")  # one is made, one is being made, one is to come
        gate.open()
        group = task.result()
    assert pool.stats().leased == 3
    group.release()
    stats = assert_quiet(pool, keys="A", leased=0, idle=1)
    assert stats.destroyed_for["cleared"] == 2
    assert sorted(factory.numbers_destroyed()) == [1, 2]


def test_a_group_cleared_as_a_whole(make_pool: MakePool) -> None:
    """P65: all of a group leased before clear() is destroyed on release."""
    pool = make_pool()
    group = pool.lease_many(3)
    assert pool.clear() == 0
    group.release()
    assert assert_quiet(pool, leased=0, idle=0).destroyed_for["cleared"] == 3


def test_a_dropped_group_is_a_leak_of_each(make_pool: MakePool, recorder: Recorder) -> None:
    """P45, P47: a dropped group gives back each room; each resource is destroyed, counted and warned of."""
    pool = make_pool(max_size=3, observer=recorder)
    pool.lease_many(3, "A")
    assert pool.stats().leaked == 3
    with pytest.warns(LeaseLeakWarning) as warned, pool.lease_many(3, "A", timeout=0):
        pass
    assert len(warned) == 3
    stats = assert_quiet(pool, leased=0, idle=3)
    assert (stats.leaked, stats.destroyed_for["leaked"], stats.created) == (3, 3, 6)
    assert len(recorder.of("leaked")) == 3


def test_a_group_dropped_in_a_cycle(make_pool: MakePool) -> None:
    """P45: the same in cyclic garbage, once the collector comes, while somebody waits for one of the rooms."""
    pool = make_pool(max_size=3)

    def leak() -> None:
        cycle: list[Any] = [pool.lease_many(3, "A")]
        cycle.append(cycle)

    gc.disable()
    try:
        leak()
        with warnings.catch_warnings(record=True) as warned, Threads() as threads:
            warnings.simplefilter("always")
            waiting = threads.start(pool.lease_many, 3, "A")
            wait_until_queued(pool, 1)
            gc.collect()
            woken(waiting).release()
        assert [one.category for one in warned] == [LeaseLeakWarning] * 3
    finally:
        gc.enable()
    assert assert_quiet(pool, leased=0, idle=3).leaked == 3


def test_released_by_a_finaliser_of_its_own_cycle(make_pool: MakePool) -> None:
    """G5, G7: an object in cyclic garbage that releases its group in its finaliser leaks nothing."""

    class Owner:
        def __init__(self) -> None:
            self.group = pool.lease_many(3, "A")
            self.me = self

        def __del__(self) -> None:
            self.group.release()

    pool = make_pool(max_size=3)
    for _ in range(3):
        Owner()
        gc.collect()
        things = take_idle(pool, 3)
        assert sorted(thing.number for thing in things) == [1, 2, 3]
    assert assert_quiet(pool, leased=0, idle=3).leaked == 0


def test_leak_reports_name_the_place(make_pool: MakePool) -> None:
    """G7: with track_leases the warning of a dropped group names where it was leased, and a release drops that."""
    pool = make_pool(max_size=2, track_leases=True)
    with pool.lease_many(2):
        pass
    pool.lease_many(2)
    with pytest.warns(LeaseLeakWarning, match="test_leak_reports_name_the_place"):
        pool.clear()
    assert_quiet(pool, leased=0, idle=0)


def test_in_a_child_process(make_pool: MakePool, factory: Factory) -> None:
    """P75, G10: an inherited group can't be used in a child; its release and discard do nothing there."""
    pool = make_pool(max_size=4)
    first, second = pool.lease_many(2, "A"), pool.lease_many(2, "A")

    def child() -> None:
        with pytest.raises(LeaseLostError):
            _ = first.resources
        with pytest.raises(LeaseLostError), first:
            pytest.fail("an inherited group's block was entered")
        first.release()
        second.discard()
        assert first.released
        assert second.released
        with pool.lease_many(4, "A", timeout=0) as things:
            assert [thing.number for thing in things] == [5, 6, 7, 8]
        assert_quiet(pool, leased=0, idle=4)
        assert factory.destroyed == []

    in_child(child)
    first.release()
    second.release()
    assert_quiet(pool, keys="A", leased=0, idle=4)
