"""How long it takes to hand something on to the next of many threads in a queue."""

from __future__ import annotations

import threading
import time
from _thread import allocate_lock
from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from respool import ResourcePool

#: Bytes of stack for a thread that only waits: the usual size, ten thousand times, is more than some systems give.
_STACK = 256 * 1024
_PAUSE = 0.005
#: Seconds after which a crowd that isn't in line yet is too much for the machine.
_PATIENCE = 60.0


#: How to take, how to give back what was taken, and how many wait.
Queue: TypeAlias = "tuple[Callable[[], Any], Callable[[Any], object], Callable[[], int]]"


def queue_for_pool(pool: ResourcePool[Any, Any], key: object) -> Queue:
    """Give how to take and to give back the only resource of `key`, and how to tell how many wait."""
    bound = pool.bind(key)
    return bound.acquire, bound.release, lambda: bound.stats().waiters


def queue_for_locks() -> Queue:
    """Give the same for the simplest thing that serves in order: a deque of locks, one for each who waits."""
    guard = allocate_lock()
    waiting: deque[Any] = deque()
    free: list[None] = [None]

    def take() -> None:
        with guard:
            if free:
                free.pop()
                return
            mine = allocate_lock()
            mine.acquire()
            waiting.append(mine)
        mine.acquire()

    def give(taken: None) -> None:
        with guard:
            if waiting:
                waiting.popleft().release()
            else:
                free.append(taken)

    return take, give, lambda: len(waiting)


class Crowd:
    """Threads that queue for one thing, pass it on when they get it, and queue again.

    A context manager: on entry all wait but one, which holds the thing until `seconds` lets it go.  What
    isn't a lock or an event is touched only by the thread that holds the thing.
    """

    def __init__(
        self,
        size: int,
        take: Callable[[], Any],
        give: Callable[[Any], object],
        waiting: Callable[[], int],
    ) -> None:
        self._size = size
        self._take = take
        self._give = give
        self._waiting = waiting
        self._left = 1  # turns until one holds it
        self._ended = 0.0
        self._held = threading.Semaphore(0)
        self._go = threading.Semaphore(0)
        self._over = False
        self._threads: list[threading.Thread] = []

    def seconds(self, turns: int) -> float:
        """Let it be handed on so many times, and give the seconds of one."""
        self._left = turns
        began = time.perf_counter()
        self._go.release()
        self._held.acquire()
        return (self._ended - began) / turns

    def __enter__(self) -> Self:
        before = threading.stack_size(_STACK)
        try:
            for _ in range(self._size + 1):
                thread = threading.Thread(target=self._live, daemon=True)
                thread.start()
                self._threads.append(thread)
        except BaseException:
            self._end()
            raise
        finally:
            threading.stack_size(before)
        try:
            self._line_up()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _line_up(self) -> None:
        """Wait until one holds it, and all others are in line."""
        give_up = time.monotonic() + _PATIENCE
        held = self._held.acquire(timeout=_PATIENCE)
        while not held or self._waiting() < self._size:
            if time.monotonic() > give_up:
                raise RuntimeError(f"they were not all in line after {_PATIENCE:g} s")
            time.sleep(_PAUSE)

    def _end(self) -> None:
        """Let everybody go: whoever has it gives it to the next, and whoever hasn't asked yet doesn't."""
        self._over = True
        self._go.release()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _live(self) -> None:
        while not self._over:
            taken = self._take()
            self._left -= 1
            if self._left == 0:
                self._ended = time.perf_counter()
                self._held.release()
                self._go.acquire()
            self._give(taken)
