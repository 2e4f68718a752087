"""Several kinds of resource in one pool."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

from benchmarks.torture.bench import SOON, Bench, Caller, broken
from benchmarks.torture.scenario import scenario

if TYPE_CHECKING:
    from benchmarks.torture.world import Thing

GROUP = "Keys"


@scenario(GROUP, "A key at its limit holds up no other key", "P14", "keys")
def key_at_limit(bench: Bench) -> str:
    """One waits for key a, which is at its limit; b is asked for."""
    pool = bench.pool(size=4, per_key=1, timeout=60.0)
    held = pool.acquire("a")
    waiter = bench.queue(lambda: pool.acquire("a"))
    Caller(lambda: pool.acquire("b")).outcome("the caller for another key")
    pool.release(held)
    waiter.outcome("the waiter")
    return "the other key is served"


@scenario(GROUP, "A create that hangs for one key holds up no other", "P34", "keys")
def key_hangs(bench: Bench) -> str:
    """Key a's create hangs; b is asked for."""
    pool = bench.pool(size=4, per_key=2, timeout=60.0)
    gate, begun = threading.Event(), threading.Event()

    def hang(thing: Thing) -> None:
        if thing.key == "a":
            begun.set()
            gate.wait(60)

    bench.world.on_create = hang
    Caller(lambda: pool.acquire("a"))
    if not begun.wait(SOON):
        broken("no create was begun")
    other = Caller(lambda: pool.release(pool.acquire("b")))
    served = other.over()
    gate.set()
    if not served:
        broken("the other key had to wait")
    return "the other key is served"


@scenario(GROUP, "At the total limit, an idle resource of another key makes room", "P03", "keys", "total")
def eviction(bench: Bench) -> str:
    """All rooms are idle resources of key a; b is asked for."""
    pool = bench.pool(size=2, per_key=2, timeout=60.0)
    held = [pool.acquire("a"), pool.acquire("a")]
    for one in held:
        pool.release(one)
    Caller(lambda: pool.acquire("b")).outcome("the caller for another key")
    if bench.world.most_alive > 2:
        broken(f"{bench.world.most_alive} existed at once, of 2")
    return f"{len(bench.world.destroyed)} destroyed"


@scenario(
    GROUP,
    "One who waits for the total limit gets the room that another key gives back",
    "P15",
    "keys",
    "total",
)
def room_of_another_key(bench: Bench) -> str:
    """All rooms are out for key a, b waits, and one of a's comes back."""
    pool = bench.pool(size=2, per_key=2, timeout=60.0)
    held = [pool.acquire("a"), pool.acquire("a")]
    waiter = bench.queue(lambda: pool.acquire("b"))
    pool.release(held.pop())
    waiter.outcome("the waiter for another key")
    if bench.world.most_alive > 2:
        broken(f"{bench.world.most_alive} existed at once, of 2")
    return "served"


@scenario(GROUP, "Keys used once each leave nothing behind", "P61", "keys")
def one_use_keys(bench: Bench) -> str:
    """Objects that the collector knows of, after 500 keys and after 2,500 more."""
    pool = bench.pool(size=4, per_key=1, timeout=60.0)

    def use(numbers: range) -> int:
        for number in numbers:
            pool.release(pool.acquire(f"key-{number}"))
            if number % 100 == 0:
                bench.step(f"key {number}")
        bench.world.created.clear()
        bench.world.destroyed.clear()
        gc.collect()
        return len(gc.get_objects())

    before = use(range(500))
    after = use(range(500, 3000))
    each = (after - before) / 2500
    if each > 0.1:
        broken(f"{each:.1f} objects are kept for each key")
    return f"{after - before:+d} objects for 2,500 keys"
