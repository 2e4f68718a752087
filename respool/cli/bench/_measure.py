"""How anything is measured in one thread: interleaved, with equal loops, as ratios of one run.

This module owns the measuring, and how much of it there is (`Effort`).  What is measured is in
the module of a bench's name; what results are is in `_results`.

A *repeat* is a number of rounds; in a round every contender's loop runs once, one after
the other, for half a millisecond or so.  A repeat's figure for a contender is its best round,
and a ratio is one figure over another of the same repeat.  So what slows the machine down
for a while slows down both, and what interrupts a single loop is not counted at all.
"""

from __future__ import annotations

import dataclasses
import timeit
from typing import TYPE_CHECKING

from respool.cli.bench._results import Bars, Claim, Row, Spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from respool.cli.bench._results import Role


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is measured."""

    quick: bool = False
    #: Each gives a figure for the spread.
    repeats: int = 7
    #: In a repeat, for loops of one thread: enough for each to meet a moment without interruption.
    rounds: int = 150
    #: Repeats of what takes longer: runs of several threads, large sizes.
    runs: int = 5
    #: Seconds that one contender's loop takes in one round, about.
    batch: float = 0.0005
    #: Seconds that one contender's run with several threads takes, about.
    run: float = 0.25
    #: Turns of each thread in a short burst.
    burst: int = 2000
    #: Processes started in a repeat, where a process is what's measured.
    starts: int = 6
    #: The GPU's number, where one is measured.
    device: int = 0

    def scaled(self, size: int) -> int:
        """Give a size that this effort is enough for: all of it, or a small part."""
        return max(1, size // 2000) if self.quick else size


FULL = Effort()
#: Just enough to see that everything can be measured; the figures say little.
QUICK = Effort(quick=True, repeats=2, rounds=1, runs=2, batch=0.0001, run=0.02, burst=20, starts=1)


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
    per: int = 1  # operations in one run of the statement
    close: Callable[[], object] | None = None  # to be called when all has been measured

    def timer(self) -> timeit.Timer:
        """Compile the loop."""
        setup = "; ".join(f"{name} = _{name}" for name in self.names) or "pass"
        return timeit.Timer(
            self.statement, setup, globals={f"_{name}": value for name, value in self.names.items()}
        )


def measure(
    contenders: Iterable[Contender], effort: Effort = FULL, *, tick: Callable[[], object] = lambda: None
) -> dict[str, Spread]:
    """Run all contenders' loops in turn, and give each one's seconds for one operation.

    Parameters
    ----------
    contenders : iterable of Contender
        With different names.
    effort : Effort
        How many repeats and rounds, and how long a loop.
    tick : callable
        Called after each round: `repeats` times `rounds` times.

    Returns
    -------
    dict
        By name, one figure for each repeat.
    """
    timers: dict[str, timeit.Timer] = {}
    operations: dict[str, int] = {}
    numbers: dict[str, int] = {}
    for contender in contenders:
        name = contender.name
        timers[name] = timer = contender.timer()
        numbers[name] = _number(timer, effort.batch)
        operations[name] = numbers[name] * contender.per
    order = list(timers)
    figures: dict[str, list[float]] = {name: [] for name in order}
    for _ in range(effort.repeats):
        best = dict.fromkeys(order, float("inf"))
        for _ in range(effort.rounds):
            for name in order:
                best[name] = min(best[name], timers[name].timeit(numbers[name]) / operations[name])
            # So that nobody always runs after the same neighbour.
            order.append(order.pop(0))
            tick()
        for name, seconds in best.items():
            figures[name].append(seconds)
    return {name: Spread(tuple(values)) for name, values in figures.items()}


def bars(title: str, unit: str, contenders: Iterable[Contender], seconds: Mapping[str, Spread]) -> Bars:
    """Put contenders side by side, as ratios to the one that is the unit."""
    rows = [
        Row(
            name=one.name,
            role=one.role,
            seconds=seconds[one.name],
            ratio=seconds[one.name].over(seconds[unit]),
        )
        for one in contenders
    ]
    return Bars(title=title, unit=unit, rows=rows)


def cheaper(title: str, ours: str, theirs: str, seconds: Mapping[str, Spread], target: float) -> Claim:
    """Claim that ours is so many times cheaper than theirs, at least."""
    return Claim(
        text=f"{title}: {ours}, cheaper than {theirs}",
        unit="times",
        figure=seconds[theirs].over(seconds[ours]),
        target=target,
        at_most=False,
    )


def _number(timer: timeit.Timer, batch: float) -> int:
    """Find how many runs fill a batch; by the way, warm up."""
    number = 1
    while True:
        seconds = min(timer.timeit(number) for _ in range(3))
        if seconds > batch / 4:
            return max(1, round(number * batch / seconds))
        number *= 4


def close_all(contenders: Iterable[Contender]) -> None:
    """End what was measured."""
    for contender in contenders:
        if contender.close is not None:
            contender.close()
