"""Hooks that fail, hang, are interrupted, or call back: nothing may be lost, and nobody else held up."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

from benchmarks.torture.bench import SOON, Bench, BrokenError, Caller, asleep, broken, describe
from benchmarks.torture.scenario import scenario

if TYPE_CHECKING:
    from benchmarks.torture.peer import Peer
    from benchmarks.torture.world import Thing

GROUP = "Hooks"


class _Once:
    """Does something the first time, and nothing after."""

    def __init__(self, act: Any) -> None:
        self.act = act
        self.done = False

    def __call__(self, thing: Thing) -> bool:
        if not self.done:
            self.done = True
            self.act(thing)
        return True


def _refuse(_thing: Thing) -> None:
    raise ConnectionError("no route")


class _CtrlC:
    """Ctrl-C while a hook runs, in whichever thread the pool runs its hooks; the hook lasts until it has come."""

    def __init__(self) -> None:
        self.came = threading.Event()

    def __call__(self, _thing: Thing) -> None:
        main = threading.main_thread()
        if threading.current_thread() is not main:
            asleep(main)
        signal.pthread_kill(main.ident or 0, signal.SIGINT)
        self.came.wait(SOON)

    def during(self, call: Any) -> Any:
        """Do a call, and take the interrupt."""
        try:
            result = call()
        except KeyboardInterrupt:
            self.came.set()
            return None
        broken(f"the interrupt was swallowed, and {result!r} came back")


@scenario(GROUP, "A create that fails gives its room back", "P24")
def create_fails(bench: Bench) -> str:
    """The pool's only room, and the first create fails."""
    pool = bench.pool()
    bench.world.on_create = _Once(_refuse)
    try:
        pool.release(pool.acquire())
    except Exception as error:  # noqa: BLE001 - in the peer's own words
        seen = f"the caller got {type(error).__name__}"
    else:
        seen = "tried again by itself"
    bench.rooms(pool, 1)
    return seen


@scenario(GROUP, "A create that fails lets the next in line try at once", "P20")
def create_fails_next(bench: Bench) -> str:
    """One caller's create hangs and then fails, while another waits for the room."""
    pool = bench.pool(timeout=60.0)
    gate = threading.Event()

    def hang(_thing: Thing) -> None:
        gate.wait(SOON)
        raise ConnectionError("no route")

    bench.world.on_create = _Once(hang)
    first = bench.queue(pool.acquire)
    second = bench.queue(pool.acquire)
    gate.set()
    bench.step("the second one's create")
    if first.over() and first.error is None:
        return "tried again by itself, for the first in line"
    if not second.over() or second.error is not None:
        broken("the next in line sleeps on beside a free room")
    return "served"


@scenario(GROUP, "Ctrl-C in create gives the room back", "P25")
def create_interrupted(bench: Bench) -> str:
    """The interrupt reaches the main thread while its create is under way."""
    pool = bench.pool()
    ctrl_c = _CtrlC()
    bench.world.on_create = _Once(ctrl_c)
    ctrl_c.during(pool.acquire)
    bench.rooms(pool, 1)
    return "the room is back"


@scenario(GROUP, "A destroy that fails frees its room", "P27", "destroy")
def destroy_fails(bench: Bench) -> str:
    """The pool destroys what comes back, and that fails."""
    pool = bench.pool(one_use=True)
    bench.world.on_destroy = _Once(_refuse)
    held = pool.acquire()
    try:
        pool.release(held)
    except Exception as error:  # noqa: BLE001 - in the peer's own words
        seen = f"release raised {type(error).__name__}, the room is back"
    else:
        seen = "the room is back"
    del held
    bench.rooms(pool, 1)
    return seen


@scenario(GROUP, "Ctrl-C in destroy frees the room", "P27", "destroy")
def destroy_interrupted(bench: Bench) -> str:
    """The interrupt comes while the pool destroys what was given back."""
    pool = bench.pool(one_use=True)
    ctrl_c = _CtrlC()
    bench.world.on_destroy = _Once(ctrl_c)
    held = pool.acquire()
    try:
        pool.release(held)
    except KeyboardInterrupt:
        ctrl_c.came.set()
    del held
    bench.rooms(pool, 1)
    return "the room is back"


@scenario(GROUP, "What fails its check is replaced, and no room lost", "P29", "validate")
def check_says_no(bench: Bench) -> str:
    """Both idle resources have gone bad."""
    pool = bench.pool(size=2, validate=True)
    bad = bench.idle(pool, 2)
    bench.world.on_validate = lambda thing: thing not in bad
    held = [pool.acquire(), pool.acquire()]
    if any(pool.thing(one) in bad for one in held):
        broken("one that failed its check was handed out")
    for one in held:
        pool.release(one)
    bench.rooms(pool, 2)
    return "replaced"


@scenario(GROUP, "What makes its check raise is never handed out again", "P30", "validate")
def check_raises(bench: Bench) -> str:
    """The check of the one idle resource raises; the caller may see that once, but then must get another."""
    pool = bench.pool(validate=True)
    (bad,) = bench.idle(pool, 1)

    def check(thing: Thing) -> bool:
        if thing is bad:
            raise ConnectionError("reset by peer")
        return True

    bench.world.on_validate = check
    errors = 0
    for _ in range(3):
        try:
            held = pool.acquire()
        except Exception:  # noqa: BLE001 - in the peer's own words
            errors += 1
            continue
        if pool.thing(held) is bad:
            broken("it was handed out unchecked")
        pool.release(held)
        bench.rooms(pool, 1)
        return "replaced" if not errors else f"replaced after {errors} error"
    raise BrokenError("it stays in the pool, and every acquire fails")


@scenario(GROUP, "Ctrl-C in a check loses nothing", "P31", "validate")
def check_interrupted(bench: Bench) -> str:
    """The interrupt comes while the one idle resource is checked."""
    pool = bench.pool(validate=True)
    bench.idle(pool, 1)
    ctrl_c = _CtrlC()
    bench.world.on_validate = _Once(ctrl_c)
    ctrl_c.during(pool.acquire)
    bench.rooms(pool, 1)
    return "the room is back"


@scenario(GROUP, "What could not be reset is never handed out again", "P32", "reset")
def reset_fails(bench: Bench) -> str:
    """The reset of what is given back raises."""
    pool = bench.pool(reset=True)
    bench.world.on_reset = _Once(_refuse)
    held = pool.acquire()
    dirty = pool.thing(held)
    seen = ""
    try:
        pool.release(held)
    except Exception as error:  # noqa: BLE001 - in the peer's own words
        seen = f", release raised {type(error).__name__}"
    del held
    try:
        held = pool.acquire()
    except pool.refusals:
        broken("the room was lost")
    if pool.thing(held) is dirty:
        broken("handed out as it was")
    pool.release(held)
    bench.rooms(pool, 1)
    return f"replaced{seen}"


@scenario(GROUP, "A create that gives the same object twice doesn't put it in two hands", "P26", "object")
def create_repeats(bench: Bench) -> str:
    """Two rooms, and the second create returns what the first caller holds."""
    pool = bench.pool(size=2, timeout=3.0)
    first = pool.acquire()
    bench.world.repeated = pool.thing(first)
    try:
        second = pool.acquire()
    except Exception as error:  # noqa: BLE001 - in the peer's own words
        refusal = describe(error).partition(":")[0]
    else:
        bench.distinct(pool, [first, second])
        broken("two hands hold something, but what?")
    bench.world.repeated = None
    pool.release(first)
    bench.rooms(pool, 2)
    return f"refused: {refusal}"


@scenario(GROUP, "A create that hangs holds up nobody else", "P34")
def create_hangs(bench: Bench) -> str:
    """One caller's create hangs; another gives back its two and takes one meanwhile."""
    pool = bench.pool(size=3, timeout=60.0)
    held = [
        pool.acquire(),
        pool.acquire(),
    ]  # two, since a pool may hand the first to the one whose create hangs
    gate, begun = threading.Event(), threading.Event()

    def hang(_thing: Thing) -> None:
        begun.set()
        gate.wait(60)

    bench.world.on_create = hang
    stuck = Caller(pool.acquire)
    if not begun.wait(SOON):
        broken("no create was begun for the second")
    return _meanwhile(bench, pool, held, gate, stuck)


def _meanwhile(bench: Bench, pool: Peer, held: list[Any], gate: threading.Event, stuck: Caller) -> str:
    """Give back and take while a hook hangs in another thread."""
    bench.step("giving back and taking while a hook hangs")

    def give_and_take() -> None:
        for one in held:
            pool.release(one)
        pool.release(pool.acquire())

    other = Caller(give_and_take)
    free = other.over()
    gate.set()
    if not free:
        broken("giving back and taking an idle one had to wait for the hook")
    if other.error is not None:
        broken(describe(other.error))
    stuck.over()
    return "taken and given back meanwhile"


@scenario(GROUP, "A destroy that hangs holds up nobody else", "P33", "discard")
def destroy_hangs(bench: Bench) -> str:
    """One caller throws away a resource, and its end hangs; another uses the other one meanwhile."""
    pool = bench.pool(size=2, timeout=60.0)
    broken_one, held = pool.acquire(), [pool.acquire()]
    gate, begun = threading.Event(), threading.Event()

    def hang(_thing: Thing) -> None:
        begun.set()
        gate.wait(60)

    bench.world.on_destroy = hang
    stuck = Caller(lambda: pool.discard(broken_one))
    if not begun.wait(SOON):
        broken("nothing was destroyed")
    return _meanwhile(bench, pool, held, gate, stuck)


@scenario(GROUP, "A create that takes from its own full pool ends in an error, not in a hang", "P80")
def nested_acquire(bench: Bench) -> str:
    """One room, and its create acquires from the pool; the pool's time-out is two seconds."""
    pool = bench.pool(timeout=2.0)
    inner: list[str] = []

    def nest(_thing: Thing) -> None:
        try:
            pool.acquire()
        except Exception as error:
            inner.append(type(error).__name__)
            raise

    bench.world.on_create = _Once(nest)
    outer = Caller(pool.acquire)
    if not outer.over():
        broken("it hangs")
    if not inner:
        broken("the inner acquire was served, of one room that was taken")
    if outer.error is None:
        pool.release(outer.result)
    bench.rooms(pool, 1)
    return inner[0]
