"""The exceptions of the pool core and the leak warning.

Every text that a user of the core reads in an exception is built here.  All of them can be pickled, none
fails because the ``repr`` of a key or of a resource does, and none holds a reference to a resource or to a
pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from respool.limits import PoolLimits

__all__ = [
    "InvalidReleaseError",
    "LeaseLeakWarning",
    "LeaseLostError",
    "LeaseReleasedError",
    "PoolClosedError",
    "PoolError",
    "PoolExhaustedError",
    "PoolReentrancyError",
    "PoolTimeoutError",
    "Quarantine",
    "safe_repr",
]

_LONGEST = 200


def safe_repr(value: object) -> str:
    """Give the ``repr`` of `value`, shortened, or its type and address where that raises."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a message must never fail because of what it talks about
        return f"<{type(value).__name__} at {id(value):#x}, repr raised {type(error).__name__}>"
    if len(text) > _LONGEST:
        return f"{text[: _LONGEST - 3]}..."
    return text


class PoolError(Exception):
    """Base of all errors that a pool raises by itself."""

    __module__ = "respool"


class PoolClosedError(PoolError):
    """The pool has been closed: it hands out nothing any more."""

    __module__ = "respool"


class PoolExhaustedError(PoolError):
    """The request can't be met, now or ever: larger than a limit, or the queue is full."""

    __module__ = "respool"


class PoolReentrancyError(PoolError):
    """The call can't be made from this place.

    Either waiting would be for ever, since only hooks that are waiting themselves could free something, or
    the call interrupts the pool's own locked section on the same thread (a finaliser, a signal handler).
    """

    __module__ = "respool"


class InvalidReleaseError(PoolError):
    """The resource is not in the caller's hands: foreign, idle, given back before, or held by a lease."""

    __module__ = "respool"


class LeaseReleasedError(PoolError):
    """The lease is spent: it was released, discarded or detached before."""

    __module__ = "respool"


class LeaseLostError(PoolError):
    """The world of the leased resource is gone, for example because the process has forked."""

    __module__ = "respool"


class PoolTimeoutError(PoolError, TimeoutError):
    """The deadline passed before a resource could be handed out, or before a closing pool was empty.

    Parameters
    ----------
    message
        What was waited for.
    key
        The key that was asked for.
    limits
        The limits of the pool.
    idle, leased, pending, creating, waiters, destroying, quarantined
        The state of the pool when the wait ended: numbers over all keys.
    holders
        Where the resource that is out for the longest was acquired, or None where that isn't tracked.

    Attributes
    ----------
    key : object
        The key that was asked for.  A key that can't be pickled becomes its ``repr`` in a pickled error.
    limits : PoolLimits | None
        The limits of the pool.
    idle, leased, pending, creating, waiters, destroying, quarantined : int
        The state of the pool when the wait ended: numbers over all keys.
    holders : str | None
        Where the resource that is out for the longest was acquired.
    """

    __module__ = "respool"

    def __init__(
        self,
        message: str = "",
        *,
        key: object = None,
        limits: PoolLimits | None = None,
        idle: int = 0,
        leased: int = 0,
        pending: int = 0,
        creating: int = 0,
        waiters: int = 0,
        destroying: int = 0,
        quarantined: int = 0,
        holders: str | None = None,
    ) -> None:
        super().__init__(message)
        self.key = key
        self.limits = limits
        self.idle = idle
        self.leased = leased
        self.pending = pending
        self.creating = creating
        self.waiters = waiters
        self.destroying = destroying
        self.quarantined = quarantined
        self.holders = holders

    def __str__(self) -> str:
        text = (
            f"{self.args[0]} (key={safe_repr(self.key)}, {self.limits}, idle={self.idle}, leased={self.leased}, "
            f"pending={self.pending}, creating={self.creating}, waiters={self.waiters}{self._rare()})"
        )
        if self.holders:
            text = f"{text}; out for the longest, acquired at:\n{self.holders}"
        return text

    def _rare(self) -> str:
        """Name what takes rooms in rare states only."""
        states = (("destroying", self.destroying), ("quarantined", self.quarantined))
        return "".join(f", {name}={count}" for name, count in states if count)

    def __reduce__(self) -> tuple[Any, ...]:
        state = dict(self.__dict__)
        state["key"] = _portable(self.key)
        if self.limits is not None:
            state["limits"] = self.limits.portable()
        return (type(self), (self.args[0],), state)


def _portable(key: object) -> object:
    import pickle

    try:
        pickle.dumps(key)
    except Exception:  # noqa: BLE001 - whatever the key's own pickling raises, the error must survive it
        return safe_repr(key)
    return key


class Quarantine(Exception):  # noqa: N818 - part of the contract; it is a message from a destroy hook, not a failure of the pool
    """Raised by a destroy hook: the resource can't be freed, keep it counted."""

    __module__ = "respool"


class LeaseLeakWarning(ResourceWarning):
    """A lease was dropped without being released."""

    __module__ = "respool"
