"""Reading an object from end to end through pooled buffers: what ``get`` and ``demo`` share.

This module owns which bytes were meant, and that exactly those went on, with the digest
that they should have.  Reading ahead is the reader's own business.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from contextlib import closing
from typing import TYPE_CHECKING

from respool.cli._errors import CommandError
from respool.cli._report import Report
from respool.cli.progress import byte_progress
from respool.io._stream import blocks
from respool.io.plan import counted

if TYPE_CHECKING:
    from respool.cli._output import Sink
    from respool.io import Session

_END_UNKNOWN = "the server doesn't tell the object's size, so its last bytes can't be asked for"


class ReadError(CommandError):
    """What was read, or could be, isn't what was asked for."""


@dataclasses.dataclass(frozen=True)
class Range:
    """Bytes as HTTP names them: ``first`` to ``last``, both included; or the ``last`` N if ``first`` is None."""

    first: int | None
    last: int | None

    def of(self, size: int | None) -> tuple[int, int | None]:
        """Give (offset, number of bytes), the latter None for up to an end that isn't known.

        Raises
        ------
        ReadError
            An object of this size has no such bytes.
        """
        if self.first is None:
            if size is None:
                raise ReadError(_END_UNKNOWN)
            count = min(self.last or 0, size)
            return size - count, count
        if size is not None and self.first >= size:
            raise ReadError(f"the object has {counted(size)}, so none at {self.first}")
        stop = size
        if self.last is not None:
            stop = self.last + 1 if size is None else min(self.last + 1, size)
        return self.first, None if stop is None else stop - self.first


def read(
    session: Session,
    source: str,
    sink: Sink,
    *,
    asked: Range | None = None,
    expected: str | None = None,
    what: str = "reading",
) -> Report:
    """Read a source into a sink, with a progress bar, and tell how it went.

    Parameters
    ----------
    session : Session
        Whose pools are used.
    source : str
        A URL or path.
    sink : Sink
        Gets the bytes, in order.
    asked : Range, optional
        Only these bytes.
    expected : str, optional
        Hexadecimal SHA-256 that the bytes read should have.
    what : str
        What the progress bar says.

    Raises
    ------
    ReadError
        The digest is another one, or there are no such bytes.
    OSError
        Reading or writing failed.
    """
    hasher = None if expected is None else hashlib.sha256()
    begin = time.perf_counter()
    with session.open(source) as file:
        offset, count = (0, file.size) if asked is None else asked.of(file.size)
        nbytes = 0
        # The one that is being written counts among those that are under way.
        found = blocks(file, offset=offset, size=count, ahead=session.config.concurrency - 1)
        with byte_progress(what, count) as advance, closing(found):
            for block in found:
                if hasher is not None:
                    hasher.update(block)
                sink.write(block)
                nbytes += len(block)
                advance(len(block))
        name = file.name
    if count is not None and nbytes < count:
        raise ReadError(f"{name} ended {counted(count - nbytes)} early")
    seconds = time.perf_counter() - begin
    digest = None if hasher is None else hasher.hexdigest()
    if digest != expected:
        raise ReadError(f"{name}: the sha256 of what was read is {digest}, and should be {expected}")
    return Report(
        source=name,
        nbytes=nbytes,
        seconds=seconds,
        digest=None if digest is None else f"sha256:{digest}",
        verified=None if expected is None else True,
        pools=session.stats(),
    )
