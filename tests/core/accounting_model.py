"""What the books of a pool have to say, thought out the slow way: a list of what exists and a list of who waits.

Nothing is remembered that can be looked up: each question is answered by going through both lists from the beginning. The
rules are those of the guarantees G2 and G4, in the words of the contract, and no line is taken from `respool._accounting`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

# What a resource is at, from the moment somebody may create it until its destroy hook has returned.
CREATING = "creating"
HELD = "in somebody's hands"
IDLE = "idle"
GOING = "on its way out"
KEPT = "can't be freed"


@dataclass(eq=False)
class Thing:
    """A resource in existence, or about to be."""

    key: str
    cost: int
    state: str
    returned: int = 0  # when it was last given back
    uses: int = 0  # how often it was handed out
    reason: str = ""  # why it goes
    tag: Any = None  # what stands for it in the books under test; means nothing here


@dataclass(eq=False)
class Waiter:
    """Somebody in line, or served."""

    key: str
    cost: int
    place: int  # by arrival; the smaller, the earlier
    got: Thing | None = None  # what it was served with: an idle one, or one to create


@dataclass
class Model:
    """A pool as two lists."""

    max_size: int | None = None
    max_cost: int | None = None
    max_idle: int | None = None
    caps: dict[str, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.things: list[Thing] = []
        self.waiters: list[Waiter] = []  # in the order of arrival
        self.blocked = False  # whether the oldest who may be served waits for the total or the cost
        self.total: Counter[str] = Counter()  # what has happened, over all
        self.history: dict[str, Counter[str]] = {}  # the same, for each key since it's known
        self._time = itertools.count(1)

    # -- looking things up -----------------------------------------------------------------------------

    def of(self, key: str | None = None, state: str | None = None) -> list[Thing]:
        """Give the things of one key and in one state, or of all."""
        return [thing for thing in self.things if key in {None, thing.key} and state in {None, thing.state}]

    def idle(self, key: str | None = None) -> list[Thing]:
        """Give the idle things, the one given back the longest ago first."""
        return sorted(self.of(key, IDLE), key=lambda thing: thing.returned)

    def waiting_for(self, key: str) -> list[Waiter]:
        """Give those in line for one key, the oldest first."""
        return [waiter for waiter in self.waiters if waiter.key == key]

    def fits(self, cost: int, without: list[Thing]) -> bool:
        """Tell whether one more would be within `max_size` and `max_cost` if these were not there."""
        there = [thing for thing in self.things if thing not in without]
        return (self.max_size is None or len(there) + 1 <= self.max_size) and (
            self.max_cost is None or sum(thing.cost for thing in there) + cost <= self.max_cost
        )

    def fits_ever(self, cost: int) -> bool:
        """Tell whether one of this cost would fit if the pool were empty."""
        return self.fits(cost, without=self.things)

    def is_full(self, key: str) -> bool:
        """Tell whether a key is at its own cap."""
        cap = self.caps.get(key)
        return cap is not None and len(self.of(key)) >= cap

    # -- what happens ----------------------------------------------------------------------------------

    def count(self, key: str, what: str, number: int = 1) -> None:
        """Note that something has happened."""
        self.total[what] += number
        self.history.setdefault(key, Counter())[what] += number

    def arrive(self, key: str, cost: int) -> Waiter:
        """Put somebody at the end of the line."""
        self.history.setdefault(key, Counter())
        waiter = Waiter(key, cost, next(self._time))
        self.waiters.append(waiter)
        return waiter

    def come_back(self, waiter: Waiter) -> None:
        """Put somebody who was served into line again, where they were."""
        self.history.setdefault(waiter.key, Counter())
        waiter.got = None
        self.waiters.append(waiter)
        self.waiters.sort(key=lambda other: other.place)

    def go(self, waiter: Waiter) -> None:
        """Take somebody out of line."""
        self.waiters.remove(waiter)
        self._forget_unused(waiter.key)

    def fail(self, key: str) -> None:
        """Take all who wait for one key out of line."""
        for waiter in self.waiting_for(key):
            self.waiters.remove(waiter)

    def made(self, thing: Thing) -> None:
        """The creation has succeeded."""
        assert thing.state == CREATING
        thing.state = HELD
        self.count(thing.key, "created")

    def unmade(self, thing: Thing) -> None:
        """The creation has failed, or was not begun after all."""
        assert thing.state == CREATING
        self._remove(thing)

    def use(self, thing: Thing) -> None:
        """It's handed out to a caller."""
        assert thing.state == HELD
        thing.uses += 1

    def give_back(self, thing: Thing) -> None:
        """Its holder gives it back."""
        assert thing.state == HELD
        thing.state = IDLE
        thing.returned = next(self._time)

    def doom(self, thing: Thing, reason: str) -> None:
        """It has to be destroyed; what it takes is on its way back."""
        assert thing.state in {HELD, IDLE}
        thing.state = GOING
        thing.reason = reason
        if reason == "leaked":
            self.count(thing.key, "leaked")

    def gone(self, thing: Thing) -> None:
        """It has been destroyed."""
        assert thing.state == GOING
        self.count(thing.key, "destroyed")
        self.count(thing.key, f"destroyed for {thing.reason}")
        self._retire(thing)

    def kept(self, thing: Thing) -> None:
        """It can't be freed."""
        assert thing.state == GOING
        thing.state = KEPT

    def detach(self, thing: Thing) -> None:
        """Its holder takes it away for good."""
        assert thing.state == HELD
        self.count(thing.key, "detached")
        self._retire(thing)

    def _retire(self, thing: Thing) -> None:
        self.count(thing.key, "retired", thing.uses)
        self.count(thing.key, "retired firsts", int(thing.uses > 0))
        self._remove(thing)

    def _remove(self, thing: Thing) -> None:
        self.things.remove(thing)
        self._forget_unused(thing.key)

    def _forget_unused(self, key: str) -> None:
        """A key that has no resource and nobody in line is forgotten, with its history."""
        if not self.of(key) and not self.waiting_for(key):
            self.history.pop(key, None)

    # -- who is served ---------------------------------------------------------------------------------

    def serve(self) -> list[Thing]:
        """Serve in order of arrival all who can be served; give what has to go, in the order it was chosen."""
        doomed: list[Thing] = []
        skipped: set[str] = set()
        self.blocked = False
        for waiter in self.waiters.copy():
            own = self.idle(waiter.key)
            if waiter.key in skipped:
                continue  # later ones of a key stay behind the one who waits for its cap
            if own:
                waiter.got = own[-1]  # the last one in is the first one out
                waiter.got.state = HELD
            elif self.is_full(waiter.key):
                skipped.add(waiter.key)
                continue
            elif self.fits(waiter.cost, without=[]):
                waiter.got = Thing(waiter.key, waiter.cost, CREATING)
                self.things.append(waiter.got)
            else:
                self.blocked = True
                doomed = self._enough_for(waiter)
                break  # nobody behind may pass
            self.waiters.remove(waiter)
        for thing in doomed:
            self.doom(thing, "evicted")
        surplus = [] if self.max_idle is None else self.idle()[: max(0, len(self.idle()) - self.max_idle)]
        for thing in surplus:
            self.doom(thing, "surplus")
        return doomed + surplus

    def _enough_for(self, waiter: Waiter) -> list[Thing]:
        """Give the least recently used idle things of other keys, just as many as have to go for `waiter` to fit; none if all wouldn't do."""
        going = self.of(state=GOING)
        others = [thing for thing in self.idle() if thing.key != waiter.key]
        for number in range(len(others) + 1):
            if self.fits(waiter.cost, without=going + others[:number]):
                return others[:number]
        return []
