"""Deadlines of reads: one thread that stops what takes too long.

This module owns the waiting for moments to come.  A transfer under way has its own clock in
libcurl; this one is for what waits in a queue, where nobody else is looking.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds after which the thread, with no deadline to wait for, ends.
_IDLE: Final = 10.0
#: The heap is swept of spent entries whenever it has grown to twice what the last sweep left, and to this.
_SWEEP: Final = 64

_numbers = itertools.count()


class Deadline:
    """One moment at which something is to be called, unless it's called off before.

    Made by `at`.  Thread safety: `call_off` may be called from any thread.
    """

    __slots__ = ("_call", "_number", "when")

    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self.when = when
        self._number = next(_numbers)
        self._call: Callable[[], None] | None = call

    def __lt__(self, other: Deadline) -> bool:
        return (self.when, self._number) < (other.when, other._number)

    @property
    def spent(self) -> bool:
        """Whether it has been called, or called off."""
        return self._call is None

    def call_off(self) -> None:
        """Forget what was to be called; it may be under way already."""
        self._call = None

    def _run(self) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        try:
            call()
        except Exception:
            logging.getLogger("respool").exception(
                "stopping a read at its deadline failed; please report this"
            )


class _Clock:
    """The thread and its heap."""

    def __init__(self) -> None:
        # Guards the heap and the thread's state.  Nothing is called under it.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._heap: list[Deadline] = []
        self._sweep_at = _SWEEP
        self._running = False

    def add(self, deadline: Deadline) -> None:
        with self._lock:
            if len(self._heap) >= self._sweep_at:
                self._heap = [entry for entry in self._heap if not entry.spent]
                heapq.heapify(self._heap)
                self._sweep_at = max(_SWEEP, 2 * len(self._heap))
            heapq.heappush(self._heap, deadline)
            if not self._running:
                thread = threading.Thread(target=self._run, name="respool-io-deadlines", daemon=True)
                thread.start()
                self._running = True
            elif self._heap[0] is deadline:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                due = self._next_locked()
                if due is None:
                    self._running = False
                    return
            due._run()  # noqa: SLF001 - this module's own class
            del due

    def _next_locked(self) -> Deadline | None:
        """Wait for the next deadline that has come; None when there has been none for a while."""
        while True:
            while self._heap and self._heap[0].spent:
                heapq.heappop(self._heap)
            if not self._heap:
                if not self._changed.wait(_IDLE) and not self._heap:
                    return None
                continue
            left = self._heap[0].when - time.monotonic()
            if left <= 0:
                return heapq.heappop(self._heap)
            self._changed.wait(min(left, threading.TIMEOUT_MAX))


_clock = _Clock()


def at(when: float, call: Callable[[], None]) -> Deadline:
    """Have something called at a moment, by a thread of this module.

    Parameters
    ----------
    when : float
        On the monotonic clock, in seconds; in the past means at once.
    call : callable
        Must be quick, as all deadlines share one thread.

    Returns
    -------
    Deadline
        To call it off.
    """
    deadline = Deadline(when, call)
    _clock.add(deadline)
    return deadline


def _after_fork_in_child() -> None:
    global _clock, _inherited  # noqa: PLW0603 - the one clock of the process
    # The parent's deadlines are the parent's; they stay referenced so that no finaliser runs here.
    _inherited = _clock
    _clock = _Clock()


_inherited: _Clock | None = None

os.register_at_fork(after_in_child=_after_fork_in_child)
