"""Temporary folders, and where they are.

This module owns that they go in whatever way a command ends, SIGKILL apart, and that their place is the one that TMPDIR
names, where that is set: Python's own `tempfile` takes another one in silence where it can't be used, which may be on a
file system with less room or other readers.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from respool.cli._interrupts import LeftOver

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def temporary_directory(prefix: str, folder: str) -> Generator[str]:
    """Make a folder in another one, for the length of a block."""
    directory = tempfile.TemporaryDirectory(prefix=prefix, dir=folder)
    with LeftOver(directory.name), directory:
        yield directory.name


def temporary_folder() -> str:
    """Return the folder for temporary files: what TMPDIR names, where it's set, and no other one instead.

    Raises
    ------
    OSError
        What TMPDIR names can't be used, with its name.
    """
    named = os.environ.get("TMPDIR")
    # A program that has chosen a folder by itself keeps it.
    if not named or tempfile.tempdir is not None:
        return tempfile.gettempdir()
    try:
        if not stat.S_ISDIR(Path(named).stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} (from TMPDIR)", named) from error
    try:
        # Tried, as permissions alone don't tell, least of all to one who may do everything.
        with tempfile.TemporaryDirectory(prefix="respool-", dir=named):
            pass
    except OSError as error:
        raise OSError(error.errno, f"can't be written to: {error.strerror} (from TMPDIR)", named) from error
    return str(Path(named).absolute())
