"""What ``respool bench`` takes, and what it does with it.

This module owns the list of benches; each is the module of its name, with ``run(tick)`` and
``steps()``.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from respool.cli._arguments import some

if TYPE_CHECKING:
    from respool.cli.bench._measure import Result

NAMES = ("pool", "handles")
#: Named in the plan of the command line, and not there yet.
_LATER = ("events", "buffers", "read")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument(
        "names", metavar="NAME", nargs="+", type=_name, help=f"what to measure: {', '.join(NAMES)}"
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        type=some("a file"),
        help="write the results to FILE, and as Markdown beside it",
    )
    parser.add_argument(
        "--plot", metavar="DIR", type=some("a folder"), help="draw the results into DIR, as SVG"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure, show, and write what was asked for."""
    from respool.cli.bench import _show
    from respool.cli.progress import count_progress

    written = None if arguments.json is None else Path(arguments.json)
    plots = None if arguments.plot is None else Path(arguments.plot)
    if plots is not None:
        _show.check_plotting()
    if written is not None:
        # Found out now, not after minutes of measuring.
        _show.check_writable(written)
    results: list[Result] = []
    for name in dict.fromkeys(arguments.names):
        bench = importlib.import_module(f"respool.cli.bench.{name}")
        with count_progress(f"bench {name}", bench.steps()) as tick:
            results.append(bench.run(tick))
        _show.show(results[-1])
    if written is not None:
        _show.write(results, written)
    if plots is not None:
        _show.plot(results, plots)
    return 0


def _name(text: str) -> str:
    if text in NAMES:
        return text
    if text in _LATER:
        raise argparse.ArgumentTypeError(f"there is no bench {text!r} yet: it comes with a later version")
    raise argparse.ArgumentTypeError(f"there is no bench {text!r}: there are {', '.join(NAMES)}")
