"""``python -m benchmarks.torture``: the torture table.  Exit status 1 where respool is wrong, or the table itself broke."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.torture import adapters
from benchmarks.torture.runner import run
from benchmarks.torture.scenario import load
from benchmarks.torture.show import Table, as_page, on_terminal, versions
from respool.cli.bench._machine import describe


def main() -> int:
    """Run what the command line asks for, and show it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torture", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="by name; all by default")
    parser.add_argument(
        "--pool", action="append", choices=list(adapters.ADAPTERS), help="one pool; may be repeated"
    )
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON, to - for standard output")
    parser.add_argument(
        "--page", metavar="FILE", help="write the page of the manual (docs/benchmarks/torture.md)"
    )
    parser.add_argument("--list", action="store_true", help="name the scenarios, and run none")
    asked = parser.parse_args()
    known = load()
    if asked.list:
        for one in known.values():
            print(f"{one.name:24} {one.title}")
        return 0
    for name in asked.scenarios:
        if name not in known:
            parser.error(f"no scenario {name!r}; --list names them")
    names, pools = asked.scenarios or list(known), asked.pool or list(adapters.ADAPTERS)

    progress = Console(stderr=True)
    cells = []
    with progress.status("") as status:
        for cell in run(pools, names):
            cells.append(cell)
            done = f"{len(cells)} of {len(pools) * len(names)}"
            status.update(f"{done}: {cell.pool}, {cell.scenario}: {cell.verdict}")
    table = Table(cells)
    machine = describe([])
    machine.update(versions(pools))
    if asked.json == "-":
        print(json.dumps(table.as_dict(machine), indent=1))
    else:
        on_terminal(Console(), table)
        if asked.json:
            Path(asked.json).write_text(json.dumps(table.as_dict(machine), indent=1) + "\n", "utf-8")
    if asked.page:
        command = shlex.join(["python", "-m", "benchmarks.torture", *sys.argv[1:]])
        Path(asked.page).write_text(as_page(table, machine, command), "utf-8")
    own_wrong = [cell for cell in cells if cell.pool == "respool" and cell.verdict == "fail"]
    return 1 if own_wrong or any(cell.verdict == "error" for cell in cells) else 0


if __name__ == "__main__":
    sys.exit(main())
