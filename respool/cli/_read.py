"""Reading an object from end to end through pooled buffers: what ``get`` and ``demo`` share.

This module owns the read-ahead: which blocks are under way, in which buffers, and that no
buffer goes back to its pool while bytes may still arrive in it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections import deque
from concurrent.futures import wait
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from respool.cli._report import Report
from respool.cli.progress import byte_progress
from respool.io import HTTPStatusError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from respool.buffers import Buffer, BufferPool
    from respool.cli._output import Sink
    from respool.io import File, ReadFuture, Session
    from respool.lease import Lease

#: Seconds between looking up from a wait, for signals.
_LOOK_UP = 0.2
_NOT_SATISFIABLE = 416
_END_UNKNOWN = "the server doesn't tell the object's size, so its last bytes can't be asked for"


class ReadError(Exception):
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
            raise ReadError(f"the object has {size} bytes, so none at {self.first}")
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
        blocks = _blocks(file, session.buffers, offset, count, session.config.concurrency)
        with byte_progress(what, count) as advance, closing(blocks):
            for block in blocks:
                if hasher is not None:
                    hasher.update(block)
                sink.write(block)
                nbytes += len(block)
                advance(len(block))
        name = file.name
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


class _Read(NamedTuple):
    """One block under way."""

    lease: Lease[int, Buffer]
    future: ReadFuture
    length: int


def _blocks(
    file: File, buffers: BufferPool, offset: int, count: int | None, ahead: int
) -> Generator[memoryview]:
    """Give a file's bytes in order, block by block, with up to `ahead` blocks under way.

    A block is a view of a pooled buffer and is good until the next one is asked for.
    """
    reads: deque[_Read] = deque()
    begin, stop = offset, None if count is None else offset + count
    try:
        while True:
            # Where the end isn't known, asking beyond it would be an error: one at a time
            # then, until an answer has told the size.
            if stop is None and file.size is not None:
                stop = file.size
            while len(reads) < (1 if stop is None else ahead) and (stop is None or offset < stop):
                # The first buffer is waited for, further ones are taken only if they're there:
                # who holds some and waits for more may wait for ever.
                lease = buffers.try_lease() if reads else buffers.lease()
                if lease is None:
                    break
                length = buffers.buffer_size if stop is None else min(buffers.buffer_size, stop - offset)
                reads.append(_Read(lease, _pread(file, lease, offset, length), length))
                offset += length
            if not reads:
                return
            oldest = reads[0]
            try:
                _settled([oldest.future])
                got = oldest.future.result()
            except HTTPStatusError as error:
                if stop is None and error.status == _NOT_SATISFIABLE and offset - oldest.length > begin:
                    return  # the end was where a block ended, and only asking beyond told
                raise
            with oldest.lease.resource.view[:got] as block:
                yield block
            reads.popleft().lease.release()
            if got < oldest.length:
                if stop is not None:
                    raise ReadError(f"{file.name} ended {oldest.length - got} bytes early")
                return
    finally:
        _abandon(reads)


def _pread(file: File, lease: Lease[int, Buffer], offset: int, length: int) -> ReadFuture:
    try:
        return file.pread(lease.resource.view[:length], offset=offset, size=length)
    except BaseException:
        lease.release()
        raise


def _settled(futures: Sequence[ReadFuture]) -> None:
    """Wait until all are settled, and see to signals meanwhile.

    A signal that comes just before the interpreter begins to wait on a lock doesn't end the
    wait: Ctrl-C would do nothing.  So it never waits for long at once.
    """
    while wait(futures, timeout=_LOOK_UP).not_done:
        pass


def _abandon(reads: deque[_Read]) -> None:
    """Break off what is under way, and give the buffers back when nothing writes to them any more."""
    for read in reads:
        read.future.cancel()
    _settled([read.future for read in reads])
    while reads:
        reads.pop().lease.release()
