"""The errors: what is what, that they can be sent elsewhere, and that their texts never fail."""

from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING, Any

import pytest

import respool
from respool import (
    InvalidReleaseError,
    LeaseLeakWarning,
    LeaseLostError,
    LeaseReleasedError,
    PoolClosedError,
    PoolError,
    PoolExhaustedError,
    PoolLimits,
    PoolReentrancyError,
    PoolTimeoutError,
    Quarantine,
    ResourcePool,
)
from tests.helpers.invariants import assert_quiet

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool

POOL_ERRORS = [
    PoolClosedError,
    PoolTimeoutError,
    PoolExhaustedError,
    LeaseReleasedError,
    LeaseLostError,
    InvalidReleaseError,
    PoolReentrancyError,
]


@pytest.mark.parametrize("kind", POOL_ERRORS)
def test_pool_errors_have_one_base(kind: type[PoolError]) -> None:
    """Each error that a pool raises by itself is a PoolError, and no other's special case."""
    assert issubclass(kind, PoolError)
    assert PoolError.__mro__[1] is Exception
    assert issubclass(kind, TimeoutError) == (kind is PoolTimeoutError)
    others = [other for other in POOL_ERRORS if other is not kind]
    assert not issubclass(kind, tuple(others))


def test_what_is_no_pool_error() -> None:
    """Quarantine is a hook's message, the leak a warning: neither is caught with PoolError."""
    assert issubclass(Quarantine, Exception)
    assert not issubclass(Quarantine, PoolError)
    assert issubclass(LeaseLeakWarning, ResourceWarning)


@pytest.mark.parametrize("kind", [PoolError, *POOL_ERRORS, Quarantine, LeaseLeakWarning])
def test_errors_can_be_pickled(kind: type[Exception]) -> None:
    """P10: an error goes through pickle with its class, text and notes."""
    error = kind("what happened")
    error.add_note("a note")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        copy = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - made in this line
        assert type(copy) is kind
        assert str(copy) == str(error)
        assert "what happened" in str(copy)
        assert copy.__notes__ == ["a note"]
    assert kind.__module__ == "respool"
    assert getattr(respool, kind.__name__) is kind


class Nasty:
    """As a key or a resource: its repr raises, and it can't be pickled."""

    def __init__(self, error: type[BaseException] = ZeroDivisionError) -> None:
        self.error = error

    def __repr__(self) -> str:
        raise self.error("in repr")

    def __reduce__(self) -> str:
        raise TypeError("can't be pickled")


def _raised(call: Callable[[], object]) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any: the test looks at it
        call()
    return caught.value


def test_a_repr_that_raises_breaks_no_message(recorder: Recorder) -> None:
    """P10: errors about a key or resource whose repr raises keep their class and have a text."""
    nasty_key, nasty = Nasty(), Nasty()
    made = [nasty, None, nasty]
    pool: ResourcePool[Any, Any] = ResourcePool(
        lambda key: made.pop(0),
        cost=lambda key: 1 if isinstance(key, Nasty) else key,
        limits=PoolLimits(max_size=2, max_per_key=2, max_cost=4, max_waiters=0),
        observer=recorder,
    )
    with pool:
        lease = pool.lease(nasty_key)
        found = {
            "none": _raised(lambda: pool.lease(nasty_key)),
            "same": _raised(lambda: pool.lease(nasty_key)),
            "foreign": _raised(lambda: pool.release(Nasty())),
            "a lease's": _raised(lambda: pool.release(nasty)),
            "discard": _raised(lambda: pool.discard(Nasty())),
            "cost": _raised(lambda: pool.lease(9)),
        }
        made.append(object())
        other = pool.lease(nasty_key)
        found["timeout"] = _raised(lambda: pool.lease(nasty_key, timeout=0))
        found["queue full"] = _raised(lambda: pool.lease(nasty_key))
        repr(pool)
        repr(lease)
        lease.release()
        repr(lease)
        found["spent"] = _raised(lambda: lease.resource)
        found["spent discard"] = _raised(lease.discard)
        found["spent detach"] = _raised(lease.detach)
        found["idle"] = _raised(lambda: pool.release(nasty))
        other.release()
        assert_quiet(pool, leased=0, idle=2)
    found["closed"] = _raised(lambda: pool.lease(nasty_key))
    expected = {
        "none": PoolError,
        "same": PoolError,
        "foreign": InvalidReleaseError,
        "a lease's": InvalidReleaseError,
        "discard": InvalidReleaseError,
        "cost": PoolExhaustedError,
        "timeout": PoolTimeoutError,
        "queue full": PoolExhaustedError,
        "spent": LeaseReleasedError,
        "spent discard": LeaseReleasedError,
        "spent detach": LeaseReleasedError,
        "idle": InvalidReleaseError,
        "closed": PoolClosedError,
    }
    assert {name: type(error) for name, error in found.items()} == expected
    for name, error in found.items():
        assert len(str(error)) > 10, name
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - made in this line
        assert type(copy) is type(error), name
        assert str(copy), name


def test_repr_of_a_pool_tells_its_state(make_pool: MakePool) -> None:
    """A pool's repr is one line with name, limits and numbers."""
    pool = make_pool(name="handles", max_size=3)
    lease = pool.lease("A")
    pool.lease("B").release()
    text = repr(pool)
    for part in ("handles", "max_size=3", "1 idle|idle=1", "1 leased|leased=1"):
        assert re.search(part, text), text
    assert "\n" not in text
    assert "closed" not in text
    lease.release()
    pool.close()
    assert "closed" in repr(pool)


def test_repr_of_a_lease_tells_its_state(make_pool: MakePool) -> None:
    """A lease's repr tells its key, and whether it is spent."""
    pool = make_pool()
    lease = pool.lease("the key")
    assert "the key" in repr(lease)
    assert "released" not in repr(lease)
    lease.release()
    assert "released" in repr(lease)


def test_a_long_key_is_shortened(make_pool: MakePool) -> None:
    """P10: a key of a megabyte doesn't make an error's text one."""
    pool = make_pool(max_size=1)
    with pool.lease("A"), pytest.raises(PoolTimeoutError) as caught:
        pool.lease("x" * 1_000_000, timeout=0)
    assert len(str(caught.value)) < 2_000
    assert len(caught.value.key) == 1_000_000


def test_a_pickled_timeout_keeps_what_it_can(make_pool: MakePool) -> None:
    """P10: a key or a limit function that can't be pickled doesn't stop the error from being sent."""
    pool = make_pool(max_size=7, max_per_key=lambda key: 1)
    key = Nasty()
    with pool.lease(key), pytest.raises(PoolTimeoutError) as caught:
        pool.lease(key, timeout=0)
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - made in this line
    assert (copy.leased, copy.limits.max_size) == (1, 7)
    assert isinstance(copy.key, str)
    assert "Nasty" in copy.key


def test_what_takes_the_room_is_said(make_pool: MakePool, factory: Factory) -> None:
    """P10: a room that is taken by what is being destroyed, or can't be freed, is named, too."""
    pool = make_pool(max_size=1)
    factory.errors["destroy"] = [Quarantine("stays")]
    pool.lease("A").discard()
    with pytest.raises(PoolTimeoutError, match=r"waiters=0, quarantined=1\)") as caught:
        pool.lease("A", timeout=0)
    assert (caught.value.quarantined, caught.value.destroying) == (1, 0)
    assert "quarantined=1" in repr(pool)
    with pytest.raises(ValueError, match=r"n must be at least 1, got 0"):
        pool.lease_many(0, "A")
