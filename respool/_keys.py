"""From a key to its row: one row a key at any time, and no row kept for a key that has no resource and no waiter.

A key's ``__hash__`` and ``__eq__`` are the user's code: they may be slow, block or raise, so they never run
under the pool's lock.  Hence two tables:

- `rows` finds a row by its key, without the lock.  It's a cache: what it holds may be dead, what it lacks
  may exist.
- `_chains` holds every living row by its key's hash, an int.  It's the truth, guarded by the lock, and needs
  no user code: keys of one hash are compared outside the lock, and a row is added only if its chain is still
  the one that was compared.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final

from respool.errors import safe_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from respool._work import Lane

__all__ = ["ALL", "All", "KeyTable"]


class All(enum.Enum):
    """The type of `ALL`."""

    ALL = "all keys"

    def __repr__(self) -> str:
        return "respool.ALL"


ALL: Final = All.ALL
"""Stands for all keys of a pool in ``clear`` and ``stats``."""


class KeyTable:
    """The rows of a pool by key."""

    __slots__ = ("_chains", "_count", "rows")

    def __init__(self) -> None:
        self.rows: dict[Any, Lane] = {}  # without the lock
        self._chains: dict[int, tuple[Lane, ...]] = {}  # guarded by the pool's lock
        self._count = 0

    def hash_of(self, key: object) -> int:
        """Hash `key`.  Runs the user's code: never under the lock."""
        try:
            return hash(key)
        except TypeError as error:
            raise TypeError(f"a key must be hashable, got {safe_repr(key)}: {error}") from error

    def chain_locked(self, digest: int) -> tuple[Lane, ...]:
        """Give the living rows whose keys have this hash."""
        return self._chains.get(digest, ())

    @staticmethod
    def pick(chain: tuple[Lane, ...], key: object) -> Lane | None:
        """Find `key` in a chain.  Runs the user's code: never under the lock."""
        for lane in chain:
            if lane.key is key or lane.key == key:
                return lane
        return None

    def add_locked(self, digest: int, compared: tuple[Lane, ...], make: Callable[[], Lane]) -> Lane | None:
        """Add a row if the chain is still the one that `key` was compared with; else None: compare again."""
        if self._chains.get(digest, ()) is not compared and self._chains.get(digest, ()) != compared:
            return None
        lane = make()
        self._chains[digest] = (*compared, lane)
        return lane

    def remember(self, key: object, lane: Lane) -> None:
        """Put `lane` into the cache.  Runs the user's code: never under the lock."""
        self.rows[key] = lane
        if (
            lane.dead
        ):  # dropped in the meantime, perhaps before it was put there: then nobody else takes it out
            self.forget(lane)

    def drop_locked(self, lane: Lane) -> None:
        """Take a living row out of the truth; `forget` has to follow, outside the lock."""
        rest = tuple(other for other in self._chains[lane.digest] if other is not lane)
        # In one straight line: a dead row in the truth would be found for ever.
        lane.dead = True
        if rest:
            self._chains[lane.digest] = rest
        else:
            del self._chains[lane.digest]

    def forget(self, lane: Lane) -> None:
        """Take a dead row out of the cache.  Runs the user's code: never under the lock.  Taking out a living one does no harm."""
        try:
            self.rows.pop(lane.key, None)
        except Exception:  # noqa: BLE001, S110 - a key that can't be hashed any more: its entry stays, dead
            pass

    def all_locked(self) -> Iterator[Lane]:
        """Give all living rows."""
        for chain in self._chains.values():
            yield from chain

    def renew(self) -> tuple[object, ...]:
        """Start anew after a fork; give what must stay referenced.  Runs no user code."""
        kept = (self.rows.copy(), self._chains)
        self.rows.clear()
        self._chains = {}
        return kept
