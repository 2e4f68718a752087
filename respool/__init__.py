"""respool: one resource pool with limits, fairness and exact counters.

This module gives the names of the core and nothing else.  `respool.buffers`, `respool.curl` and `respool.io`
stand on it.  The names are imported when they're first used, so that whatever begins with this package, as the
command line does, has the first word.
"""

from __future__ import annotations

from respool._version import __version__

TYPE_CHECKING = False  # as type checkers understand it, without loading typing
if TYPE_CHECKING:
    from respool._keys import ALL
    from respool.bound import BoundPool
    from respool.errors import (
        InvalidReleaseError,
        LeaseLeakWarning,
        LeaseLostError,
        LeaseReleasedError,
        PoolClosedError,
        PoolError,
        PoolExhaustedError,
        PoolReentrancyError,
        PoolTimeoutError,
        Quarantine,
    )
    from respool.group import LeaseGroup
    from respool.lease import Lease
    from respool.limits import PoolLimits
    from respool.observers import LoggingObserver, PoolObserver
    from respool.pool import ResourcePool
    from respool.stats import PoolStats

__all__ = [
    "ALL",
    "BoundPool",
    "InvalidReleaseError",
    "Lease",
    "LeaseGroup",
    "LeaseLeakWarning",
    "LeaseLostError",
    "LeaseReleasedError",
    "LoggingObserver",
    "PoolClosedError",
    "PoolError",
    "PoolExhaustedError",
    "PoolLimits",
    "PoolObserver",
    "PoolReentrancyError",
    "PoolStats",
    "PoolTimeoutError",
    "Quarantine",
    "ResourcePool",
    "__version__",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of this module's
    _HOMES = {
        "ALL": "_keys",
        "BoundPool": "bound",
        "InvalidReleaseError": "errors",
        "Lease": "lease",
        "LeaseGroup": "group",
        "LeaseLeakWarning": "errors",
        "LeaseLostError": "errors",
        "LeaseReleasedError": "errors",
        "LoggingObserver": "observers",
        "PoolClosedError": "errors",
        "PoolError": "errors",
        "PoolExhaustedError": "errors",
        "PoolLimits": "limits",
        "PoolObserver": "observers",
        "PoolReentrancyError": "errors",
        "PoolStats": "stats",
        "PoolTimeoutError": "errors",
        "Quarantine": "errors",
        "ResourcePool": "pool",
    }

    def __getattr__(name: str) -> object:
        """Import a public name, or the module of some, when it's first asked for."""
        from importlib import import_module

        if name in _HOMES:
            value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        elif name in _HOMES.values():
            value = import_module(f"{__name__}.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
