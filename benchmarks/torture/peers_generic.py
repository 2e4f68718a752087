"""connpool and generic-connection-pool, which pool anything, as respool does."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

import connpool
from generic_connection_pool import threading as generic

from benchmarks.torture.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.torture.world import Thing


class Connpool(Peer):
    """connpool.ConnectionPool, and PoolRegistry where there are keys; without its retries, so that one failure is one."""

    name = "connpool"
    package = "connpool"
    refusals = (connpool.PoolTimeoutError,)
    lacks: ClassVar[Mapping[str, str]] = {"total": "its registry has a limit for each key only"}

    def build(self) -> None:
        """Make the pool, or one for each key."""
        want, world = self.settings, self.world
        logging.getLogger("connpool").setLevel(logging.CRITICAL)
        config = connpool.PoolConfig(
            max_size=want.size if want.per_key is None else want.per_key,
            acquire_timeout=want.timeout,
            validate_after_idle=0 if want.validate else None,
            max_uses=1 if want.one_use else None,
            retry=connpool.NO_RETRY,
            breaker=None,
        )

        def factory(key: object) -> Any:
            return connpool.CallableFactory(
                lambda: world.create(key),
                close=world.destroy,
                validate=world.validate if want.validate else None,
                reset=world.reset if want.reset else None,
            )

        self.registry: Any = None
        if want.per_key is None:
            self.pool: Any = connpool.ConnectionPool(factory(None), config)
            if want.upkeep:
                self.pool.open()
        else:
            self.registry = connpool.PoolRegistry(factory, config)

    def _of(self, key: object) -> Any:
        return self.pool if self.registry is None else self.registry.pool(key)

    def acquire(self, key: object = None) -> Any:
        """Acquire one."""
        return self._of(key).acquire()

    def release(self, held: Any) -> None:
        """Release it to the pool of its key."""
        self._of(held.key).release(held)

    def thing(self, held: Any) -> Thing:
        """Give it as it is: bare."""
        thing: Thing = held
        return thing

    def discard(self, held: Any) -> None:
        """Release it to be closed."""
        self._of(held.key).release(held, discard=True)

    def release_bare(self, resource: Any) -> None:
        """Release whatever it is."""
        self.pool.release(resource)

    def close(self) -> None:
        """Close the pool, or all of them."""
        (self.pool if self.registry is None else self.registry).close()


class GenericConnectionPool(Peer):
    """generic-connection-pool, its threading half."""

    name = "generic-connection-pool"
    package = "generic-connection-pool"
    refusals = (TimeoutError,)
    lacks: ClassVar[Mapping[str, str]] = {
        "discard": "a holder can't; the check before the next use must find out",
    }

    def build(self) -> None:
        """Make the pool; it disposes on release where nothing else is said."""
        want, world = self.settings, self.world
        logging.getLogger("generic_connection_pool").setLevel(logging.CRITICAL)

        class Manager(generic.BaseConnectionManager[Any, Any]):
            def create(self, endpoint: Any, timeout: float | None = None) -> Any:
                del timeout
                return world.create(endpoint)

            def dispose(self, endpoint: Any, conn: Any, timeout: float | None = None) -> None:
                del endpoint, timeout
                world.destroy(conn)

            def check_aliveness(self, endpoint: Any, conn: Any, timeout: float | None = None) -> bool:
                del endpoint, timeout
                return world.validate(conn) if want.validate else True

            def on_release(self, endpoint: Any, conn: Any) -> None:
                del endpoint
                if want.reset:
                    world.reset(conn)

            def on_connection_dead(self, endpoint: Any, conn: Any) -> None:
                del endpoint
                world.destroy(conn)

        short = {"idle_timeout": 0.0, "max_lifetime": 0.0} if want.one_use else {}
        kind: Any = generic.ConnectionPool
        self.pool = kind(
            Manager(),
            acquire_timeout=want.timeout,
            background_collector=want.upkeep,
            max_size=want.size if want.per_key is None else want.per_key,
            total_max_size=want.size,
            **short,
        )

    def acquire(self, key: object = None) -> Any:
        """Acquire one of an endpoint."""
        return self.pool.acquire(key)

    def release(self, held: Any) -> None:
        """Release it to its endpoint."""
        self.pool.release(held, held.key)

    def thing(self, held: Any) -> Thing:
        """Give it as it is: bare."""
        thing: Thing = held
        return thing

    def close(self) -> None:
        """Close, and wait a moment for what is out."""
        self.pool.close(timeout=1.0)
