"""``python -m benchmarks.torture``: the torture table.  Exit status 1 where respool is wrong, or the table itself broke."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.torture import adapters
from benchmarks.torture.runner import Cell, run
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
    parser.add_argument(
        "--onto", metavar="FILE", help="JSON of an earlier run, of which only what is run now is replaced"
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

    cells = _earlier(asked.onto) if asked.onto else {}
    with Console(stderr=True).status("") as status:
        for number, cell in enumerate(run(pools, names), 1):
            cells[cell.scenario, cell.pool] = cell
            done = f"{number} of {len(pools) * len(names)}"
            status.update(f"{done}: {cell.pool}, {cell.scenario}: {cell.verdict}")
    table = Table(
        [cells[name, pool] for name in known for pool in adapters.ADAPTERS if (name, pool) in cells]
    )
    machine = describe([])
    machine.update(versions(table.pools))
    if asked.json == "-":
        print(json.dumps(table.as_dict(machine), indent=1))
    else:
        on_terminal(Console(), table)
        if asked.json:
            Path(asked.json).write_text(json.dumps(table.as_dict(machine), indent=1) + "\n", "utf-8")
    if asked.page:
        Path(asked.page).write_text(as_page(table, machine), "utf-8")
    own_wrong = [cell for cell in cells.values() if cell.pool == "respool" and cell.verdict == "fail"]
    return 1 if own_wrong or any(cell.verdict == "error" for cell in cells.values()) else 0


def _earlier(file: str) -> dict[tuple[str, str], Cell]:
    """Read the cells of an earlier run."""
    cells = [Cell(**cell) for cell in json.loads(Path(file).read_text("utf-8"))["cells"]]
    return {(cell.scenario, cell.pool): cell for cell in cells}


if __name__ == "__main__":
    sys.exit(main())
