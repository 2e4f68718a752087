"""Telling a waiter that is woken from one that merely looks again after a while.

A pool may have its sleepers look again every few seconds, as a last resort; what the tests
want to see is that somebody wakes them.  No clock proves that, but what the waiter's thread
does: one that has been woken runs, and one that nobody woke sleeps on.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .threads import HANG_GUARD, let_pass

if TYPE_CHECKING:
    from .threads import Task

R = TypeVar("R")


def _sleeping(task: Task[object]) -> int | None:
    """Return how often a sleeping thread has gone to sleep so far; None when it isn't asleep."""
    path = Path(f"/proc/self/task/{task.thread.native_id}/status")
    try:
        status = path.read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return None  # it has ended
    if "\nState:\tS" not in status:
        return None
    return int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])


def woken(task: Task[R]) -> R:
    """Return the outcome of a call that waits no longer: fail if its thread sleeps on undisturbed.

    A thread that waits for the interpreter's lock only is woken every few milliseconds, so one
    that sleeps through several looks, each a tenth of a second after the other, sleeps in a lock.
    """
    give_up = time.monotonic() + HANG_GUARD
    seen: list[int | None] = []
    while not task.ended and time.monotonic() < give_up:
        let_pass(time.monotonic() + 0.1)
        seen = [*seen[-4:], None if task.ended else _sleeping(task)]
        asleep = len(seen) == 5 and None not in seen and len(set(seen)) == 1
        assert not asleep or task.ended, f"nobody has woken {task.name}{task.stack()}"
    return task.result()
