"""``respool bench pool:contended``: more threads than cores, on few resources.

This module owns the list of what is measured and the targets that the results are held to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from respool import PoolLimits, ResourcePool
from respool.cli.bench import _peers
from respool.cli.bench._crowd import NOTHING, hashing, interleaved, loop_of
from respool.cli.bench._peers import Pair
from respool.cli.bench._results import Amounts, Bars, Claim, Missing, Result, Row, Spread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from respool.cli.bench._measure import Effort
    from respool.cli.bench._results import Role, Section

UNIT = "queue.LifoQueue get+put"
LEASE = "pool.lease(key).release()"
WITH = "with pool.lease(key)"
BOUND = "bound acquire+release"
VALIDATED = "pool.lease(key).release(), validate hook"
_WORK_SECONDS = 50e-6
_RESOURCES = 4
#: So many times as fast as LifoQueue at least, without and with a validate hook.
_CROWDED = {LEASE: 10, WITH: 10, VALIDATED: 1}
_ENOUGH = {LEASE: 15, WITH: 15, VALIDATED: 1}
_WORKING = {LEASE: 0.8, WITH: 0.8}


class _Setting(NamedTuple):
    """One section's: threads, how it's called, and the targets."""

    threads: int
    manner: str
    targets: Mapping[str, float]

    @property
    def title(self) -> str:
        return f"{self.threads} threads on {_RESOURCES} resources, {self.manner}"


_SETTINGS = (
    _Setting(8, "sustained", _CROWDED),
    _Setting(4, "sustained", _ENOUGH),
    _Setting(8, "in a burst", _CROWDED),
    _Setting(4, "in a burst", _ENOUGH),
    _Setting(8, "working", _WORKING),
    _Setting(4, "working", _WORKING),
)


def steps(effort: Effort) -> int:
    """Tell how often `run` will call `tick`."""
    return effort.runs * len(_SETTINGS)


def run(effort: Effort, tick: Callable[[], object]) -> Result:
    """Measure, and hold the results to the targets."""
    found = [*own(), *_peers.peers(_RESOURCES, waiting=True)]
    pairs = [one for one in found if isinstance(one, Pair)]
    missing = [one for one in found if isinstance(one, Missing)]
    sections: list[Section] = []
    claims: list[Claim] = []
    waited: dict[str, Spread] = {}
    try:
        for setting in _SETTINGS:
            bars, failures, waits = _measure(setting, pairs, effort, tick)
            sections.append(bars)
            waited |= {f"{setting.title}: {name}": Spread((share,)) for name, share in waits.items()}
            missing += [Missing(name=f"{name}, {setting.title}", why=why) for name, why in failures.items()]
            claims += [
                Claim(
                    text=f"{setting.title}: {row.name}",
                    unit=f"x as fast as {UNIT}",
                    figure=row.ratio,
                    target=setting.targets[row.name],
                    at_most=False,
                )
                for row in bars.rows
                if row.name in setting.targets
            ]
    finally:
        for pair in pairs:
            if pair.close is not None:
                pair.close()
    sections.append(
        Amounts(
            title="How many of 1,000 acquires had to wait, with respool (warming up included)", amounts=waited
        )
    )
    return Result(
        name="pool:contended",
        title="A contended acquire and release",
        what=(
            f"8 or 4 threads take one of {_RESOURCES} resources and give it back, again and again, as fast as they can. "
            "A figure is the throughput of all threads, from the start line to the end of the last, "
            f"in units of the throughput of `{UNIT}` in the same repeat; each thread does a fixed number of turns. "
            f"Sustained: as many as take about {effort.run:g} s. In a burst: {effort.burst:,} turns, which a fast pool ends "
            "before the interpreter has switched threads more than once or twice, so that its threads hardly meet. "
            f"Working: a buffer is hashed in between, for some {_WORK_SECONDS * 1e6:.0f} µs, for which the interpreter's lock "
            "isn't needed. respool and psycopg_pool serve strictly in order of arrival, so once more threads want a "
            "resource than there are, each turn of theirs goes to sleep once; the others let newcomers pass."
        ),
        repeats=effort.runs,
        sections=sections,
        claims=claims,
        missing=missing,
        packages=_peers.PACKAGES,
        quick=effort.quick,
    )


def _measure(
    setting: _Setting, pairs: Sequence[Pair], effort: Effort, tick: Callable[[], object]
) -> tuple[Bars, dict[str, str], dict[str, float]]:
    """Give the figures, the failures, and how many of 1,000 acquires of respool had to wait."""
    work = hashing(_WORK_SECONDS) if setting.manner == "working" else NOTHING
    ours: dict[str, Any] = {pair.name: pair.names["pool"] for pair in pairs if pair.role == "respool"}
    before = {name: pool.stats() for name, pool in ours.items()}
    figures, failures = interleaved(
        {pair.name: loop_of(pair, work) for pair in pairs},
        setting.threads,
        repeats=effort.runs,
        seconds=effort.run,
        count=effort.burst if setting.manner == "in a burst" else 0,
        tick=tick,
    )
    waits: dict[str, float] = {}
    for name, pool in ours.items():
        now = pool.stats()
        waits[name] = 1000 * (now.waits - before[name].waits) / max(1, now.acquired - before[name].acquired)
    return _bars(setting.title, pairs, figures), failures, waits


def _bars(title: str, pairs: Sequence[Pair], figures: Mapping[str, list[float]]) -> Bars:
    seconds = {name: Spread(tuple(values)) for name, values in figures.items()}
    unit = seconds[UNIT]
    rows = [
        Row(name=pair.name, role=pair.role, seconds=seconds[pair.name], ratio=unit.over(seconds[pair.name]))
        for pair in pairs
        if pair.name in seconds
    ]
    return Bars(title=title, unit=UNIT, rows=rows, of_speed=True)


def own(size: int = _RESOURCES) -> Sequence[Pair]:
    """Give the ways to take and give back that respool has."""
    limits = PoolLimits(max_size=size)

    def pair(
        name: str,
        take: str,
        give: str,
        *,
        bound: bool = False,
        validate: Callable[[str, object], bool] | None = None,
    ) -> Pair:
        pool = ResourcePool[str, object](lambda _key: object(), validate=validate, limits=limits)
        role: Role = "respool"
        made = Pair(
            name=name,
            role=role,
            take=take,
            give=give,
            names={"pool": pool.bind("key") if bound else pool},
            close=pool.close,
        )
        pool.prefill(size, "key")
        return made

    lease = 'lease = pool.lease("key")'
    return (
        pair(LEASE, lease, "lease.release()"),
        pair(WITH, 'with pool.lease("key"):', "pass"),
        pair(BOUND, "resource = pool.acquire()", "pool.release(resource)", bound=True),
        pair(VALIDATED, lease, "lease.release()", validate=lambda _key, _resource: True),
    )
