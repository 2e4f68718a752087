"""Hooks, observers, keys and resources that use the pool from inside (P81, P105, G1, G9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolClosedError, PoolLimits, PoolTimeoutError, ResourcePool
from tests.helpers.invariants import assert_quiet
from tests.helpers.nested import Nested
from tests.helpers.recorder import Recorder
from tests.helpers.storms import weather

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool import Lease
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")


def release_other(pool: ResourcePool[Any, Thing], spare: Lease[Any, Thing]) -> None:
    """Give back another lease."""
    spare.release()


def acquire_other(pool: ResourcePool[Any, Thing], spare: Lease[Any, Thing]) -> None:
    """Take and give back another resource: there is room."""
    pool.release(pool.acquire("other"))
    with pool.lease("other"):
        pass


def look(pool: ResourcePool[Any, Thing], spare: Lease[Any, Thing]) -> None:
    """Look at the pool in all ways."""
    assert pool.stats().size >= 1
    assert pool.stats("A").size >= 0
    assert repr(pool)
    assert repr(spare)
    assert not pool.closed


def clear(pool: ResourcePool[Any, Thing], spare: Lease[Any, Thing]) -> None:
    """Clear."""
    pool.clear()
    pool.clear("A")


def discard_other(pool: ResourcePool[Any, Thing], spare: Lease[Any, Thing]) -> None:
    """Discard another lease."""
    if not spare.released:
        spare.discard()


INNER = [release_other, acquire_other, look, clear, discard_other]


def use_all_hooks(pool: ResourcePool[Any, Thing]) -> None:
    """Use the pool so that every hook runs: create, reset, validate, destroy by several ways."""
    pool.lease("A").release()
    pool.lease("A").release()
    pool.lease("A").discard()
    pool.lease("A").release()
    pool.clear("A")


@pytest.mark.parametrize("hook", ["create", "destroy", "validate", "reset"])
@pytest.mark.parametrize("inner", INNER)
def test_hooks_use_their_own_pool(
    make_pool: MakePool,
    factory: Factory,
    hook: str,
    inner: Callable[[ResourcePool[Any, Thing], Lease[Any, Thing]], None],
) -> None:
    """P81, G1: every hook may look, take, give back, discard and clear, with no lock in its way."""
    pool = make_pool(max_size=4, validate=factory.validate, reset=factory.reset)
    spare = pool.lease("spare")
    nested = Nested(lambda: inner(pool, spare))
    factory.before[hook] = nested
    use_all_hooks(pool)
    assert nested.outcomes == [None]
    spare.release()
    stats = assert_quiet(pool, leased=0)
    assert sum(stats.hook_errors.values()) == 0


@pytest.mark.parametrize("event", ["created", "destroyed", "queued", "waited", "leaked", "hook_failed"])
@pytest.mark.parametrize("inner", INNER)
def test_observers_use_their_own_pool(
    make_pool: MakePool,
    factory: Factory,
    event: str,
    inner: Callable[[ResourcePool[Any, Thing], Lease[Any, Thing]], None],
) -> None:
    """P105, G1: so may an observer, at every event."""
    recorder = Recorder()
    pool = make_pool(max_size=4, max_per_key=1, reset=factory.reset, observer=recorder)
    spare = pool.lease("spare")
    nested = Nested(lambda: inner(pool, spare))
    recorder.on[event] = nested
    with weather():
        use_all_hooks(pool)
        with pool.lease("A"), pytest.raises(PoolTimeoutError):
            pool.lease("A", timeout=0.25)  # queued, waited: with time enough to get in line on a slow machine
        factory.errors["reset"] = [RuntimeError("reset")]
        pool.lease("A").release()  # hook_failed
        pool.lease("A")  # leaked
        pool.lease("A", timeout=5).release()
    assert nested.outcomes == [None]
    spare.release()
    stats = assert_quiet(pool, leased=0)
    assert stats.hook_errors["observer"] == 0


@pytest.mark.parametrize("hook", ["create", "destroy", "validate", "reset"])
def test_close_from_inside_a_hook(make_pool: MakePool, factory: Factory, hook: str) -> None:
    """G9: close() called by a hook returns, whatever is still out; the pool is closed all the same."""
    pool = make_pool(max_size=4, validate=factory.validate, reset=factory.reset)
    spare = pool.lease("spare")
    nested = Nested(pool.close)
    factory.before[hook] = nested
    with pytest.raises(PoolClosedError):
        (use_all_hooks(pool), pool.lease("A"))
    assert nested.outcomes == [None]
    assert pool.closed
    spare.release()
    pool.close()
    assert_quiet(pool, leased=0, idle=0)
    assert factory.alive == 0


def test_close_from_inside_an_observer(make_pool: MakePool, factory: Factory) -> None:
    """G9: the same for an observer, told of a destroy that close itself began."""
    recorder = Recorder()
    pool = make_pool(observer=recorder)
    for lease in [pool.lease(key) for key in "ABC"]:
        lease.release()
    nested = Nested(pool.close)
    recorder.on["destroyed"] = nested
    pool.close()
    assert nested.outcomes == [None]
    assert factory.alive == 0
    assert_quiet(pool, leased=0, idle=0)


class NosyKey:
    """A key whose hash and comparison look at the pool and use another key of it."""

    pool: ResourcePool[Any, Any]
    calls = 0

    def __init__(self, name: str) -> None:
        self.name = name

    def _use(self) -> None:
        if self.pool.closed:
            return
        NosyKey.calls += 1
        self.pool.stats()
        self.pool.lease("plain").release()

    def __hash__(self) -> int:
        self._use()
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        self._use()
        return isinstance(other, NosyKey) and other.name == self.name


def test_keys_that_use_the_pool(make_pool: MakePool) -> None:
    """G1: a key's hash and comparison run outside the lock, in every call that takes a key."""
    pool = make_pool(max_size=5)
    NosyKey.pool = pool
    for _ in range(2):
        with pool.lease(NosyKey("a")), pool.lease(NosyKey("b")):
            assert pool.stats(NosyKey("a")).leased == 1
        thing = pool.bind(NosyKey("a")).acquire()
        pool.release(thing)
    assert pool.clear(NosyKey("a")) == 1
    assert NosyKey.calls > 0
    assert_quiet(pool, leased=0, idle=2)


def test_a_resource_whose_finaliser_uses_the_pool() -> None:
    """G1: the pool's last reference to a resource is dropped outside its lock."""
    ends: list[str] = []

    class Clingy:
        def __init__(self, key: str) -> None:
            self.key = key

        def __del__(self) -> None:
            if self.key == "A":
                pool.stats()
                lease = pool.try_lease("B")
                if lease is not None:
                    lease.release()
                ends.append(self.key)

    pool = ResourcePool(Clingy, limits=PoolLimits(max_size=3))
    for end in ("discard", "clear", "evict", "release"):
        lease = pool.lease("A")
        if end == "discard":
            lease.discard()
        lease.release()
        del lease
        if end == "clear":
            pool.clear("A")
        if end == "evict":
            leases = [pool.lease(key) for key in "CDE"]
            for lease in leases:
                lease.release()
            del lease, leases
    pool.clear()
    assert ends == ["A"] * 4
    assert_quiet(pool, leased=0)
    pool.close()
