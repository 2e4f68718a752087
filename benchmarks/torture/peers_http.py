"""The pools inside urllib3 and redis-py, driven without a server by a connection class of our own.

In both, what the pool holds is a connection object that connects when it's needed: a resource is made by
``connect`` and ended by ``close`` / ``disconnect``.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any, ClassVar

import redis
import redis.exceptions
import urllib3
import urllib3.connection
import urllib3.exceptions

from benchmarks.torture.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.torture.world import Thing, World


class Urllib3(Peer):
    """HTTPConnectionPool(block=True) by requests with ``preload_content=False``; PoolManager where there are keys.

    What's held is the response, and giving back is ``release_conn()``.
    """

    name = "urllib3"
    package = "urllib3"
    refusals = (urllib3.exceptions.EmptyPoolError,)
    lacks: ClassVar[Mapping[str, str]] = {
        "destroy": "it keeps what it has until close",
        "reset": "it has no such hook",
        "bare": "a response gives its connection back to the pool that it came from",
        "total": "a PoolManager limits the connections of each host only",
        "object": "it makes its own connection objects",
    }

    def build(self) -> None:
        """Make the pool with our connections."""
        want = self.settings
        connection = _http_connection(self.world, validate=want.validate)

        class Pool(urllib3.HTTPConnectionPool):
            ConnectionCls = connection

        self.pool: Any = None
        if want.per_key is None:
            self.pool = Pool("localhost", maxsize=want.size, block=True, retries=False)
        else:
            self.manager: Any = urllib3.PoolManager(maxsize=want.per_key, block=True, retries=False)
            self.manager.pool_classes_by_scheme = {"http": Pool}

    def acquire(self, key: object = None) -> Any:
        """Begin a request, and leave its body unread."""
        pool = self.pool or self.manager.connection_from_host(str(key), 80)
        return pool.urlopen(
            "GET", "/", retries=False, preload_content=False, pool_timeout=self.settings.timeout
        )

    def release(self, held: Any) -> None:
        """Give the connection back."""
        held.release_conn()

    def thing(self, held: Any) -> Thing:
        """Look into the response's connection."""
        thing: Thing = held.connection.thing
        return thing

    def discard(self, held: Any) -> None:
        """Close the connection, and give its place back."""
        held.close()
        held.release_conn()

    def close(self) -> None:
        """Close the pool."""
        self.pool.close()


def _http_connection(world: World, *, validate: bool) -> Any:  # noqa: C901 - one class, of small methods
    class Connection(urllib3.connection.HTTPConnection):
        thing: Thing | None = None

        def connect(self) -> None:
            self.thing = world.create(self.host)

        @property
        def is_closed(self) -> bool:
            return self.thing is None

        @property
        def is_connected(self) -> bool:
            if self.thing is None:
                return False
            return world.validate(self.thing) if validate else True

        def request(self, *args: Any, **kwargs: Any) -> None:
            del args, kwargs
            if self.thing is None:
                self.connect()

        def getresponse(self) -> Any:
            return urllib3.HTTPResponse(io.BytesIO(), status=200, preload_content=False)

        def close(self) -> None:
            thing, self.thing = self.thing, None
            if thing is not None:
                world.destroy(thing)

        def __eq__(self, other: object) -> bool:
            return self is other or (world.all_equal and isinstance(other, Connection))

        def __hash__(self) -> int:
            return 1 if world.all_equal else id(self)

    return Connection


class Redis(Peer):
    """BlockingConnectionPool."""

    name = "redis-py Blocking"
    package = "redis"
    refusals = (TimeoutError,)
    lacks: ClassVar[Mapping[str, str]] = {
        "destroy": "it keeps what it has until disconnect",
        "reset": "it has no such hook",
        "close": "after close() the pool goes on working",
        "keys": "a pool has one server",
        "total": "a pool has one server",
        "object": "it makes its own connection objects",
    }

    def build(self) -> None:
        """Make the pool with our connections."""
        kind: Any = redis.BlockingConnectionPool  # untyped
        self.pool = kind(
            max_connections=self.settings.size,
            timeout=self.settings.timeout,
            connection_class=_redis_connection(self.world, validate=self.settings.validate),
        )

    def acquire(self, key: object = None) -> Any:
        """Get a connection."""
        del key
        try:
            return self.pool.get_connection()
        except redis.exceptions.ConnectionError as error:
            if "No connection available" in str(
                error
            ):  # its word for a time-out; others are of that class, too
                raise TimeoutError from error
            raise

    def release(self, held: Any) -> None:
        """Release it."""
        self.pool.release(held)

    def thing(self, held: Any) -> Thing:
        """Look into the connection."""
        thing: Thing = held.thing
        return thing

    def discard(self, held: Any) -> None:
        """Disconnect it, and release it to be connected again."""
        held.disconnect()
        self.pool.release(held)


def _redis_connection(world: World, *, validate: bool) -> Any:
    class Connection(redis.Connection):
        thing: Thing | None = None

        def connect(self) -> None:
            if self.thing is None:
                self.thing = world.create()

        def disconnect(self, *args: Any, **kwargs: Any) -> None:
            del args, kwargs
            thing, self.thing = self.thing, None
            if thing is not None and os.getpid() == self.pid:  # as the real one does
                world.destroy(thing)

        def can_read(self, timeout: float = 0, **kwargs: Any) -> bool:
            del timeout, kwargs
            if validate and self.thing is not None and not world.validate(self.thing):
                raise redis.exceptions.ConnectionError("the server has gone")
            return False

        def __eq__(self, other: object) -> bool:
            return self is other or (world.all_equal and isinstance(other, Connection))

        def __hash__(self) -> int:
            return 1 if world.all_equal else id(self)

    return Connection
