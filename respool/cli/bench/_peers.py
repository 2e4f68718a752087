"""The pools that others would use, made ready for measuring: each gives out and takes back one resource.

This module owns how each peer is set up: as its documentation has it, with a limit where
it has one, with a resource that costs nothing, and with resources idle, so that what's
measured is the pool's own way from idle to held and back.  Its resources pretend as much as
the pool looks at, and no more.
"""

from __future__ import annotations

import dataclasses
import importlib
import queue
from typing import TYPE_CHECKING, Any

from respool.cli.bench._measure import Contender
from respool.cli.bench._results import Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from respool.cli.bench._results import Role

SIZE = 4
"""How many resources there may be, if nothing else is said."""

PACKAGES = (
    "connpool",
    "cuttlepool",
    "generic-connection-pool",
    "psycopg-pool",
    "redis",
    "sqlalchemy",
    "urllib3",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    """A pool in use: the statement that takes a resource and the one that gives it back, and what their names mean."""

    name: str
    role: Role
    take: str
    give: str
    names: Mapping[str, object]
    limited: bool = True  # it bounds how many resources exist
    close: Callable[[], object] | None = None

    def contender(self) -> Contender:
        """Give the two, one after the other, as something to measure."""
        return Contender(
            name=self.name,
            role=self.role,
            statement=f"{self.take}; {self.give}",
            names=self.names,
            close=self.close,
        )


def warm(pair: Pair, count: int) -> None:
    """Take so many resources at once and give them back, so that they're idle."""
    held: list[dict[str, Any]] = []
    for _ in range(count):
        names = dict(pair.names)
        exec(pair.take, names)  # noqa: S102 - this package's own statements
        held.append(names)
    for names in held:
        exec(pair.give, names)  # noqa: S102 - the same


def peers(size: int = SIZE, *, waiting: bool = False) -> Sequence[Pair | Missing]:
    """Set up each peer that is installed, and say of the others what's missing.

    Parameters
    ----------
    size : int
        Of each pool.
    waiting : bool
        Whether they must wait when all is in use, and all resources be idle at first; else one resource is.
    """
    found: list[Pair | Missing] = []
    makers: dict[str, Callable[[int], Pair]] = {
        "queue.LifoQueue get+put": _lifo_queue,
        "urllib3 connection queue": _urllib3,
        "psycopg_pool": _psycopg_pool,
        "connpool": _connpool,
        "cuttlepool": _cuttlepool,
        "SQLAlchemy QueuePool": _sqlalchemy,
        **(
            {"redis-py BlockingConnectionPool": _redis_blocking}
            if waiting
            else {"redis-py ConnectionPool": _redis}
        ),
        "generic-connection-pool": _generic_connection_pool,
    }
    for name, make in makers.items():
        try:
            pair = make(size)
            warm(pair, size if waiting else 1)
            found.append(pair)
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
    take: str,
    give: str,
    *,
    limited: bool = True,
    close: Callable[[], object] | None = None,
) -> Pair:
    """Give a peer whose pool is called so in its statements."""
    return Pair(
        name=name, role="peer", take=take, give=give, names={"pool": pool}, limited=limited, close=close
    )


def _lifo_queue(size: int) -> Pair:
    pool: queue.LifoQueue[object] = queue.LifoQueue(size)
    for _ in range(size):
        pool.put(object())
    return _peer(
        "queue.LifoQueue get+put", pool, "resource = pool.get()", "pool.put(resource)", limited=False
    )


def _urllib3(size: int) -> Pair:
    urllib3 = load("urllib3")
    pool = urllib3.HTTPConnectionPool("127.0.0.1", maxsize=size, block=True)
    return _peer(
        "urllib3 connection queue",
        pool,
        "resource = pool._get_conn()",
        "pool._put_conn(resource)",
        limited=False,
        close=pool.close,
    )


def _psycopg_pool(size: int) -> Pair:
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
        max_size=size,
        open=True,
    )
    pool.wait(10)
    return _peer(
        "psycopg_pool", pool, "resource = pool.getconn()", "pool.putconn(resource)", close=pool.close
    )


def _connpool(size: int) -> Pair:
    connpool = load("connpool")
    pool = connpool.ConnectionPool.from_callables(
        _Thing, close=_Thing.close, config=connpool.PoolConfig(max_size=size)
    )
    return _peer("connpool", pool, "resource = pool.acquire()", "pool.release(resource)", close=pool.close)


def _cuttlepool(size: int) -> Pair:
    cuttlepool = load("cuttlepool")

    def ping(self: object, resource: object) -> bool:
        del self, resource
        return True

    def normalize(self: object, resource: object) -> None:
        del self, resource

    # The two hooks without which it warns at each use; the second by its old name, as the new
    # one is called through a method that warns of that.
    hooks = {"ping": ping, "normalize_connection": normalize}
    pool: Any = type("Pool", (cuttlepool.CuttlePool,), hooks)(factory=_Thing, capacity=size)
    return _peer("cuttlepool", pool, "resource = pool.get_resource()", "resource.close()")


def _sqlalchemy(size: int) -> Pair:
    pool = load("sqlalchemy.pool").QueuePool(_Thing, pool_size=size, max_overflow=0)
    return _peer(
        "SQLAlchemy QueuePool", pool, "resource = pool.connect()", "resource.close()", close=pool.dispose
    )


def _redis(size: int, kind: str = "ConnectionPool") -> Pair:
    redis = load("redis")

    def nothing(self: object, *args: object, **kwargs: object) -> None:
        del self, args, kwargs

    # One that thinks it's connected, with nothing to be read.
    pretence = {"connect": nothing, "can_read": nothing, "disconnect": nothing}
    connection = type("Connection", (redis.Connection,), pretence)
    pool = getattr(redis, kind)(connection_class=connection, max_connections=size)
    return _peer(
        f"redis-py {kind}",
        pool,
        "resource = pool.get_connection()",
        "pool.release(resource)",
        close=pool.close,
    )


def _redis_blocking(size: int) -> Pair:
    return _redis(size, "BlockingConnectionPool")


def _generic_connection_pool(size: int) -> Pair:
    generic = load("generic_connection_pool.threading")

    def create(self: object, endpoint: str, timeout: float | None = None) -> _Thing:
        del self, endpoint, timeout
        return _Thing()

    def dispose(self: object, endpoint: str, conn: _Thing, timeout: float | None = None) -> None:
        del self, endpoint, conn, timeout

    hooks = {"create": create, "dispose": dispose}
    manager = type("Manager", (generic.BaseConnectionManager,), hooks)()
    pool = generic.ConnectionPool(manager, max_size=size, total_max_size=size)
    return _peer(
        "generic-connection-pool",
        pool,
        'resource = pool.acquire("key")',
        'pool.release(resource, "key")',
        close=pool.close,
    )


class _Thing:
    """A resource for those pools that call something on it."""

    def rollback(self) -> None:
        """Do nothing (DB-API)."""

    def close(self) -> None:
        """Do nothing."""
