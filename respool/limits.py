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

__all__ = ["PoolLimits", "check_cap", "check_cost", "check_number", "check_timeout"]


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
    idle_timeout
        Seconds that a resource may lie idle.  Above 0; infinity is None.
    max_lifetime
        Seconds after its creation from which a resource is not handed out again; a leased one is destroyed when
        it's given back.  Above 0; infinity is None.
    lifetime_jitter
        Each resource's own lifetime is drawn once, evenly from [1 - lifetime_jitter, 1] x max_lifetime, so that
        what was made together doesn't end together.  From 0 to 1.

    Raises
    ------
    TypeError
        A value is not an int (a bool counts as none), or not callable where a function may stand.
    ValueError
        A value is negative, or zero where at least 1 is needed, or NaN, or out of its range.
    """

    max_size: int | None = None
    max_per_key: int | Callable[[Any], int | None] | None = None
    max_idle: int | None = None
    max_cost: int | None = None
    max_waiters: int | None = None
    idle_timeout: float | None = None
    max_lifetime: float | None = None
    lifetime_jitter: float = 0.1

    def __post_init__(self) -> None:
        """Check each value."""
        _check_count("max_size", self.max_size, 1)
        if not callable(self.max_per_key):
            _check_count("max_per_key", self.max_per_key, 1)
        _check_count("max_idle", self.max_idle, 0)
        _check_count("max_cost", self.max_cost, 1)
        _check_count("max_waiters", self.max_waiters, 0)
        object.__setattr__(self, "idle_timeout", _check_age("idle_timeout", self.idle_timeout))
        object.__setattr__(self, "max_lifetime", _check_age("max_lifetime", self.max_lifetime))
        jitter = self.lifetime_jitter
        if isinstance(jitter, bool) or not isinstance(jitter, (int, float)):
            raise TypeError(f"lifetime_jitter must be a number, got {safe_repr(jitter)}")
        if not 0 <= jitter <= 1:
            raise ValueError(f"lifetime_jitter must be from 0 to 1, got {jitter!r}")

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


def _check_count(name: str, value: object, least: int, or_none: str = " or None") -> None:
    if value is None and or_none:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int{or_none}, got {safe_repr(value)}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}{or_none}, got {value}")


def _check_age(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds or None, got {safe_repr(value)}")
    if not value > 0:  # this way round, NaN fails too
        raise ValueError(f"{name} must be above 0 or None, got {value!r}")
    return float(value) if value < _ENDLESS else None


def check_number(name: str, value: object, least: int) -> int:
    """Check how many of something a caller asks for."""
    _check_count(name, value, least, "")
    return value  # type: ignore[return-value]  # _check_count lets nothing but int pass here


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
