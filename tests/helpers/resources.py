"""A factory of resources that records, by itself, what the pool does to them.

Its books are kept apart from the pool's, so that a test can hold the one against the other.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from respool import ResourcePool

    MakePool: TypeAlias = Callable[..., ResourcePool[Any, "Thing"]]


class Thing:
    """A resource with a number, the key it was made for, and its condition."""

    __slots__ = ("__weakref__", "alive", "busy", "healthy", "key", "number")

    def __init__(self, key: Hashable, number: int) -> None:
        self.key = key
        self.number = number
        self.alive = True
        self.healthy = True
        self.busy = False  # in use by something that isn't its holder, as a GPU's copy is: nobody may have it

    def __repr__(self) -> str:
        return f"<Thing {self.number} of {self.key!r}>"


class Factory:
    """The hooks ``create``, ``destroy``, ``validate`` and ``reset``, with their own books.

    ``before[hook]`` is called, with the hook's arguments, at the hook's start: a place for
    a gate or an error.  ``errors[hook]`` is a list of what the next calls raise, in order,
    ``None`` for a call that goes well.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.before: dict[str, Callable[..., object]] = {}
        self.errors: defaultdict[str, list[BaseException | None]] = defaultdict(list)
        self.calls: Counter[str] = Counter()
        self.made: list[Thing] = []
        self.destroyed: list[Thing] = []
        self.reset_things: list[Thing] = []
        self.alive = 0
        self.most_alive = 0
        self.misuse: list[str] = []

    def renew(self) -> None:
        """Make it usable in a child process: another thread may have had its lock at the fork."""
        self._lock = threading.Lock()

    def _begin(self, hook: str, *args: object) -> None:
        with self._lock:
            self.calls[hook] += 1
            planned = self.errors[hook].pop(0) if self.errors[hook] else None
        if hook in self.before:
            self.before[hook](*args)
        if planned is not None:
            try:
                raise planned
            finally:
                planned = None  # or its traceback would keep this frame, which refers to it, until the collector comes

    def create(self, key: Hashable) -> Thing:
        """Make a thing; it counts as alive from the start of the call."""
        with self._lock:
            self.alive += 1
            self.most_alive = max(self.most_alive, self.alive)
        try:
            self._begin("create", key)
        except BaseException:
            with self._lock:
                self.alive -= 1
            raise
        with self._lock:
            thing = Thing(key, len(self.made) + 1)
            self.made.append(thing)
        return thing

    def destroy(self, key: Hashable, thing: Thing) -> None:
        """Unmake a thing; it counts as alive until the end of the call."""
        with self._lock:
            if not thing.alive:
                self.misuse.append(f"{thing!r} destroyed twice")
            if key is not thing.key and key != thing.key:
                self.misuse.append(f"{thing!r} destroyed for {key!r}")
            thing.alive = False
            self.destroyed.append(thing)
        try:
            self._begin("destroy", key, thing)
        finally:
            with self._lock:
                self.alive -= 1

    def validate(self, key: Hashable, thing: Thing) -> bool:
        """Tell whether the thing is healthy."""
        self._look(key, thing, "validate")
        self._begin("validate", key, thing)
        return thing.healthy

    def reset(self, key: Hashable, thing: Thing) -> None:
        """Note that the thing was reset."""
        self._look(key, thing, "reset")
        with self._lock:
            self.reset_things.append(thing)
        self._begin("reset", key, thing)

    def _look(self, key: Hashable, thing: Thing, hook: str) -> None:
        if not thing.alive:
            self.misuse.append(f"{hook} of destroyed {thing!r}")
        if key is not thing.key and key != thing.key:
            self.misuse.append(f"{hook} of {thing!r} for {key!r}")

    def numbers_destroyed(self) -> list[int]:
        """Return the numbers of the destroyed things, in order of destruction."""
        return [thing.number for thing in self.destroyed]
