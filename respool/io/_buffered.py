"""`RawReader`: a cursor over a `File`, for `io.BufferedReader`.

This module owns the cursor, which files themselves don't have.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from respool.io.plan import checked_bytes

if TYPE_CHECKING:
    from typing_extensions import Buffer as SupportsBuffer

    from respool.io.file import File


class RawReader(io.RawIOBase):
    """An unbuffered reader; like other file objects, it's for one thread at a time.

    Parameters
    ----------
    file : File
        Read from; closing this leaves it open.
    """

    def __init__(self, file: File) -> None:
        super().__init__()
        self._file = file
        self._at = 0

    @property
    def name(self) -> str:
        """The file's name."""
        return self._file.name

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True; only seeking from the end needs the size."""
        return True

    def readinto(self, buffer: SupportsBuffer, /) -> int:
        """Read what comes next, as much as fits."""
        self._check_open()
        size = self._file.size
        if size is not None and self._at >= size:
            return 0
        count = self._file.read_into(buffer, offset=self._at)
        self._at += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the cursor, also beyond the end; return where it is."""
        self._check_open()
        if whence == os.SEEK_SET:
            self._at = checked_bytes("offset", offset)
        elif whence == os.SEEK_CUR:
            self._at = checked_bytes("position", self._at + offset)
        elif whence == os.SEEK_END:
            size = self._file.size
            if size is None:
                raise io.UnsupportedOperation(f"the size isn't known: {self._file.name}")
            self._at = checked_bytes("position", size + offset)
        else:
            raise ValueError(f"whence must be 0, 1 or 2, not {whence!r}")
        return self._at

    def tell(self) -> int:
        """Return where the cursor is."""
        self._check_open()
        return self._at

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("the reader is closed")
