"""Threads whose errors reach the test, and the one place where a test waits for a state.

Nothing here sleeps for a time: a wait ends when its condition holds, and the hang guard
only turns a test that would hang for ever into a failure that says what it waited for.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from respool import ResourcePool

P = ParamSpec("P")
R = TypeVar("R")

HANG_GUARD = 30.0
"""Seconds after which a wait is taken for a hang.  Never a proof of anything."""

_numbers = itertools.count(1)


def wait_until(condition: Callable[[], object], what: str = "the condition") -> None:
    """Yield the processor until ``condition()`` is true; fail as a hang otherwise."""
    give_up = time.monotonic() + HANG_GUARD
    while not condition():
        if time.monotonic() > give_up:
            msg = f"hang: {what} did not come about in {HANG_GUARD:g} s"
            raise AssertionError(msg)
        os.sched_yield()


def wait_until_queued(pool: ResourcePool[Any, Any], n: int) -> None:
    """Wait until exactly ``n`` callers are queued in ``pool``."""
    wait_until(
        lambda: pool.stats().waiters == n,
        f"{n} waiters (there are {pool.stats().waiters})",
    )


def let_pass(moment: float) -> None:
    """Return once the monotonic clock has reached ``moment``.

    For deadlines that must have passed; that it may be much later must not matter.
    """
    wait_until(lambda: time.monotonic() >= moment, "the passing of time")


def wake_ups(thread: threading.Thread) -> int:
    """Return how often a live thread has given up the processor by itself so far.

    A thread asleep in a lock keeps its number; each time it is woken, or looks at
    something and goes to sleep again, the number grows.
    """
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text(encoding="ascii")
    return int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])


def wait_asleep(threads: Sequence[threading.Thread]) -> list[int]:
    """Wait until none of the threads does anything; how often each had been woken by then.

    A thread that has just queued may still have to go through the interpreter's own lock
    before it sleeps, so this looks until nothing has changed over a while of yielding.
    """
    give_up = time.monotonic() + HANG_GUARD
    before = [wake_ups(thread) for thread in threads]
    while time.monotonic() < give_up:
        let_pass(time.monotonic() + 0.05)
        after = [wake_ups(thread) for thread in threads]
        if after == before:
            return after
        before = after
    msg = "the threads never come to rest"
    raise AssertionError(msg)


class Task(Generic[R]):
    """One running call: its outcome, once it has ended.

    Do not build it; ``Threads.start`` returns it.
    """

    def __init__(self, name: str, call: Callable[[], R]) -> None:
        self.name = name
        self._call = call
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._value: list[R] = []
        self._error_seen = False
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._value.append(self._call())
        except BaseException as error:
            self._error = error
        finally:
            # The call may hold the last reference to a lease: let it go with the thread.
            del self._call
            self._ended.set()

    @property
    def ended(self) -> bool:
        """Whether the call has returned or raised."""
        return self._ended.is_set()

    def wait(self) -> None:
        """Wait for the end of the call, without looking at its outcome."""
        if not self._ended.wait(HANG_GUARD):
            msg = f"hang: thread {self.name} has not ended in {HANG_GUARD:g} s{self.stack()}"
            raise AssertionError(msg)
        self.thread.join()

    def result(self) -> R:
        """Return what the call returned, or raise what it raised."""
        self.wait()
        self._error_seen = True
        if self._error is not None:
            raise self._error
        return self._value[0]

    def error(self) -> BaseException:
        """Return what the call raised; fail when it returned."""
        self.wait()
        self._error_seen = True
        if self._error is None:
            msg = f"thread {self.name} returned {self._value[0]!r} where an error was due"
            raise AssertionError(msg)
        return self._error

    def unseen_error(self) -> BaseException | None:
        """Return an error that nobody has asked for yet."""
        return None if self._error_seen else self._error

    def stack(self) -> str:
        """Tell where the thread is now, for messages about hangs."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        if frame is None:
            return ""
        return "\n" + "".join(traceback.format_stack(frame))


class Threads:
    """A block that ends when all its threads have ended; their errors are re-raised.

    >>> with Threads() as threads:
    ...     task = threads.start(pow, 2, 3)
    >>> task.result()
    8
    """

    def __init__(self) -> None:
        self.tasks: list[Task[Any]] = []

    def start(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Task[R]:
        """Run ``call(*args, **kwargs)`` in a thread of its own."""
        name = f"test-{next(_numbers)}-{getattr(call, '__name__', 'call')}"
        task: Task[R] = Task(name, lambda: call(*args, **kwargs))
        self.tasks.append(task)
        return task

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            # The test has failed already, its threads may wait for a gate that stays shut:
            # they are daemons, and what they raised may be the reason, so tell it.
            for task in self.tasks:
                unseen = task.unseen_error() if task.ended else None
                if unseen is not None:
                    error.add_note(f"thread {task.name} had raised {unseen!r}")
            return
        for task in self.tasks:
            task.wait()
        for task in self.tasks:
            unseen = task.unseen_error()
            if unseen is not None:
                raise unseen


def run_together(*calls: Callable[[], R]) -> list[R]:
    """Run the calls at the same time, one thread each, started by a barrier; their results."""
    barrier = threading.Barrier(len(calls))

    def member(call: Callable[[], R]) -> R:
        barrier.wait(HANG_GUARD)
        return call()

    with Threads() as threads:
        tasks = [threads.start(member, call) for call in calls]
    return [task.result() for task in tasks]
