"""respool: one resource pool with limits, fairness and exact counters.

This module gives the names of the core and nothing else.  `respool.buffers`, `respool.curl` and `respool.io`
stand on it.
"""

from __future__ import annotations

from respool._keys import ALL
from respool._version import __version__
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
