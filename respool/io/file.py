"""`File`: what can be read from.

This module owns the face that files of every kind share, and the checks of arguments.
Where bytes come from is its subclasses' business.
"""

from __future__ import annotations

import io
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, Self

from respool.io._future import abandon, wait_all
from respool.io._request import ReadRequest
from respool.io._settings import parse_seconds
from respool.io.destination import host_view, new_bytes, taken
from respool.io.errors import ReadTimeoutError
from respool.io.plan import checked_bytes, checked_ranges, clip

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from respool.io._future import ReadFuture
    from respool.io._request import Progress
    from respool.io.destination import Destination
    from respool.io.session import Session


class File(ABC):
    """Something to read from, at any offset, from any thread.

    There's no cursor.  A file stands for one version of an object: bytes of another one are
    an error, never mixed in.

    Use `respool.io.open` to get one, and close it or use it as a context manager.

    Thread safety: every method may be called from any thread.
    """

    __module__ = "respool.io"

    _session: Session
    _closed: bool = False

    # What a subclass provides

    @property
    @abstractmethod
    def size(self) -> int | None:
        """The object's size in bytes, or None where it can't be known without reading it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What is read, fit to be shown: a path, or a URL without secrets."""

    @abstractmethod
    def _begin(self, request: ReadRequest) -> ReadFuture:
        """Begin a read; from here on `request.view` is the read's to release."""

    @abstractmethod
    def _finish_now(self, request: ReadRequest) -> int:
        """Do a read before returning, interrupts included."""

    @abstractmethod
    def _nothing(self) -> ReadFuture:
        """Return the future of a read of no bytes."""

    # What users call

    def read(self, *, offset: int = 0, size: int | None = None) -> bytes:
        """Return bytes at an offset.

        Parameters
        ----------
        offset : int
            Of the first byte.
        size : int, optional
            How many bytes; None reads to the end.  A range past the end is clipped.

        Returns
        -------
        bytes
            Fewer than `size` only at the end.

        Raises
        ------
        ValueError
            A negative offset or size, an offset beyond the end, a closed file or session.
        RemoteIOError
            And its subclasses, in the manual under "Reading".
        OSError
            For a local file, with its ``errno``.
        """
        self._check_open()
        offset, size = _checked_range(offset, size)
        length = clip(offset, size, self.size)
        if length is None:
            return b"".join(self._read_to_unknown_end(offset))
        return self._read_bytes(offset, length)

    def read_into(
        self,
        destination: Destination,
        *,
        offset: int = 0,
        size: int | None = None,
        stream: object = None,
        complete: Literal["copied", "ordered"] = "copied",
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> int:
        """Read into memory of the caller's, without a copy in between.

        Parameters
        ----------
        destination : buffer
            Writable, C-contiguous memory of items of any size; its first bytes are filled.
        offset : int
            Of the first byte.
        size : int, optional
            How many bytes; None reads as many as fit.  A range past the end is clipped.
        stream : object
            For destinations in GPU memory, which aren't supported yet; must be None.
        complete : {"copied", "ordered"}
            "copied": when this returns the bytes are there.  "ordered" is for GPU memory.
        progress : callable, optional
            Called as ``progress(done_bytes, total_bytes)`` whenever 64 KiB or some more have
            come (8 MiB of a local file) and at the end, never by two threads at once, by
            threads of the session.  What it raises ends the read.  It must be quick, and must not wait for another read.
        timeout : float, optional
            Seconds for all of it, waiting for a worker included; None takes the session's.

        Returns
        -------
        int
            How many bytes were read.

        Raises
        ------
        TypeError
            A destination that's read-only, no buffer, or GPU memory.
        BufferError
            A destination that isn't C-contiguous.
        ValueError
            A destination smaller than `size`, or released; else as for `read`.
        ReadTimeoutError
            It took longer than `timeout`.
        RemoteIOError, OSError
            As for `read`.

        Notes
        -----
        After an error the destination holds anything in the range that was asked for, and
        is untouched outside of it.  Nothing writes to it any more when this returns or
        raises, KeyboardInterrupt included.
        """
        request = self._request(destination, offset, size, stream, complete, progress, timeout)
        if request is None:
            return 0
        try:
            return self._finish_now(request)
        finally:
            # It has been released, unless an interrupt came before anything had begun.
            request.view.release()

    def pread(
        self,
        destination: Destination,
        *,
        offset: int = 0,
        size: int | None = None,
        stream: object = None,
        complete: Literal["copied", "ordered"] = "copied",
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> ReadFuture:
        """Begin a read into memory of the caller's; the arguments are those of `read_into`.

        Returns
        -------
        ReadFuture
            Of the number of bytes read.  Until it's settled the destination belongs to the
            read: it can't be resized, and mustn't be used.

        Raises
        ------
        TypeError, BufferError, ValueError
            For bad arguments, at once; all other errors come from the future.
        """
        request = self._request(destination, offset, size, stream, complete, progress, timeout)
        if request is None:
            return self._nothing()
        try:
            return self._begin(request)
        except BaseException:
            # Nothing is under way then.
            request.view.release()
            raise

    def read_many(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """Read several ranges at once.

        Parameters
        ----------
        ranges : iterable of (int, int)
            Offset and size of each; they may overlap.

        Returns
        -------
        list of bytes
            In the order of `ranges`, each as from `read`.

        Raises
        ------
        TypeError
            Something among `ranges` is no pair of ints.
        ValueError, RemoteIOError, OSError
            As for `read`; the first error ends all of it.
        """
        self._check_open()
        # With a size given there's always a length.
        clipped = [(offset, clip(offset, size, self.size) or 0) for offset, size in checked_ranges(ranges)]
        targets = [new_bytes(length) for _, length in clipped]
        reads: list[ReadFuture] = []
        views: list[memoryview] = []
        try:
            for (offset, length), target in zip(clipped, targets, strict=True):
                # One by one, so that an error on the way finds those that have begun.
                views.append(target.getbuffer())
                reads.append(self.pread(views[-1], offset=offset, size=length))
            wait_all(reads)
            counts = [read.result() for read in reads if read.done()]
        except BaseException:
            abandon(reads)
            raise
        finally:
            for view in views:
                view.release()
        return [taken(target, count) for target, count in zip(targets, counts, strict=True)]

    def buffered(self, block: int = 1 << 20) -> io.BufferedReader:
        """Return a buffered reader with a cursor, for code that wants a file object.

        Parameters
        ----------
        block : int
            Bytes read ahead at once, ≥ 1.

        Returns
        -------
        io.BufferedReader
            Seekable where the size is known.  Closing it leaves this file open.
        """
        from respool.io._buffered import RawReader

        self._check_open()
        if checked_bytes("block", block) < 1:
            raise ValueError("block must be 1 or more, not 0")
        return io.BufferedReader(RawReader(self), block)

    @property
    def session(self) -> Session:
        """The session it was opened with."""
        return self._session

    @property
    def closed(self) -> bool:
        """Whether `close` was called, or the session is closed."""
        return self._closed or self._session.closed

    def close(self) -> None:
        """Refuse further reads; those under way go on.  Calling it again does nothing."""
        self._closed = True

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<{type(self).__name__} {self.name} size={self.size}{state}>"

    # Inside

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"the file is closed: {self.name}")
        if self._session.closed:
            raise ValueError(f"the file's session is closed: {self.name}")

    def _request(  # noqa: PLR0917 - those of read_into, handed on
        self,
        destination: Destination,
        offset: int,
        size: int | None,
        stream: object,
        complete: str,
        progress: Progress | None,
        timeout: float | None,
    ) -> ReadRequest | None:
        """Check the arguments of a read; None for a read of no bytes."""
        self._check_open()
        if complete not in {"copied", "ordered"}:
            raise ValueError(f'complete must be "copied" or "ordered", not {complete!r}')
        if stream is not None or complete == "ordered":
            given = f"stream={stream!r}" if stream is not None else 'complete="ordered"'
            raise ValueError(f"{given} is for destinations in GPU memory, which aren't supported yet")
        if progress is not None and not callable(progress):
            raise TypeError(f"progress must be callable, not {progress!r}")
        limit = parse_seconds("timeout", timeout)
        if timeout is None:
            limit = self._session.config.timeout
        offset, size = _checked_range(offset, size)
        view = host_view(destination)
        try:
            length = clip(offset, size, self.size, view.nbytes)
            # The room is a bound, so there's always a length.
            if not length:
                view.release()
                return None
            return ReadRequest(
                offset=offset,
                length=length,
                view=view,
                deadline=None if limit is None else time.monotonic() + limit,
                timeout=limit,
                progress=progress,
            )
        except BaseException:
            view.release()
            raise

    def _expired(self, request: ReadRequest) -> ReadTimeoutError:
        """Return the error of a read that took too long."""
        return ReadTimeoutError(
            f"the read didn't end within {request.timeout:g} s",
            url=self.name,
            offset=request.offset,
            size=request.length,
        )

    def _read_bytes(self, offset: int, length: int) -> bytes:
        target = new_bytes(length)
        with target.getbuffer() as view:
            count = self.read_into(view, offset=offset, size=length)
        return taken(target, count)

    def _read_to_unknown_end(self, offset: int) -> Iterable[bytes]:
        """Read block by block, until an answer tells the size or the end is met."""
        block = self._session.config.task_size
        while True:
            known = self.size
            length = block if known is None else known - offset
            part = self._read_bytes(offset, max(length, 0))
            yield part
            offset += len(part)
            if len(part) < length or offset == self.size:
                return


def _checked_range(offset: int, size: int | None) -> tuple[int, int | None]:
    return checked_bytes("offset", offset), None if size is None else checked_bytes("size", size)
