"""The folder for temporary files.

This module owns that it's the one that TMPDIR names, where that is set: Python's own `tempfile` takes another one in
silence where it can't be used, which may be on a file system with less room or other readers.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path


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
