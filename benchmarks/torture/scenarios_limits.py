"""Never too many: the limit, counted from before `create` until after `destroy`."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any

from benchmarks.torture.bench import SOON, Bench, Caller, asleep, broken
from benchmarks.torture.scenario import scenario

if TYPE_CHECKING:
    from benchmarks.torture.peer import Peer
    from benchmarks.torture.world import Thing

GROUP = "Limits"


@scenario(GROUP, "Sixteen threads and a slow create never make more than the limit", "P01")
def slow_create_limit(bench: Bench) -> str:
    """Two rooms, all come at once, and each create is held until all are there."""
    pool = bench.pool(size=2, timeout=SOON * 2)
    everybody = threading.Barrier(16)
    gate = threading.Event()
    bench.world.on_create = lambda _thing: gate.wait(SOON)

    def come() -> None:
        everybody.wait(SOON)
        pool.release(pool.acquire())

    callers = [Caller(come) for _ in range(16)]
    for caller in callers:
        asleep(caller)
        bench.step("all come")
    gate.set()
    for caller in callers:
        caller.outcome("one of the sixteen")
    if bench.world.most_alive > 2:
        broken(f"{bench.world.most_alive} existed at once, of 2")
    return f"{len(bench.world.created)} made, all served"


@scenario(GROUP, "A room is free only when destroy has returned", "P27", "destroy")
def destroy_counts(bench: Bench) -> str:
    """While the pool's one resource is being destroyed, nobody may begin to make another."""
    pool = bench.pool(one_use=True, timeout=SOON * 2)
    held = pool.acquire()
    gate, begun = threading.Event(), threading.Event()

    def linger(_thing: Thing) -> None:
        begun.set()
        gate.wait(SOON)

    bench.world.on_destroy = linger
    giver = Caller(lambda: pool.release(held))
    if not begun.wait(SOON):
        broken("nothing was destroyed")
    taker = Caller(pool.acquire)
    asleep(taker)
    most = bench.world.most_alive
    gate.set()
    giver.outcome("the release")
    taker.outcome("the acquire")
    if most > 1:
        broken("another was made while the first was being destroyed")
    return "made after it was gone"


@scenario(
    GROUP,
    "Failing creates, checks and throwing away under threads: never too many, none in two hands",
    "P108",
)
def under_load(bench: Bench) -> str:
    """Eight threads on three rooms, everything fails now and then."""
    pool = bench.pool(size=3, validate=True, timeout=SOON)
    chance = random.Random(2)  # noqa: S311 - a repeatable mix

    def sometimes(_thing: Thing) -> None:
        if chance.random() < 0.05:
            raise OSError("no route")

    bench.world.on_create = sometimes
    bench.world.on_validate = lambda _thing: chance.random() > 0.05
    bench.world.on_destroy = lambda _thing: time.sleep(0.0005)  # others run meanwhile
    load = _Load(pool, chance)
    for caller in [Caller(load.run) for _ in range(8)]:
        while caller.is_alive():
            caller.join(1.0)
            bench.step("load")
        if caller.error is not None:
            raise caller.error
    if load.twice:
        broken(f"{load.twice[0]} was in two hands")
    if bench.world.most_alive > 3:
        broken(f"{bench.world.most_alive} existed at once, of 3")
    if load.starved:
        broken("an acquire got nothing although all give back")
    bench.world.on_create = lambda _thing: None
    bench.world.on_validate = lambda _thing: True
    bench.rooms(pool, 3)
    return f"{len(bench.world.created)} made, {len(bench.world.destroyed)} destroyed"


class _Load:
    """Takes, and gives back or throws away, and notes who holds what."""

    def __init__(self, pool: Peer, chance: random.Random) -> None:
        self.twice: list[Thing] = []
        self.starved = 0
        self._pool = pool
        self._chance = chance
        self._discards = "discard" not in pool.lacks
        self._holders: dict[int, int] = {}

    def run(self) -> None:
        """Do so 150 times."""
        for _ in range(150):
            try:
                held = self._pool.acquire()
            except self._pool.refusals:
                self.starved += 1
                return
            except Exception:  # noqa: BLE001, S112 - a create that failed, in the peer's own words
                continue
            self._use(held)

    def _use(self, held: Any) -> None:
        thing = self._pool.thing(held)
        me = threading.get_ident()
        if self._holders.setdefault(id(thing), me) != me:
            self.twice.append(thing)
        time.sleep(0)  # others run while it is held
        self._holders.pop(id(thing), None)
        if self._discards and self._chance.random() < 0.1:
            self._pool.discard(held)
        else:
            self._pool.release(held)
