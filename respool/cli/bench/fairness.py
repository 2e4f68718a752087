"""``respool bench pool:fairness``: who gets what, and who passes whom.

This module owns two experiments.  *Sharing*: more threads than resources, for a while; how much does each
thread get, and how long does it wait?  *Passing*: one thread gives back and takes in a tight loop while
another is asleep in the queue; how often does the loop get the resource before the one who waited?
"""

from __future__ import annotations

import time
from itertools import chain
from pathlib import Path
from threading import Event, get_native_id
from typing import TYPE_CHECKING, Any

from respool.cli.bench import _peers, contended
from respool.cli.bench._crowd import Work, hashing, loop_of, percentile, together
from respool.cli.bench._peers import Pair
from respool.cli.bench._results import Claim, Missing, Result, Share, Sharing, Spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from respool.cli.bench._measure import Effort

_THREADS = 8
_RESOURCES = 4
_WORK_SECONDS = 50e-6
#: Seconds after which a loop that is never overtaken gives up.
_ENOUGH = 1.0
#: Seconds between looks at whether a thread sleeps, and looks at most.
_LOOK = 0.002
_LOOKS = 1000


def steps(effort: Effort) -> int:
    """Tell how often `run` will call `tick`."""
    return 2 * effort.runs


def run(effort: Effort, tick: Callable[[], object]) -> Result:
    """Measure, and hold respool to what it promises: nobody passes."""
    missing: dict[str, Missing] = {}
    sharing = _experiment(_RESOURCES, effort, missing, tick, _share(effort.run))
    passing = _experiment(1, effort, missing, tick, _pass(max(1, effort.rounds // 15)))
    rows = [
        _row(pair, sharing[name][1], passing[name][1])
        for name, (pair, _) in sharing.items()
        if name in passing
    ]
    return Result(
        name="pool:fairness",
        title="Fairness",
        what=(
            f"{_THREADS} threads share {_RESOURCES} resources for a while, each hold lasting some "
            f"{_WORK_SECONDS * 1e6:.0f} µs, in which a buffer is hashed without the interpreter's lock: what the busiest thread got "
            "over what the least served one got, and how long a take lasted. And: one thread waits for the only resource, asleep "
            "in the queue, while another gives it back and takes it again in a tight loop: how often the newcomer got it "
            "before the one who waited did, at most."
        ),
        repeats=effort.runs,
        sections=[Sharing(title="What each thread gets", rows=rows)],
        claims=[
            Claim(
                text=f"{row.name}: newcomers ahead of one who waited, most of all",
                unit="times",
                figure=Spread((row.passed.high,)),
                target=0,
                at_most=True,
            )
            for row in rows
            if row.role == "respool"
        ],
        missing=list(missing.values()),
        packages=_peers.PACKAGES,
        quick=effort.quick,
    )


def _experiment(
    size: int,
    effort: Effort,
    missing: dict[str, Missing],
    tick: Callable[[], object],
    measure: Callable[[Pair], Any],
) -> dict[str, tuple[Pair, list[Any]]]:
    """Measure each pool of this size in turn; give what came out, by name, one for each repeat."""
    found = [*contended.own(size), *_peers.peers(size, waiting=True)]
    missing.update({one.name: one for one in found if isinstance(one, Missing)})
    pairs = [one for one in found if isinstance(one, Pair)]
    out: dict[str, tuple[Pair, list[Any]]] = {
        pair.name: (pair, []) for pair in pairs if pair.name != contended.WITH
    }
    try:
        for _ in range(effort.runs):
            for pair, figures in out.values():
                if pair.name in missing:
                    continue
                try:
                    figures.append(measure(pair))
                except Exception as error:  # noqa: BLE001 - a pool that breaks under load is a gap in the table
                    missing[pair.name] = Missing(name=pair.name, why=f"{type(error).__name__}: {error}")
            tick()
    finally:
        for pair in pairs:
            if pair.close is not None:
                pair.close()
    return {name: each for name, each in out.items() if name not in missing}


def _row(pair: Pair, shares: Sequence[Sequence[Sequence[float]]], passed: Sequence[int]) -> Share:
    waits = [sorted(chain.from_iterable(each)) for each in shares]
    return Share(
        name=pair.name,
        role=pair.role,
        totals=[tuple(map(len, each)) for each in shares],
        median_wait=Spread(tuple(percentile(each, 0.5) for each in waits)),
        slow_wait=Spread(tuple(percentile(each, 0.99) for each in waits)),
        longest_wait=Spread(tuple(each[-1] for each in waits)),
        passed=Spread(tuple(map(float, passed))),
    )


# -- sharing -------------------------------------------------------------------------------------------


def _share(seconds: float) -> Callable[[Pair], list[list[float]]]:
    """Give an experiment: the waits of each thread."""
    work = hashing(_WORK_SECONDS)

    def share(pair: Pair) -> list[list[float]]:
        loop = loop_of(pair, work, before="asked = now()", taken="waits.append(now() - asked)")
        common: dict[str, float] = {}
        ended = together(_THREADS, lambda start, _: loop(start, _until(seconds, common)))
        return [waits for _, _, waits in ended]

    return share


def _until(seconds: float, common: dict[str, float]) -> Iterator[None]:
    """Give turns, at least one, until so many seconds after the first thread's first."""
    end = common.setdefault("end", time.perf_counter() + seconds)
    while True:
        yield
        if time.perf_counter() > end:
            return


# -- passing -------------------------------------------------------------------------------------------


def _pass(rounds: int) -> Callable[[Pair], int]:
    """Give an experiment: how often one who waited was passed, the most of some rounds."""
    return lambda pair: max(_Passing(pair).run() for _ in range(rounds))


class _Passing:
    """One round: a thread that loops, and one that waits.

    The counts are touched only by the thread that holds the one resource, so they are exact.
    """

    def __init__(self, pair: Pair) -> None:
        self.looping = loop_of(pair, Work("hold()", {"hold": self._hold}))
        self.waiting = loop_of(pair, Work("hold()", {"hold": self._hold_at_last}))
        self.held = Event()  # the loop has the resource
        self.waiter = 0
        self.turns = -1  # of the loop, since the other one waits
        self.passed: int | None = None

    def run(self) -> int:
        """Give how often the loop passed."""
        together(2, self._act)
        assert self.passed is not None  # noqa: S101 - both threads have ended well
        return self.passed

    def _act(self, start: Callable[[], object], number: int) -> None:
        if number:
            self.waiting(lambda: self._ask(start), range(1))
        else:
            try:
                self.looping(start, self._turns())
            finally:
                self.held.set()  # or the other would wait for ever if this one has failed

    def _turns(self) -> Iterator[None]:
        end = time.perf_counter() + _ENOUGH
        while self.passed is None and time.perf_counter() < end:
            yield

    def _hold(self) -> None:
        if self.turns < 0:
            self.held.set()
            self._see_asleep()
        self.turns += 1

    def _ask(self, start: Callable[[], object]) -> None:
        start()
        self.held.wait()
        self.waiter = get_native_id()

    def _hold_at_last(self) -> None:
        self.passed = self.turns

    def _see_asleep(self) -> None:
        """Wait until the other thread does nothing any more: it's in the queue then, as the resource is here."""
        before = None
        for _ in range(_LOOKS):
            time.sleep(_LOOK)
            if not self.waiter:
                continue
            seen = _activity(self.waiter)
            if seen is None:  # no such thing on this system
                time.sleep(10 * _LOOK)
                return
            if seen == before:
                return
            before = seen
        # One that polls never rests, but has been in the queue for long by now.


def _activity(thread: int) -> str | None:
    """Give a text that changes as long as a thread does anything; None where the system doesn't tell."""
    try:
        status = Path(f"/proc/self/task/{thread}/status").read_text("ascii", errors="replace")
    except OSError:
        return None
    state = status.partition("\nState:")[2].partition("\n")[0].strip()
    switches = status.partition("\nvoluntary_ctxt_switches:")[2].partition("\n")[0].strip()
    return switches if state.startswith("S") else f"{state} {time.perf_counter()}"
