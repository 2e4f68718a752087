"""What passes between the acting side and the locked part of a pool: inbox entries one way, `Work` the other; and the rows that both know."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from respool._rows import SHUT, Row

if TYPE_CHECKING:
    from respool._engine import Engine
    from respool._slot import Guard

__all__ = ["FORGOTTEN", "LOST", "MARK", "STALE", "Lane", "Work", "trying"]

# Kinds of inbox entries: what has happened to the subject.
RETURNED: Final = "a guard comes back"
DEFERRED: Final = "a guard comes back whose resource isn't free yet"
UNTIL: Final = "(guard, when) the same, and its record doesn't tell of it yet"
STUCK: Final = "a guard comes back, and nobody can tell when its resource is free"
GOING: Final = "a record is being destroyed by its caller"
FREED: Final = "a record has been destroyed"
KEPT: Final = "a record can't be freed"
UNMADE: Final = "the creation for a record failed"
DETACHED: Final = "a record has left the pool"
ABANDONED: Final = "a record has been left behind without destroy"
WAITED: Final = "(row, seconds) somebody waited"
CANCELLED: Final = "a row's waiter was interrupted"
UNUSED: Final = "a row may have become useless"

# The mark in an engine's `gate`.
MARK: Final = None


def trying(lock: Any) -> Any:  # noqa: ANN401 - _thread.lock has no public name in 3.11
    """Make an iterator whose each step tries the lock; `for taken in it: break` can't lose it to an interrupt."""
    return iter(partial(lock.acquire, False), MARK)  # noqa: FBT003 - it's `blocking`


class _Away:
    """Stands in for a row as a record's lane: whatever is given back there goes the slow way."""

    __slots__ = ("due", "meaning")

    def __init__(self, meaning: str) -> None:
        self.due = SHUT
        self.meaning = meaning


STALE: Final = _Away("from before clear(): destroyed when it's given back")
FORGOTTEN: Final = _Away("from before forget(): left behind without destroy when it's given back")
LOST: Final = _Away("from before a fork: nothing is done with it here")


class Lane(Row):
    """A row with what the acting side needs of it."""

    __slots__ = ("digest", "engine", "forgotten", "generation", "key")

    def __init__(self, engine: Engine, key: Any, digest: int, cap: int | None) -> None:  # noqa: ANN401
        super().__init__(next(engine.numbers), cap, engine.accounts.use, *engine.calm())
        self.engine = engine
        self.key = key
        self.digest = digest
        # Raised by clear() and forget(): what is being created meanwhile is of an old one.
        self.generation = 0
        self.forgotten = 0  # the generation that the last forget() began


class Work:
    """What a section under the lock leaves to be done outside it."""

    __slots__ = ("condemned", "leaks", "rows", "rubbish")

    def __init__(self) -> None:
        self.condemned: deque[Guard] = deque()  # to be destroyed; each guard's record says why
        self.leaks: list[tuple[Any, ...]] = []  # (key, holder) of leases that were dropped
        self.rows: list[Lane] = []  # dropped: to be taken out of the cache of keys
        self.rubbish: list[object] = []  # whose last reference may be here

    def __bool__(self) -> bool:
        return bool(self.condemned or self.leaks or self.rows or self.rubbish)

    def take_over(self, other: Work) -> None:
        """Move what `other` has to this one.  Cut short, it leaves an item in both, of which one is dropped."""
        for mine, its in (
            (self.condemned, other.condemned),
            (self.leaks, other.leaks),
            (self.rows, other.rows),
        ):
            if its:
                mine.extend(its)  # type: ignore[arg-type]  # lists of one type each
                its.clear()
