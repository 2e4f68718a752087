"""What the books of a pool have to say, thought out the slow way: a list of what exists and a list of who waits.

Nothing is remembered that can be looked up: each question is answered by going through both lists from the beginning. The
rules are those of the guarantees G2, G4 and G8, in the words of the contract, and no line is taken from
`respool._accounting`.
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
PENDING = "given back, but not free yet"
STUCK = "given back, and nobody can tell when it's free"
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
    cost: int  # of each
    place: int  # by arrival; the smaller, the earlier
    count: int = 1  # how many at once
    evicts: bool = True  # whether idle ones of other keys may go for it
    got: list[Thing] = field(default_factory=list)  # what it was served with: idle ones, and others to create


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

    def fits(self, cost: int, more: int, without: list[Thing]) -> bool:
        """Tell whether so many more of this cost would be within `max_size` and `max_cost` if these were not there."""
        costs = [thing.cost for thing in self.things if thing not in without] + [cost] * more
        return (self.max_size is None or len(costs) <= self.max_size) and (
            self.max_cost is None or sum(costs) <= self.max_cost
        )

    def fits_ever(self, key: str, cost: int, count: int) -> bool:
        """Tell whether so many of this cost would be within all limits if the pool were empty."""
        cap = self.caps.get(key)
        return self.fits(cost, count, without=self.things) and (cap is None or count <= cap)

    def is_full(self, key: str, more: int = 1) -> bool:
        """Tell whether so many more would pass a key's own cap."""
        cap = self.caps.get(key)
        return cap is not None and len(self.of(key)) + more > cap

    def is_beyond(self, key: str | None = None) -> bool:
        """Tell whether there's more, of one key or in all, than the limits allow, what is on its way out apart."""
        staying = [thing for thing in self.of(key) if thing.state != GOING]
        if key is not None:
            cap = self.caps.get(key)
            return cap is not None and len(staying) > cap
        return not self.fits(0, 0, without=self.of(state=GOING))

    def is_shrinking(self) -> bool:
        """Tell whether there's more of anything than the limits allow, what is on its way out apart."""
        return self.is_beyond() or any(self.is_beyond(key) for key in self.history)

    def may_grow(self, key: str, cost: int) -> bool:
        """Tell whether one more may become idle now: within all limits, and passing nobody who waits."""
        return (
            not self.waiting_for(key)
            and not self.blocked
            and not self.is_shrinking()
            and not self.is_full(key)
            and self.fits(cost, 1, without=[])
            and (self.max_idle is None or len(self.idle()) + 1 <= self.max_idle)
        )

    # -- what happens ----------------------------------------------------------------------------------

    def count(self, key: str, what: str, number: int = 1) -> None:
        """Note that something has happened."""
        self.total[what] += number
        self.history.setdefault(key, Counter())[what] += number

    def arrive(self, key: str, cost: int, count: int = 1, *, evicts: bool = True) -> Waiter:
        """Put somebody at the end of the line."""
        self.history.setdefault(key, Counter())
        waiter = Waiter(key, cost, next(self._time), count, evicts)
        self.waiters.append(waiter)
        return waiter

    def come_back(self, waiter: Waiter) -> None:
        """Put somebody who was served into line again, where they were."""
        self.history.setdefault(waiter.key, Counter())
        waiter.got = []
        self.waiters.append(waiter)
        self.waiters.sort(key=lambda other: other.place)

    def go(self, waiter: Waiter) -> None:
        """Take somebody out of line."""
        self.waiters.remove(waiter)
        self._forget_unused(waiter.key)

    def resize(
        self, max_size: int | None, max_cost: int | None, max_idle: int | None, caps: dict[str, int | None]
    ) -> list[Waiter]:
        """Put other limits in force; give those in line who can't be served any more."""
        self.max_size, self.max_cost, self.max_idle, self.caps = max_size, max_cost, max_idle, caps
        return [one for one in self.waiters if not self.fits_ever(one.key, one.cost, one.count)]

    def add(self, key: str, cost: int) -> Thing:
        """One that was made elsewhere comes into the pool."""
        self.count(key, "adopted")
        self.things.append(Thing(key, cost, HELD))
        return self.things[-1]

    def reserve(self, key: str, cost: int) -> Thing:
        """One is to be created ahead of time."""
        self.history.setdefault(key, Counter())
        self.things.append(Thing(key, cost, CREATING))
        return self.things[-1]

    def take_part(self, waiter: Waiter, thing: Thing | None) -> None:
        """An interrupt has left somebody in line with an idle one, or with one to create, of several that they want."""
        if thing is None:
            thing = self.reserve(waiter.key, waiter.cost)
        else:
            assert thing.state == IDLE
            thing.state = HELD
        waiter.got.append(thing)

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

    def defer(self, thing: Thing) -> None:
        """Its holder gives it back, but it isn't free yet; or nobody could tell, and shall be asked again."""
        assert thing.state in {HELD, STUCK}
        thing.state = PENDING

    def come_free(self, thing: Thing) -> None:
        """It's free now, in the hands of who asked."""
        assert thing.state == PENDING
        thing.state = HELD

    def stick(self, thing: Thing) -> None:
        """Nobody can tell when it's free."""
        assert thing.state == PENDING
        thing.state = STUCK

    def doom(self, thing: Thing, reason: str) -> None:
        """It has to be destroyed; what it takes is on its way back."""
        assert thing.state in {HELD, IDLE, PENDING}
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

    def abandon(self, thing: Thing) -> None:
        """It's left behind as it is."""
        assert thing.state != CREATING
        self.count(thing.key, "abandoned")
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

    def serve(self) -> tuple[list[Thing], list[Thing]]:
        """Serve in order of arrival all who can be served.

        Gives what has to go: because there's more than the limits allow, in no order; and for others, in the order it was
        chosen.
        """
        shed = self._shed()
        doomed: list[Thing] = []
        skipped: set[str] = set()
        self.blocked = False
        for waiter in self.waiters.copy():
            if waiter.key in skipped:
                continue  # later ones of a key stay behind the one who waits for its cap
            missing = waiter.count - len(waiter.got)
            own = self.idle(waiter.key)[::-1][:missing]  # the last one in is the first one out
            new = missing - len(own)
            if new and self.is_full(waiter.key, new):
                skipped.add(waiter.key)
                continue
            if new and not self.fits(waiter.cost, new, without=[]):
                self.blocked = True
                doomed = self._enough_for(waiter, new)
                break  # nobody behind may pass
            for thing in own:
                thing.state = HELD
            waiter.got += own + [self.reserve(waiter.key, waiter.cost) for _ in range(new)]
            self.waiters.remove(waiter)
        for thing in doomed:
            self.doom(thing, "evicted")
        surplus = [] if self.max_idle is None else self.idle()[: max(0, len(self.idle()) - self.max_idle)]
        for thing in surplus:
            self.doom(thing, "surplus")
        return shed, doomed + surplus

    def _shed(self) -> list[Thing]:
        """Let idle ones go, the least recently used first, as long as there's more than the limits allow."""
        shed: list[Thing] = []
        for key in [*self.history, None]:  # first what is too much of one key, then what is too much in all
            while self.is_beyond(key) and self.idle(key):
                shed.append(self.idle(key)[0])
                self.doom(shed[-1], "surplus")
        return shed

    def _enough_for(self, waiter: Waiter, new: int) -> list[Thing]:
        """Give the least recently used idle things of other keys, just as many as have to go for `waiter` to fit.

        None if all wouldn't do.  Those that somebody earlier waits for, who wants still more of them, are not to be had.
        """
        if not waiter.evicts:
            return []
        going = self.of(state=GOING)
        collected = {other.key for other in self.waiters if other.place < waiter.place}
        others = [thing for thing in self.idle() if thing.key not in {waiter.key, *collected}]
        for number in range(len(others) + 1):
            if self.fits(waiter.cost, new, without=going + others[:number]):
                return others[:number]
        return []
