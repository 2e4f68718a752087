"""``respool bench events:live``: what an event costs where many others exist.

This module owns the list of what is measured and the target that the growth is held to.
"""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import TYPE_CHECKING

from respool.cli.bench import _gpu
from respool.cli.bench._measure import measure
from respool.cli.bench._operations import ROUNDS
from respool.cli.bench._results import Claim, Curves, Line, Result, Spread
from respool.cli.bench._ways import BOUND, WITH, bindings, native_contenders, native_program, pooled
from respool.cuda import CudaEventPool

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.cli.bench._measure import Effort
    from respool.cli.bench._results import Role

_SIZES = (1, 1_000, 100_000)
#: What doesn't grow may do so by this much: caches of the machine are larger too.
_LEVEL = 1.5


def _sizes(effort: Effort) -> list[int]:
    return sorted({effort.scaled(size) for size in _SIZES})


def steps(effort: Effort) -> int:
    """Tell how often `run` will call `tick`."""
    return effort.runs * len(_sizes(effort))


def run(effort: Effort, tick: Callable[[], object]) -> Result:
    """Measure, and hold the growth to its target."""
    gpu = _gpu.Gpu(effort.device)
    sizes = _sizes(effort)
    once = dataclasses.replace(effort, repeats=1, rounds=min(ROUNDS, effort.rounds))
    figures: dict[str, dict[int, list[float]]] = {}
    roles: dict[str, Role] = {}
    facts = gpu.facts()
    with ExitStack() as ends:
        pool = ends.enter_context(CudaEventPool(name="bench"))
        ways = [bindings(gpu), *(way for way in pooled(gpu, pool) if way.name in {BOUND, WITH})]
        contenders = [way.contender(ends.enter_context(way.own()), records=False) for way in ways]
        program, missing = native_program(gpu, ends)
        if program is not None:
            contenders += native_contenders(program, records=False)
            facts["C++ compiler"] = program.compiler
        for one in contenders:
            roles[one.name] = one.role
            figures[one.name] = {size: [] for size in sizes}
        for _ in range(effort.runs):
            for size in sizes:
                # All of them are idle in the pool that is measured.
                pool.prefill(size - pool.total_free_events())
                if program is not None:
                    program.live(size)
                for name, spread in measure(contenders, once).items():
                    figures[name][size] += spread.values
                tick()
            pool.clear()
    lines = [
        Line(
            name=name,
            role=roles[name],
            seconds={size: Spread(tuple(values)) for size, values in each.items()},
        )
        for name, each in figures.items()
    ]
    title = "More events that exist"
    return Result(
        name="events:live",
        title="CUDA events, while many exist",
        what=(
            "One thread has an event and gives it up again, while more and more other events exist: all of them idle in the pool "
            "that is measured, or kept by the program in C++. Figures are ratios to the smallest number in the same repeat."
        ),
        repeats=effort.runs,
        sections=[Curves(title=title, over="events that exist", lines=lines)],
        claims=[
            Claim(
                text=f"{title}: {line.name}, {sizes[-1]:,} against {sizes[0]:,}",
                unit="times",
                figure=line.ratio(sizes[-1]),
                target=_LEVEL,
                at_most=True,
            )
            for line in lines
            if line.role == "respool" and len(sizes) > 1
        ],
        missing=missing,
        packages=_gpu.PACKAGES,
        facts=facts,
        quick=effort.quick,
    )
