"""What scenarios work with: callers in threads, waiting until one sleeps, interruptions at exact places, counting rooms.

The waits here only bring about a situation or give up on one; no verdict depends on how long they took.
"""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

from benchmarks.torture.peer import PATIENCE, Peer, Settings
from benchmarks.torture.world import Thing, World

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

#: For what must happen sooner or later, in seconds.  Less than what ends a scenario that makes no step.
SOON = 6.0


class BrokenError(Exception):
    """The pool did the wrong thing; the text says what was seen."""


def broken(what: str) -> NoReturn:
    """End the scenario: the pool is wrong."""
    raise BrokenError(what)


class Caller(threading.Thread):
    """A thread that does one thing and keeps its outcome.  A daemon: one that hangs holds up nobody else."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Do it."""
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001 - the scenario's to look at
            self.error = error

    def over(self) -> bool:
        """Wait for the end; tell whether it has come."""
        self.join(SOON)
        return not self.is_alive()

    def outcome(self, what: str) -> Any:
        """Wait for the end, and give what came of it; `what` says what never came."""
        if not self.over():
            broken(f"{what}: still waiting")
        if self.error is not None:
            broken(f"{what}: {describe(self.error)}")
        return self.result


def describe(error: BaseException) -> str:
    """Say an error in a line."""
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text}"[:120] if text else type(error).__name__


def asleep(thread: threading.Thread) -> bool:
    """Wait until a thread sleeps where it is, and tell whether it does; False: it has ended, or never does.

    Asleep: the system says so, and its Python frame stands still, twenty looks running.  Nothing else
    runs meanwhile, so it isn't the interpreter lock that it waits for.
    """
    seen: tuple[int, int] | None = None
    looks = 0
    give_up = time.monotonic() + SOON
    while time.monotonic() < give_up:
        frame = sys._current_frames().get(thread.ident or 0)
        if not thread.is_alive() or frame is None:
            return False
        now = (id(frame), frame.f_lasti)
        del frame
        state = Path(f"/proc/self/task/{thread.native_id}/stat").read_text("ascii").rpartition(") ")[2][0]
        looks = looks + 1 if now == seen and state == "S" else 0
        if looks >= 20:
            return True
        seen = now
        time.sleep(0.004)
    return False


@dataclass(frozen=True)
class Point:
    """One function entry inside a pool's call: where a signal, the collector or another thread may come in."""

    number: int
    place: str


class Bench:
    """One scenario's own: its pool, its world, and where it has got to."""

    def __init__(self, kind: type[Peer], progress: Callable[[str], object]) -> None:
        self.kind = kind
        self._progress = progress
        self.world = World()
        #: What has to live until the interpreter exits.
        self.kept: list[object] = []

    def pool(self, **settings: Any) -> Peer:
        """Make the pool as the scenario wants it."""
        return self.kind(self.world, Settings(**settings))

    def step(self, what: str) -> None:
        """Say what is about to be done: what a hang is reported as."""
        self._progress(what)

    def rooms(self, pool: Peer, count: int, key: object = None) -> None:
        """Take `count` resources at once and give them back; the pool is wrong where that can't be had."""
        self.step(f"taking all {count}")
        held: list[Any] = []
        for number in range(count):
            try:
                held.append(pool.acquire(key))
            except pool.refusals:
                broken(f"only {number} of {count} could be had afterwards")
        self.distinct(pool, held)
        for one in held:
            pool.release(one)

    def distinct(self, pool: Peer, held: list[Any]) -> None:
        """Check that no resource is in two hands."""
        things = [pool.thing(one) for one in held]
        if len({id(thing) for thing in things}) != len(things):
            broken(f"one resource in two hands: {things}")
        for thing in things:
            if thing.destroyed:
                broken(f"{thing} was handed out after it had been destroyed")

    def idle(self, pool: Peer, count: int) -> list[Thing]:
        """Have `count` resources made and given back."""
        held = [pool.acquire() for _ in range(count)]
        things = [pool.thing(one) for one in held]
        for one in held:
            pool.release(one)
        return things

    def queue(self, work: Callable[[], Any]) -> Caller:
        """Start a caller that has to wait, and wait until it does."""
        caller = Caller(work)
        if not asleep(caller):
            broken(f"a caller was not made to wait: {caller.error or caller.result!r}")
        return caller


def without_frames(error: BaseException) -> BaseException:
    """Give an error without the frames that it came through: a caller that has dealt with it has let go of these."""
    error.__context__ = None
    return error.with_traceback(None)


class AtEntry:
    """A block with `act` at its n-th function entry outside the bench, in this thread; `point` tells where it was."""

    def __init__(self, number: int, act: Callable[[Point], object], step: Callable[[str], object]) -> None:
        self.point: Point | None = None
        self._number = number
        self._act = act
        self._step = step
        self._entries = itertools.count()
        self._collects = False

    def __enter__(self) -> Self:
        self._collects = gc.isenabled()
        gc.disable()  # the collector comes only where it's called
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        if self._collects:
            gc.enable()

    def _trace(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or _ours(code.co_filename, code.co_qualname):
            return
        if next(self._entries) == self._number:
            self.point = point = Point(self._number, f"{Path(code.co_filename).stem}.{code.co_qualname}")
            sys.settrace(None)
            self._step(f"interrupted at the entry of {point.place}")
            self._act(point)


def _ours(filename: str, name: str) -> bool:
    """Whether a function is the bench's own: of the table, but not of the home-made pool."""
    return "benchmarks/torture/" in filename and not name.startswith("_QueueOfResources")


def swept(place: Point | None) -> str:
    """Say where the sweep is."""
    return "without interruption" if place is None else f"at the entry of {place.place}"


__all__ = [
    "PATIENCE",
    "SOON",
    "AtEntry",
    "Bench",
    "BrokenError",
    "Caller",
    "Point",
    "asleep",
    "broken",
    "describe",
    "swept",
    "without_frames",
]
