"""respool's own column of the torture table: each situation in a process of its own, as the table runs it."""

from __future__ import annotations

import pytest

from benchmarks.torture.adapters import ADAPTERS
from benchmarks.torture.peer import NEEDS
from benchmarks.torture.runner import run_one
from benchmarks.torture.scenario import load

SCENARIOS = load()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SCENARIOS)
def test_respool_is_right_in_each_situation(name: str) -> None:
    """The table's verdict on respool is "pass", and never "n.a."."""
    cell = run_one("respool", SCENARIOS[name])

    assert (cell.verdict, cell.detail) == ("pass", cell.detail)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("overtaking", "passed in"),
        ("stale_release", "two hands"),
        ("leaked", "only 0 of 1"),
        ("handler_inside", "hung"),
    ],
)
@pytest.mark.timeout(300)
def test_the_table_can_tell_a_wrong_pool(name: str, seen: str) -> None:
    """The pool that people write on a queue fails where it must: a verdict of "pass" means something."""
    cell = run_one("lifoqueue", SCENARIOS[name])

    assert cell.verdict == "fail"
    assert seen in cell.detail


def test_what_a_scenario_needs_is_known() -> None:
    """Each need has its words, each row its number in the list of behaviours, and respool is first in the table."""
    assert {need for one in SCENARIOS.values() for need in one.needs} <= set(NEEDS)
    assert all(one.behaviour.startswith("P") for one in SCENARIOS.values())
    assert next(iter(ADAPTERS)) == "respool"
