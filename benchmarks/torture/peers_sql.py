"""The pools of SQLAlchemy and psycopg, driven without a database.

SQLAlchemy's takes any creator.  psycopg_pool takes a connection class, and looks at its ``pgconn``'s status
only; what stands in for a server's failure is that status, as with a real connection.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

import psycopg
import psycopg_pool
from sqlalchemy import event, exc
from sqlalchemy.pool import QueuePool

from benchmarks.torture.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.torture.world import Thing, World

_ENDLESS = 3600.0


class SqlAlchemy(Peer):
    """QueuePool with a hard limit, checks by the `checkout` event, resets by the `reset` event."""

    name = "SQLAlchemy QueuePool"
    package = "sqlalchemy"
    refusals = (exc.TimeoutError,)
    lacks: ClassVar[Mapping[str, str]] = {
        "bare": "a connection is given back by the proxy that knows its pool",
        "close": "after dispose() the pool goes on working",
        "keys": "a pool has one kind",
        "total": "a pool has one kind",
    }

    def build(self) -> None:
        """Make the pool, with the listeners that are wanted."""
        want, world = self.settings, self.world
        logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
        creator: Any = lambda: _Dbapi.of(world, world.create())  # noqa: E731 - Any: no whole DB-API connection
        self.pool = QueuePool(
            creator,
            pool_size=want.size,
            max_overflow=0,
            timeout=_ENDLESS if want.timeout is None else want.timeout,
        )
        if want.validate:
            event.listen(self.pool, "checkout", self._check)
        if want.reset:
            event.listen(self.pool, "reset", lambda dbapi, _record, _state: world.reset(dbapi.thing))

    def _check(self, dbapi: Any, _record: Any, _proxy: Any) -> None:
        if not self.world.validate(dbapi.thing):
            raise exc.DisconnectionError

    def acquire(self, key: object = None) -> Any:
        """Connect."""
        del key
        return self.pool.connect()

    def release(self, held: Any) -> None:
        """Close the proxy; where the pool shall destroy what comes back, invalidate it before."""
        if self.settings.one_use and held.dbapi_connection is not None:
            held.invalidate()
        held.close()

    def thing(self, held: Any) -> Thing:
        """Look behind the proxy."""
        thing: Thing = held.driver_connection.thing
        return thing

    def discard(self, held: Any) -> None:
        """Invalidate it, and give its place back."""
        held.invalidate()
        held.close()


class _Dbapi:
    """A DB-API connection without a database."""

    def __init__(self, world: World, thing: Thing) -> None:
        self.world = world
        self.thing = thing

    @classmethod
    def of(cls, world: World, thing: Thing) -> _Dbapi:
        """Wrap a thing: the same thing in the same wrapper."""
        if thing.wrapper is None:
            thing.wrapper = cls(world, thing)
        wrapper: _Dbapi = thing.wrapper
        return wrapper

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Dbapi) and self.thing == other.thing

    def __hash__(self) -> int:
        return hash(self.thing)

    def rollback(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """End the resource."""
        self.world.destroy(self.thing)


class Psycopg(Peer):
    """psycopg_pool.ConnectionPool, grown on demand, with a connection class of our own."""

    name = "psycopg_pool"
    package = "psycopg-pool"
    refusals = (psycopg_pool.PoolTimeout,)
    lacks: ClassVar[Mapping[str, str]] = {
        "keys": "a pool has one kind",
        "total": "a pool has one kind",
    }

    def build(self) -> None:
        """Open the pool; its worker threads are always there."""
        want, world = self.settings, self.world
        logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
        self.pool: Any = psycopg_pool.ConnectionPool(
            connection_class=_connection_class(world),
            min_size=0,
            max_size=want.size,
            timeout=_ENDLESS if want.timeout is None else want.timeout,
            check=self._check if want.validate else None,
            reset=(lambda connection: world.reset(connection.thing)) if want.reset else None,
            max_lifetime=0.0 if want.one_use else 3600.0,
            open=True,
        )

    def _check(self, connection: Any) -> None:
        try:
            good = self.world.validate(connection.thing)
        except Exception:
            connection.break_off()
            raise
        if not good:
            connection.break_off()
            raise psycopg.OperationalError("the connection is broken")

    def acquire(self, key: object = None) -> Any:
        """Get a connection."""
        del key
        return self.pool.getconn()

    def release(self, held: Any) -> None:
        """Put it back."""
        self.pool.putconn(held)

    def thing(self, held: Any) -> Thing:
        """Look into the connection."""
        thing: Thing = held.thing
        return thing

    def discard(self, held: Any) -> None:
        """Close the connection, and give it back closed: the pool makes another."""
        held.close()
        self.pool.putconn(held)

    def close(self) -> None:
        """Close the pool."""
        self.pool.close()


def _connection_class(world: World) -> Any:
    class Wire:
        transaction_status = psycopg.pq.TransactionStatus.IDLE

    class Connection:
        _pool: Any = None

        def __init__(self, thing: Thing) -> None:
            self.thing = thing
            self.pgconn = Wire()
            self.closed = False

        @classmethod
        def connect(cls, conninfo: str = "", **kwargs: object) -> Connection:
            del conninfo, kwargs
            thing = world.create()
            if thing.wrapper is None:
                thing.wrapper = cls(thing)
            connection: Connection = thing.wrapper
            return connection

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Connection) and self.thing == other.thing

        def __hash__(self) -> int:
            return hash(self.thing)

        def rollback(self) -> None:
            pass

        def close(self) -> None:
            if not self.closed:
                self.closed = True
                self.pgconn.transaction_status = psycopg.pq.TransactionStatus.UNKNOWN
                world.destroy(self.thing)

        def break_off(self) -> None:
            """Be lost, as when the server has gone: nobody closes it any more."""
            self.close()

    return Connection
