"""The table, for a terminal, for programs and for the manual."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, Any

from benchmarks.torture import adapters
from benchmarks.torture.scenario import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from benchmarks.torture.runner import Cell

_MARKS = {"pass": "✓", "fail": "✗", "n.a.": "n.a.", "error": "?"}
_STYLES = {"pass": "green", "fail": "bold red", "n.a.": "dim", "error": "bold yellow"}


class Table:
    """Cells in rows of scenarios and columns of pools."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = {(cell.scenario, cell.pool): cell for cell in cells}
        self.pools = list(dict.fromkeys(cell.pool for cell in cells))
        self.scenarios = [load()[name] for name in dict.fromkeys(cell.scenario for cell in cells)]

    def number(self, name: str) -> str:
        """Give a scenario's number: its place among all scenarios, whether run or not."""
        return f"T{list(load()).index(name) + 1:02}"

    def title(self, pool: str) -> str:
        """Give a pool's name as it is known."""
        try:
            return adapters.load(pool).name
        except ImportError:
            return pool

    def score(self, pool: str) -> tuple[int, int]:
        """Count what a pool got right, and what it was put to."""
        verdicts = [cell.verdict for cell in self.cells.values() if cell.pool == pool]
        return verdicts.count("pass"), len(verdicts) - verdicts.count("n.a.")

    def as_dict(self, machine: dict[str, str]) -> dict[str, Any]:
        """Give all of it for JSON."""
        return {
            "machine": machine,
            "scenarios": {
                one.name: {"number": self.number(one.name), "title": one.title, "behaviour": one.behaviour}
                for one in self.scenarios
            },
            "scores": {
                pool: {"right": self.score(pool)[0], "of": self.score(pool)[1]} for pool in self.pools
            },
            "cells": [cell.as_dict() for cell in self.cells.values()],
        }


def versions(pools: Sequence[str]) -> dict[str, str]:
    """Tell the version of each pool's package."""
    found: dict[str, str] = {}
    for pool in pools:
        try:
            package = adapters.load(pool).package
            if package is not None:
                found[package] = metadata.version(package)
        except (ImportError, metadata.PackageNotFoundError):
            found[pool] = "not installed"
    return found


def on_terminal(console: Console, table: Table) -> None:
    """Print the table, and below it what went wrong where."""
    from rich.table import Table as RichTable

    shown = RichTable(title="Torture", show_lines=False)
    shown.add_column("")
    shown.add_column("situation", max_width=52)
    for pool in table.pools:
        shown.add_column(table.title(pool), justify="center", max_width=11, overflow="fold")
    group = None
    for one in table.scenarios:
        if group not in {None, one.group}:
            shown.add_section()
        group = one.group
        marks = []
        for pool in table.pools:
            cell = table.cells.get((one.name, pool))
            verdict = cell.verdict if cell else "n.a."
            marks.append(f"[{_STYLES[verdict]}]{_MARKS[verdict]}[/]")
        shown.add_row(table.number(one.name), one.title, *marks)
    shown.add_section()
    shown.add_row(
        "", "right, of those that apply", *("{}/{}".format(*table.score(pool)) for pool in table.pools)
    )
    console.print(shown)
    for one in table.scenarios:
        for pool in table.pools:
            cell = table.cells.get((one.name, pool))
            if cell and cell.verdict in {"fail", "error"}:
                told = f"{table.number(one.name)} {table.title(pool)}: {cell.detail}"
                console.print(told, style=_STYLES[cell.verdict], markup=False, highlight=False)


_HEAD = """\
# Torture table

Situations in which resource pools break, put to respool and to pools that are in wide use. Each runs in a process of its
own; a hang is a failure. A verdict comes from what was observed: how many resources existed, who was served when, which
object was in whose hands. The pools are used as their documentation says, without a server: by a creator, a connection
class or hooks that count. **n.a.** is what a pool has no means for, and counts neither for nor against it.

The behaviour in brackets is told in [behaviours](../behaviours.md); what the other pools are good at is told in
[](../why-not.md).

To run it, from a checkout (the pools are in the dependency group `bench`; about a quarter of an hour; a single pool with
`--pool`, a single situation by its name, a part of an earlier table anew with `--onto`):

```sh
pip install -e '.[cli]' --group bench
python -m benchmarks.torture --json docs/benchmarks/torture.json --page docs/benchmarks/torture.md
```
"""


def as_page(table: Table, machine: dict[str, str]) -> str:
    """Write the page of the manual."""
    return "\n".join(_page(table, machine)).rstrip("\n") + "\n"


def _page(table: Table, machine: dict[str, str]) -> Iterator[str]:
    yield _HEAD
    yield "; ".join(f"{name} {value}" for name, value in machine.items()) + ".\n"
    titles = [table.title(pool) for pool in table.pools]
    yield f"| | what is right | {' | '.join(titles)} |"
    yield f"|---|---|{':-:|' * len(titles)}"
    for one in table.scenarios:
        marks = [_MARKS[table.cells[one.name, pool].verdict] for pool in table.pools]
        yield f"| {table.number(one.name)} | {one.title} ({one.behaviour}) | {' | '.join(marks)} |"
    scores = ["{} of {}".format(*table.score(pool)) for pool in table.pools]
    yield f"| | right, of those that apply | {' | '.join(scores)} |"
    yield "\n## How each is brought about, and what was seen\n"
    for one in table.scenarios:
        does = (one.run.__doc__ or "").strip().partition("\n")[0]
        yield f"{table.number(one.name)} `{one.name}`\n: {does}"
        seen: dict[tuple[str, str], list[str]] = {}
        for pool in table.pools:
            cell = table.cells[one.name, pool]
            seen.setdefault((cell.verdict, cell.detail), []).append(table.title(pool))
        for (verdict, detail), who in seen.items():
            yield f"  - {_MARKS[verdict]} {', '.join(who)}: {_plain(detail)}"
        yield ""


def _plain(text: str) -> str:
    """Keep a page's markup out of what was seen."""
    for mark in "\\`*_<>[]|#":
        text = text.replace(mark, f"\\{mark}")
    return text
