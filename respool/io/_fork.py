"""What begins anew in a forked child: locks that another thread of the parent may have held.

This module owns telling objects that the process has forked.  What each of them does then is
its own affair; it may take no lock, log nothing, and let nothing go that could run someone
else's code.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """Something that has to do with threads."""

    def after_fork(self) -> None:
        """Begin anew: this is the only thread, and locks may be held by threads that are gone."""
        ...


_known: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_in_child(thing: Renewable) -> None:
    """Have `thing.after_fork` called in each child, as long as there is the thing."""
    _known.add(thing)


def _after_fork_in_child() -> None:
    for thing in list(_known):
        thing.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
