"""Fork, exit, and closing."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from benchmarks.torture.bench import SOON, AtEntry, Bench, Caller, Point, asleep, broken, describe, swept
from benchmarks.torture.scenario import scenario
from benchmarks.torture.sweeps import GIVE, TAKE, Stage, ways

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.torture.world import Thing

GROUP = "Process"

#: Seconds that a forked child has.
_CHILD = 8


def _in_child(work: Callable[[], str]) -> str:
    """Fork, do `work` in the child, and give the text it returned; "hung" where it did not end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_CHILD)
        try:
            text = work()
        except BaseException as error:  # noqa: BLE001 - the parent's to tell
            text = describe(error)
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:  # noqa: PTH123 - a descriptor
        text = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return "hung" if os.WIFSIGNALED(status) else text


@scenario(GROUP, "A forked child never gets its parent's resource", "P73")
def fork_reuse(bench: Bench) -> str:
    """One is idle when the process forks; the child acquires."""
    pool = bench.pool(size=2, timeout=4.0)
    bench.idle(pool, 1)
    parent = len(bench.world.created)

    def take() -> str:
        held = pool.acquire()
        return "own" if pool.thing(held).serial > parent else "the parent's"

    seen = _in_child(take)
    if seen != "own":
        broken(f"the child got {seen}" if seen == "the parent's" else f"in the child: {seen}")
    return "the child made its own"


@scenario(
    GROUP, "A fork while another thread is anywhere inside the pool leaves the child a working one", "P74"
)
def fork_in_use(bench: Bench) -> str:
    """Another thread stands at each function entry in turn, of taking and giving back, when the process forks."""
    points = 0
    for way in ways(bench.kind, TAKE + GIVE):
        stage = Stage(bench, way)
        number = 0
        while _fork_with_thread_at(bench, stage, number):
            number += 1
        points += number
    return f"{points} places"


def _fork_with_thread_at(bench: Bench, stage: Stage, number: int) -> bool:
    """Hold a thread at one place, fork, and let the child acquire; False: there is no such place."""
    there, go_on = threading.Event(), threading.Event()

    def stand(_point: Point) -> None:
        there.set()
        go_on.wait(SOON * 2)

    stage.set()
    entry = AtEntry(number, stand, bench.step)

    def use() -> None:
        with entry:
            stage.call()

    user = Caller(use)
    while not there.wait(0.01) and user.is_alive():
        pass
    seen = _in_child(lambda: "served" if stage.pool.acquire() else "nothing") if there.is_set() else "served"
    go_on.set()
    user.outcome("the parent's thread")
    if seen != "served":
        broken(f"with a thread {swept(entry.point)}, the child {_said(seen)}")
    stage.clear(given=stage.way.gives)
    return there.is_set()


def _said(seen: str) -> str:
    return "hung" if seen == "hung" else f"got {seen}"


@scenario(GROUP, "The interpreter exits with an open pool in use by daemon threads", "P82")
def exit_in_use(bench: Bench) -> str:
    """One daemon thread holds, another waits, and the pool is never closed; the runner looks at the exit."""
    pool = bench.pool(timeout=None, upkeep=True)
    taken = threading.Event()

    def hold() -> None:
        held = pool.acquire()
        taken.set()
        threading.Event().wait()
        del held

    Caller(hold)
    if not taken.wait(SOON):
        broken("nothing to hold")
    bench.queue(pool.acquire)
    bench.kept.append(pool)
    return "exited in silence"


@scenario(GROUP, "close() wakes those who wait", "P67", "close")
def close_wakes(bench: Bench) -> str:
    """One is out, one caller waits for it without a time-out, and the pool is closed."""
    pool = bench.pool(timeout=None)
    held: Any = pool.acquire()
    waiter = bench.queue(pool.acquire)
    Caller(pool.close)
    if not waiter.over():
        broken("the waiter sleeps on")
    if waiter.error is None:
        broken(f"the waiter got {pool.thing(waiter.result)} of a closed pool")
    del held
    return type(waiter.error).__name__


@scenario(GROUP, "Given back after close(): destroyed once, without an error", "P68", "close")
def release_after_close(bench: Bench) -> str:
    """One is out when the pool is closed."""
    pool = bench.pool()
    held = pool.acquire()
    thing = pool.thing(held)
    closer = Caller(pool.close)
    closer.over()
    try:
        pool.release(held)
    except Exception as error:  # noqa: BLE001 - in the peer's own words
        broken(f"release raised {describe(error)}")
    closer.over()
    if thing.destroyed != 1:
        broken(f"destroyed {thing.destroyed} times")
    return "destroyed once"


@scenario(GROUP, "close() while a create is under way leaves nothing behind", "P70", "close")
def close_during_create(bench: Bench) -> str:
    """The create ends after the pool was closed; what comes of it is destroyed, if handed out then when it's given back."""
    pool = bench.pool(timeout=SOON)
    gate, begun = threading.Event(), threading.Event()

    def linger(_thing: Thing) -> None:
        begun.set()
        gate.wait(SOON)

    bench.world.on_create = linger
    taker = Caller(pool.acquire)
    if not begun.wait(SOON):
        broken("no create was begun")
    closer = Caller(pool.close)
    asleep(closer)
    bench.step("the end of the create")
    gate.set()
    if not taker.over():
        broken("the caller sleeps on")
    seen = "destroyed, and the caller told"
    if taker.error is None:
        seen = "handed out late, and destroyed when it came back"
        try:
            pool.release(taker.result)
        except Exception as error:  # noqa: BLE001 - in the peer's own words
            broken(f"handed out late, and giving it back raised {describe(error)}")
    bench.step("the end of the close")
    closer.over()
    if bench.world.alive:
        broken("the resource was left behind, neither held by anybody nor destroyed")
    return seen
