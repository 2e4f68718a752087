"""Keys and resources that misbehave: their error reaches its caller, and the pool goes on working."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    ALL,
    InvalidReleaseError,
    PoolError,
)
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet, still_works
from tests.helpers.resources import Thing
from tests.helpers.threads import Threads, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.resources import MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")


class Box:
    """Unhashable."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "Box()"


@pytest.mark.parametrize("key", [[1], {}, Box(), ("nested", [])])
def test_keys_must_be_hashable(make_pool: MakePool, key: Any) -> None:
    """An unhashable key is a TypeError from each call that takes a key."""
    pool = make_pool()
    for call in (
        pool.lease,
        pool.try_lease,
        pool.acquire,
        pool.try_acquire,
        pool.bind,
        pool.stats,
        pool.clear,
    ):
        with pytest.raises(TypeError, match="unhashable"):
            call(key)
    still_works(pool, idle=0)


def test_all_is_no_key(make_pool: MakePool) -> None:
    """ALL stands for all keys in clear and stats, so it can't be a key: nobody could ask for that key alone."""
    pool = make_pool()
    calls = (pool.lease, pool.try_lease, pool.acquire, pool.try_acquire, pool.bind, pool.forget)
    for call in calls:
        with pytest.raises(TypeError, match="ALL stands for all keys"):
            call(ALL)
    still_works(pool, idle=0)


class Key:
    """A key whose hash or comparison does what the test wants."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.on_hash: Callable[[], object] = lambda: None
        self.on_eq: Callable[[], object] = lambda: None

    def __hash__(self) -> int:
        self.on_hash()
        return 7

    def __eq__(self, other: object) -> bool:
        # A dict asks the key that it holds, not the one that is looked for: either may tell.
        self.on_eq()
        if not isinstance(other, Key):
            return False
        other.on_eq()
        return other.name == self.name


@pytest.mark.parametrize("method", ["on_hash", "on_eq"])
@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt])
def test_a_key_whose_hash_or_eq_raises(make_pool: MakePool, method: str, kind: type[BaseException]) -> None:
    """What a key's hash or eq raises reaches the caller of that call; nothing is lost or counted."""

    def fail() -> None:
        raise kind("in the key")

    pool = make_pool()
    pool.lease(Key()).release()
    bad = Key()
    setattr(bad, method, fail)
    for call in (pool.lease, pool.try_lease, pool.acquire, pool.try_acquire, pool.stats, pool.clear):
        with pytest.raises(kind, match="in the key"):
            call(bad)
        assert_quiet(pool, leased=0, idle=1)
    with pytest.raises(kind, match="in the key"):
        pool.bind(bad).lease()
    still_works(pool)


@pytest.mark.parametrize("method", ["on_hash", "on_eq"])
def test_a_key_that_fails_while_it_is_leased(make_pool: MakePool, method: str) -> None:
    """A release needs nothing of the key: one that has gone bad meanwhile is released all the same."""

    def fail() -> None:
        raise ZeroDivisionError("in the key")

    pool = make_pool(max_size=1)
    key = Key()
    lease = pool.lease(key)
    setattr(key, method, fail)
    with Threads() as threads:
        waiting = threads.start(pool.lease, "other")
        wait_until_queued(pool, 1)
        lease.release()
        waiting.result().release()
    still_works(pool, idle=1)


@pytest.mark.parametrize("method", ["on_hash", "on_eq"])
def test_a_key_whose_hash_or_eq_blocks(make_pool: MakePool, method: str) -> None:
    """A key that stands still in hash or eq holds up its own caller and nobody else."""
    gate = Gate()
    pool = make_pool()
    pool.lease(Key()).release()
    slow = Key()
    setattr(slow, method, gate.stop)
    with Threads() as threads:
        task = threads.start(pool.lease, slow)
        gate.wait_arrived()
        pool.lease(Key(), timeout=0).release()
        pool.lease("other", timeout=0).release()
        pool.stats()
        assert not task.ended
        gate.open()
        task.result().release()
    still_works(pool, idle=2)


def test_create_must_not_give_none(make_pool: MakePool) -> None:
    """A create that returns None is a PoolError, and the room is given back."""
    answers: list[object] = [None, None, Thing("A", 1)]
    pool = make_pool(create=lambda key: answers.pop(0), destroy=lambda key, thing: None, max_size=1)
    with pytest.raises(PoolError, match="None") as caught:
        pool.lease("A")
    assert type(caught.value) is PoolError
    with pytest.raises(PoolError, match="None"):
        pool.try_acquire("A")
    assert pool.stats().size == 0
    still_works(pool, idle=0)


class Slotted:
    """Can't be weakly referenced, nor hashed, and equals everything; false besides."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return False


@pytest.mark.parametrize("make", [Slotted, list, dict, lambda: bytearray(1)], ids=lambda make: make.__name__)
def test_resources_of_any_kind_work(make_pool: MakePool, make: Callable[[], object]) -> None:
    """P43: resources that are unhashable, all equal, false or not weakly referable: identity counts."""
    destroyed: list[object] = []
    pool = make_pool(create=lambda key: make(), destroy=lambda key, it: destroyed.append(it), max_size=3)
    first, second = pool.acquire("A"), pool.acquire("A")
    with pool.lease("A") as third:
        assert len({id(first), id(second), id(third)}) == 3
    with pytest.raises(InvalidReleaseError):
        pool.release(make())  # type: ignore[arg-type]
    pool.discard(first)
    assert len(destroyed) == 1
    assert destroyed[0] is first
    pool.release(second)
    with pool.lease("A") as again:
        assert again is second
    still_works(pool)


@pytest.mark.parametrize("call", ["release", "discard"])
@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize(
    "what", ["foreign", "None", "another pool's", "released", "discarded", "detached", "cleared", "a lease's"]
)
def test_giving_back_what_one_has_not(make_pool: MakePool, what: str, call: str, *, bound: bool) -> None:
    """P37: what is foreign, given back or out of the pool is refused, with its repr; nothing changes."""
    pool, other = make_pool(), make_pool()
    pool.lease("A").release()
    lease = None
    thing: Thing | None = Thing("A", 99)
    if what == "None":
        thing = None
    elif what == "another pool's":
        thing = other.acquire("A")
    elif what == "a lease's":
        lease = pool.lease("A")
        thing = lease.resource
    elif what == "detached":
        thing = pool.lease("A").detach()
    elif what != "foreign":
        thing = pool.acquire("A")
        (pool.discard if what == "discarded" else pool.release)(thing)
        if what == "cleared":
            pool.clear()
    before = pool.stats(), other.stats()
    target = pool.bind("A") if bound else pool
    for _ in range(2):
        with pytest.raises(InvalidReleaseError) as caught:
            getattr(target, call)(thing)
        assert repr(thing) in str(caught.value)
    assert (pool.stats(), other.stats()) == before
    if lease is not None:
        assert lease.resource is thing
        lease.release()
    if what == "another pool's":
        other.release(thing)  # type: ignore[arg-type]
    still_works(other)
    still_works(pool)
