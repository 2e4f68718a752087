"""A `when` that the test answers for, and the ways to give something back with one.

A `When` keeps its own books: how often it was asked, by which threads, and whether it was ever asked by two threads at
once or again after it had said yes, which the pool must never do.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool import ResourcePool

    from .resources import Thing


class When:
    """Tells whether something is free: not yet, until the test says so.

    ``free`` is the answer.  ``after`` makes it yes by itself, from the so-maniest time on that it's asked.  ``errors``
    is a list of what the next calls raise, in order.  ``before`` is called, without arguments, at the start of each call.
    """

    def __init__(self, *, free: bool = False, after: int = 0) -> None:
        self._inside: dict[int, bool] = {}  # no lock: an interrupt might leave it taken
        self.free = free
        self.after = after
        self.errors: list[BaseException] = []
        self.before: Callable[[], object] | None = None
        self.asked = 0
        self.threads: list[threading.Thread] = []
        self.said_yes = False
        self.misuse: list[str] = []

    def __call__(self) -> bool:
        """Answer, and note what is wrong with being asked."""
        me = threading.get_ident()
        self.asked += 1
        asked = self.asked
        self._inside[me] = True
        try:
            if len(self._inside) > 1:
                self.misuse.append("asked by two at the same time")
            if self.said_yes:
                self.misuse.append("asked again after it had said yes")
            self.threads.append(threading.current_thread())
            if self.before is not None:
                self.before()
            if self.errors:
                raise self.errors.pop(0)
            free = self.free or 0 < self.after <= asked
        finally:
            self._inside.pop(me, None)
        # In one step with the return: what an interrupt keeps from being returned was not said.
        self.said_yes = free
        return free


class Held(NamedTuple):
    """What somebody holds in one of the ways: how to give it back."""

    things: tuple[Thing, ...]
    release: Callable[..., None]


def hold(pool: ResourcePool[Any, Thing], way: str, key: str = "A") -> Held:
    """Take something in one of `WAYS`: one thing, or, as a group, two."""
    if way == "lease":
        lease = pool.lease(key, timeout=5)
        return Held((lease.resource,), lease.release)
    if way == "group":
        group = pool.lease_many(2, key, timeout=5)
        return Held(group.resources, group.release)
    face = pool if way == "pool" else pool.bind(key)
    thing = pool.acquire(key, timeout=5)
    return Held((thing,), lambda *args, **options: face.release(thing, *args, **options))


WAYS = ("lease", "pool", "bound", "group")


def hand_in(pool: ResourcePool[Any, Thing], *whens: Callable[[], object], key: str = "A") -> list[Thing]:
    """Give back as many resources as there are ``whens``, each with its own; the resources, in the same order."""
    leases = [pool.lease(key, timeout=5) for _ in whens]
    things = [lease.resource for lease in leases]
    for lease, when in zip(leases, whens, strict=True):
        lease.release(when)
    return things
