"""``respool bench events:threads``: what an event costs where several threads want one at a time.

This module owns the list of what is measured and the targets that the results are held to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from respool.cli.bench import _gpu
from respool.cli.bench._crowd import interleaved_runs, throughput_seconds
from respool.cli.bench._measure import cheaper
from respool.cli.bench._results import Bars, Claim, Curves, Line, Missing, Result, Row, Spread
from respool.cli.bench._ways import BOUND, CPP, CREATE, Ways, all_ways

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.cli.bench._crowd import Loop
    from respool.cli.bench._measure import Effort
    from respool.cli.bench._native import Native
    from respool.cli.bench._results import Role, Section

THREADS = (1, 2, 4, 8, 16)
UNIT = BOUND
#: Whether it's recorded: how many times dearer creating and destroying is, at least, where there are many threads.
_TARGETS = {False: 10.0, True: 1.8}
_MANY = (8, 16)
_TITLES = {False: "An event, not used", True: "An event, recorded and waited for"}
#: Of what other benches take for a run of several threads: there are many runs.
_SHARE = 0.6


def steps(effort: Effort) -> int:
    """Tell how often `run` will call `tick`."""
    return 2 * len(THREADS) * effort.runs


def run(effort: Effort, tick: Callable[[], object]) -> Result:
    """Measure, and hold the results to the targets."""
    gpu = _gpu.Gpu(effort.device)
    missing: list[Missing] = []
    sections: list[Section] = []
    claims: list[Claim] = []
    with all_ways(gpu) as ways:
        roles: dict[str, Role] = {way.name: way.role for way in ways.python}
        for name in CPP:
            roles[name] = "peer"
        for records, title in _TITLES.items():
            found = {threads: _measure(ways, threads, effort, tick, records=records) for threads in THREADS}
            missing += [
                Missing(name=f"{name}, {threads} threads, {title}", why=why)
                for threads, (_, failures) in found.items()
                for name, why in failures.items()
            ]
            seconds = {threads: figures for threads, (figures, _) in found.items()}
            sections += _sections(title, seconds, roles)
            claims += [
                cheaper(f"{title}, {threads} threads", BOUND, CREATE, seconds[threads], _TARGETS[records])
                for threads in _MANY
            ]
        facts = {**gpu.facts(), **ways.facts}
    return Result(
        name="events:threads",
        title="CUDA events, several threads",
        what=(
            "Each of several threads has an event and gives it up again, as often as it can: creates and destroys it, or takes it from "
            "the pool that all of them share. Events are recorded in a stream that the thread has for itself. The time of one is what a "
            "thread sees: from the start line to the end of the last thread, over the turns of one thread; with "
            "perfect scaling it would be the same for any number of threads. Threads of Python share one interpreter lock, threads of C++ don't."
        ),
        repeats=effort.runs,
        sections=sections,
        claims=claims,
        missing=[*ways.missing, *missing],
        packages=_gpu.PACKAGES,
        facts=facts,
        quick=effort.quick,
    )


def _sections(title: str, seconds: dict[int, dict[str, Spread]], roles: dict[str, Role]) -> list[Section]:
    names = list(seconds[THREADS[0]])
    lines = [
        Line(
            name=name,
            role=roles[name],
            seconds={threads: each[name] for threads, each in seconds.items() if name in each},
        )
        for name in names
    ]
    sections: list[Section] = [Curves(title=title, over="threads", lines=lines)]
    for threads in _MANY:
        each = seconds[threads]
        rows = [
            Row(name=name, role=roles[name], seconds=spread, ratio=spread.over(each[UNIT]))
            for name, spread in each.items()
        ]
        sections.append(Bars(title=f"{title}, {threads} threads", unit=UNIT, rows=rows))
    return sections


def _measure(
    ways: Ways, threads: int, effort: Effort, tick: Callable[[], object], *, records: bool
) -> tuple[dict[str, Spread], dict[str, str]]:
    """Give each way's seconds of one, as a thread sees them, and why there are none."""
    runs: dict[str, Callable[[int], float]] = {
        way.name: _python(way.loop(records=records), threads) for way in ways.python
    }
    if ways.native is not None:
        runs |= {name: _native(ways.native, way, threads, records=records) for name, way in CPP.items()}
    figures, failures = interleaved_runs(runs, repeats=effort.runs, seconds=effort.run * _SHARE, tick=tick)
    for name in (CREATE, BOUND):
        if name in failures:
            raise RuntimeError(f"{name}, {threads} threads: {failures[name]}")
    return {name: Spread(tuple(values)) for name, values in figures.items()}, failures


def _python(loop: Loop, threads: int) -> Callable[[int], float]:
    return lambda count: throughput_seconds(loop, threads, count) * threads


def _native(program: Native, way: str, threads: int, *, records: bool) -> Callable[[int], float]:
    return lambda count: program.seconds(way, records=records, threads=threads, count=count) / count
