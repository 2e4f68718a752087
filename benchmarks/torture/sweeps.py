"""A pool's calls, to be interrupted at each function entry inside them: taking and giving back, by each of their ways."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.torture.bench import AtEntry, Bench, Point, without_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.torture.peer import Peer

#: Rooms of a swept pool.
SIZE = 3
#: Places after which a way is taken to be swept: only a call that never comes to an end has more.
_MOST = 500


@dataclass(frozen=True)
class Way:
    """One way through a pool's acquire or release."""

    gives: bool
    what: str
    fresh: bool = False
    one_use: bool = False


TAKE = (Way(gives=False, what="taking an idle one"), Way(gives=False, what="taking a new one", fresh=True))
GIVE = (
    Way(gives=True, what="giving back"),
    Way(gives=True, what="giving back one that is destroyed", one_use=True),
)


class Stage:
    """A pool made ready for one way: before each call one resource is out, two where the call gives back.

    Attributes
    ----------
    other
        The one that is out besides.
    held
        What the call is to give back, or has taken.
    """

    def __init__(self, bench: Bench, way: Way) -> None:
        self.way = way
        self.pool: Peer = bench.pool(size=SIZE, timeout=4.0, one_use=way.one_use)
        self.other: list[Any] = []
        self.held: list[Any] = []
        self._bench = bench
        if not way.fresh:
            bench.idle(self.pool, SIZE)

    def set(self) -> None:
        """Take what is to be out before the call."""
        if self.way.fresh:
            if "close" not in self.pool.lacks:
                self.pool.close()  # its threads, where it has any, go
            self.pool = self._bench.pool(size=SIZE, timeout=4.0)
        self.other.append(self.pool.acquire())
        if self.way.gives:
            self.held.append(self.pool.acquire())

    def call(self) -> None:
        """Do what is swept."""
        if self.way.gives:
            self.pool.release(self.held[-1])
        else:
            self.held.append(self.pool.acquire())

    def clear(self, *, given: bool) -> None:
        """Give back what is out; `given`: the call did so with its own."""
        if given:
            self.held.clear()
        for pile in (self.held, self.other):
            while pile:
                self.pool.release(pile.pop())


def ways(pool: type[Peer] | Peer, several: tuple[Way, ...]) -> list[Way]:
    """Leave out the ways that a pool doesn't have."""
    return [way for way in several if not (way.one_use and "destroy" in pool.lacks)]


def sweep(
    bench: Bench, stage: Stage, act: Callable[[Stage], object]
) -> Iterator[tuple[Point | None, BaseException | None]]:
    """Do a stage's call again and again, with `act` at its first function entry, then at its second, and so on.

    A function entry is where CPython looks for signals, runs the collector (3.12) and switches threads, so all
    of that may really happen there.  What `act` raises is raised there.  Yields the point and what the call
    raised; the last time, when there was no such point, the point is None.
    """
    for number in itertools.takewhile(lambda number: number < _MOST, itertools.count()):
        stage.set()
        error: BaseException | None = None
        with AtEntry(number, lambda _point: act(stage), bench.step) as entry:
            try:
                stage.call()
            except BaseException as raised:  # noqa: BLE001 - the scenario's to look at
                error = without_frames(raised)
        yield entry.point, error
        if entry.point is None:
            return
