"""Starting a thread so that no interrupt can break the start.

`threading.Thread.start` waits in Python code, holding locks of `threading` on the way.  An asynchronous exception that
strikes there can leave one taken for good.  And in CPython 3.11 one that was meant for the starting thread can hit the
new one instead, since `PyThreadState_SetAsyncExc` goes by a thread's number and a new thread's state bears its maker's
until it runs.  It dies before it has said that it lives, and is waited for for ever.

So here `Thread.start` is called by a thread in between, whose number nobody knows.  Whether that one has done its work or
was killed before it could, it lets go of a token, whose end wakes the caller.
"""

from __future__ import annotations

import weakref
from _thread import allocate_lock, start_new_thread
from time import sleep
from typing import TYPE_CHECKING, Any, Final

from respool._free import FREE_THREADED
from respool._work import trying

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

__all__ = ["Starter"]


_PAUSE: Final = 0.001
"""Seconds between two looks of whoever waits for a start without the interpreter lock."""


class _Token:
    """Lives until the thread has been started, or can't be any more."""

    __slots__ = ("__weakref__", "thread")

    def __init__(self, thread: threading.Thread) -> None:
        self.thread = thread


def _start(token: _Token) -> None:  # pragma: no cover - in a bare thread, which no tracer follows
    try:
        token.thread.start()
    except RuntimeError:  # no more threads, or the interpreter ends: the thread has no number, which tells
        pass


class Starter:
    """Starts threads, one after the other.  Not for finalisers and signal handlers: it waits for the thread to begin."""

    __slots__ = ("_begun", "_lock", "_watch", "thread")

    def __init__(self) -> None:
        self._lock = allocate_lock()  # held while a start is prepared, never while it's waited for
        self._begun = allocate_lock()  # of the latest start: locked as long as that goes on
        self._watch: Any = None  # what opens it
        self.thread: threading.Thread | None = None  # of the latest start

    def is_busy(self) -> bool:
        """Tell whether the latest thread lives, or is being started."""
        thread = self.thread
        return thread is not None and (thread.is_alive() or self._begun.locked())

    def start(
        self,
        thread: threading.Thread,
        before: threading.Thread | None,
        prepare: Callable[[], object] | None = None,
    ) -> bool:
        """Start `thread`, having called `prepare`; not if somebody has started another since `before` was the latest, or is about it.

        Tells whether it was `thread` that was started.

        Raises
        ------
        RuntimeError
            There can't be more threads.
        """
        # Tried, not waited for: and a try that succeeds can't be lost to an interrupt, since a `for` step is one
        # instruction, unlike a call and a store.
        taken = False
        for taken in trying(self._lock):  # noqa: B007 - used below
            break
        if not taken:  # pragma: no cover - a race: somebody else prepares a start
            return False
        token: _Token | None = None
        try:
            if self._begun.locked() or self.thread is not before:
                return False
            if prepare is not None:
                prepare()
            begun = allocate_lock()
            begun.acquire()
            token = _Token(thread)
            opening: Any = begun.__exit__  # which is its release, and takes arguments
            watch = weakref.ref(token, opening)
            self._begun = begun
            self._watch = watch
            self.thread = thread
            start_new_thread(_start, (token,))
        finally:
            token = None
            self._lock.release()
        # Without the interpreter lock the token, whose maker this is, lives on until this thread runs again.
        while FREE_THREADED and begun.locked():
            sleep(_PAUSE)
        with begun:  # open once the token has gone
            pass
        if thread.ident is None:
            raise RuntimeError("can't start new thread")
        return True
