"""The way into the command line: whoever presses Ctrl-C while it's still loading finds it as polite as later.

This module owns what Ctrl-C ends in, from the first moment on that there is a module to
own it, so it imports next to nothing before it has begun to look after that.  All else is in `_main`.
"""

from __future__ import annotations

import sys

from respool.cli._interrupts import INTERRUPTED, Held, Interrupts

TYPE_CHECKING = False
if TYPE_CHECKING:  # what type checkers understand, without loading typing
    from collections.abc import Sequence


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
    interrupts = Interrupts()
    try:
        interrupts.begin()
        with Held():
            from respool.cli._main import run

        code = run(argv)
    except KeyboardInterrupt:
        interrupts.tell()
        code = INTERRUPTED
    # Without arguments of its own it's the process's command, after which there's nothing.
    interrupts.end(for_good=argv is None)
    return code


if __name__ == "__main__":
    sys.exit(main())
