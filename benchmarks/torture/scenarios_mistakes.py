"""What callers do wrong: giving back twice, to the wrong pool, or not at all."""

from __future__ import annotations

import gc
from typing import Any

from benchmarks.torture.bench import Bench, broken, describe
from benchmarks.torture.scenario import scenario

GROUP = "Mistakes"


def _again(pool: Any, held: Any) -> str:
    try:
        pool.release(held)
    except Exception as error:  # noqa: BLE001 - a refusal, in the peer's own words
        return f"refused: {type(error).__name__}"
    return "without effect"


@scenario(GROUP, "Given back twice: not idle twice", "P35")
def double_release(bench: Bench) -> str:
    """Nobody else has it in between; then two take."""
    pool = bench.pool(size=2)
    held = pool.acquire()
    pool.release(held)
    seen = _again(pool, held)
    del held
    bench.rooms(pool, 2)
    return seen


@scenario(GROUP, "Given back again by its former holder: the new holder keeps it", "P36")
def stale_release(bench: Bench) -> str:
    """A gives it back, B gets it, A gives it back again, C takes: C must not get what B holds."""
    pool = bench.pool(size=2)
    a = pool.acquire()
    pool.release(a)
    b = pool.acquire()
    seen = _again(pool, a)
    try:
        c = pool.acquire()
    except pool.refusals:
        broken("the second room was lost")
    bench.distinct(pool, [b, c])
    return seen


@scenario(GROUP, "What isn't the pool's is refused", "P38", "bare")
def foreign_release(bench: Bench) -> str:
    """A resource of another pool of the same kind is given back to this one."""
    pool, other = bench.pool(size=2), bench.pool(size=2)
    mine, theirs = pool.acquire(), other.acquire()
    try:
        pool.release_bare(other.bare(theirs))
    except Exception as error:  # noqa: BLE001 - a refusal, in the peer's own words
        seen = f"refused: {type(error).__name__}"
    else:
        seen = "taken"
    alien = other.thing(theirs)
    held: list[Any] = [mine]
    for number in range(2):
        try:
            held.append(pool.acquire())
        except pool.refusals:
            if number == 0:
                broken("a room was lost")
            break
    else:
        broken("the pool gives out one more than its limit")
    if any(pool.thing(one) is alien for one in held):
        broken("it was taken in, and handed out while its holder has it")
    return seen


@scenario(GROUP, "Dropped without being given back: the room returns", "P45")
def leaked(bench: Bench) -> str:
    """The only resource's holder loses it."""
    pool = bench.pool()
    held: Any = pool.acquire()
    del held
    gc.collect()
    bench.rooms(pool, 1)
    return "the room is back"


@scenario(GROUP, "Resources that all compare equal are told apart", "P43")
def all_equal(bench: Bench) -> str:
    """Two of three that are equal are given back and taken again."""
    bench.world.all_equal = True
    pool = bench.pool(size=3)
    held = [pool.acquire() for _ in range(3)]
    bench.distinct(pool, held)
    try:
        for _ in range(2):
            pool.release(held.pop(0))
        held += [pool.acquire(), pool.acquire()]
        bench.distinct(pool, held)
        for one in held:
            pool.release(one)
    except AssertionError as error:
        broken(f"giving one back raised {describe(error)}")
    bench.rooms(pool, 3)
    return "told apart"
