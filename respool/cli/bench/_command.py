"""What ``respool bench`` takes, and what it does with it.

This module owns the list of benches and their parts; each part is the module of its name, with
``run(effort, tick)``, which gives a `Result`, and ``steps(effort)``, how often that calls `tick`.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from respool.cli._arguments import some
from respool.cli._interrupts import Held

if TYPE_CHECKING:
    from respool.cli.bench._results import Result

#: By the name of a bench, its parts.
PARTS = {
    "pool": ("uncontended", "contended", "fairness", "growth", "memory"),
    "handles": ("handles",),
    "events": ("single", "threads", "live"),
    "buffers": ("pinning", "standstill"),
}
#: Those that are measured on a GPU.
_ON_GPU = {*PARTS["events"], *PARTS["buffers"]}
#: By what the user may name, the modules.
_MODULES = {
    **PARTS,
    **{f"{name}:{part}": (part,) for name, parts in PARTS.items() for part in parts if part != name},
}
_HELP = """\
pool measures what it costs to take and give back a resource, alone and among
threads, how fairly waiters are served, and what grows with size; beside
queue.LifoQueue and the pools of connpool, cuttlepool,
generic-connection-pool, psycopg-pool, redis, sqlalchemy and urllib3.

handles measures small objects over TLS from a server of its own; beside bare
pycurl, requests, httpx and urllib3. It needs the extra `curl`, and the
command openssl.

events and buffers are measured on a GPU: events that are created and destroyed
each time beside pooled ones, by cuda.bindings, by cuda.core and in C++, on one
thread and many; and pinned memory beside CuPy's and PyTorch's. They need the
extra `cuda`, and the rows in C++ nvcc or another compiler of C++.

What isn't installed is left out, and listed as not measured. This installs
all of it, and matplotlib for --plot:

  pip install connpool cuttlepool generic-connection-pool httpx matplotlib \\
      psycopg-pool 'psycopg[binary]' redis requests sqlalchemy urllib3
"""
#: Named in the plan of the command line, and not there yet.
_LATER = ("read",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.epilog = _HELP
    parser.formatter_class = (
        argparse.RawDescriptionHelpFormatter
    )  # a command is no prose, to be broken anywhere
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="+",
        type=_name,
        help=f"what to measure: {', '.join(PARTS)}; or a part: {', '.join(n for n in _MODULES if ':' in n)}",
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        type=_results_file,
        help="write the results to FILE, and as Markdown beside it, with the suffix .md",
    )
    parser.add_argument(
        "--plot",
        metavar="DIR",
        type=some("a folder"),
        help="draw the results into the folder DIR, as SVG; needs matplotlib",
    )
    parser.add_argument(
        "--device",
        metavar="N",
        type=_device,
        help="which GPU to measure on, for events and buffers: 0 by default",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="measure small sizes for a moment, to see that all can be measured; the figures mean nothing",
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure, show, and write what was asked for."""
    parts = list(dict.fromkeys(part for name in arguments.names for part in _MODULES[name]))
    if arguments.device is not None and not _ON_GPU.intersection(parts):
        print(
            "respool: --device is for the benches events and buffers (see `respool bench --help`)",
            file=sys.stderr,
        )
        return 2
    with Held():
        from respool.cli._standard import tell
        from respool.cli.bench import _plot, _show
        from respool.cli.bench._measure import FULL, QUICK
        from respool.cli.progress import count_progress

    written = None if arguments.json is None else Path(arguments.json)
    plots = None if arguments.plot is None else Path(arguments.plot)
    # Found out now, not after minutes of measuring.
    if plots is not None:
        _plot.check_plotting(plots)
    if written is not None:
        _show.check_writable(written)
    effort = dataclasses.replace(QUICK if arguments.quick else FULL, device=arguments.device or 0)
    results: list[Result] = []
    for part in parts:
        bench = importlib.import_module(f"respool.cli.bench.{part}")
        with count_progress(f"bench {part}", bench.steps(effort)) as tick:
            results.append(bench.run(effort, tick))
        _show.show(results[-1])
    files: list[Path] = []
    if written is not None:
        _show.write(results, written)
        files += [written, _show.page_of(written)]
    if plots is not None:
        drawings = _plot.plot(results, plots)
        files += drawings.values()
        if written is not None:
            _show.write(results, written, drawings)  # once more, with the drawings in it
    if files:
        tell(f"Written: {', '.join(map(str, files))}")
    return 0


def _results_file(text: str) -> str:
    if not text or text.endswith(".md"):
        raise argparse.ArgumentTypeError(
            f"must be a file, and none with the suffix .md, as the Markdown beside it has, not {text!r}"
        )
    return text


def _device(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,4}", text) is None:
        raise argparse.ArgumentTypeError(f"must be a GPU's number, 0 or more, not {text!r}")
    return int(text)


def _name(text: str) -> str:
    if text in _MODULES:
        return text
    if text in _LATER:
        raise argparse.ArgumentTypeError(f"there is no bench {text!r} yet: it comes with a later version")
    raise argparse.ArgumentTypeError(f"there is no bench {text!r}: there are {', '.join(_MODULES)}")
