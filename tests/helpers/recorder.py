"""An observer that remembers every event, in order, and can be waited for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from respool import PoolObserver

from .threads import HANG_GUARD

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


class Event(NamedTuple):
    """One call of an observer's method."""

    kind: str
    key: Any
    detail: tuple[Any, ...]


class Recorder(PoolObserver):
    """Keeps the events.  ``on`` may hold a callback by kind, run inside the observer call."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.events: list[Event] = []
        self.on: dict[str, Callable[..., object]] = {}

    def _note(self, kind: str, pool: object, key: Hashable, *detail: object) -> None:
        with self._condition:
            self.events.append(Event(kind, key, detail))
            self._condition.notify_all()
        if kind in self.on:
            self.on[kind](pool, key, *detail)

    def created(self, pool: object, key: Hashable, seconds: float) -> None:
        """Note a creation."""
        self._note("created", pool, key, seconds)

    def destroyed(self, pool: object, key: Hashable, reason: str) -> None:
        """Note a destruction and its reason."""
        self._note("destroyed", pool, key, reason)

    def queued(self, pool: object, key: Hashable) -> None:
        """Note a wait's beginning."""
        self._note("queued", pool, key)

    def waited(self, pool: object, key: Hashable, seconds: float, outcome: str) -> None:
        """Note a wait's end."""
        self._note("waited", pool, key, seconds, outcome)

    def leaked(self, pool: object, key: Hashable, stack: object) -> None:
        """Note a leak."""
        self._note("leaked", pool, key, stack)

    def hook_failed(self, pool: object, key: Hashable, hook: str, error: BaseException) -> None:
        """Note a hook's failure."""
        self._note("hook_failed", pool, key, hook, error)

    def of(self, kind: str) -> list[Event]:
        """Return the events of one kind so far."""
        with self._condition:
            return [event for event in self.events if event.kind == kind]

    def details(self, kind: str, place: int = 0) -> list[Any]:
        """Return one detail of each event of a kind: the reason, the outcome ..."""
        return [event.detail[place] for event in self.of(kind)]

    def wait_for(self, kind: str, n: int = 1) -> None:
        """Wait until ``n`` events of this kind have been told."""

        def enough() -> bool:
            return sum(event.kind == kind for event in self.events) >= n

        with self._condition:
            if not self._condition.wait_for(enough, HANG_GUARD):
                msg = f"hang: {n} of {kind!r} awaited, told were {self.events}"
                raise AssertionError(msg)
