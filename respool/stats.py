"""PoolStats, the frozen snapshot of a pool's numbers, and the names of the reasons and hooks that it counts by."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HOOKS", "REASONS", "PoolStats"]

REASONS = ("discarded", "invalid", "idle", "lifetime", "evicted", "surplus", "cleared", "closed", "leaked")
"""Why a resource is destroyed; the keys of `PoolStats.destroyed_for`."""

HOOKS = ("create", "destroy", "validate", "reset", "cost", "max_per_key", "when", "observer")
"""What a user plugs into a pool and may fail; the keys of `PoolStats.hook_errors`."""


@dataclass(frozen=True, kw_only=True)
class PoolStats:
    """The numbers of a pool, or of one of its keys, at one moment.

    The first block tells how things stand now, the second counts since the pool was made; a key's history
    starts when its state was last made. No number is ever negative or beyond a limit.  At quiet moments (no
    call under way) ``size == idle + leased + pending + quarantined + creating + destroying`` and ``created +
    adopted == destroyed + detached + abandoned + size - creating``, and the keys' numbers add up to the
    totals.

    Attributes
    ----------
    idle
        Resources that wait in the pool to be taken.
    leased
        Resources in somebody's hands; those being validated or reset belong to them.
    pending
        Given back, but not free yet.
    quarantined
        Neither handed out nor destroyed, because they can't be freed.
    creating, destroying
        Resources whose hook is about to run, or runs.
    size
        All resources in existence: the sum of the six above.
    cost
        What all resources in existence cost, in the unit of the pool's cost function.
    waiters
        Callers that wait in line.
    acquired
        Resources handed out, in whatever way.
    created, reused, adopted, detached, abandoned, destroyed
        Made by the create hook; handed out again; taken in from elsewhere; taken out for good; left behind
        without destroy; ended.
    destroyed_for
        `destroyed` by reason: discarded, invalid, idle, lifetime, evicted, surplus, cleared, closed, leaked.
    hook_errors
        Exceptions by hook: create, destroy, validate, reset, cost, max_per_key, when, observer.
    leaked
        Leases dropped without release.
    timeouts, rejected, cancelled
        Acquires that ended by their timeout; that could never be met or found the queue full; whose wait was
        interrupted or cancelled.
    waits
        Acquires that had to wait in line, however they ended.
    wait_seconds
        The time that they waited, summed, in seconds.
    """

    idle: int = 0
    leased: int = 0
    pending: int = 0
    quarantined: int = 0
    creating: int = 0
    destroying: int = 0
    size: int = 0
    cost: int = 0
    waiters: int = 0
    acquired: int = 0
    created: int = 0
    reused: int = 0
    adopted: int = 0
    detached: int = 0
    abandoned: int = 0
    destroyed: int = 0
    destroyed_for: Mapping[str, int] = field(
        default_factory=lambda: MappingProxyType(dict.fromkeys(REASONS, 0))
    )
    hook_errors: Mapping[str, int] = field(default_factory=lambda: MappingProxyType(dict.fromkeys(HOOKS, 0)))
    leaked: int = 0
    timeouts: int = 0
    rejected: int = 0
    cancelled: int = 0
    waits: int = 0
    wait_seconds: float = 0.0

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by value: a mapping proxy can't be pickled by itself."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["destroyed_for"] = dict(self.destroyed_for)
        values["hook_errors"] = dict(self.hook_errors)
        return (_restore, (values,))


PoolStats.__module__ = "respool"


def _restore(values: dict[str, Any]) -> PoolStats:
    for name in ("destroyed_for", "hook_errors"):
        values[name] = MappingProxyType(values[name])
    return PoolStats(**values)
