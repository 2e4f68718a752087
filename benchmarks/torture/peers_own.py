"""respool, and the pool that people write themselves on a queue."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any, ClassVar

import respool
from benchmarks.torture.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.torture.world import Thing


class Respool(Peer):
    """respool by its safe tier, leases."""

    name = "respool"
    package = "respool"
    refusals = (respool.PoolTimeoutError,)

    def build(self) -> None:
        """Make the pool with hooks of two arguments, key first."""
        want, world = self.settings, self.world
        self.pool: respool.ResourcePool[Any, Thing] = respool.ResourcePool(
            world.create,
            lambda _key, thing: world.destroy(thing),
            (lambda _key, thing: world.validate(thing)) if want.validate else None,
            reset=(lambda _key, thing: world.reset(thing)) if want.reset else None,
            limits=respool.PoolLimits(
                max_size=want.size,
                max_per_key=want.per_key,
                max_idle=0 if want.one_use else None,
                idle_timeout=60.0 if want.upkeep else None,
            ),
            observer=respool.PoolObserver(),  # scenarios make hooks fail on purpose: no log of it
        )

    def acquire(self, key: object = None) -> Any:
        """Lease one."""
        return self.pool.lease(key, self.settings.timeout)

    def release(self, held: Any) -> None:
        """Release the lease."""
        held.release()

    def thing(self, held: Any) -> Thing:
        """Look into the lease."""
        resource: Thing = held.resource
        return resource

    def discard(self, held: Any) -> None:
        """Discard by the lease."""
        held.discard()

    def bare(self, held: Any) -> Any:
        """Look into the lease."""
        return held.resource

    def release_bare(self, resource: Any) -> None:
        """Release on the fast tier, which takes bare resources."""
        self.pool.release(resource)

    def close(self) -> None:
        """Close without waiting for what is out."""
        try:
            self.pool.close(0)
        except respool.PoolTimeoutError:
            pass


class HomeMade(Peer):
    """A `queue.LifoQueue` and a counter, as it stands in many code bases; written with some care."""

    name = "LifoQueue, home-made"
    refusals = (queue.Empty,)
    lacks: ClassVar[Mapping[str, str]] = {
        "destroy": "it keeps all it made",
        "validate": "it has no check",
        "reset": "it has no such hook",
        "close": "it has no close",
        "keys": "one queue has one kind",
        "total": "one queue has one kind",
    }

    def build(self) -> None:
        """Make the queue."""
        self.pool = _QueueOfResources(self.world.create, self.world.destroy, self.settings.size)

    def acquire(self, key: object = None) -> Any:
        """Take one."""
        del key
        return self.pool.acquire(self.settings.timeout)

    def release(self, held: Any) -> None:
        """Put it back."""
        self.pool.release(held)

    def thing(self, held: Any) -> Thing:
        """Give it as it is: bare."""
        thing: Thing = held
        return thing

    def discard(self, held: Any) -> None:
        """End it, and take it off the count."""
        self.pool.discard(held)


class _QueueOfResources:
    """Makes resources on demand up to a number, then waits for one to come back."""

    def __init__(self, create: Any, destroy: Any, size: int) -> None:
        self._create = create
        self._destroy = destroy
        self._size = size
        self._made = 0
        self._lock = threading.Lock()
        self._idle: queue.LifoQueue[Any] = queue.LifoQueue()

    def acquire(self, timeout: float | None) -> Any:
        """Take an idle one, make one, or wait."""
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            pass
        with self._lock:
            room = self._made < self._size
            if room:
                self._made += 1
        if not room:
            return self._idle.get(timeout=timeout)
        try:
            return self._create()
        except Exception:
            with self._lock:
                self._made -= 1
            raise

    def release(self, resource: Any) -> None:
        """Put it back."""
        self._idle.put(resource)

    def discard(self, resource: Any) -> None:
        """End it."""
        self._destroy(resource)
        with self._lock:
            self._made -= 1
