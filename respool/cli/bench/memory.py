"""``respool bench pool:memory``: what an idle resource costs in memory, and what is left of keys that were used once.

This module owns the targets and starts the measuring, each time in a process of its own (`_memory_probe`),
whose memory nothing else has been through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from respool.cli.bench import _memory_probe
from respool.cli.bench._probes import ask
from respool.cli.bench._results import Amounts, Claim, Result, Spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.cli.bench._measure import Effort

_IDLE = 100_000
_KEYS = 20_000
_ONE_USE = 1_000_000
_IDLE_BYTES = 500
#: What counts as nothing: a table's size in between two growths, and the allocator's own slack.
_NOTHING = 1 << 20
_REPEATS = 2


def steps(effort: Effort) -> int:
    """Tell how often `run` will call `tick`."""
    del effort
    return 2 * _REPEATS + 1


def run(effort: Effort, tick: Callable[[], object]) -> Result:
    """Measure, and hold the results to the targets."""
    sizes = {
        "one_key": effort.scaled(_IDLE),
        "many_keys": effort.scaled(_KEYS),
        "one_use": effort.scaled(_ONE_USE),
    }
    found: dict[str, list[float]] = {}
    for number in range(_REPEATS):
        for probe, size in sizes.items():
            if probe == "one_use" and number:
                continue  # once is enough for what takes so long
            for name, value in ask(_memory_probe.__name__, probe, size).items():
                found.setdefault(name, []).append(value)
            tick()
    spreads = {name: Spread(tuple(values)) for name, values in found.items()}
    each = Amounts(
        title="Bytes for each idle resource, above the resource itself (by tracemalloc)",
        amounts={
            f"{sizes['one_key']:,} idle resources of one key": spreads["idle"],
            f"{sizes['many_keys']:,} keys with an idle resource each": spreads["keyed"],
            "of the latter, left after clear()": spreads["left"],
        },
    )
    after = f"after {sizes['one_use']:,} keys used once each, at max_size=16"
    once = Amounts(
        title="Keys that are used once: how much more than after the first thousand",
        amounts={
            f"resident memory {after}, bytes": spreads["resident"],
            f"allocated blocks {after}": spreads["blocks"],
        },
    )
    return Result(
        name="pool:memory",
        title="Memory",
        what=(
            "What the pool itself needs for a resource that lies idle, measured by tracemalloc as what all its tables and "
            "records take divided by the number of resources, which were made before; and whether keys that come and go "
            "leave anything behind, measured as the process's resident memory and by the interpreter's count of blocks. "
            "Each in a process of its own, the latter once."
        ),
        repeats=_REPEATS,
        sections=[each, once],
        claims=[
            Claim(
                text="an idle resource, many of one key",
                unit="bytes",
                figure=spreads["idle"],
                target=_IDLE_BYTES,
                at_most=True,
            ),
            Claim(
                text="an idle resource with a key of its own",
                unit="bytes",
                figure=spreads["keyed"],
                target=_IDLE_BYTES,
                at_most=True,
            ),
            Claim(
                text=f"resident memory {after}",
                unit="bytes more",
                figure=spreads["resident"],
                target=_NOTHING,
                at_most=True,
            ),
        ],
        missing=[],
        packages=(),
        quick=effort.quick,
    )
