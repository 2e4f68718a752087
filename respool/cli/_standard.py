"""The three standard streams, there also where the process was started with some of them closed (``>&-``).

This module owns what stands in for a closed one.  Its number must not stay free: the next
file or socket to be opened would get it, and what is meant for stdout or stderr would be
written into that.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from collections.abc import Generator

#: How the null device stands in for each.  Whoever reads stdin finds its end, whoever writes
#: to stdout gets an error, and what goes to stderr has nobody to be told.
_STAND_INS = {0: os.O_RDONLY, 1: os.O_RDONLY, 2: os.O_WRONLY}


class _Closed:
    """In the place of `sys.stdout`: writing to it is an error, as writing to a full disk is."""

    encoding = "utf-8"

    def write(self, text: str) -> NoReturn:
        del text
        raise OSError(errno.EBADF, "is closed", "stdout")

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False

    def fileno(self) -> NoReturn:
        raise io.UnsupportedOperation("fileno")


@contextmanager
def standard_streams() -> Generator[None]:
    """See to it for the length of a block that there are all three.

    The numbers stay taken after it, as something may still be written when the process ends.
    """
    for number, flags in _STAND_INS.items():
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is the one that is given: this one, as those below are taken.
            os.set_inheritable(os.open(os.devnull, flags), True)  # noqa: FBT003 - so it's called
    out, err = cast("IO[str] | None", sys.stdout), cast("IO[str] | None", sys.stderr)
    null = io.StringIO() if err is None else err
    stand_in: Any = _Closed() if out is None else out
    sys.stdout, sys.stderr = stand_in, null
    try:
        yield
    finally:
        # Not those that a caller has put there in the meantime.
        if sys.stdout is stand_in:
            sys.stdout = out
        if sys.stderr is null:
            sys.stderr = err


def tell(text: str, *, to_stderr: bool = False) -> None:
    """Write lines to stdout or stderr, all of them at once.

    Whoever reads the first of them only, as ``head -1`` does, doesn't make the rest an error:
    it has been written by then.

    Parameters
    ----------
    text : str
        The lines, without the end of the last one.
    to_stderr : bool
        Where they go.

    Raises
    ------
    OSError
        They can't be written; BrokenPipeError where nobody reads.
    """
    out = sys.stderr if to_stderr else sys.stdout
    out.write(f"{text}\n")
    out.flush()


def check_stdout() -> None:
    """Fail now where nothing could be told in the end.

    Raises
    ------
    OSError
        The process was started with a closed stdout.
    """
    sys.stdout.write("")
