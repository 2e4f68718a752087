"""A scenario: a situation, what is right in it, and the function that brings it about."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.torture.bench import Bench


@dataclass(frozen=True)
class Scenario:
    """One row of the table.

    Attributes
    ----------
    name
        For the command line.
    group
        The part of the table it stands in.
    title
        What is right, in a line.
    behaviour
        The number of the behaviour in docs/behaviours.md that it is about.
    needs
        What a pool must have for it; see `benchmarks.torture.peer.NEEDS`.
    run
        Brings it about; returns what was seen, or raises `BrokenError`.
    """

    name: str
    group: str
    title: str
    behaviour: str
    needs: tuple[str, ...]
    run: Callable[[Bench], str]


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    group: str, title: str, behaviour: str, *needs: str
) -> Callable[[Callable[[Bench], str]], Callable[[Bench], str]]:
    """Enter a function as a scenario, under its name."""

    def enter(run: Callable[[Bench], str]) -> Callable[[Bench], str]:
        name = run.__name__
        SCENARIOS[name] = Scenario(name, group, title, behaviour, needs, run)
        return run

    return enter


def load() -> dict[str, Scenario]:
    """Import all scenarios, in the order of the table."""
    for part in ("waiting", "limits", "hooks", "mistakes", "interrupts", "process", "keys"):
        importlib.import_module(f"benchmarks.torture.scenarios_{part}")
    return SCENARIOS
