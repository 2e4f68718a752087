"""Bad input gets one clear error with the value in its text, and the pool goes on working."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    InvalidReleaseError,
    LeaseReleasedError,
    PoolClosedError,
    PoolLimits,
    PoolObserver,
    ResourcePool,
)
from tests.helpers.invariants import assert_quiet, still_works

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.resources import Factory, MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")

COUNTS = ["max_size", "max_per_key", "max_idle", "max_cost", "max_waiters"]
TIMEOUTS: list[tuple[Any, type[Exception]]] = [
    (-1, ValueError),
    (-0.001, ValueError),
    (-math.inf, ValueError),
    (math.nan, ValueError),
    (True, TypeError),
    (False, TypeError),
    ("1", TypeError),
    (b"1", TypeError),
    ([], TypeError),
    (1j, TypeError),
]


@pytest.mark.parametrize("field", COUNTS)
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (-1, ValueError),
        (True, TypeError),
        (False, TypeError),
        (1.0, TypeError),
        (2.5, TypeError),
        (math.nan, (TypeError, ValueError)),
        (math.inf, (TypeError, ValueError)),
        ("3", TypeError),
        ([1], TypeError),
    ],
)
def test_limits_that_make_no_sense(field: str, value: object, error: type[Exception]) -> None:
    """P11: a limit that is negative, bool, NaN, a float or no number is refused, with name and value."""
    with pytest.raises(error) as caught:
        PoolLimits(**{field: value})  # type: ignore[arg-type]
    assert field in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("field", ["max_size", "max_per_key", "max_cost"])
def test_limits_of_zero(field: str) -> None:
    """P11: a size of 0 is a mistake, not a pool that gives nothing."""
    with pytest.raises(ValueError, match=rf"{field}.*0"):
        PoolLimits(**{field: 0})


@pytest.mark.parametrize("field", ["max_idle", "max_waiters"])
def test_limits_that_may_be_zero(field: str) -> None:
    """P11: to keep none and to queue nobody are sensible."""
    assert getattr(PoolLimits(**{field: 0}), field) == 0


@pytest.mark.parametrize("hook", ["create", "destroy", "validate", "reset", "cost"])
def test_hooks_are_no_coroutine_functions(hook: str) -> None:
    """Bad input: a coroutine function as a hook is refused at once; its coroutines would be the resources, or true answers."""

    async def awaited(*_: object) -> object:
        return object()

    with pytest.raises(TypeError, match=f"{hook} must be a plain function"):
        ResourcePool(**{"create": lambda key: object(), hook: awaited})  # type: ignore[arg-type]


@pytest.mark.parametrize("call", ["release", "discard"])
def test_a_lease_is_not_given_back_as_its_resource(make_pool: MakePool, call: str) -> None:
    """P40: a lease or a group that is passed where its resource belongs is refused, and the error says how it's given back."""
    pool = make_pool()
    with pool.lease("A") as thing, pool.lease_many(2, "A") as things:
        assert thing not in things
        for held in (pool.lease("A"), pool.lease_many(1, "A")):
            with pytest.raises(InvalidReleaseError, match=r"given back by its own release\(\)"):
                getattr(pool, call)(held)
            held.release()
    assert_quiet(pool, keys="A", leased=0)


def test_limits_are_frozen_and_named(make_pool: MakePool) -> None:
    """P11: limits are given by name, can't be changed behind the pool's back, and compare by value."""
    with pytest.raises(TypeError):
        PoolLimits(3)  # type: ignore[misc]
    with pytest.raises(TypeError, match="max_sise"):
        PoolLimits(max_sise=3)  # type: ignore[call-arg]
    pool = make_pool(max_size=3)
    with pytest.raises(AttributeError):
        pool.limits.max_size = 4  # type: ignore[misc]
    with pytest.raises(AttributeError):
        pool.limits = PoolLimits()  # type: ignore[misc]
    with pytest.raises(AttributeError):
        pool.closed = True  # type: ignore[misc]
    assert pool.limits == PoolLimits(max_size=3)
    assert "max_size=3" in repr(pool.limits)


@pytest.mark.parametrize("hook", ["create", "destroy", "validate", "reset", "cost"])
@pytest.mark.parametrize("value", [3, "create", object()])
def test_hooks_must_be_callable(hook: str, value: object) -> None:
    """P11: a hook that can't be called is refused by the constructor, with its name."""
    hooks: dict[str, Any] = {"create": lambda key: object(), hook: value}
    with pytest.raises(TypeError, match=hook) as caught:
        ResourcePool(**hooks)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("create", None),
        ("limits", 3),
        ("limits", None),
        ("limits", {"max_size": 3}),
        ("observer", object()),
        ("observer", PoolObserver),
        ("at_exit", "forget"),
        ("at_exit", None),
        ("name", 3),
    ],
)
def test_options_that_make_no_sense(option: str, value: object) -> None:
    """P11: options of the wrong kind are refused by the constructor, with name and value."""
    options: dict[str, Any] = {"create": lambda key: object(), option: value}
    with pytest.raises((TypeError, ValueError), match=option) as caught:
        ResourcePool(**options)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("state", ["hit", "miss", "full"])
@pytest.mark.parametrize(("timeout", "error"), TIMEOUTS)
def test_timeouts_that_make_no_sense(
    make_pool: MakePool, state: str, timeout: object, error: type[Exception]
) -> None:
    """P08: a timeout that is negative, NaN, bool or no number is refused on every call, hit or not."""
    pool = make_pool(max_size=1)
    held = pool.lease("A") if state == "full" else None
    if state == "hit":
        pool.lease("A").release()
    bound = pool.bind("A")
    for call in (pool.lease, pool.acquire):
        with pytest.raises(error, match="timeout") as caught:
            call("A", timeout)  # type: ignore[arg-type]
        assert repr(timeout) in str(caught.value)
    for bound_call in (bound.lease, bound.acquire):
        with pytest.raises(error, match="timeout"):
            bound_call(timeout=timeout)  # type: ignore[arg-type]
    with pytest.raises(error, match="timeout"):
        pool.close(timeout=timeout)  # type: ignore[arg-type]
    assert not pool.closed
    if held is not None:
        held.release()
    stats = pool.stats()
    assert (stats.timeouts, stats.rejected, stats.waits) == (0, 0, 0)
    still_works(pool)


def test_calls_with_too_much(make_pool: MakePool) -> None:
    """Arguments that a call doesn't have are refused, and leave nothing behind."""
    pool = make_pool()
    with pytest.raises(TypeError):
        pool.lease("A", 1, 2)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        pool.try_lease("A", timeout=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        pool.bind("A").lease("A", 1)  # type: ignore[call-arg]
    still_works(pool, idle=0)


def test_use_after_close(make_pool: MakePool) -> None:
    """G9: after close each way to get something says so; what gives back or looks goes on working."""
    pool = make_pool(name="gone", max_size=3)
    lease = pool.lease("A")
    thing = pool.acquire("A")
    pool.lease("A").release()
    bound = pool.bind("A")
    with pool:
        pass
    assert pool.closed
    calls: list[Callable[[], object]] = [
        lambda: pool.lease("A"),
        lambda: pool.lease("A", timeout=0),
        lambda: pool.acquire("new"),
        lambda: pool.try_lease("A"),
        lambda: pool.try_acquire("new"),
        bound.lease,
        bound.acquire,
        bound.try_lease,
        bound.try_acquire,
        lambda: pool.bind("B").lease(),
    ]
    for call in calls:
        with pytest.raises(PoolClosedError, match="gone"):
            call()
    with pytest.raises(ValueError, match="-1"):
        pool.lease("A", timeout=-1)
    assert pool.clear() == 0
    assert pool.stats("A").leased == 2
    assert lease.resource.alive
    lease.release()
    pool.release(thing)
    with pytest.raises(InvalidReleaseError):
        pool.release(thing)
    with pytest.raises(LeaseReleasedError):
        _ = lease.resource
    pool.close()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.size == 0


def test_a_lease_cannot_be_copied(make_pool: MakePool) -> None:
    """G6: a copy of a lease would be a second holder: leases refuse it, pools a deep copy and pickle."""
    pool = make_pool()
    lease = pool.lease("A")
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            way(lease)
    for way in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            way(pool)
    lease.release()
    still_works(pool, idle=1)


def test_stats_of_an_unknown_key(make_pool: MakePool) -> None:
    """Asking about a key that was never used gives zeros, and makes nothing."""
    pool = make_pool(max_per_key=lambda key: 1 / 0)
    stats = pool.stats("never used")
    assert (stats.size, stats.acquired, stats.waiters) == (0, 0, 0)
    assert pool.clear("never used") == 0


@pytest.mark.parametrize(
    ("answer", "error"),
    [(0, ValueError), (-2, ValueError), (True, TypeError), (1.5, TypeError), ("2", TypeError)],
)
def test_a_max_per_key_function_that_answers_nonsense(
    make_pool: MakePool, factory: Factory, answer: object, error: type[Exception]
) -> None:
    """P11: the same rules hold for what a max_per_key function gives; its key stays unusable, others work."""
    pool = make_pool(max_per_key=lambda key: answer if key == "bad" else 2)
    for call in (pool.lease, pool.try_lease, pool.acquire, pool.try_acquire):
        with pytest.raises(error, match="max_per_key") as caught:
            call("bad")
        assert repr(answer) in str(caught.value)
    assert factory.calls["create"] == 0
    still_works(pool, idle=0)


def test_a_max_per_key_function_that_raises(make_pool: MakePool) -> None:
    """What a max_per_key function raises reaches the acquirer, and is counted; it may work the next time."""
    errors: list[BaseException] = [LookupError("no"), KeyboardInterrupt()]

    def cap(key: str) -> int:
        if errors:
            raise errors.pop(0)
        return 1

    pool = make_pool(max_per_key=cap)
    with pytest.raises(LookupError, match="no"):
        pool.lease("A")
    assert pool.stats().hook_errors["max_per_key"] == 1
    with pytest.raises(KeyboardInterrupt):
        pool.acquire("A")
    with pool.lease("A"):
        assert pool.try_lease("A") is None
    still_works(pool, idle=1)


def test_threads_may_not_be_needed_at_construction() -> None:
    """P109: making a pool starts no thread."""
    before = threading.active_count()
    with ResourcePool(lambda key: object()) as pool:
        pool.lease("A").release()
        assert threading.active_count() == before
