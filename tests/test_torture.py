"""respool's own column of the torture table: each situation in a process of its own, as the table runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.torture.adapters import ADAPTERS
from benchmarks.torture.peer import NEEDS
from benchmarks.torture.runner import run_one
from benchmarks.torture.scenario import load

SCENARIOS = load()
DOCS = Path(__file__).resolve().parent.parent / "docs"

#: How docs/why-not.md heads the section of each pool.
SECTIONS = {
    "sqlalchemy": "SQLAlchemy",
    "psycopg_pool": "psycopg_pool",
    "generic-connection-pool": "generic-connection-pool",
    "connpool": "connpool",
    "urllib3": "urllib3",
    "redis": "redis-py",
    "lifoqueue": "twenty lines",
}
#: The rows that it names because the pool is right there; all others are named for being wrong.
PRAISED = {
    "sqlalchemy": {"T26", "T30", "T31"},
    "psycopg_pool": {"T01"},
    "generic-connection-pool": set(),
    "connpool": set(),
    "urllib3": {"T23", "T24"},
    "redis": {"T32", "T33"},
    "lifoqueue": set(),
}


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


def test_the_manual_shows_these_rows() -> None:
    """The table in the manual has the rows that there are, in this order, and respool is right in all of them."""
    shown = json.loads((DOCS / "benchmarks" / "torture.json").read_text("utf-8"))
    rows = {name: (one["number"], one["title"]) for name, one in shown["scenarios"].items()}
    own = {cell["scenario"]: cell["verdict"] for cell in shown["cells"] if cell["pool"] == "respool"}

    assert rows == {name: (f"T{n:02}", one.title) for n, (name, one) in enumerate(SCENARIOS.items(), 1)}
    assert own == dict.fromkeys(SCENARIOS, "pass")


def test_why_not_tells_what_the_table_shows() -> None:
    """Each row that docs/why-not.md holds against a pool is one that the pool failed, and each it praises one it passed."""
    shown = json.loads((DOCS / "benchmarks" / "torture.json").read_text("utf-8"))
    names = {one["number"]: name for name, one in shown["scenarios"].items()}
    verdicts = {(cell["pool"], cell["scenario"]): cell["verdict"] for cell in shown["cells"]}
    page = (DOCS / "why-not.md").read_text("utf-8")
    sections = {pool: page.split(f"## … {title}")[1].split("\n## ")[0] for pool, title in SECTIONS.items()}

    for pool, praised in PRAISED.items():
        told = re.findall(r"T\d\d", sections[pool].replace("T10 to T19", ""))
        for number in told:
            expected = "pass" if number in praised else "fail"
            assert verdicts[pool, names[number]] == expected, (pool, number)
