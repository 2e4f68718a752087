"""The thread that destroys, for a pool whose destroy hook may block: one for each pool, with ``destroy_in="background"``.

It's started on first need, and again should it have died.  While it has nothing to do it knows its pool weakly, so it
keeps neither the process nor a dropped pool alive.
"""

from __future__ import annotations

import threading
import weakref
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from respool._slot import Guard
from respool._threads import Starter
from respool._waiter import FIRST_PAUSE, longer

if TYPE_CHECKING:
    from respool._lifecycle import Core

__all__ = ["Destroyer"]

_ASK: Final = "ask what is pending"
_STOP: Final = None


class Destroyer:
    """The queue to a pool's background thread, and the thread.

    `take` looks at `_open` and puts in one step, so what is put is either seen by the thread or refused.
    """

    __slots__ = ("_core", "_inbox", "_name", "_open", "_starter", "_stopping")

    def __init__(self, name: str) -> None:
        self._name = name
        self._core: weakref.ref[Core] | None = None
        self.renew()

    def renew(self) -> object:
        """Forget the thread and its work: after a fork, which the thread has not survived.  Give what must stay referenced."""
        old = getattr(self, "_inbox", None), getattr(self, "_starter", None)
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._open = False
        self._stopping = False
        self._starter = Starter()
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
        before = self._starter.thread
        if before is not None and before.is_alive():
            return
        try:
            thread = threading.Thread(target=self._run, name=f"respool-destroyer-{self._name}", daemon=True)
            self._starter.start(thread, before, self._reopen)
        except RuntimeError:
            # No more threads, none of this kind in a subinterpreter, or the interpreter ends: callers destroy for themselves.
            pass

    def _reopen(self) -> None:
        self._stopping = False
        self._open = True  # `take` asks whether the thread lives as well

    def revive(self) -> None:
        """Start the thread again should it have died with work to do."""
        if not self._inbox.empty():
            self.start()

    def take(self, guard: Guard) -> bool:
        """Destroy what `guard` stands for, soon; False if there's no thread to do it."""
        thread = self._starter.thread
        if thread is None or not thread.is_alive() or not self._open:
            return False
        self._inbox.put(guard)
        return True

    def poll(self) -> None:
        """Have it ask what is pending, again and again as long as something is."""
        if self._open:
            self._inbox.put(_ASK)

    def stop(self) -> None:
        """Let the thread end after what it has been given so far."""
        if self._open and not self._stopping:
            self._stopping = True
            self._inbox.put(_STOP)

    def left(self) -> list[Guard]:
        """Take out what the thread has not come to."""
        found: list[Guard] = []
        try:
            while True:
                item = self._inbox.get_nowait()
                if isinstance(item, Guard):
                    found.append(item)
        except Empty:
            return found

    def _run(self) -> None:
        pause: list[float | None] = [None]
        while True:
            try:
                while True:  # so that a jump back is inside the try, too
                    if self._serve(pause):
                        return
            except BaseException:  # noqa: BLE001 - what a hook raises has been counted; an interrupt is not for this thread
                pause[0] = FIRST_PAUSE  # it may have come between a destroy and its booking: look again soon

    def _serve(self, pause: list[float | None]) -> bool:
        """Do one thing; True at the end.  No reference to the pool outlives this call."""
        try:
            item = self._inbox.get(timeout=pause[0])
        except Empty:
            item = _ASK
        core = None if self._core is None else self._core()
        if core is None:
            return True
        if item is _STOP:
            self._open = False  # from here on `take` refuses; what it has taken before is done yet
            for guard in self.left():
                core.destroy_here(guard)
            return True
        if isinstance(item, Guard):
            core.destroy_here(item)
        pause[0] = core.poll_here(FIRST_PAUSE if pause[0] is None or item is not _ASK else longer(pause[0]))
        return False
