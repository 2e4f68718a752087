"""Which contexts the driver has given up for good, and since when.

After such an error each call in the context gives the same code.  It's told once as it happens; after that, acquires
fail fast, saying since when.  Nothing here is looked at on the way of a call that succeeds: only after a failure, and
before something is made in a context.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Broken", "BrokenContexts"]

_KEPT = 256


class Broken(NamedTuple):
    """The first sticky error of a context."""

    code: int
    call: str
    when: float
    """Seconds since the epoch."""
    context_id: int | None

    def since(self) -> str:
        """Say since when, in which context, and which call saw it first."""
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.when))
        context = "" if self.context_id is None else f" {self.context_id}"
        return f"every call in CUDA context{context} has failed so since {moment}, when {self.call} did first"


class BrokenContexts:
    """Remembers the first sticky error of each context.

    By the context's id wherever that's known: ids never repeat.  The driver doesn't tell the id of a broken context, so
    it's known only where somebody has asked before (`know`), or holds something of that context.  Otherwise the
    handle stands for it, until a living context is seen under the same handle.

    Safe to use from any thread; after a fork, the child starts with nothing.
    """

    __slots__ = ("_ids", "_listeners", "_lock", "_seen")

    def __init__(self) -> None:
        self._lock = (
            threading.RLock()
        )  # of its own, and re-entrant: an error may be made in a finaliser or signal handler
        self._ids: dict[int, int] = {}  # handle -> the id last seen under it
        self._seen: dict[int | tuple[str, int], Broken] = {}
        self._listeners: list[Callable[[int], object]] = []

    def forget_all(self) -> None:
        """Start anew: for the child of a fork, in which the lock may be in the hands of a thread that isn't there."""
        self._lock = threading.RLock()
        self._ids.clear()
        self._seen.clear()

    def listen(self, call: Callable[[int], object]) -> Callable[[], None]:
        """Have ``call(context_id)`` called once when a context with a known id breaks.  Gives the way to end that."""
        with self._lock:
            self._listeners.append(call)

        def stop() -> None:
            with self._lock:
                if call in self._listeners:
                    self._listeners.remove(call)

        return stop

    def know(self, handle: int, context_id: int) -> None:
        """Note that a living context has this handle and id."""
        if self._ids.get(handle) == context_id:
            return
        with self._lock:
            self._seen.pop(("handle", handle), None)
            self._ids[handle] = context_id
            while len(self._ids) > _KEPT:
                del self._ids[next(iter(self._ids))]

    def get(self, context_id: int) -> Broken | None:
        """Give the first sticky error of the context with this id, if it had one."""
        return self._seen.get(context_id)

    def note(self, code: int, call: str, context_id: int | None, handle: int) -> Broken:
        """Remember a sticky error, unless one is known, and give the first of that context.

        Parameters
        ----------
        code, call
            What the driver said, and its function.
        context_id
            The id of the context, where the caller knows it.
        handle
            The handle of the current context, for callers who don't; 0 when that isn't to be had.
        """
        with self._lock:
            if context_id is None:
                context_id = self._ids.get(handle)
            key = ("handle", handle) if context_id is None else context_id
            known = self._seen.get(key)
            if known is not None:
                return known
            broken = Broken(code, call, time.time(), context_id)
            self._seen[key] = broken
            while len(self._seen) > _KEPT:
                del self._seen[next(iter(self._seen))]
            listeners = tuple(self._listeners)
        if context_id is not None:
            for listener in listeners:
                listener(context_id)
        return broken
