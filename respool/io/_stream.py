"""`blocks`: a range of a file in order, block by block, through pooled buffers.

This module owns reading ahead within the session's budget of buffers, whatever the size of
what is read: a download to a pipe, a checksum.  It isn't part of the contract.
"""

from __future__ import annotations

from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from respool.errors import PoolTimeoutError
from respool.io._future import abandon
from respool.io.errors import HTTPStatusError, ReadTimeoutError
from respool.io.plan import checked_bytes, clip

if TYPE_CHECKING:
    from collections.abc import Generator

    from respool.buffers import Buffer
    from respool.io._future import ReadFuture
    from respool.io.file import File
    from respool.lease import Lease

_NOT_SATISFIABLE: Final = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE


class _Block:
    """A block under way.

    It's among those under way before it has anything, so that an interrupt that comes
    between two steps finds what the first has taken.
    """

    __slots__ = ("lease", "length", "read")

    def __init__(self, length: int) -> None:
        self.length = length
        self.lease: Lease[Any, Buffer] | None = None
        self.read: ReadFuture | None = None


def blocks(
    file: File,
    *,
    offset: int = 0,
    size: int | None = None,
    ahead: int = 2,
    timeout: float | None = None,
) -> Generator[memoryview]:
    """Yield a range's bytes in order, a pooled buffer's worth at a time.

    Parameters
    ----------
    file : File
        Read from; its session's ``buffers`` are used.
    offset : int
        Of the first byte.
    size : int, optional
        How many bytes; None goes on to the end.  An object that ends before that ends the blocks.
    ahead : int
        Most blocks read while the caller has one.  They're taken only as far as buffers can
        be had without waiting, so that two streams never wait for each other's.
    timeout : float, optional
        Seconds for each block.

    Yields
    ------
    memoryview
        Valid until the next one is asked for, or the iterator is closed: the buffer goes
        back to the pool then.  The last one may be shorter, and none is empty.

    Raises
    ------
    ValueError, RemoteIOError, OSError
        As for `File.read_into`.

    Notes
    -----
    Close the iterator (`contextlib.closing`) if it isn't used to its end: reads under way
    are broken off and buffers given back then.  For one thread at a time.
    """
    at = checked_bytes("offset", offset)
    end = None if size is None else at + checked_bytes("size", size)
    clip(at, size, file.size)
    under_way: deque[_Block] = deque()
    try:
        while True:
            # As long as it isn't known where the end is, one block at a time.
            most = 1 if file.size is None else ahead + 1
            while len(under_way) < most and _left(at, end, file.size) != 0:
                if not _begin(file, under_way, at, _left(at, end, file.size), timeout):
                    break
                at += under_way[-1].length
            if not under_way:
                return
            block = under_way[0]
            assert block.read is not None  # noqa: S101 - it has begun
            assert block.lease is not None  # noqa: S101 - likewise
            try:
                count = block.read.result()
            except HTTPStatusError as error:
                if error.status == _NOT_SATISFIABLE and file.size is None and at - block.length > offset:
                    return  # the object ends where the last block did, and only asking beyond told
                raise
            if count:
                with block.lease.resource.view[:count] as view:
                    yield view
            block.lease.release()
            under_way.popleft()
            if count < block.length:
                return
    finally:
        _drop(under_way)


def _left(at: int, end: int | None, size: int | None) -> int | None:
    """Return how many bytes are still to be read, or None where that isn't known."""
    bounds = [bound - at for bound in (end, size) if bound is not None]
    return max(0, min(bounds)) if bounds else None


def _begin(file: File, under_way: deque[_Block], at: int, left: int | None, timeout: float | None) -> bool:
    """Begin to read a block into a pooled buffer; False where none can be had without waiting."""
    pool = file.session.buffers
    block = _Block(pool.buffer_size if left is None else min(pool.buffer_size, left))
    first = not under_way
    under_way.append(block)
    try:
        block.lease = pool.lease(timeout=timeout) if first else pool.try_lease()
    except PoolTimeoutError as error:
        raise ReadTimeoutError(f"no buffer came free: {error}", url=file.name, offset=at) from None
    except MemoryError as error:
        size = file.session.config._told("buffer_size")  # noqa: SLF001 - the reader's own
        raise MemoryError(f"{size}: {error}") from error
    if block.lease is None:
        under_way.pop()
        return False
    block.read = file.pread(block.lease.resource, offset=at, size=block.length, timeout=timeout)
    return True


def _drop(under_way: deque[_Block]) -> None:
    """Break off what is under way; buffers go back when nothing writes to them any more."""
    abandon([block.read for block in under_way if block.read is not None])
    for block in under_way:
        if block.lease is not None:
            block.lease.release()
