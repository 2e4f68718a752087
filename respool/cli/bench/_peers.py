"""The pools that others would use, made ready for measuring: each gives out and takes back one resource.

This module owns how each peer is set up: as its documentation has it, with a limit where
it has one, with a resource that costs nothing, and with one resource idle, so that what's
measured is the pool's own way from idle to held and back.  Its resources pretend as much as
the pool looks at, and no more.
"""

from __future__ import annotations

import importlib
import queue
from typing import TYPE_CHECKING, Any

from respool.cli.bench._measure import Contender, Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SIZE = 4

PACKAGES = (
    "connpool",
    "cuttlepool",
    "generic-connection-pool",
    "psycopg-pool",
    "redis",
    "sqlalchemy",
    "urllib3",
)


def peers() -> Sequence[Contender | Missing]:
    """Set up each peer that is installed, and say of the others what's missing."""
    found: list[Contender | Missing] = [_lifo_queue()]
    makers: dict[str, Callable[[], Contender]] = {
        "urllib3 connection queue": _urllib3,
        "psycopg_pool": _psycopg_pool,
        "connpool": _connpool,
        "cuttlepool": _cuttlepool,
        "SQLAlchemy QueuePool": _sqlalchemy,
        "redis-py ConnectionPool": _redis,
        "generic-connection-pool": _generic_connection_pool,
    }
    for name, make in makers.items():
        try:
            found.append(make())
        except ImportError as error:
            found.append(Missing(name=name, why=str(error)))
        except Exception as error:  # noqa: BLE001 - a peer that changed is a gap in the table, not the end of it
            found.append(Missing(name=name, why=f"{type(error).__name__}: {error}"))
    return found


def load(name: str) -> Any:  # noqa: ANN401 - a module of which nothing is known here
    """Import a peer, of which no type is known where it isn't installed.

    Raises
    ------
    ImportError
        It isn't there.
    """
    return importlib.import_module(name)


def _peer(
    name: str,
    pool: object,
    statement: str,
    *,
    limited: bool = True,
    close: Callable[[], object] | None = None,
) -> Contender:
    """Give a peer whose pool is called so in its statement."""
    return Contender(
        name=name, role="peer", statement=statement, names={"pool": pool}, limited=limited, close=close
    )


def _lifo_queue() -> Contender:
    pool: queue.LifoQueue[object] = queue.LifoQueue(_SIZE)
    pool.put(object())
    return _peer("queue.LifoQueue get+put", pool, "resource = pool.get(); pool.put(resource)", limited=False)


def _urllib3() -> Contender:
    urllib3 = load("urllib3")
    pool = urllib3.HTTPConnectionPool("127.0.0.1", maxsize=_SIZE, block=True)
    pool._put_conn(pool._get_conn())  # noqa: SLF001 - the queue has no public face
    return _peer(
        "urllib3 connection queue",
        pool,
        "resource = pool._get_conn(); pool._put_conn(resource)",
        limited=False,
        close=pool.close,
    )


def _psycopg_pool() -> Contender:
    psycopg = load("psycopg")
    psycopg_pool = load("psycopg_pool")

    class Wire:
        transaction_status = psycopg.pq.TransactionStatus.IDLE

    class Connection:
        closed = False
        pgconn = Wire()
        _pool: Any = None

        @classmethod
        def connect(cls, conninfo: str = "", **kwargs: object) -> Connection:
            del conninfo, kwargs
            return cls()

        def close(self) -> None:
            self.closed = True

    pool = psycopg_pool.ConnectionPool(
        connection_class=Connection,
        min_size=1,
        max_size=_SIZE,
        open=True,
    )
    pool.wait(10)
    return _peer("psycopg_pool", pool, "resource = pool.getconn(); pool.putconn(resource)", close=pool.close)


def _connpool() -> Contender:
    connpool = load("connpool")
    pool = connpool.ConnectionPool.from_callables(
        _Thing, close=_Thing.close, config=connpool.PoolConfig(max_size=_SIZE)
    )
    pool.release(pool.acquire())
    return _peer("connpool", pool, "resource = pool.acquire(); pool.release(resource)", close=pool.close)


def _cuttlepool() -> Contender:
    cuttlepool = load("cuttlepool")

    def ping(self: object, resource: object) -> bool:
        del self, resource
        return True

    def normalize(self: object, resource: object) -> None:
        del self, resource

    # The two hooks without which it warns at each use; the second by its old name, as the new
    # one is called through a method that warns of that.
    hooks = {"ping": ping, "normalize_connection": normalize}
    pool: Any = type("Pool", (cuttlepool.CuttlePool,), hooks)(factory=_Thing, capacity=_SIZE)
    pool.get_resource().close()
    return _peer("cuttlepool", pool, "resource = pool.get_resource(); resource.close()")


def _sqlalchemy() -> Contender:
    pool = load("sqlalchemy.pool").QueuePool(_Thing, pool_size=_SIZE, max_overflow=0)
    pool.connect().close()
    return _peer(
        "SQLAlchemy QueuePool", pool, "resource = pool.connect(); resource.close()", close=pool.dispose
    )


def _redis() -> Contender:
    redis = load("redis")

    def nothing(self: object, *args: object, **kwargs: object) -> None:
        del self, args, kwargs

    # One that thinks it's connected, with nothing to be read.
    pretence = {"connect": nothing, "can_read": nothing, "disconnect": nothing}
    connection = type("Connection", (redis.Connection,), pretence)
    pool = redis.ConnectionPool(connection_class=connection, max_connections=_SIZE)
    pool.release(pool.get_connection())
    return _peer(
        "redis-py ConnectionPool",
        pool,
        "resource = pool.get_connection(); pool.release(resource)",
        close=pool.close,
    )


def _generic_connection_pool() -> Contender:
    generic = load("generic_connection_pool.threading")

    def create(self: object, endpoint: str, timeout: float | None = None) -> _Thing:
        del self, endpoint, timeout
        return _Thing()

    def dispose(self: object, endpoint: str, conn: _Thing, timeout: float | None = None) -> None:
        del self, endpoint, conn, timeout

    hooks = {"create": create, "dispose": dispose}
    manager = type("Manager", (generic.BaseConnectionManager,), hooks)()
    pool = generic.ConnectionPool(manager, max_size=_SIZE, total_max_size=_SIZE)
    pool.release(pool.acquire("key"), endpoint="key")
    return _peer(
        "generic-connection-pool",
        pool,
        'resource = pool.acquire("key"); pool.release(resource, "key")',
        close=pool.close,
    )


class _Thing:
    """A resource for those pools that call something on it."""

    def rollback(self) -> None:
        """Do nothing (DB-API)."""

    def close(self) -> None:
        """Do nothing."""
