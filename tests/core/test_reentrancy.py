"""Hooks that acquire from the pool they belong to: served, or refused, but never a deadlock (P80, P22, G12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolReentrancyError, PoolTimeoutError
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.nested import Nested
from tests.helpers.threads import Threads, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool import ResourcePool
    from tests.helpers.resources import Factory, MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")


def test_create_acquires_where_there_is_room(make_pool: MakePool, factory: Factory) -> None:
    """P80, G12: create may take another resource of its own pool while a room is left."""
    pool = make_pool(max_size=2)
    inner = Nested(lambda: pool.lease("B"))
    factory.before["create"] = inner
    with pool.lease("A") as thing:
        lease: Any = inner.outcomes[0]
        assert (thing.key, lease.resource.key) == ("A", "B")
        assert pool.stats().leased == 2
        lease.release()
    assert_quiet(pool, keys="AB", leased=0, idle=2)


def number_of(pool: ResourcePool[Any, Any], key: str) -> int:
    """Take one, look at it, and give it back."""
    with pool.lease(key) as thing:
        number: int = thing.number
        return number


def test_create_acquires_what_is_idle_in_a_full_pool(make_pool: MakePool, factory: Factory) -> None:
    """P80, G12: nor does it need room for what is idle."""
    pool = make_pool(max_size=2)
    pool.lease("B").release()
    inner = Nested(lambda: number_of(pool, "B"))
    factory.before["create"] = inner
    with pool.lease("A"):
        assert inner.outcomes == [1]
    assert_quiet(pool, keys="AB", leased=0, idle=2)


ACQUIRES: dict[str, Callable[[ResourcePool[Any, Any], str], object]] = {
    "lease": lambda pool, key: pool.lease(key),
    "acquire": lambda pool, key: pool.acquire(key),
    "with a timeout": lambda pool, key: pool.lease(key, timeout=60),
    "bound": lambda pool, key: pool.bind(key).lease(),
}


@pytest.mark.parametrize("call", ACQUIRES)
@pytest.mark.parametrize("key", ["A", "B"])
def test_create_acquires_where_there_is_none(
    make_pool: MakePool, factory: Factory, call: str, key: str
) -> None:
    """P80, G12: where only create itself could free the room, its wait is an error, and the room is not lost."""
    pool = make_pool(max_size=1)
    inner = Nested(lambda: ACQUIRES[call](pool, key))
    factory.before["create"] = inner
    with pytest.raises(PoolReentrancyError) as caught:
        pool.lease("A")
    assert inner.outcomes == [caught.value]
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.size == 0
    with pool.lease("A", timeout=0) as thing:
        assert thing.number == 1
    assert_quiet(pool, leased=0, idle=1)


def test_a_try_from_create_gives_none(make_pool: MakePool, factory: Factory) -> None:
    """G12: what does not wait cannot wait for itself: try_ calls give None, timeout=0 its timeout."""
    pool = make_pool(max_size=1)

    def tries() -> object:
        assert pool.try_acquire("A") is None
        assert pool.try_lease("B") is None
        with pytest.raises(PoolTimeoutError):
            pool.lease("A", timeout=0)
        return "done"

    inner = Nested(tries)
    factory.before["create"] = inner
    pool.lease("A").release()
    assert inner.outcomes == ["done"]
    assert_quiet(pool, leased=0, idle=1)


def test_create_waits_for_its_own_key(make_pool: MakePool, factory: Factory) -> None:
    """P80, G12: the same holds for a key at its own limit; another key's room is free to take."""
    pool = make_pool(max_size=4, max_per_key=1)
    factory.before["create"] = Nested(lambda: pool.lease("A", timeout=60))
    with pytest.raises(PoolReentrancyError):
        pool.lease("A")
    other = Nested(lambda: pool.lease("B").release())
    factory.before["create"] = other
    pool.lease("A").release()
    assert other.outcomes == [None]
    assert_quiet(pool, keys="AB", leased=0, idle=2)


def test_create_waits_for_cost(make_pool: MakePool, factory: Factory) -> None:
    """P80, G12: and for a budget that only the hook itself holds."""
    pool = make_pool(max_cost=10, cost=lambda key: 6)
    factory.before["create"] = Nested(lambda: pool.lease("B", timeout=60))
    with pytest.raises(PoolReentrancyError):
        pool.lease("A")
    factory.before.clear()
    pool.lease("A", timeout=0).release()
    assert assert_quiet(pool, leased=0, idle=1).cost == 6


@pytest.mark.parametrize("hook", ["destroy", "validate", "reset"])
def test_other_hooks_acquire_where_there_is_no_room(make_pool: MakePool, factory: Factory, hook: str) -> None:
    """P81, G12: so is the wait of any hook for the room it is in itself; the error is the hook's, the room is freed."""
    pool = make_pool(max_size=1, validate=factory.validate, reset=factory.reset)
    pool.lease("A").release()
    inner = Nested(lambda: pool.lease("B", timeout=60))
    factory.before[hook] = inner
    pool.lease("A").discard() if hook == "destroy" else pool.lease("A").release()
    assert isinstance(inner.outcomes[0], PoolReentrancyError)
    assert factory.numbers_destroyed() == [1]
    stats = assert_quiet(pool, leased=0)
    assert stats.hook_errors[hook] == 1
    pool.lease("A", timeout=0).release()
    assert_quiet(pool, leased=0, idle=1)


def test_two_creates_wait_for_each_other(make_pool: MakePool, factory: Factory) -> None:
    """G12: of two hooks that wait for each other the second is refused; its room then serves the first."""
    gate = Gate()
    pool = make_pool(max_size=2)
    depth = [0]

    def create_needs_another(key: object) -> None:
        if key in ("first", "second"):
            gate.stop()
            depth[0] += 1
            pool.lease("inner", timeout=60).release()

    factory.before["create"] = create_needs_another
    with Threads() as threads:
        first = threads.start(pool.lease, "first")
        gate.wait_arrived(1)
        second = threads.start(pool.lease, "second")
        gate.wait_arrived(2)
        gate.let()  # whichever it is waits in its hook, for the other's room
        wait_until_queued(pool, 1)
        gate.let()
        tasks = [first, second]
        for task in tasks:
            task.wait()
        failed = [task for task in tasks if task.unseen_error() is not None]
        assert len(failed) == 1
        assert isinstance(failed[0].error(), PoolReentrancyError)
        tasks.remove(failed[0])
        tasks[0].result().release()
    assert depth == [2]
    assert_quiet(pool, leased=0)


def test_create_waits_for_a_holder_outside(make_pool: MakePool, factory: Factory) -> None:
    """G12: a hook that waits for what somebody else will give back waits, and is served."""
    pool = make_pool(max_size=2)
    held = pool.lease("A")
    inner = Nested(lambda: pool.lease("A").release())
    factory.before["create"] = inner
    with Threads() as threads:
        waiting = threads.start(pool.lease, "B")
        wait_until_queued(pool, 1)
        held.release()
        waiting.result().release()
    assert inner.outcomes == [None]
    assert_quiet(pool, leased=0, idle=2)


def test_the_last_holder_outside_leaves(make_pool: MakePool, factory: Factory) -> None:
    """G12: when what a hook waits for is detached or leaked, its room serves the hook: no error, no hang."""
    for end in ("discard", "detach"):
        pool = make_pool(max_size=2)
        held = pool.lease("A")
        factory.before["create"] = Nested(lambda p=pool: p.lease("A").release())
        with Threads() as threads:
            waiting = threads.start(pool.lease, "B")
            wait_until_queued(pool, 1)
            getattr(held, end)()
            waiting.result().release()
        assert_quiet(pool, leased=0)


def test_a_holder_that_waits_for_itself_times_out(make_pool: MakePool) -> None:
    """P22, G12: outside hooks the pool can't know who would give back: the wait ends by its timeout."""
    pool = make_pool(max_size=1)
    lease = pool.lease()
    with pytest.raises(PoolTimeoutError):
        pool.lease(timeout=0.01)
    with pytest.raises(PoolTimeoutError):
        pool.acquire(timeout=0.01)
    assert lease.resource.alive
    lease.release()
    assert_quiet(pool, leased=0, idle=1)


def test_an_interrupted_hook_leaves_no_mark(make_pool: MakePool, factory: Factory) -> None:
    """G12, G3: after hooks that were refused or interrupted, an ordinary wait is an ordinary wait."""
    pool = make_pool(max_size=1)
    for kind in (KeyboardInterrupt, SystemExit, RuntimeError):
        factory.before["create"] = Nested(lambda: pool.lease("B"))
        with pytest.raises(PoolReentrancyError):
            pool.lease("A")
        factory.before["create"] = Nested(lambda kind=kind: (_ for _ in ()).throw(kind("create")))
        with pytest.raises(kind):
            pool.lease("A")
    factory.before.clear()
    held = pool.lease("A")
    with Threads() as threads:
        waiting = threads.start(lambda: pool.lease("A").release())
        wait_until_queued(pool, 1)
        with pytest.raises(PoolTimeoutError):
            pool.lease("A", timeout=0.01)
        held.release()
        waiting.result()
    assert_quiet(pool, leased=0, idle=1)


def test_a_hook_may_use_other_pools(make_pool: MakePool, factory: Factory) -> None:
    """G12: a full pool's hook waits in another pool as anybody would."""
    other = make_pool(max_size=1)
    held = other.lease()
    pool = make_pool(max_size=1)
    inner = Nested(lambda: other.lease().release())
    with Threads() as threads:
        factory.before["create"] = inner
        waiting = threads.start(pool.lease)
        wait_until_queued(other, 1)
        held.release()
        waiting.result().release()
    assert inner.outcomes == [None]
    assert_quiet(pool, leased=0, idle=1)
    assert_quiet(other, leased=0, idle=1)


def test_a_hook_that_waits_for_a_thread_using_the_pool(make_pool: MakePool, factory: Factory) -> None:
    """G12: a hook may start a thread that uses the pool, and wait for it."""
    pool = make_pool(max_size=2)

    def in_a_thread() -> object:
        with Threads() as threads:
            return threads.start(lambda: pool.lease("B").release()).result()

    inner = Nested(in_a_thread)
    factory.before["create"] = inner
    pool.lease("A").release()
    assert inner.outcomes == [None]
    assert_quiet(pool, leased=0, idle=2)
