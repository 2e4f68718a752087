"""A monotonic clock that the test sets, as the package sees it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from respool import _reaper

if TYPE_CHECKING:
    from typing import Any

    import pytest

    from respool import ResourcePool

    from .resources import Thing


class Clock:
    """Stands in for ``time.monotonic`` inside ``respool``, and goes on only when told to.

    Sleeps last as long as ever: a waiter that is woken, or that the test lets time out
    by a timeout of 0, doesn't notice; a timeout that has to pass by itself never would.
    """

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Be the clock of all modules of the package."""
        for name, module in list(sys.modules.items()):
            if name.startswith("respool._") and hasattr(module, "monotonic"):
                monkeypatch.setattr(module, "monotonic", self)


def without_reaper(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Give the clock of the pools made from now on, and let nobody reap them but the test."""
    monkeypatch.setattr(_reaper, "watch", lambda core: None)
    clock = Clock()
    clock.install(monkeypatch)
    return clock


def fill(pool: ResourcePool[Any, Thing], count: int, key: object = "A") -> list[Thing]:
    """Make so many idle ones, the first made being the one given back first."""
    leases = [pool.lease(key) for _ in range(count)]
    things = [lease.resource for lease in leases]
    for lease in leases:
        lease.release()
    return things
