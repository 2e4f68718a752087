"""Runs each scenario with each pool in a process of its own, and kills what hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.torture import adapters
from benchmarks.torture.scenario import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.torture.scenario import Scenario

ROOT = Path(__file__).resolve().parent.parent.parent

#: Seconds for a whole scenario; the child's own watchdog sees a hang earlier.
LIMIT = 240.0
#: The same for the one whose end is what's looked at.
EXIT_LIMIT = 30.0


@dataclass(frozen=True)
class Cell:
    """One pool in one scenario: ``pass``, ``fail``, ``n.a.`` or ``error`` (of the table, not of the pool), and why."""

    pool: str
    scenario: str
    verdict: str
    detail: str

    def as_dict(self) -> dict[str, str]:
        """Give it for JSON."""
        return asdict(self)


def run(pools: Sequence[str], names: Sequence[str]) -> Iterator[Cell]:
    """Run scenarios with pools, one process at a time, row by row."""
    scenarios = load()
    for name in names:
        for pool in pools:
            yield run_one(pool, scenarios[name])


def run_one(pool: str, scenario: Scenario) -> Cell:
    """Run one scenario with one pool, unless the pool has no means for it."""
    try:
        lacks = adapters.load(pool).lacks
    except ImportError as error:
        return Cell(pool, scenario.name, "n.a.", f"not installed: {error}")
    for need in scenario.needs:
        if need in lacks:
            return Cell(pool, scenario.name, "n.a.", lacks[need])
    at_exit = scenario.name == "exit_in_use"
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.torture.child", pool, scenario.name],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = child.communicate(timeout=EXIT_LIMIT if at_exit else LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return Cell(pool, scenario.name, "fail", "hung" if not at_exit else "the process does not exit")
    finally:
        _kill_group(child.pid)  # forked children that hang
    try:
        said = json.loads(out.splitlines()[-1])
        verdict, detail = said["verdict"], said["detail"]
    except (IndexError, ValueError):
        return Cell(pool, scenario.name, "error", f"exit {child.returncode}: {_last(err)}")
    if verdict == "error":
        detail += f" ({_last(err)})"
    if at_exit and verdict == "pass" and (child.returncode or err):
        return Cell(pool, scenario.name, "fail", f"exit {child.returncode}, and on stderr: {_last(err)}")
    return Cell(pool, scenario.name, verdict, detail)


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:160] if lines else "nothing"
