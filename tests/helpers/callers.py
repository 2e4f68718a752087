"""Callers of a pool who come one after another, and hold what they get until told to let go."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .threads import HANG_GUARD, wait_until, wait_until_queued

if TYPE_CHECKING:
    from respool import ResourcePool

    from .resources import Thing
    from .threads import Task, Threads


class Callers:
    """A line of callers; ``served`` tells who has got something, in order."""

    def __init__(self, pool: ResourcePool[str, Thing], threads: Threads) -> None:
        self.pool = pool
        self.threads = threads
        self.served: list[str] = []
        self._may_go: dict[str, threading.Event] = {}
        self._tasks: dict[str, Task[None]] = {}

    def join(self, name: str, key: str) -> None:
        """Queue one more caller; return when it is in the queue."""
        self.start(name, key)
        wait_until_queued(self.pool, len(self._tasks) - len(self.served))

    def start(self, name: str, key: str) -> None:
        """Start one more caller."""
        self._may_go[name] = threading.Event()

        def use() -> None:
            with self.pool.lease(key) as thing:
                assert thing.key == key
                self.served.append(name)
                assert self._may_go[name].wait(HANG_GUARD)

        self._tasks[name] = self.threads.start(use)

    def wait_served(self, *names: str) -> None:
        """Wait until exactly these have been served, in this order."""
        wait_until(lambda: len(self.served) >= len(names), f"{names} served, not {self.served}")
        assert self.served == list(names)

    def let_go(self, name: str) -> None:
        """Let a served caller release, and wait until it has."""
        self._may_go[name].set()
        self._tasks[name].wait()
