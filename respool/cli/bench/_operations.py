"""The operations whose growth is measured, as contenders: a hit and a miss."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from respool import PoolLimits, ResourcePool
from respool.cli.bench._measure import Contender

if TYPE_CHECKING:
    from collections.abc import Mapping

    from respool.cli.bench._results import Spread

HIT = "hit: bound acquire+release"
MISS = "miss: acquire of a key not seen before + discard"
#: Rounds for the best of, which are fewer than elsewhere: there are many sizes.
ROUNDS = 30


def pool_of(size: int, per_key: int | None = None) -> ResourcePool[Any, object]:
    """Give a pool with this limit on its size."""
    return ResourcePool(
        lambda _key: object(), limits=PoolLimits(max_size=size, max_per_key=per_key), name="bench"
    )


def operation(name: str, size: int, statement: str, **names: object) -> Contender:
    """Give a contender for one size."""
    return Contender(name=f"{name} {size}", role="respool", statement=statement, names=names)


def of_size(name: str, size: int, seconds: Mapping[str, Spread]) -> Spread:
    """Find the figures of `operation`."""
    return seconds[f"{name} {size}"]


def hit(pool: ResourcePool[Any, object], key: object, size: int) -> Contender:
    """Take and give back an idle resource of `key`."""
    return operation(HIT, size, "resource = pool.acquire(); pool.release(resource)", pool=pool.bind(key))


def miss(pool: ResourcePool[Any, object], size: int) -> Contender:
    """Take a resource that isn't there, and discard it."""
    statement = "resource = pool.acquire(next(keys)); pool.discard(resource)"
    return operation(MISS, size, statement, pool=pool, keys=fresh_keys())


def fresh_keys() -> itertools.count[int]:
    """Give keys that aren't there: those that are there are below."""
    return itertools.count(1 << 40)
