"""Servers in processes of their own, that go when this one does.

This module owns such a process from start to end.  The server's side of the bargain is to
print one line when it's ready, and to end when its stdin is closed.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    import os
    from collections.abc import Generator


@contextmanager
def python_server(what: str, module: str, *arguments: str | os.PathLike[str]) -> Generator[str]:
    """Run a Python module that serves for the length of a block; give the line that it printed.

    Parameters
    ----------
    what : str
        What the server is called in an error.
    module : str
        Run as ``python -m``.
    *arguments : str or path
        The module's.

    Raises
    ------
    ConnectionError
        It ended without a line.
    """
    server = subprocess.Popen(  # noqa: S603 - this very interpreter
        [sys.executable, "-m", module, *arguments],
        # The server goes when its stdin is closed: so also when this process is killed.
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Ctrl-C on the terminal is for this process alone.
        start_new_session=True,
    )
    try:
        line = cast("IO[str]", server.stdout).readline().strip()
        if not line:
            raise ConnectionError(f"{what} didn't start")
        yield line
    finally:
        server.kill()
        for stream in (server.stdin, server.stdout):
            if stream is not None:
                stream.close()
        server.wait()
