"""What holds for every pool: always, and at quiet moments.

A moment is quiet when no thread is inside a call of the pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from respool import PoolLimits, PoolStats, ResourcePool

NOW = (
    "idle",
    "leased",
    "pending",
    "quarantined",
    "creating",
    "destroying",
    "size",
    "cost",
    "waiters",
)
SINCE_START = (
    "acquired",
    "created",
    "reused",
    "adopted",
    "detached",
    "abandoned",
    "destroyed",
    "leaked",
    "timeouts",
    "rejected",
    "cancelled",
    "waits",
    "wait_seconds",
)


def assert_within(stats: PoolStats, limits: PoolLimits) -> None:
    """Check what holds at any moment: nothing negative, no limit passed."""
    for field in NOW + SINCE_START:
        assert getattr(stats, field) >= 0, f"{field} is negative: {stats}"
    for name in ("destroyed_for", "hook_errors"):
        for kind, count in getattr(stats, name).items():
            assert count >= 0, f"{name}[{kind!r}] is negative: {stats}"
    if limits.max_size is not None:
        assert stats.size <= limits.max_size, f"max_size is passed: {stats}"
    if limits.max_cost is not None:
        assert stats.cost <= limits.max_cost, f"max_cost is passed: {stats}"
    if limits.max_idle is not None:
        assert stats.idle <= limits.max_idle, f"max_idle is passed: {stats}"
    if limits.max_waiters is not None:
        assert stats.waiters <= limits.max_waiters, f"max_waiters is passed: {stats}"


def assert_balanced(stats: PoolStats) -> None:
    """Check the two equations that hold at quiet moments."""
    parts = stats.idle + stats.leased + stats.pending + stats.quarantined + stats.creating + stats.destroying
    assert stats.size == parts, f"size is not the sum of its parts: {stats}"
    came = stats.created + stats.adopted
    gone = stats.destroyed + stats.detached + stats.abandoned
    assert came == gone + stats.size - stats.creating, f"came and gone do not match: {stats}"
    assert sum(stats.destroyed_for.values()) == stats.destroyed, f"reasons do not add up: {stats}"


def assert_quiet(
    pool: ResourcePool[Any, Any],
    *,
    keys: Iterable[Hashable] | None = None,
    leased: int | None = None,
    idle: int | None = None,
) -> PoolStats:
    """Check a pool in which nothing happens now, and return its stats.

    ``keys``, where given, must be all keys that have a resource: what is now is then
    checked to add up to the totals.  (What was since the start need not: the history of
    a key ends when its state is dropped.)  ``leased`` and ``idle``, where given, must be
    the numbers found.
    """
    stats: PoolStats = pool.stats()
    assert_within(stats, pool.limits)
    assert_balanced(stats)
    assert stats.waiters == 0, f"somebody waits: {stats}"
    assert stats.creating == 0, f"something is being created: {stats}"
    assert stats.destroying == 0, f"something is being destroyed: {stats}"
    if leased is not None:
        assert stats.leased == leased, f"leased should be {leased}: {stats}"
    if idle is not None:
        assert stats.idle == idle, f"idle should be {idle}: {stats}"
    if keys is not None:
        parts = {key: pool.stats(key) for key in keys}
        for key, part in parts.items():
            assert_balanced(part)
            cap = pool.limits.max_per_key
            room = cap(key) if callable(cap) else cap
            assert room is None or part.size <= room, f"max_per_key is passed for {key!r}: {part}"
        for field in NOW:
            total = sum(getattr(part, field) for part in parts.values())
            assert total == getattr(stats, field), f"{field} of the keys is {total}: {stats}"
    return stats


def still_works(pool: ResourcePool[Any, Any], *, idle: int | None = None) -> None:
    """Check that the pool is quiet, then that it serves as ever."""
    assert_quiet(pool, leased=0, idle=idle)
    with pool.lease("a good key", timeout=0):
        assert pool.stats().leased == 1
    assert_quiet(pool, leased=0)
