"""Whether the process has run out of file descriptors.

This module owns finding that out after a transfer has failed.  libcurl 8.23 doesn't tell: it
reports "out of memory" or "couldn't connect" then, with 0 for the system's own error number.
"""

from __future__ import annotations

import errno
import os
import resource  # not only when it's needed: then it couldn't be loaded any more
from typing import Final

#: What libcurl opens for a connection: a pair to wake its resolver by, and the socket.
_NEEDED: Final = 3
#: libcurl's errors that come of it: no start, no name found, no connection, no memory, no certificates read.
CODES: Final = frozenset({2, 6, 7, 27, 77})


def exhausted() -> str | None:
    """Tell that there aren't enough descriptors for a connection; None where there are.

    Returns
    -------
    str or None
        A phrase for an error's text.

    Notes
    -----
    Looks by opening some for a moment.  So it's a guess: others may have come or gone since
    the failure.
    """
    opened: list[int] = []
    try:
        for _ in range(_NEEDED):
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))  # noqa: PERF401 - those that were opened count
    except OSError as error:
        if error.errno == errno.ENFILE:
            return "too many open files on this machine"
        return f"too many open files: {_limit()}" if error.errno == errno.EMFILE else None
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return None


def _limit() -> str:
    return f"this process may have {resource.getrlimit(resource.RLIMIT_NOFILE)[0]} (ulimit -n)"
