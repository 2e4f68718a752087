"""`LocalFile`: positioned reads of a file in the file system.

This module owns opening local files and reading them to the last byte asked for: short
reads, interrupts, files that shrink, and what isn't a file at all.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from respool.io._fork import renew_in_child
from respool.io._future import ReadFuture, Tally
from respool.io._transport import Outcome
from respool.io.errors import ObjectChangedError, RangeIntegrityError
from respool.io.file import File
from respool.io.plan import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from respool.io._operation import Operation
    from respool.io._request import ReadRequest
    from respool.io.session import Session

#: Most bytes asked of the kernel at once: between two calls deadlines and progress are looked at.
_STEP: Final = 8 << 20


class _Descriptor:
    """An open file descriptor that's closed when the file is, but not while a read uses it.

    Closing it earlier would let the number be given to another file, which a read on
    another thread would then read.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        # Guards the two below.
        self._lock = threading.Lock()
        self._users: set[object] = set()
        self._closing = False
        renew_in_child(self)

    def after_fork(self) -> None:
        """Begin with a lock that nobody holds, and without the reads that are the parent's."""
        self._lock = threading.Lock()
        self._inherited, self._users = self._users, set()

    def use(self, user: object) -> bool:
        """Keep it open for a user; False if it's closing already."""
        with self._lock:
            if self._closing:
                return False
            self._users.add(user)
            return True

    def leave(self, user: object) -> None:
        """End a user's use; may be called again."""
        with self._lock:
            self._users.discard(user)
            due = self._closing and not self._users
        if due:
            self._shut()

    def close(self) -> None:
        """Close it now, or when its last user leaves."""
        with self._lock:
            self._closing = True
            due = not self._users
        if due:
            self._shut()

    def _shut(self) -> None:
        with self._lock:
            fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def _open_regular(path: str) -> tuple[int, int | None]:
    """Open a path for positioned reads: its descriptor, and its size where it has one.

    Raises
    ------
    OSError
        With the path, and ``errno``: EISDIR for a directory, ESPIPE for a pipe, terminal or
        socket, or what open(2) says.
    """
    # Without O_NONBLOCK, opening a pipe would wait for someone to write to it.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        info = os.fstat(fd)
        if stat.S_ISDIR(info.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)  # noqa: TRY301 - it's closed below
        if not stat.S_ISREG(info.st_mode):
            return fd, _device_size(fd, info, path)
        # A file of size 0 that has bytes is one that the kernel makes up as it's read (/proc).
        made_up = info.st_size == 0 and os.pread(fd, 1, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd, None if made_up else info.st_size


def _device_size(fd: int, info: os.stat_result, path: str) -> int | None:
    if stat.S_ISFIFO(info.st_mode) or stat.S_ISSOCK(info.st_mode):
        raise OSError(errno.ESPIPE, os.strerror(errno.ESPIPE), path)
    try:
        end = os.lseek(fd, 0, os.SEEK_END)
        os.pread(fd, 0, 0)
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or errno.EIO), path) from None
    return end if stat.S_ISBLK(info.st_mode) else None


def _read_fully(
    fd: int,
    request: ReadRequest,
    *,
    stopped: Callable[[], bool],
    advance: Callable[[int], None],
) -> int:
    """Do a read, up to the end of the file; return how many bytes there were.

    EINTR is the business of os.preadv, which tries again unless a signal handler raised.
    """
    done = 0
    while done < request.length and not stopped():
        with request.view[done : min(done + _STEP, request.length)] as part:
            count = os.preadv(fd, [part], request.offset + done)
        if not count:
            break
        done += count
        advance(count)
    return done


class LocalFile(File):
    """A file in the file system, read by pread(2); see `File`.

    Made by `respool.io.open`.  It stands for the file as it was when it was opened: its
    `size` stays what it was then.  A file that has shrunk since is a `RangeIntegrityError`
    for the bytes that are gone; bytes that were added are not read.  A file without a size of
    its own (in ``/proc``, a character device) has the size None and is read to its end.
    """

    __module__ = "respool.io"

    def __init__(self, session: Session, path: str, *, version: tuple[int, int] | None = None) -> None:
        self._session = session
        self._path = os.path.abspath(path)  # noqa: PTH100 - a path may be anything that the system takes
        fd, self._size = _open_regular(self._path)
        self._descriptor = _Descriptor(fd)
        info = os.fstat(fd)
        # What tells versions apart: the two that are the same wherever the file is mounted.
        # What the kernel makes up as it's read has neither.
        self._version = None if self._size is None else (info.st_size, info.st_mtime_ns)
        if version is not None and version != self._version:
            self.close()
            raise ObjectChangedError(
                "the file was replaced or written to since it was opened", url=self._path
            )

    @property
    def size(self) -> int | None:
        """The file's size in bytes when it was opened; None for one that has none."""
        return self._size

    @property
    def name(self) -> str:
        """The file's absolute path."""
        return self._path

    def close(self) -> None:
        """Refuse further reads, and close the file when those under way have ended."""
        super().close()
        self._descriptor.close()

    def __del__(self) -> None:
        descriptor = getattr(self, "_descriptor", None)
        if descriptor is None or self._closed:
            return
        warnings.warn(f"unclosed file {self._path!r}", ResourceWarning, stacklevel=2, source=self)
        descriptor.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path and what the file was like, to be opened again."""
        return _reopen, (self._path, self._version)

    # Reading

    def _enter(self, user: object) -> None:
        if not self._descriptor.use(user):
            raise ValueError(f"the file is closed: {self.name}")

    def _finish_now(self, request: ReadRequest) -> int:
        """Read in the calling thread: nothing is to be waited for but the disk."""
        try:
            self._enter(request)
            tracker = _Tracker(self, request)
            return tracker.checked(
                _read_fully(
                    self._descriptor.fd,
                    request,
                    stopped=tracker.raise_if_late,
                    advance=tracker.advance,
                )
            )
        finally:
            request.view.release()
            self._descriptor.leave(request)

    def _begin(self, request: ReadRequest) -> ReadFuture:
        tally = Tally("local", protocol="file")
        future = ReadFuture(tally)
        try:
            self._enter(request)
            self._session._begin(  # noqa: SLF001 - sessions run their files' operations
                _LocalJob(self, request, tally),
                future,
                deadline=request.deadline,
                expired=partial(self._expired, request),
            )
        except BaseException:
            # Nothing is under way then, and doing this twice is no harm.
            request.view.release()
            self._descriptor.leave(request)
            raise
        return future

    def _nothing(self) -> ReadFuture:
        tally = Tally("local", protocol="file")
        tally.stop()
        future = ReadFuture(tally)
        future.set_result(0)
        return future


def _reopen(path: str, version: tuple[int, int] | None) -> LocalFile:
    from respool.io.session import default_session

    return LocalFile(default_session(), path, version=version)


class _Tracker:
    """One read's progress and time."""

    def __init__(self, file: LocalFile, request: ReadRequest) -> None:
        self._file = file
        self._request = request
        self._done = 0

    def raise_if_late(self) -> bool:
        """Return False, or raise for a read that is to end before its time."""
        if self._file.session.closed:
            raise ValueError(f"the session was closed while reading: {self._file.name}")
        deadline = self._request.deadline
        if deadline is not None and time.monotonic() > deadline:
            raise self._file._expired(self._request)  # noqa: SLF001 - the same module
        return False

    def advance(self, nbytes: int) -> None:
        self._done += nbytes
        if self._request.progress is not None:
            self._request.progress(self._done, self._request.length)

    def checked(self, count: int) -> int:
        """Return the count of a read that has ended, or raise for one that should have gone on."""
        request = self._request
        if count < request.length and self._file.size is not None:
            raise RangeIntegrityError(
                "the file shrank while it was open",
                url=self._file.name,
                offset=request.offset,
                size=request.length,
                got=count,
            )
        return count


class _LocalJob:
    """A read by a worker thread: a single piece."""

    def __init__(self, file: LocalFile, request: ReadRequest, tally: Tally) -> None:
        self._file = file
        self._request = request
        self._tally = tally
        self._tracker = _Tracker(file, request)
        self._task: Task | None = Task(request.offset, request.length, 0)
        self._count = 0

    def take(self) -> Task | None:
        task, self._task = self._task, None
        return task

    def start(self, piece: Task, operation: Operation[Task, int]) -> None:
        self._file._session._workers.put(partial(self._run, piece, operation), lane="local")  # noqa: SLF001

    def _run(self, piece: Task, operation: Operation[Task, int]) -> None:
        if not operation.claim():
            return
        outcome = Outcome()
        try:
            outcome.received = _read_fully(
                self._file._descriptor.fd,  # noqa: SLF001 - the same module
                self._request,
                stopped=lambda: operation.stopped,
                advance=operation.advance,
            )
        except BaseException as error:  # noqa: BLE001 - it's the future's
            outcome.error = error
        operation.finished(piece, outcome)

    def settle(self, piece: Task, outcome: Outcome) -> Iterable[Task]:
        del piece
        self._tally.add(wire_bytes=0, reused=False, protocol="file", peer=None)
        self._count = self._tracker.checked(outcome.received)
        return ()

    def advance(self, nbytes: int) -> None:
        self._tracker.advance(nbytes)

    def result(self) -> int:
        return self._count

    def release(self) -> None:
        self._tally.stop()
        self._request.view.release()
        self._file._descriptor.leave(self._request)  # noqa: SLF001 - the same module
