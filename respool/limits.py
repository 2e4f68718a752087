"""The limits of a pool: what they mean, and that their values make sense.

This module owns the checking of values that users pass as a limit, a cost or a timeout.  How limits are
applied is `respool._accounting`'s matter.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from respool.errors import safe_repr

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PoolLimits", "check_cap", "check_cost", "check_timeout"]


@dataclass(frozen=True, kw_only=True)
class PoolLimits:
    """How much a pool may hold.  Frozen, thread-safe; None means no limit.

    Parameters
    ----------
    max_size
        Resources in existence over all keys, those being created or destroyed included.  At least 1.
    max_per_key
        The same for each single key: a number, or a function that gives one (or None) for a key.  The
        function is asked outside locks when a key's state is made; what it raises reaches the acquirer.
    max_idle
        Idle resources kept, over all keys.  0 keeps none.
    max_cost
        Sum of ``cost(key)`` over all resources in existence, in the unit of the pool's `cost` function
        (bytes, say).  At least 1.
    max_waiters
        Callers that may wait.  One more gets `PoolExhaustedError` at once.  0: nobody waits.

    Raises
    ------
    TypeError
        A value is not an int (a bool counts as none), or not callable where a function may stand.
    ValueError
        A value is negative, or zero where at least 1 is needed.
    """

    max_size: int | None = None
    max_per_key: int | Callable[[Any], int | None] | None = None
    max_idle: int | None = None
    max_cost: int | None = None
    max_waiters: int | None = None

    def __post_init__(self) -> None:
        """Check each value."""
        _check_count("max_size", self.max_size, 1)
        if not callable(self.max_per_key):
            _check_count("max_per_key", self.max_per_key, 1)
        _check_count("max_idle", self.max_idle, 0)
        _check_count("max_cost", self.max_cost, 1)
        _check_count("max_waiters", self.max_waiters, 0)

    def __str__(self) -> str:
        """Name the limits that are set."""
        given = [
            f"{field.name}={safe_repr(value)}"
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != field.default
        ]
        return f"PoolLimits({', '.join(given)})"

    def portable(self) -> PoolLimits:
        """Give limits that can be pickled: a `max_per_key` function is left out, since functions often can't be."""
        return dataclasses.replace(self, max_per_key=None) if callable(self.max_per_key) else self


PoolLimits.__module__ = "respool"


def _check_count(name: str, value: object, least: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int or None, got {safe_repr(value)}")
    if value < least:
        raise ValueError(f"{name} must be at least {least} or None, got {value}")


def check_cap(value: object) -> int | None:
    """Check what a `max_per_key` function gave: None, or an int of at least 1."""
    _check_count("the value of max_per_key(key)", value, 1)
    return value  # type: ignore[return-value]  # _check_count lets nothing but int and None pass


def check_cost(value: object) -> int:
    """Check what a cost function gave: an int of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"cost(key) must be an int, got {safe_repr(value)}")
    if value < 0:
        raise ValueError(f"cost(key) must not be negative, got {value}")
    return value


def check_timeout(value: object) -> float | None:
    """Check a timeout in seconds: None for "for ever" (infinity too), else a number of at least 0.

    Raises
    ------
    TypeError
        `value` is a bool, or no number.
    ValueError
        `value` is negative or NaN.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"timeout must be a number of seconds or None, got {safe_repr(value)}")
    if not value >= 0:  # this way round, NaN fails too
        raise ValueError(f"timeout must not be negative or NaN, got {value!r}")
    return None if value == math.inf else float(value) if value < _ENDLESS else None


# Longer than any process lives (and more than a float or the system's timers take): the same as no timeout.
_ENDLESS = 1e9
