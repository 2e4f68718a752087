"""How old a resource may become, and how long it may lie idle.

All ages are by `time.monotonic`: a wall clock that jumps expires nothing.
"""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from respool._slot import Record
    from respool.limits import PoolLimits

__all__ = ["draw", "end_of_life", "overdue"]


def draw() -> float:
    """Draw a resource's share of the jitter, evenly from [0, 1)."""
    return int.from_bytes(urandom(4), "little") / 2**32


def end_of_life(record: Record, limits: PoolLimits) -> float | None:
    """Tell when the resource has lived long enough; None if there's no such limit."""
    lifetime = limits.max_lifetime
    return None if lifetime is None else record.born + lifetime * (1 - limits.lifetime_jitter * record.draw)


def overdue(record: Record, limits: PoolLimits, now: float, *, idle: bool = True) -> str | None:
    """Tell for what reason the resource must go now, if there is one; `idle` says whether it lies idle."""
    end = end_of_life(record, limits)
    if end is not None and now >= end:
        return "lifetime"
    if idle and limits.idle_timeout is not None and now - record.since >= limits.idle_timeout:
        return "idle"
    return None
