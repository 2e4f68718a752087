"""fork(): the child starts with an empty, working pool; the parent notices nothing (P73 to P76, G10)."""

from __future__ import annotations

import dataclasses
import gc
import os
from typing import TYPE_CHECKING, Any

import pytest

from respool import LeaseLostError, LeaseReleasedError, PoolLimits, PoolTimeoutError, ResourcePool
from tests.helpers.checkpoints import every_checkpoint
from tests.helpers.forks import in_child
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool


def assert_fresh(pool: ResourcePool[Any, Any], *keys: object) -> None:
    """Check that a pool's every number is zero."""
    for stats in (pool.stats(), *(pool.stats(key) for key in keys)):
        for field in dataclasses.fields(stats):
            value = getattr(stats, field.name)
            numbers = value.values() if field.name in ("destroyed_for", "hook_errors") else [value]
            assert not any(numbers), f"{field.name} is {value} in the child"


def assert_works(pool: ResourcePool[Any, Any], rooms: int, key: object = None) -> None:
    """Check that a pool has all its rooms, with both tiers."""
    leases = [pool.lease(key, timeout=0) for _ in range(rooms)]
    assert pool.try_lease(key) is None
    for lease in leases:
        lease.release()
    things = [pool.acquire(key, timeout=0) for _ in range(rooms)]
    assert pool.try_acquire(key) is None
    for thing in things:
        pool.release(thing)
    assert_quiet(pool, leased=0, idle=rooms)


def test_the_child_starts_with_nothing(make_pool: MakePool, factory: Factory) -> None:
    """P73, G10: no idle resource of the parent's is seen in the child, which makes its own."""
    pool = make_pool(max_size=3)
    held = pool.lease("A")
    pool.lease("A").release()
    pool.lease("B").release()

    def child() -> list[int]:
        assert_fresh(pool, "A", "B")
        with pool.lease("A") as first, pool.lease("A") as second, pool.lease("B") as third:
            numbers = [first.number, second.number, third.number]
            assert pool.try_lease("A") is None
        assert_quiet(pool, keys="AB", leased=0, idle=3)
        assert factory.destroyed == []
        return numbers

    assert in_child(child) == [4, 5, 6]
    held.release()
    assert_quiet(pool, keys="AB", leased=0, idle=3)


@pytest.mark.parametrize(
    "end", ["release", "with", "fast release", "discard", "fast discard", "bound release"]
)
def test_inherited_resources_come_back_as_no_ops(make_pool: MakePool, factory: Factory, end: str) -> None:
    """P75: what the parent had leased is given back in the child without error, pooling or destroy."""
    pool = make_pool(max_size=1)
    lease = thing = None
    if end in {"release", "with", "discard"}:
        lease = pool.lease("A")
    else:
        thing = pool.acquire("A")

    def give_back() -> None:
        if end == "with":
            assert lease is not None
            lease.__exit__(None, None, None)  # a body that was running when the process forked
        elif lease is not None:
            getattr(lease, end)()
        else:
            face = pool.bind("A") if "bound" in end else pool
            getattr(face, end.split()[1])(thing)

    def child() -> None:
        give_back()
        assert_fresh(pool, "A")
        assert factory.destroyed == []
        assert_works(pool, 1, "A")
        if lease is not None:
            assert lease.released
            lease.release()
        assert_quiet(pool, leased=0, idle=1)
        assert factory.destroyed == []

    in_child(child)
    assert pool.stats().leased == 1
    give_back()
    assert_quiet(pool, leased=0)


def test_an_inherited_lease_has_lost_its_resource(make_pool: MakePool) -> None:
    """P75: in the child an inherited lease's resource can't be had: it is the parent's."""
    pool = make_pool(max_size=1)
    lease = pool.lease()

    def child() -> None:
        with pytest.raises(LeaseLostError):
            _ = lease.resource
        with pytest.raises(LeaseLostError):
            lease.detach()
        with pytest.raises(LeaseLostError), lease:
            pytest.fail("the body of a lost lease has run")
        lease.release()
        assert_fresh(pool)
        assert repr(lease)

    in_child(child)
    lease.release()
    with pytest.raises(LeaseReleasedError):
        _ = lease.resource


def test_a_dropped_inherited_lease_is_no_leak_of_the_child_s(make_pool: MakePool, factory: Factory) -> None:
    """P75, G10: an inherited lease that the child drops is neither counted nor warned of nor destroyed."""
    pool = make_pool(max_size=1)
    leases = [pool.lease()]

    def child() -> None:
        leases.clear()  # a warning would be an error here
        gc.collect()
        assert_works(pool, 1)
        assert pool.stats().leaked == 0
        assert factory.destroyed == []

    in_child(child)
    leases[0].release()
    assert_quiet(pool, leased=0, idle=1)


class Noisy:
    """A resource that tells when it is finalised."""

    ends: list[int]

    def __init__(self, ends: list[int]) -> None:
        self.ends = ends

    def __del__(self) -> None:
        self.ends.append(id(self))


def test_inherited_resources_are_never_finalised_in_the_child() -> None:
    """G10: the child keeps what it inherited: no finaliser of it runs, whatever becomes of the pool."""
    ends: list[int] = []
    pools = [ResourcePool(lambda key: Noisy(ends))]
    held, thing = pools[0].lease("A"), pools[0].acquire("A")
    for lease in [pools[0].lease("B"), pools[0].lease("B")]:
        lease.release()
    names: list[Any] = [held, thing]
    del held, thing, lease

    def child() -> None:
        names[0].release()
        names.clear()
        gc.collect()
        assert ends == [], "finalised when the names were dropped"
        assert pools[0].clear() == 0
        pools[0].close()
        gc.collect()
        assert ends == [], "finalised by clear or close"
        pools.clear()
        gc.collect()
        assert ends == [], "finalised when the pool was dropped"

    with pools[0]:
        in_child(child)
        names[0].release()
        pools[0].release(names[1])


def test_the_parent_notices_nothing(make_pool: MakePool, factory: Factory, recorder: Recorder) -> None:
    """P76: leases, idle ones, waiters and counters of the parent are as they were, whatever the child does."""
    pool = make_pool(max_size=2, observer=recorder)
    held, other = pool.lease("A"), pool.acquire("A")
    with Threads() as threads:
        waiting = [threads.start(pool.lease, "A") for _ in range(2)]
        wait_until_queued(pool, 2)
        recorder.wait_for("queued", 2)
        before, told = pool.stats(), len(recorder.events)

        def child() -> None:
            assert_fresh(pool, "A")
            assert len(recorder.events) == told  # the handler has called no observer
            held.release()
            pool.release(other)
            assert_works(pool, 2, "A")
            pool.clear()
            pool.close()

        in_child(child)
        assert pool.stats() == before
        assert len(recorder.events) == told
        held.release()
        waiting[0].result().release()
        waiting[1].result().release()
        pool.release(other)
    assert factory.destroyed == []
    assert_quiet(pool, leased=0, idle=2)


@pytest.mark.parametrize("hook", ["create", "destroy", "validate", "reset"])
def test_fork_while_another_thread_is_in_a_hook(make_pool: MakePool, factory: Factory, hook: str) -> None:
    """P74: whatever other threads do in the pool, the child has all its rooms and no waiters."""
    gate = Gate()
    pool = make_pool(max_size=1, validate=factory.validate, reset=factory.reset)
    if hook != "create":
        pool.lease().release()
    factory.before[hook] = lambda *args: gate.stop()
    with Threads() as threads:
        user = threads.start(pool.clear if hook == "destroy" else lambda: pool.lease().release())
        gate.wait_arrived(1)
        waiting = threads.start(lambda: pool.lease().release())
        wait_until_queued(pool, 1)

        def child() -> None:
            factory.before.clear()
            assert_fresh(pool)
            assert_works(pool, 1)
            with pool.lease(), pytest.raises(PoolTimeoutError):
                pool.lease(timeout=0.01)

        in_child(child)
        gate.open()
        user.result()
        waiting.result()
    assert_quiet(pool, leased=0, idle=1)


def fill_and_empty(pool: ResourcePool[Any, Any]) -> None:
    """Go through hits, misses, evictions, a wait that times out, discards and a clear."""
    pool.release(pool.acquire("A"))
    with pool.lease("A"), pool.lease("B"), pytest.raises(PoolTimeoutError):
        pool.lease("C", timeout=0.001)
    pool.lease("C").discard()
    pool.stats()
    pool.clear()


@pytest.mark.slow
@pytest.mark.timeout(300)  # some thousand forks
def test_fork_while_another_thread_is_stopped_anywhere(factory: Factory) -> None:
    """P74: with a thread stopped inside the pool, its locks held or not, the child's pool works."""
    for visit in every_checkpoint(step=3):
        pool = ResourcePool(factory.create, factory.destroy, limits=PoolLimits(max_size=2))
        gate = Gate()
        with visit, pool, Threads() as threads:
            worker = threads.start(visit.run, lambda p=pool: fill_and_empty(p), gate.stop)
            while not gate.arrived and not worker.ended:
                os.sched_yield()
            if gate.arrived:
                in_child(lambda p=pool: (assert_fresh(p, "A", "B"), assert_works(p, 2), p.close()))
            gate.open()
            worker.result()
            assert_quiet(pool, leased=0, idle=0)
            pool.close()


def test_fork_from_inside_a_hook(make_pool: MakePool, factory: Factory) -> None:
    """P74, G12: a create hook that forks (a helper process, say): the child, still in the hook, has all rooms."""
    pool = make_pool(max_size=1)

    def fork_once(key: object) -> None:
        factory.before.clear()
        in_child(lambda: (assert_fresh(pool, "A"), assert_works(pool, 1, "A")))

    factory.before["create"] = fork_once
    with pool.lease("A") as thing:
        assert thing.number == 1
    assert_quiet(pool, keys=["A"], leased=0, idle=1)


def test_fork_from_another_thread(make_pool: MakePool) -> None:
    """P74: the thread that forks need not be the main one."""
    pool = make_pool(max_size=1)
    lease = pool.lease()
    with Threads() as threads:
        threads.start(in_child, lambda: (lease.release(), assert_works(pool, 1))).result()
    lease.release()
    assert_quiet(pool, leased=0, idle=1)


def test_a_child_of_a_child(make_pool: MakePool, factory: Factory) -> None:
    """P73: what the child holds and keeps is as foreign to its own child as the parent's was to it."""
    pool = make_pool(max_size=2)
    first = pool.lease()
    pool.lease().release()

    def grandchild(second: Any) -> None:
        assert_fresh(pool)
        first.release()
        second.release()
        assert_works(pool, 2)
        assert factory.destroyed == []

    def child() -> None:
        second = pool.lease()
        in_child(lambda: grandchild(second))
        second.release()
        assert pool.stats().idle == 1

    in_child(child)
    first.release()
    assert_quiet(pool, leased=0, idle=2)


def test_the_handler_runs_no_user_code(recorder: Recorder) -> None:
    """G10: forking calls no hash, comparison, hook or observer, however many keys there are."""
    calls: list[str] = []

    class Key:
        def __init__(self, number: int) -> None:
            self.number = number

        def __hash__(self) -> int:
            calls.append("hash")
            return hash(self.number)

        def __eq__(self, other: object) -> bool:
            calls.append("eq")
            return isinstance(other, Key) and self.number == other.number

    def hook(*args: object) -> Any:
        calls.append("hook")
        return object() if len(args) == 1 else True

    keys = [Key(number) for number in range(20)]
    with ResourcePool(hook, hook, hook, reset=hook, observer=recorder) as pool:
        leases = [pool.lease(key) for key in keys]
        for lease in leases[::2]:
            lease.release()
        del lease
        calls.clear()
        told = len(recorder.events)
        assert in_child(lambda: (list(calls), len(recorder.events) - told)) == ([], 0)
        for lease in leases:
            lease.release()


AFTER: dict[str, Callable[[ResourcePool[Any, Any]], object]] = {
    "bound": lambda pool: pool.bind("A").lease(timeout=0).release(),
    "clear": lambda pool: pool.clear(),
    "close": lambda pool: pool.close(),
    "close with a timeout": lambda pool: pool.close(timeout=0),
}


@pytest.mark.parametrize("call", AFTER)
def test_everything_else_works_in_the_child(make_pool: MakePool, call: str) -> None:
    """P74, G10: also as the child's first call; close doesn't wait for what only the parent can give back."""
    pool = make_pool(max_size=1)
    bound = pool.bind("A")
    lease = bound.lease()

    def child() -> None:
        AFTER[call](pool)
        if not pool.closed:
            bound.lease(timeout=0).release()
            assert_works(pool, 1, "A")

    in_child(child)
    lease.release()


def test_a_bound_pool_crosses_a_fork(make_pool: MakePool) -> None:
    """G10: a bound pool made by the parent gives the child's resources in the child."""
    pool = make_pool(max_size=1)
    bound = pool.bind("A")
    bound.lease().release()

    def child() -> int:
        with bound.lease(timeout=0) as thing:
            number: int = thing.number
            assert bound.stats().leased == pool.stats().leased == 1
        assert bound.clear() == 1
        return number

    assert in_child(child) == 2
    with bound.lease() as thing:
        assert thing.number == 1
