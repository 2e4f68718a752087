"""How anything is measured here: interleaved, with equal loops, and reported as ratios of one run.

This module owns the measuring, and the records that results are.  What is measured is in
the module of a bench's name; how results are shown is in `_show`.

A *repeat* is a number of rounds; in a round every contender's loop runs once, one after
the other, for half a millisecond or so.  A repeat's figure for a contender is its best round,
and a ratio is one figure over another of the same repeat.  So what slows the machine down
for a while slows down both, and what interrupts a single loop is not counted at all.
"""

from __future__ import annotations

import dataclasses
import statistics
import timeit
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

REPEATS = 7
#: Rounds in a repeat: enough for each contender to meet a moment without interruption.
ROUNDS = 150
#: Seconds that one contender's loop takes in one round, about.
_BATCH_SECONDS = 0.0005

Role = Literal["floor", "respool", "peer"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contender:
    """One thing to measure: a statement, and what its names mean.

    Every contender's statement is compiled into the same loop, its names being locals of
    it, so none pays for a call or a look-up that another doesn't.
    """

    name: str
    role: Role
    statement: str
    names: Mapping[str, object]
    limited: bool = False  # it's a pool that bounds how many resources exist
    close: Callable[[], object] | None = None  # to be called when all has been measured

    def timer(self) -> timeit.Timer:
        """Compile the loop."""
        setup = "; ".join(f"{name} = _{name}" for name in self.names) or "pass"
        return timeit.Timer(
            self.statement, setup, globals={f"_{name}": value for name, value in self.names.items()}
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Missing:
    """Something to compare with that isn't here, and why."""

    name: str
    why: str


@dataclasses.dataclass(frozen=True)
class Spread:
    """The figures of several repeats."""

    values: tuple[float, ...]

    @property
    def low(self) -> float:
        """The smallest."""
        return min(self.values)

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)

    @property
    def high(self) -> float:
        """The largest."""
        return max(self.values)

    def over(self, other: Spread) -> Spread:
        """Divide, repeat by repeat."""
        return Spread(tuple(a / b for a, b in zip(self.values, other.values, strict=True)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A figure with what it should be."""

    text: str
    unit: str
    figure: Spread
    target: float
    at_most: bool  # else at least

    @property
    def met(self) -> bool:
        """Whether the median keeps the target."""
        return self.figure.median <= self.target if self.at_most else self.figure.median >= self.target


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What a bench found."""

    bench: str
    title: str
    what: str  # in a sentence or two, for a reader who doesn't know
    unit: str  # of `rows`' ratios
    rows: Sequence[Row]
    claims: Sequence[Claim]
    missing: Sequence[Missing]
    packages: Sequence[str]  # whose versions matter


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One contender's figures."""

    name: str
    role: Role
    seconds: Spread  # of one operation
    ratio: Spread  # to the unit


def measure(
    contenders: Iterable[Contender],
    *,
    repeats: int = REPEATS,
    rounds: int = ROUNDS,
    tick: Callable[[], object] = lambda: None,
) -> dict[str, Spread]:
    """Run all contenders' loops in turn, and give each one's seconds for one operation.

    Parameters
    ----------
    contenders : iterable of Contender
        With different names.
    repeats, rounds : int
        See this module.
    tick : callable
        Called after each round: `repeats` times `rounds` times.

    Returns
    -------
    dict
        By name, one figure for each repeat.
    """
    timers = {contender.name: contender.timer() for contender in contenders}
    numbers = {name: _number(timer) for name, timer in timers.items()}
    order = list(timers)
    figures: dict[str, list[float]] = {name: [] for name in order}
    for _ in range(repeats):
        best = dict.fromkeys(order, float("inf"))
        for _ in range(rounds):
            for name in order:
                best[name] = min(best[name], timers[name].timeit(numbers[name]) / numbers[name])
            # So that nobody always runs after the same neighbour.
            order.append(order.pop(0))
            tick()
        for name, seconds in best.items():
            figures[name].append(seconds)
    return {name: Spread(tuple(values)) for name, values in figures.items()}


def _number(timer: timeit.Timer) -> int:
    """Find how many operations fill a batch; by the way, warm up."""
    number = 1
    while True:
        seconds = min(timer.timeit(number) for _ in range(3))
        if seconds > _BATCH_SECONDS / 4:
            return max(1, round(number * _BATCH_SECONDS / seconds))
        number *= 4
