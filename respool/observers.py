"""PoolObserver, what it is told, and LoggingObserver, which a pool has when it's given none.

An observer is called outside all locks of the pool, on the thread that did what it is told about.  What it
raises is caught and logged by the pool (`respool._hooks`), so a broken observer breaks nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from respool.errors import safe_repr

if TYPE_CHECKING:
    from respool.pool import ResourcePool

__all__ = ["EVENTS", "LoggingObserver", "PoolObserver"]


class PoolObserver:
    """Told what happens in a pool.  Subclass it; every method does nothing by itself.

    The methods run on the thread that acts, with no lock of the pool held: they may use the pool.  They
    should be quick, since that thread waits for them.  An `Exception` that they raise is swallowed, counted
    in ``hook_errors["observer"]`` and logged.
    """

    __module__ = "respool"
    __slots__ = ()

    def created(self, pool: ResourcePool[Any, Any], key: Any, seconds: float) -> None:  # noqa: ANN401 - keys are of any type
        """Tell that a resource was created, and how long the hook took in seconds."""

    def destroyed(self, pool: ResourcePool[Any, Any], key: Any, reason: str) -> None:  # noqa: ANN401
        """Tell that a resource was destroyed and why: one of the keys of `PoolStats.destroyed_for`."""

    def queued(self, pool: ResourcePool[Any, Any], key: Any) -> None:  # noqa: ANN401
        """Tell that an acquire has begun to wait in line."""

    def waited(self, pool: ResourcePool[Any, Any], key: Any, seconds: float, outcome: str) -> None:  # noqa: ANN401
        """Tell that a wait is over: how long it took in seconds, and its outcome: served, timeout, cancelled, closed or failed."""

    def leaked(self, pool: ResourcePool[Any, Any], key: Any, stack: str | None) -> None:  # noqa: ANN401
        """Tell that a lease was dropped without release, with the acquiring stack as text, or None where it isn't tracked."""

    def hook_failed(self, pool: ResourcePool[Any, Any], key: Any, hook: str, error: BaseException) -> None:  # noqa: ANN401
        """Tell that a hook raised: its name (a key of `PoolStats.hook_errors`) and what it raised."""


EVENTS: Final = tuple(name for name in vars(PoolObserver) if not name.startswith("_"))
"""The names of what an observer is told."""


class LoggingObserver(PoolObserver):
    """Log failing hooks and leaks to the logger ``respool``.

    Errors that reach nobody (from reset, destroy, validate, an observer) and leaks are warnings; errors of
    create, cost and max_per_key reach the acquirer anyhow and are logged for debugging only.
    """

    __module__ = "respool"
    __slots__ = ()

    def leaked(self, pool: ResourcePool[Any, Any], key: Any, stack: str | None) -> None:  # noqa: ANN401
        """Log a leak."""
        import logging

        where = f", acquired at:\n{stack}" if stack else " (track_leases=True tells where it was acquired)"
        logging.getLogger("respool").warning(
            "pool %s: a lease for key %s was dropped without release%s", pool.name, safe_repr(key), where
        )

    def hook_failed(self, pool: ResourcePool[Any, Any], key: Any, hook: str, error: BaseException) -> None:  # noqa: ANN401
        """Log a hook's error."""
        import logging

        level = logging.DEBUG if hook in {"create", "cost", "max_per_key"} else logging.WARNING
        logging.getLogger("respool").log(
            level, "pool %s: the %s hook failed for key %s", pool.name, hook, safe_repr(key), exc_info=error
        )
