"""What a command shows: the progress bar, and tables.  Both are rich's work.

This module is the one of the commands that names rich, so that without it a command says
in one line what to install.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

try:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.table import Table
except ImportError as missing:
    raise ImportError(
        "this command needs the extra `cli`: pip install 'respool[cli]'", name=missing.name
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

#: Columns of the table, where there's no terminal that has less.
_WIDE = 250


@contextmanager
def byte_progress(what: str, total: int | None) -> Generator[Callable[[int], None]]:
    """Show how many bytes have come, on stderr while that is a terminal, for the length of a block.

    Parameters
    ----------
    what : str
        What is being read.
    total : int, optional
        Bytes in all; None where that isn't known.

    Yields
    ------
    callable
        To be called with the bytes that came since the last call.
    """
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        # It goes when done: what stays is the report, or one line of error.
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)


@contextmanager
def count_progress(what: str, total: int) -> Generator[Callable[[], None]]:
    """Show how many of a known number of steps are done, as `byte_progress` shows bytes."""
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        # Its refreshing thread would be measured too.
        auto_refresh=False,
    )
    with progress:
        task = progress.add_task(what, total=total)

        def step() -> None:
            progress.advance(task)
            progress.refresh()

        yield step


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", to_stderr: bool = False
) -> str:
    """Lay out a table: the first column is text, the others are numbers.

    Parameters
    ----------
    columns : sequence of str
        Their headings.
    rows : iterable of sequences of str
        A cell for each column.
    title : str
        A line above.
    to_stderr : bool
        Whether it's stderr that it will be written to, instead of stdout.

    Returns
    -------
    str
        Its lines, without the end of the last one.  Where they won't go to a terminal, it's as
        wide as it needs to be, so that nothing is cut.
    """
    console = Console(stderr=to_stderr)
    if not console.is_terminal:
        # With the stream, for the sake of its encoding: not every one has lines to draw with.
        console = Console(file=sys.stderr if to_stderr else sys.stdout, width=_WIDE)
    grid = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for number, column in enumerate(columns):
        grid.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        # Text objects would do too; what matters is that nothing in here is taken for markup.
        grid.add_row(*(cell.replace("[", r"\[") for cell in row))
    # Not printed by rich, which ends the program in its own way where nobody reads.
    with console.capture() as capture:
        console.print(grid)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    return "\n".join([title, *lines] if title else lines)
