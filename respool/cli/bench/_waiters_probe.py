"""What `respool.cli.bench.growth` runs in a process of its own: hits, misses and hand-overs beside so many who wait."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING

from respool.cli.bench._handover import Crowd, queue_for_locks, queue_for_pool
from respool.cli.bench._measure import FULL, QUICK, measure
from respool.cli.bench._operations import HIT, MISS, ROUNDS, hit, miss, of_size, pool_of

if TYPE_CHECKING:
    from respool.cli.bench._measure import Effort

HANDOVER = "hand-over to the next in line"
LOCKS = "hand-over through a deque of locks"
#: Chains of hand-overs, of which the best counts, and hand-overs in one.
_CHAINS = 5
_TURNS = 300


def beside(size: int, effort: Effort) -> dict[str, float]:
    """Measure beside so many waiters; give seconds by name."""
    turns = 10 if effort.quick else _TURNS
    once = dataclasses.replace(effort, repeats=1, rounds=min(ROUNDS, effort.rounds))
    with pool_of(64, per_key=1) as pool, Crowd(size, *queue_for_pool(pool, "busy")) as crowd:
        handed = min(crowd.seconds(turns) for _ in range(_CHAINS))
        pool.release(pool.acquire("other"))
        seconds = measure([hit(pool, "other", size), miss(pool, size)], once)
    with Crowd(size, *queue_for_locks()) as crowd:
        by_locks = min(crowd.seconds(turns) for _ in range(_CHAINS))
    return {
        HANDOVER: handed,
        LOCKS: by_locks,
        **{name: of_size(name, size, seconds).median for name in (HIT, MISS)},
    }


if __name__ == "__main__":
    print(json.dumps(beside(int(sys.argv[1]), QUICK if sys.argv[2:] == ["quick"] else FULL)))
