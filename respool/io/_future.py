"""`ReadFuture`: a read under way, and its stats.

This module owns how a read's outcome and counts reach its caller.  What makes the future
settle is an `Operation`.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from respool.errors import LeaseLostError
from respool.io._awaited import Awaited, SoundCondition, wait_until_over
from respool.io._fork import renew_in_child

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from concurrent.futures import Future

    from respool.io._operation import Operation

_ENDED: Final = frozenset({CANCELLED_AND_NOTIFIED, FINISHED})


@dataclass(frozen=True, slots=True)
class ReadStats:
    """What a read took so far.

    Attributes
    ----------
    tries : int
        Requests that got an answer, redirects included; 1 for a local read.
    resumes : int
        Of those, the ones that went on where a broken one had stopped.
    wire_bytes : int
        Bytes that came over connections: heads, bodies, and what was dropped.
    seconds : float
        From the call to its end, or to now.
    reused : int
        Requests that were served over a connection made before.
    protocol : str or None
        The last answer's, such as ``"HTTP/1.1"``; ``"file"`` for a local read.
    peer : str or None
        Address and port of the last answer's server.
    transport : str or None
        What carried it.
    """

    __module__ = "respool.io"

    tries: int = 0
    resumes: int = 0
    wire_bytes: int = 0
    seconds: float = 0.0
    reused: int = 0
    protocol: str | None = None
    peer: str | None = None
    transport: str | None = None


class Tally:
    """A read's stats while they add up.  Thread safety: every method may be called from any thread."""

    __slots__ = ("_began", "_lock", "_now")

    def __init__(self, transport: str, protocol: str | None = None) -> None:
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._now = ReadStats(transport=transport, protocol=protocol)

    def add(self, *, wire_bytes: int, reused: bool, protocol: str | None, peer: str | None) -> None:
        """Count one exchange."""
        with self._lock:
            self._now = ReadStats(
                tries=self._now.tries + 1,
                wire_bytes=self._now.wire_bytes + wire_bytes,
                reused=self._now.reused + reused,
                protocol=protocol or self._now.protocol,
                peer=peer or self._now.peer,
                transport=self._now.transport,
                seconds=self._now.seconds,
            )

    def stop(self) -> None:
        """Stop the clock; only the first call does."""
        with self._lock:
            if not self._now.seconds:
                self._now = _with_seconds(self._now, time.monotonic() - self._began)

    def after_fork(self) -> None:
        """Begin anew in a child, where the lock may be held by a thread that's gone."""
        self._lock = threading.Lock()

    def snapshot(self) -> ReadStats:
        """Return the stats of now."""
        with self._lock:
            now = self._now
        return now if now.seconds else _with_seconds(now, time.monotonic() - self._began)


def _with_seconds(stats: ReadStats, seconds: float) -> ReadStats:
    return replace(stats, seconds=max(seconds, 1e-9))


class ReadFuture(Awaited[int]):
    """A read under way: a `concurrent.futures.Future` of the number of bytes read, awaitable too.

    It's pending until the read is over.  Once it's settled, in whatever way, nothing writes
    to the destination any more, and the destination may be resized or freed.

    In a forked child a read that was under way in the parent is over: `result` raises
    `respool.LeaseLostError`, and what was to be called at its end is called in the parent alone.

    Not to be made by users; `File.pread` returns it.
    """

    __module__ = "respool.io"

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self._tally = tally
        self._operation: Operation[Any, Any] | None = None
        renew_in_child(self)

    def after_fork(self) -> None:
        """Be over in a child: who would settle it is a thread of the parent's, which may also hold its lock."""
        self._tally.after_fork()
        self._condition = SoundCondition()
        # By hand, as the proper way would call back whoever is to be called, and that's the parent's business.
        if self._state == CANCELLED:
            self._state = CANCELLED_AND_NOTIFIED  # or whoever waits for several would wait for this one
        elif self._state not in _ENDED:
            self._exception = LeaseLostError(
                "this read was under way when the process forked: it is the parent's, and never ends here"
            )
            self._state = FINISHED
            # Nothing to be cancelled; but kept, as letting go could run anyone's finalisers here.
            self._inherited, self._operation = self._operation, None

    def _attach(self, operation: Operation[Any, Any]) -> None:
        """Take on what cancelling is to stop, until it's over."""
        self._operation = operation
        # Or else each would keep the other until the collector comes.
        self.add_done_callback(ReadFuture._detach)

    @staticmethod
    def _detach(future: Future[int]) -> None:
        if isinstance(future, ReadFuture):
            future._operation = None  # noqa: SLF001 - its own

    @property
    def stats(self) -> ReadStats:
        """What the read took so far, as a snapshot."""
        return self._tally.snapshot()

    def running(self) -> bool:
        """Whether any part of the read is under way."""
        operation = self._operation
        return operation is not None and not self.done() and operation.begun

    def cancel(self) -> bool:
        """Ask for the read to be broken off, also in the middle of it.

        Returns
        -------
        bool
            False if it's over already, or failing.  True promises that the future ends as
            cancelled, which is at once when nothing of the read is under way, and otherwise as
            soon as nothing writes to the destination any more.
        """
        operation = self._operation
        if operation is None:
            return self.cancelled()
        operation.cancel()
        return operation.cancelled

    def __await__(self) -> Generator[Any, None, int]:
        """Wait in an event loop; cancelling the task cancels the read."""
        import asyncio

        return asyncio.wrap_future(self).__await__()


def wait_all(reads: Sequence[ReadFuture]) -> None:
    """Wait until all have ended, or one in an error or by cancellation."""

    def enough() -> bool:
        over = [read for read in reads if read.done()]
        return len(over) == len(reads) or any(read.cancelled() or read.exception() for read in over)

    wait_until_over(reads, enough)


def abandon(reads: Iterable[ReadFuture]) -> None:
    """Break reads off, and wait until none of them writes any more."""
    operations = [read._operation for read in reads]  # noqa: SLF001 - the read is this module's own
    live = [operation for operation in operations if operation is not None]
    for operation in live:
        operation.cancel()
    for operation in live:
        operation.abandon()
