"""The thread that looks after time: one for all pools with an ``idle_timeout`` or a ``max_lifetime``.

It's started on first need and ends when there's no such pool any more.  It knows pools weakly, so it keeps neither the
process nor a dropped pool alive.
"""

from __future__ import annotations

import threading
import weakref
from _thread import allocate_lock
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from respool._threads import Starter
from respool._work import trying

if TYPE_CHECKING:
    from respool._lifecycle import Core

__all__ = ["after_fork_in_child", "is_there", "nudge", "watch"]

_LEAST: Final = 0.01
"""Seconds between two looks at a pool, at least."""

_TROUBLED: Final = 0.05
"""Seconds until the next look at a pool where this one was cut short."""


class _Reaper:
    """The thread, and what it knows.  `lock` guards `thread`; all else is the thread's own."""

    def __init__(self) -> None:
        self.lock = allocate_lock()
        self.thread: threading.Thread | None = None
        self.starter = Starter()
        # When it looks at which pool next.  Not a variable of the thread's: should that die, the next one goes on.
        self.due: dict[weakref.ref[Core], float] = {}
        self.inbox: SimpleQueue[Any] = (
            SimpleQueue()
        )  # weak references to pools: new ones, or ones that have died

    def watch(self, core: Core) -> bool:
        self.inbox.put(weakref.ref(core, self.inbox.put))
        # Tried, not waited for: this may be a signal handler that interrupts this very section.  And a try that
        # succeeds can't be lost to an interrupt: a `for` step is one instruction, unlike a call and a store.
        taken = False
        for taken in trying(self.lock):  # noqa: B007 - used below
            break
        if not taken:
            return False  # the next one who comes sees to it
        try:
            if self.thread is None or not self.starter.is_busy():
                # Known before it's started: an interrupt of the wait for its beginning doesn't make it a stranger.
                self.thread = threading.Thread(target=self.run, name="respool-reaper", daemon=True)
                self.starter.start(self.thread, self.starter.thread)
        except (
            RuntimeError
        ):  # no more threads, or the interpreter ends: acquire, release and reap() see to it
            return False
        finally:
            self.lock.release()
        return True

    def run(self) -> None:
        while True:
            try:
                while True:  # so that a jump back is inside the try, too
                    if self.look(self.due):
                        return
            except BaseException:  # noqa: BLE001, S110 - what a hook raises has been counted; an interrupt is not for this thread
                pass

    def look(self, due: dict[weakref.ref[Core], float]) -> bool:
        """Do one turn; True when there's nothing left to look after, and the thread is to end."""
        self.turn(due)
        if due or not self.inbox.empty():
            return False
        with self.lock:
            if self.inbox.empty():
                self.thread = None
        # Whoever came while the lock was taken has put a pool and left it at that: it's looked after here, as long
        # as no other thread has begun.
        if self.thread is None and self.inbox.empty():
            return True
        with self.lock:  # pragma: no cover - a race: tests/core/test_reaper.py stops the thread here
            if self.thread is None:
                self.thread = threading.current_thread()
            return self.thread is not threading.current_thread()

    def turn(self, due: dict[weakref.ref[Core], float]) -> None:
        """Wait until something is due or somebody comes, and do it."""
        try:
            seconds = max(0.0, min(due.values()) - monotonic()) if due else None
            reference = self.inbox.get(timeout=seconds) if due else self.inbox.get_nowait()
            if reference() is not None:
                due[reference] = 0.0
            for gone in [one for one in due if one() is None]:
                del due[gone]
        except Empty:
            pass
        for reference in [one for one, at in due.items() if at <= monotonic()]:
            due[reference] = monotonic() + _TROUBLED  # should this look be cut short
            _look(reference, due)


def _look(reference: weakref.ref[Core], due: dict[weakref.ref[Core], float]) -> None:
    """Look after one pool.  No reference to it outlives this call."""
    core = reference()
    at = None if core is None else core.look_after_time()
    if at is None:
        due.pop(reference, None)
    else:
        due[reference] = max(at, monotonic() + _LEAST)


_reaper = _Reaper()


def watch(core: Core) -> bool:
    """Have the thread look after a pool until `look_after_time` gives None; False if there's no thread just now."""
    return _reaper.watch(core)


def is_there() -> bool:
    """Tell whether the thread lives, or is being started: it may have been killed by an asynchronous exception."""
    return _reaper.thread is not None and _reaper.starter.is_busy()


def nudge(core: Any) -> None:  # noqa: ANN401 - a Core, or a part of one
    """Have the thread look at a pool that it knows now.  From anywhere: it's C code but for this function."""
    _reaper.inbox.put(weakref.ref(core, _reaper.inbox.put))


def after_fork_in_child() -> None:
    """Forget the thread, which has not survived; it's started again on first need."""
    global _reaper  # noqa: PLW0603 - one for the process
    _reaper = _Reaper()
