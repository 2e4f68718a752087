"""What `respool.cli.bench.memory` runs in a process of its own: a probe by name, with a size; prints JSON."""

from __future__ import annotations

import gc
import json
import resource
import sys
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool import PoolLimits, ResourcePool

if TYPE_CHECKING:
    from collections.abc import Callable

#: Keys after which everything has its usual size.
_WARM = 1000


def one_key(size: int) -> dict[str, float]:
    """Measure many idle resources of one key."""
    with _pool(size) as pool:
        before = _traced()
        pool.prefill(size, "key")
        return {"idle": (_traced() - before) / size}


def many_keys(size: int) -> dict[str, float]:
    """Measure a key for each idle resource; the keys themselves are there before."""
    keys = [f"key {number}" for number in range(size)]
    with _pool(size) as pool:
        before = _traced()
        for key in keys:
            pool.release(pool.acquire(key))
        full = _traced()
        pool.clear()
        return {"keyed": (full - before) / size, "left": (_traced() - before) / size}


def one_use(size: int) -> dict[str, float]:
    """Measure what keys leave that are used once each, and evicted by the next."""
    with ResourcePool[int, object](lambda _key: object(), limits=PoolLimits(max_size=16)) as pool:
        _use(pool, 0, _WARM)
        blocks, resident = _now()
        _use(pool, _WARM, _WARM + size)
        blocks_after, resident_after = _now()
        return {"blocks": blocks_after - blocks, "resident": resident_after - resident}


PROBES: dict[str, Callable[[int], dict[str, float]]] = {
    "one_key": one_key,
    "many_keys": many_keys,
    "one_use": one_use,
}


def _pool(size: int) -> ResourcePool[str, Any]:
    """Give a pool whose resources are there already, so that their memory isn't measured."""
    ready = [object() for _ in range(size)]
    give = iter(ready)
    return ResourcePool(lambda _key: next(give), limits=PoolLimits(max_size=size))


def _use(pool: ResourcePool[int, object], first: int, end: int) -> None:
    for key in range(first, end):
        pool.release(pool.acquire(key))


def _traced() -> int:
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _now() -> tuple[int, int]:
    """Give blocks and bytes."""
    gc.collect()
    return sys.getallocatedblocks(), _resident()


def _resident() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:  # not Linux: the most that it ever was
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()


if __name__ == "__main__":
    print(json.dumps(PROBES[sys.argv[1]](int(sys.argv[2]))))
