"""`Awaited`: a future that can be waited for in the main thread while signals come.

This module owns what is special about that thread: a signal handler that raises may strike there after any call of C
code.  `threading.Condition` and `concurrent.futures.wait` take a future's lock in Python code; where a handler raises
between the taking and the block that would let go, the lock is the main thread's for good, and the thread that is to
settle the future stands still.  And a signal that comes just before the interpreter begins to wait on a lock doesn't
end that wait, so that none may be long.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

R = TypeVar("R")

#: Seconds between looking up from a wait, for signals.
_LOOK_UP: Final = 0.2


class SoundCondition(threading.Condition):
    """A condition whose `with` takes and lets go of the lock by C code alone, which no signal handler strikes within.

    The interpreter looks both methods up before it calls the first; the properties run then, when nothing is held.
    """

    __enter__ = property(lambda self: self._lock.__enter__)  # pyright: ignore[reportAssignmentType] - a bound method, too
    __exit__ = property(lambda self: self._lock.__exit__)  # pyright: ignore[reportAssignmentType] - a bound method, too


class Awaited(Future[R]):
    """A future that can be waited for in the main thread, whatever signals come."""

    def __init__(self) -> None:
        super().__init__()
        self._condition = SoundCondition()

    def result(self, timeout: float | None = None) -> R:
        """Return the result, or raise the error; as in `concurrent.futures.Future`."""
        return super().result(self._wait(timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, or None; as in `concurrent.futures.Future`."""
        return super().exception(self._wait(timeout))

    def _wait(self, timeout: float | None) -> float | None:
        """Wait, where this is the main thread; return how long is still to be waited."""
        if threading.current_thread() is not threading.main_thread():
            return timeout
        wait_until_over([self], self.done, timeout)
        if not self.done():
            raise TimeoutError  # what waiting on the condition would raise, which a signal handler could cut in two
        return None

    def _call_off(self, callback: Callable[[Any], object]) -> None:
        """Take a callback back, unless whoever settles it may be calling them by now."""
        with self._condition:
            if not self.done() and callback in self._done_callbacks:  # type: ignore[attr-defined]
                self._done_callbacks.remove(callback)  # type: ignore[attr-defined]


def wait_until_over(
    futures: Sequence[Awaited[Any]], enough: Callable[[], bool], timeout: float | None = None
) -> None:
    """Wait until enough of them are over, looking up now and then."""
    if enough():
        return
    end = math.inf if timeout is None else time.monotonic() + timeout
    bell: SimpleQueue[object] = SimpleQueue()  # in C, so that a handler that raises leaves nothing taken
    for future in futures:
        future.add_done_callback(bell.put)
    try:
        while not enough():
            left = end - time.monotonic()
            if left <= 0:
                return
            with contextlib.suppress(Empty):
                bell.get(timeout=min(left, _LOOK_UP))
    finally:
        # Or a read that is asked for again and again would keep them all.
        for future in futures:
            future._call_off(bell.put)  # noqa: SLF001 - this module's own
