"""The way into the command line: whoever presses Ctrl-C while it's still loading finds it as polite as later.

This module owns what Ctrl-C ends in, from the first moment on that there is a module to
own it, so it imports next to nothing before it has begun to look after that.  All else is in `_main`.
"""

from __future__ import annotations

import sys

from respool.cli._interrupts import Held

TYPE_CHECKING = False
if TYPE_CHECKING:  # what type checkers understand, without loading typing
    from collections.abc import Sequence

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments, without the program's name; the process's own by default.

    Returns
    -------
    int
        The exit code.
    """
    try:
        with Held():
            from respool.cli._main import run

        return run(argv)
    except KeyboardInterrupt:
        _say_interrupted()
        return _INTERRUPTED


def _say_interrupted() -> None:
    # Without a stderr there's none to be told, and without one that works neither.
    if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison] - it is where 2 was closed
        try:
            print("respool: interrupted", file=sys.stderr, flush=True)
        except OSError:
            pass  # the exit code tells


if __name__ == "__main__":
    sys.exit(main())
