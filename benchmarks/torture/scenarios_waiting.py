"""Who is served, in which order, and what becomes of those who leave the queue."""

from __future__ import annotations

import contextlib
import functools
import random
import signal
import threading
import time
from typing import Any

from benchmarks.torture.bench import SOON, Bench, BrokenError, Caller, asleep, broken, describe
from benchmarks.torture.scenario import scenario

GROUP = "Waiting"


@scenario(GROUP, "A tight release-acquire loop never passes a queued thread", "P13")
def overtaking(bench: Bench) -> str:
    """The waiter has to be served by the first release, ten times out of ten."""
    pool = bench.pool(timeout=None)
    held: Any = pool.acquire()
    passed: list[int] = []
    for round_ in range(10):
        bench.step(f"round {round_}")
        order: list[str] = []

        def serve(order: list[str] = order) -> None:
            mine = pool.acquire()
            order.append("waiter")
            pool.release(mine)

        waiter = bench.queue(serve)
        while "waiter" not in order and len(order) < 2_000:
            pool.release(held)
            held = pool.acquire()
            order.append("loop")
        passed.append(order.index("waiter") if "waiter" in order else len(order))
        pool.release(held)
        waiter.outcome("the waiter")
        held = pool.acquire()
    if any(passed):
        broken(f"passed in {sum(map(bool, passed))} of 10 rounds, up to {max(passed):,} times in one")
    return "served by the first release, 10 times"


@scenario(GROUP, "Threads are served in the order in which they queued", "P12")
def order_of_arrival(bench: Bench) -> str:
    """Six queue one after another for one resource."""
    pool = bench.pool(timeout=None)
    held = pool.acquire()
    order: list[int] = []

    def serve(number: int) -> None:
        mine = pool.acquire()
        order.append(number)
        pool.release(mine)

    callers = [bench.queue(functools.partial(serve, number)) for number in range(6)]
    pool.release(held)
    for caller in callers:
        caller.outcome("a queued caller")
    if order != sorted(order):
        broken(f"served in the order {order}")
    return "in order"


@scenario(GROUP, "A wait that times out in the moment of a release loses nothing", "P17")
def timeout_meets_release(bench: Bench) -> str:
    """300 waits whose time is up about when the resource comes back; it must be there each time."""
    patience = 0.01
    pool = bench.pool(timeout=patience)
    chance = random.Random(1)  # noqa: S311 - jitter
    counts = {"served": 0, "timed out": 0}

    def wait() -> None:
        try:
            mine = pool.acquire()
        except pool.refusals:
            counts["timed out"] += 1
        else:
            counts["served"] += 1
            pool.release(mine)

    for round_ in range(300):
        bench.step(f"round {round_}")
        held = _surely(bench, pool, round_)
        waiter = Caller(wait)
        time.sleep(patience * chance.uniform(0.9, 1.15))
        pool.release(held)
        waiter.outcome("the waiter")
    _surely(bench, pool, 300)
    return ", ".join(f"{number} {what}" for what, number in counts.items())


def _surely(bench: Bench, pool: Any, round_: int) -> Any:
    """Take the one resource, which nobody holds: many short tries."""
    for _ in range(100):
        with contextlib.suppress(*pool.refusals):
            return pool.acquire()
    bench.step("lost")
    raise BrokenError(f"the resource was gone after {round_} rounds")


@scenario(GROUP, "Ctrl-C in a wait takes its place in the queue along", "P79")
def interrupted_wait(bench: Bench) -> str:
    """The main thread is interrupted while it waits; what then comes back must reach the next one."""
    pool = bench.pool(timeout=SOON)
    main = threading.main_thread()
    held = pool.acquire()
    seen: list[bool] = []

    def interrupt() -> None:
        seen.append(asleep(main))
        signal.pthread_kill(main.ident or 0, signal.SIGINT)

    helper = Caller(interrupt)
    try:
        pool.acquire()
    except KeyboardInterrupt:
        pass
    else:
        broken("the wait was not interrupted")
    helper.outcome("the interrupter")
    bench.step("the release afterwards")
    try:
        pool.release(held)
    except Exception as error:  # noqa: BLE001 - in the peer's own words
        broken(f"giving back afterwards raised {describe(error)}")
    follower = Caller(pool.acquire)
    mine = follower.outcome("the next acquire after an interrupted wait")
    pool.release(mine)
    return "handed to the next" if seen == [True] else "handed to the next (interrupted on its way in)"


@scenario(GROUP, "When the first in line gives up, the next is served", "P17")
def head_leaves(bench: Bench) -> str:
    """Two queue; the first times out, then the resource comes back while the second still waits."""
    pool = bench.pool(timeout=3.0)
    held = pool.acquire()
    first = bench.queue(pool.acquire)
    time.sleep(1.5)
    second = bench.queue(pool.acquire)
    bench.step("the first one's time-out")
    if not first.over() or not isinstance(first.error, pool.refusals):
        broken(f"the first did not time out: {first.error and describe(first.error)}")
    pool.release(held)
    mine = second.outcome("the second in line")
    pool.release(mine)
    return "the second was served"


@scenario(GROUP, "A broken resource thrown away wakes who waits, to make a new one", "P19", "discard")
def discard_wakes(bench: Bench) -> str:
    """The only resource is discarded while somebody waits for it."""
    pool = bench.pool(timeout=60.0)
    held = pool.acquire()
    thing = pool.thing(held)
    waiter = bench.queue(pool.acquire)
    pool.discard(held)
    mine = waiter.outcome("the waiter beside a free room")
    if pool.thing(mine) is thing:
        broken("the broken resource was handed out again")
    return "served with a new one"
