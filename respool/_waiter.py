"""A thread that waits: how it sleeps, and what can wake it.

Each waiter sleeps on a bell of its own, a `queue.SimpleQueue`: its ``put`` is one C call that is safe in finalisers and signal handlers.  None on the
bell means "look again".  One waiter of a pool is its *listener*: the notes of lost guards are put on its bell, so that a lease dropped while everybody
sleeps wakes somebody.  A note may not get lost on its way from the bell to the pool, not even if an interrupt arrives with it.  So it is moved by C
code alone, from the bell straight into the pool's inbox.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from respool._rows import Ticket

if TYPE_CHECKING:
    from collections import deque

    from respool._slot import Record

__all__ = ["BACKSTOP", "Closer", "Sleeper", "Waiter"]

BACKSTOP: Final = 5.0
"""Seconds after which a sleeper looks for itself.  No wake-up relies on it: it bounds what an unknown defect, or two interrupts within the few
instructions that answer the first, could cost."""


class Sleeper:
    """Something that can be woken, and can listen for the notes of lost guards."""

    __slots__ = ()

    bell: SimpleQueue[Any]

    def listen(self, notes: deque[Any], seconds: float) -> None:
        """Sleep until the bell rings, at most for `seconds`; a note that rang it is in `notes` afterwards."""
        try:
            # One item: None ends the iteration with nothing moved, a note is appended.  No Python code runs in between.
            notes.extend(islice(iter(partial(self.bell.get, True, seconds), None), 1))
        except Empty:
            pass

    def hand_over(self, notes: deque[Any]) -> None:
        """Move the notes that were not heard yet to `notes`.  The owner may be asleep, so it's woken again."""
        try:
            while True:
                notes.extend(iter(self.bell.get_nowait, None))
        except Empty:
            self.bell.put(None)


class Waiter(Sleeper, Ticket):
    """A ticket whose owner is a thread."""

    __slots__ = ("bell", "slept", "thread")

    def __init__(self, seq: int, record: Record, thread: int) -> None:
        self.bell = SimpleQueue()
        super().__init__(seq, record, self.bell.put)
        self.thread = thread
        self.slept = False  # has waited before: its acquire counts as one wait


class Closer(Sleeper):
    """A thread that waits in close() for what is still out."""

    __slots__ = ("bell",)

    def __init__(self) -> None:
        self.bell = SimpleQueue()
