"""``respool bench events:single``: what an event costs one thread, created and destroyed or lent by a pool.

This module owns the list of what is measured and the targets that the results are held to.
"""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING

from respool.cli.bench import _gpu
from respool.cli.bench._measure import Contender, bars, cheaper, measure
from respool.cli.bench._results import Result
from respool.cli.bench._ways import BOUND, CORE, CREATE, all_ways
from respool.cuda import CudaEventPool
from respool.cuda._driver import DISABLE_TIMING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from respool.cli.bench._gpu import Gpu
    from respool.cli.bench._measure import Effort
    from respool.cli.bench._results import Bars, Claim

UNIT = BOUND
_MANY = 64
BATCH = f"CudaEventPool, bound: lease_many({_MANY}).release(), for each"
BATCH_CREATED = f"{_MANY} x cuEventCreate, then {_MANY} x cuEventDestroy, for each"
#: How much dearer than the pool's way these are, at least.
_BARE = {(BOUND, CREATE): 1.7, (BOUND, CORE): 3.0, (BATCH, CREATE): 2.5}
_RECORDED = {(BOUND, CREATE): 1.3}


def steps(effort: Effort) -> int:
    """Tell how often `run` will call `tick`."""
    return 2 * effort.repeats * effort.rounds


def run(effort: Effort, tick: Callable[[], object]) -> Result:
    """Measure, and hold the results to the targets."""
    gpu = _gpu.Gpu(effort.device)
    with all_ways(gpu) as ways, ExitStack() as ends:
        bare = [*ways.contenders(ends, records=False), *_more(gpu, ends)]
        recorded = [*ways.contenders(ends, records=True), _kept(gpu, ends)]
        sections: list[Bars] = []
        claims: list[Claim] = []
        for title, contenders, targets in (
            ("An event, not used", bare, _BARE),
            ("An event, recorded and waited for", recorded, _RECORDED),
        ):
            seconds = measure(contenders, effort, tick=tick)
            sections.append(bars(title, UNIT, contenders, seconds))
            claims += [
                cheaper(title, ours, theirs, seconds, target)
                for (ours, theirs), target in targets.items()
                if theirs in seconds
            ]
        facts = {**gpu.facts(), **ways.facts}
    return Result(
        name="events:single",
        title="CUDA events, one thread",
        what=(
            "One thread has an event and gives it up again: creates and destroys it, or takes it from a pool and gives it back. "
            "In the second table it's recorded in an idle stream, and waited for, in between; each contender has a stream of its own. "
            "Rows of cuda.bindings don't look at the codes that the driver returns. "
            "A bound pool doesn't look which context is current, the others do."
        ),
        repeats=effort.repeats,
        sections=sections,
        claims=claims,
        missing=ways.missing,
        packages=_gpu.PACKAGES,
        facts=facts,
        quick=effort.quick,
    )


def _more(gpu: Gpu, ends: ExitStack) -> Sequence[Contender]:
    api = gpu.driver.api
    pool = ends.enter_context(CudaEventPool(name="bench"))
    pool.prefill(_MANY)
    created = f"""\
events = [create({DISABLE_TIMING})[1] for _ in numbers]
for event in events:
    destroy(event)
"""
    return (
        Contender(
            name=BATCH,
            role="respool",
            statement=f"pool.lease_many({_MANY}).release()",
            names={"pool": pool.bind()},
            per=_MANY,
        ),
        Contender(
            name=BATCH_CREATED,
            role="peer",
            statement=created,
            names={"create": api.cuEventCreate, "destroy": api.cuEventDestroy, "numbers": range(_MANY)},
            per=_MANY,
        ),
        Contender(
            name="collections.deque pop+append",
            role="floor",
            statement="event = pool.pop(); pool.append(event)",
            names={"pool": deque([object()])},
        ),
    )


def _kept(gpu: Gpu, ends: ExitStack) -> Contender:
    """Give the use alone, of an event that is kept."""
    api, driver = gpu.driver.api, gpu.driver
    event = driver.create_event(DISABLE_TIMING)
    ends.callback(driver.destroy_event, event)
    return Contender(
        name="one event kept: cuEventRecord + cuEventSynchronize",
        role="floor",
        statement="record(event, stream); synchronize(event)",
        names={
            "event": event,
            "stream": ends.enter_context(gpu.stream()),
            "record": api.cuEventRecord,
            "synchronize": api.cuEventSynchronize,
        },
    )
