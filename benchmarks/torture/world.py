"""The world outside a pool: resources that know what happened to them, and hooks that a scenario can bend.

Everything is counted here, by the resource's side and not by the pool's own statistics, so that all pools
are judged by the same facts.  The counts are straight-line code under a re-entrant lock: hooks may run in
signal handlers and finalisers.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Thing:
    """One resource.

    Attributes
    ----------
    serial
        Its number, from 1 in order of creation.
    key
        What it was made for.
    destroyed
        How often it was destroyed.
    wrapper
        What an adapter's pool holds instead of the bare thing, once made.
    """

    def __init__(self, world: World, serial: int, key: object) -> None:
        self.world = world
        self.serial = serial
        self.key = key
        self.destroyed = 0
        self.wrapper: Any = None

    def __eq__(self, other: object) -> bool:
        return self is other or (self.world.all_equal and isinstance(other, Thing))

    def __hash__(self) -> int:
        return 1 if self.world.all_equal else id(self)

    def __repr__(self) -> str:
        return f"#{self.serial}"


class World:
    """Makes and ends resources, and keeps count of them.

    Attributes
    ----------
    on_create, on_destroy, on_validate, on_reset
        What a scenario makes its hooks do.
    all_equal
        All resources compare equal and have one hash.
    repeated
        `create` gives this thing instead of a new one.
    alive, most_alive
        Resources in existence now, and the most there ever were at once: from before `create` until
        `destroy` has returned.
    created, destroyed
        Those made and those ended, in order.
    """

    def __init__(self) -> None:
        self.on_create: Callable[[Thing], object] = _nothing
        self.on_destroy: Callable[[Thing], object] = _nothing
        self.on_validate: Callable[[Thing], bool] = _good
        self.on_reset: Callable[[Thing], object] = _nothing
        self.all_equal = False
        self.repeated: Thing | None = None
        self.alive = 0
        self.most_alive = 0
        self.created: list[Thing] = []
        self.destroyed: list[Thing] = []
        self._serials = itertools.count(1)
        self._lock = threading.RLock()

    def create(self, key: object = None) -> Thing:
        """Make a resource, as a pool's hook."""
        if self.repeated is not None:
            return self.repeated
        thing = Thing(self, next(self._serials), key)
        with self._lock:
            self.alive += 1
            self.most_alive = max(self.most_alive, self.alive)
        try:
            self.on_create(thing)
        except BaseException:
            with self._lock:
                self.alive -= 1
            raise
        self.created.append(thing)
        return thing

    def destroy(self, thing: Thing) -> None:
        """End a resource, as a pool's hook."""
        thing.destroyed += 1
        self.destroyed.append(thing)
        try:
            self.on_destroy(thing)
        finally:
            with self._lock:
                self.alive -= 1

    def validate(self, thing: Thing) -> bool:
        """Tell whether a resource is still good, as a pool's hook."""
        return self.on_validate(thing)

    def reset(self, thing: Thing) -> None:
        """Prepare a resource for its next user, as a pool's hook."""
        self.on_reset(thing)


def _nothing(thing: Thing) -> None:
    del thing


def _good(thing: Thing) -> bool:
    del thing
    return True
