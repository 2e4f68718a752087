"""Several resources at once, and the hooks: what fails, forks, waits or ends late (P102)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    LeaseGroup,
    LeaseLostError,
    PoolClosedError,
    PoolError,
    PoolReentrancyError,
    PoolTimeoutError,
)
from tests.helpers.forks import in_child
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet, still_works
from tests.helpers.promptly import woken
from tests.helpers.threads import Threads, let_pass, wait_until

if TYPE_CHECKING:
    from collections.abc import Hashable

    from respool import ResourcePool
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")


def numbers(group: LeaseGroup[Any, Thing]) -> list[int]:
    """Release a group, and tell the numbers of what it had."""
    with group as things:
        return sorted(thing.number for thing in things)


def test_no_create_is_begun_after_the_deadline(make_pool: MakePool, factory: Factory) -> None:
    """P09, P99: a create begun before the deadline is waited for, none begun after it, and what is made goes to idle."""

    def slow(key: Hashable) -> None:
        if factory.calls["create"] == 2:
            let_pass(time.monotonic() + 0.05)

    factory.before["create"] = slow
    pool = make_pool(max_size=4)
    with pytest.raises(PoolTimeoutError):
        pool.lease_many(4, "A", 0.05)
    assert factory.calls["create"] == 2
    assert_quiet(pool, keys="A", leased=0, idle=2)
    assert numbers(pool.lease_many(3, "A", 0.001)) == [1, 2, 3]


def test_the_last_create_may_end_late(make_pool: MakePool, factory: Factory) -> None:
    """P09: when the last create was begun in time, the batch is served late."""
    pool = make_pool(max_size=2)
    factory.before["create"] = lambda key: let_pass(time.monotonic() + 0.1 * (factory.calls["create"] == 2))
    assert numbers(pool.lease_many(2, "A", 0.09)) == [1, 2]


def test_no_validate_is_begun_after_the_deadline(make_pool: MakePool, factory: Factory) -> None:
    """P09, P99: nor is a validate; those validated already are idle again."""
    pool = make_pool(max_size=3, validate=factory.validate)
    pool.lease_many(3, "A").release()

    def slow(key: Hashable, thing: Thing) -> None:
        if factory.calls["validate"] == 2:
            let_pass(time.monotonic() + 0.05)

    factory.before["validate"] = slow
    with pytest.raises(PoolTimeoutError):
        pool.lease_many(3, "A", 0.05)
    assert factory.calls["validate"] == 2
    assert_quiet(pool, keys="A", leased=0, idle=3)
    assert numbers(pool.lease_many(3, "A", 0)) == [1, 2, 3]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("idle", [0, 2])
def test_create_fails_for_the_last(
    make_pool: MakePool, factory: Factory, recorder: Recorder, idle: int, error: type[BaseException]
) -> None:
    """P102, P24, P25: the resources before it go to idle, the very same error comes out, the rooms are right."""
    pool = make_pool(max_size=5, observer=recorder)
    for _ in range(1 if idle else 0):
        pool.lease_many(idle, "A").release()
    failure = error("no more")
    factory.errors["create"] = [None, None, failure]
    with pytest.raises(error) as caught:
        pool.lease_many(3 + idle, "A")
    assert caught.value is failure
    stats = assert_quiet(pool, keys="A", leased=0, idle=2 + idle)
    assert (stats.created, stats.acquired, stats.hook_errors["create"]) == (2 + idle, idle, 1)
    assert recorder.details("hook_failed") == ["create"]
    pool.lease_many(5, "A", 0).release()


@pytest.mark.parametrize("wrong", ["none", "held"])
def test_create_gives_nothing_new(make_pool: MakePool, factory: Factory, wrong: str) -> None:
    """P26, P102: None, or what the pool holds already, ends the batch with PoolError; the rest goes back."""
    made: list[Thing] = []

    def create(key: Hashable) -> Thing | None:
        if len(made) == 2:
            return None if wrong == "none" else made[0]
        made.append(factory.create(key))
        return made[-1]

    pool = make_pool(create=create, max_size=3)
    with pytest.raises(PoolError):
        pool.lease_many(3, "A")
    assert_quiet(pool, keys="A", leased=0, idle=2)
    assert numbers(pool.lease_many(2, "A", 0)) == [1, 2]


def test_cost_fails(make_pool: MakePool) -> None:
    """P94: what the cost hook raises reaches the caller; it's asked once for the batch, and nothing is charged."""
    asked: list[str] = []

    def cost(key: str) -> int:
        asked.append(key)
        return int(key)

    pool = make_pool(cost=cost, max_cost=10)
    for key, error in (("-1", ValueError), ("x", ValueError)):
        with pytest.raises(error):
            pool.lease_many(2, key)
    group = pool.lease_many(3, "3")
    assert asked == ["-1", "x", "3"]
    assert pool.stats().cost == 9
    group.discard()
    assert assert_quiet(pool, leased=0, idle=0).cost == 0


def test_invalid_ones_are_replaced(make_pool: MakePool, factory: Factory) -> None:
    """P29: with some of the idle ones invalid, the batch has the good ones and new ones."""
    pool = make_pool(max_size=4, validate=factory.validate)
    with pool.lease_many(4, "A") as things:
        for thing in things[:2]:
            thing.healthy = False
    gone = {thing.number for thing in things[:2]}
    assert numbers(pool.lease_many(4, "A", 0)) == sorted({1, 2, 3, 4, 5, 6} - gone)
    stats = assert_quiet(pool, keys="A", leased=0, idle=4)
    assert stats.destroyed_for["invalid"] == 2
    assert factory.most_alive == 4


@pytest.mark.parametrize("keep", [False, True])
def test_validate_is_interrupted(make_pool: MakePool, factory: Factory, keep: bool) -> None:  # noqa: FBT001
    """P31, G3: one that no Exception ends costs that resource; the others go back, whoever keeps the traceback."""
    pool = make_pool(max_size=3, validate=factory.validate)
    pool.lease_many(3, "A").release()
    factory.errors["validate"] = [ValueError(), KeyboardInterrupt("in validate")]
    factory.errors["destroy"] = [KeyboardInterrupt("in destroy")] if keep else []
    with pytest.raises(KeyboardInterrupt) as caught:
        pool.lease_many(3, "A")
    stats = assert_quiet(pool, keys="A", leased=0, idle=1)
    assert (stats.destroyed_for["invalid"], stats.hook_errors["validate"]) == (2, 2)
    assert caught.value.__traceback__ is not None
    pool.lease_many(3, "A", 0).release()


@pytest.mark.parametrize("state", ["closed before", "closed while it creates"])
def test_close(make_pool: MakePool, factory: Factory, state: str) -> None:
    """P70, G9: a batch on a closed pool, or one whose create is under way then, is PoolClosedError, and all goes."""
    gate = Gate(opened=True)
    factory.before["create"] = lambda key: gate.stop()
    pool = make_pool(max_size=3)
    pool.lease("A").release()
    gate.shut()
    if state == "closed before":
        pool.close()
        with pytest.raises(PoolClosedError):
            pool.lease_many(2, "A")
        with pytest.raises(PoolClosedError):
            pool.lease_many(2, "B", 0)
    else:
        with Threads() as threads:
            task = threads.start(pool.lease_many, 3, "A")
            gate.wait_arrived(2)
            closing = threads.start(pool.close)
            wait_until(lambda: pool.closed)
            gate.open()
            assert isinstance(task.error(), PoolClosedError)
            closing.result()
    assert_quiet(pool, leased=0, idle=0)
    assert factory.alive == 0


def test_create_forks(make_pool: MakePool, factory: Factory) -> None:
    """P74, G10: a create that forks: the child's call is LeaseLostError there, the parent's batch is served."""
    told: list[object] = []

    def child() -> None:
        pass

    def fork(key: Hashable) -> None:
        if factory.calls["create"] == 2:
            told.append(in_child(child))

    factory.before["create"] = fork
    pool = make_pool(max_size=3)
    pool.lease_many(3, "A").release()
    assert told == [None]
    assert_quiet(pool, keys="A", leased=0, idle=3)


def test_create_goes_on_in_the_child(make_pool: MakePool, factory: Factory) -> None:
    """P74, G10: in the child of a create that forks, nothing of the batch is left, and the pool works."""
    import os

    pool = make_pool(max_size=3)
    inside: list[int] = []

    def child() -> None:
        def fork(key: Hashable) -> None:
            if factory.calls["create"] == 2 and not inside:
                inside.append(os.fork())

        factory.before["create"] = fork
        try:
            group = pool.lease_many(3, "A")
        except LeaseLostError:
            if inside == [0]:
                del factory.before["create"]
                assert_quiet(pool, leased=0, idle=0)
                pool.lease_many(3, "A", 0).release()
                assert_quiet(pool, leased=0, idle=3)
                os._exit(17)
            raise
        assert os.waitstatus_to_exitcode(os.waitpid(inside[0], 0)[1]) == 17
        group.release()
        assert_quiet(pool, keys="A", leased=0, idle=3)

    in_child(child)


def test_a_batch_in_a_hook(make_pool: MakePool, factory: Factory) -> None:
    """P80, G12: a create may lease several of its own pool where there's room."""
    pool = make_pool(max_size=3)
    factory.before["create"] = lambda key: pool.lease_many(2, "A").release() if key == "B" else None
    pool.lease("B").release()
    del factory.before["create"]
    assert_quiet(pool, keys="AB", leased=0, idle=3)


@pytest.mark.parametrize("idle", [0, 1])
@pytest.mark.parametrize("key", ["A", "B"])
def test_a_batch_in_a_hook_that_could_never_be_served(
    make_pool: MakePool, factory: Factory, idle: int, key: str
) -> None:
    """P80, G12: where only the waiting hook itself could give anything back, it's PoolReentrancyError, not a hang."""
    pool = make_pool(max_size=2)
    if idle:
        pool.lease("A").release()
    factory.before["create"] = lambda made: pool.lease_many(2, key).release() if made == "B" else None
    with Threads() as threads:
        assert isinstance(threads.start(woken_error, pool).result(), PoolReentrancyError)
    del factory.before["create"]
    still_works(pool)


def woken_error(pool: ResourcePool[Any, Thing]) -> BaseException:
    """Lease B in a thread of its own; what that raises, if it doesn't sleep for ever."""
    with Threads() as threads:
        task = threads.start(pool.lease, "B")
        try:
            woken(task)
        except PoolError as error:
            return error
        raise AssertionError("it was served")
