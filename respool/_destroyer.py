"""The thread that destroys, for a pool whose destroy hook may block: one for each pool, with ``destroy_in="background"``.

It's started on first need, and again should it have died.  While it has nothing to do it knows its pool weakly, so it
keeps neither the process nor a dropped pool alive.
"""

from __future__ import annotations

import threading
import weakref
from _thread import allocate_lock
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from respool._slot import Guard
from respool._waiter import FIRST_PAUSE, longer
from respool._work import trying

if TYPE_CHECKING:
    from respool._lifecycle import Core

__all__ = ["Destroyer"]

_ASK: Final = "ask what is pending"
_STOP: Final = None


class Destroyer:
    """The queue to a pool's background thread, and the thread."""

    __slots__ = ("_core", "_inbox", "_name", "_starting", "_thread")

    def __init__(self, name: str) -> None:
        self._name = name
        self._core: weakref.ref[Core] | None = None
        self.renew()

    def renew(self) -> object:
        """Forget the thread and its work: after a fork, which the thread has not survived.  Give what must stay referenced."""
        old = getattr(self, "_inbox", None)
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = allocate_lock()
        if self._core is not None:
            core = self._core()
            if core is not None:
                self.serve(core)
        return old

    def serve(self, core: Core) -> None:
        """Say whose destroyer this is."""
        self._core = weakref.ref(core, self._inbox.put)  # the dead reference tells the thread to end

    def start(self) -> None:
        """See that the thread runs.  Not from finalisers and signal handlers: it waits for the thread to begin."""
        thread = self._thread
        if thread is not None and thread.is_alive():
            return
        taken = False
        for taken in trying(self._starting):  # noqa: B007 - used below
            break
        if not taken:
            return
        try:
            if self._thread is not thread:  # somebody else was here in between
                return
            thread = threading.Thread(
                target=_run,
                args=(self._inbox, self._core),
                name=f"respool-destroyer-{self._name}",
                daemon=True,
            )
            thread.start()
            self._thread = thread
        except RuntimeError:  # no more threads, or the interpreter ends: callers destroy for themselves
            pass
        finally:
            self._starting.release()

    def take(self, guard: Guard) -> bool:
        """Destroy what `guard` stands for, soon; False if there's no thread to do it."""
        thread = self._thread
        if thread is None or not thread.is_alive():
            return False
        self._inbox.put(guard)
        return True

    def poll(self) -> None:
        """Have it ask what is pending, again and again as long as something is."""
        self._inbox.put(_ASK)

    def stop(self) -> None:
        """Let the thread end after what it has been given so far."""
        if self._thread is not None:
            self._inbox.put(_STOP)


def _run(inbox: SimpleQueue[Any], reference: weakref.ref[Core]) -> None:
    pause: list[float | None] = [None]
    while True:
        try:
            if _serve(inbox, reference, pause):
                return
        except BaseException:  # noqa: BLE001, S110 - what a hook raises has been counted; an interrupt is not for this thread
            pass


def _serve(inbox: SimpleQueue[Any], reference: weakref.ref[Core], pause: list[float | None]) -> bool:
    """Do one thing; True at the end.  No reference to the pool outlives this call."""
    try:
        item = inbox.get(timeout=pause[0])
    except Empty:
        item = _ASK
    core = reference()
    if core is None or item is _STOP or isinstance(item, weakref.ref):
        return True
    if isinstance(item, Guard):
        core.destroy_here(item)
    pause[0] = core.poll_here(FIRST_PAUSE if pause[0] is None or item is not _ASK else longer(pause[0]))
    return False
