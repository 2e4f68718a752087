"""`Operation`: one read (or question) under way, from its first exchange to its settled future.

This module owns what must be true of every read whatever it reads: how many of its pieces
are under way at once, that the first error stops the rest, that it can be cancelled,
interrupted and timed, and above all that **nothing writes to the destination once the
caller has control again**.  What the pieces are is a `Job`'s business, how they travel is
a transport's.

The life of a piece: taken from the job, started, *claimed* by the thread that carries it
out (from here on it may write), finished.  A stopped operation lets no further piece be
claimed, and settles when the claimed ones have finished.
"""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from respool.io import _deadlines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from respool.io._transport import Outcome

W = TypeVar("W")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class Job(Protocol[W, R_co]):
    """What an operation does: its pieces, and what their ends mean."""

    def take(self) -> W | None:
        """Return the next piece, or None when there's none to begin now.

        None while no piece is out means that there will be none.  Called under the
        operation's lock: pure, quick, never raising.
        """
        ...

    def start(self, piece: W, operation: Operation[W, Any]) -> None:
        """Hand a piece to what carries it out, without waiting for it."""
        ...

    def settle(self, piece: W, outcome: Outcome) -> Iterable[W]:
        """Judge a finished piece: return pieces to begin because of it, raise to fail the whole.

        Called by any thread, for several pieces at once.
        """
        ...

    def advance(self, nbytes: int) -> None:
        """Take note of bytes that have arrived; what it raises fails the whole."""
        ...

    def result(self) -> R_co:
        """Return what the future gets when every piece has been settled."""
        ...

    def release(self) -> None:
        """Let go of the destination: nothing writes any more.  May be called more than once."""
        ...


class Operation(Generic[W, R]):
    """A job under way.

    Parameters
    ----------
    job : Job
        What to do.
    future : Future
        Settled when it's done, by whatever thread does its last piece.  It stays pending
        until then, also while pieces are under way, as a running future can't be cancelled.
    window : int
        Most pieces started and not yet finished.
    on_over : callable, optional
        Called once the destination is released and before the future is settled; it may be
        called more than once, and must not raise.

    Notes
    -----
    Thread safety: every method may be called from any thread.
    """

    def __init__(
        self,
        job: Job[W, R],
        future: Future[R],
        *,
        window: int,
        on_over: Callable[[Operation[W, R]], None] | None = None,
    ) -> None:
        self._job = job
        self.future = future
        self._window = window
        self._on_over = on_over
        # Guards all below.  Under it only Job.take is called, which is pure.
        self._lock = threading.Lock()
        # Held by whoever settles the future.
        self._settling = threading.RLock()
        self._out = 0  # pieces started and neither finished nor failed
        self._claimed = 0  # those of them that may be writing
        self._exhausted = False  # no piece is out, and the job has no further one
        self._cause: BaseException | None = None  # why it stopped; CancelledError when cancelled
        self._over = False  # nothing writes any more, and nothing will
        self._deadline: _deadlines.Deadline | None = None

    # The caller's side

    def begin(
        self, deadline: float | None = None, expired: Callable[[], BaseException] | None = None
    ) -> None:
        """Start as many pieces as the window holds.

        Parameters
        ----------
        deadline : float, optional
            On the monotonic clock, in seconds.
        expired : callable, optional
            Makes the error that the operation ends in when the deadline passes.
        """
        try:
            if deadline is not None and expired is not None:
                make = expired
                self._deadline = _deadlines.at(deadline, lambda: self._expire(make))
            self._pump()
        except BaseException as error:
            self._wait_over(error)
            if not isinstance(error, Exception):
                raise

    def wait(self) -> R:
        """Return the result, or raise the error; on an interrupt, stop everything first.

        When this raises KeyboardInterrupt or whatever a signal handler raised, no thread
        writes to the destination any more.  An interrupt at the very entry of this
        function is the caller's to see to, by `abandon`.
        """
        try:
            return self.future.result()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Cancel unless it's over, and wait until nothing writes any more, whatever interrupts come."""
        self._wait_over(CancelledError())

    def _wait_over(self, cause: BaseException) -> None:
        while True:
            try:
                self.stop(cause)
                while not self.future.done():
                    # Also what a stop left undone that was interrupted half-way.
                    self._conclude()
                    self.future.exception()
            except CancelledError:
                return
            except BaseException:  # noqa: BLE001, S112 - one interrupt is on its way to the caller already
                # Leaving now would let a thread write into memory that the caller takes for
                # its own again.
                continue
            else:
                return

    def stop(self, cause: BaseException) -> bool:
        """End it for a reason; return whether it was the first.

        Pieces under way are broken off; the future is settled when the last of them has
        ended, which is now if there's none.
        """
        with self._lock:
            first = self._cause is None and not self._over
            if first:
                self._cause = cause
        self._conclude()
        return first

    def cancel(self) -> None:
        """End it as cancelled, unless it's over or failing already."""
        self.stop(CancelledError())

    def _expire(self, make: Callable[[], BaseException]) -> None:
        self.stop(make())

    @property
    def cancelled(self) -> bool:
        """Whether it was stopped by a cancellation."""
        return isinstance(self._cause, CancelledError)

    @property
    def begun(self) -> bool:
        """Whether any piece is under way."""
        return self._claimed > 0

    # The side of those who carry pieces out: the `Owner` of exchanges

    @property
    def stopped(self) -> bool:
        """Whether what is under way should be broken off."""
        return self._cause is not None

    def claim(self) -> bool:
        """Allow a piece to write, unless the operation has stopped."""
        with self._lock:
            if self._cause is not None:
                return False
            self._claimed += 1
            return True

    def advance(self, nbytes: int) -> None:
        """Pass on that bytes have arrived."""
        self._job.advance(nbytes)

    def finished(self, fetch: W, outcome: Outcome) -> None:
        """Take the end of a claimed piece."""
        more: list[W] = []
        try:
            if outcome.error is not None:
                self.stop(outcome.error)
            if self._cause is None:
                more.extend(self._job.settle(fetch, outcome))
        except BaseException as error:  # noqa: BLE001 - it's the future's
            self.stop(error)
        with self._lock:
            self._claimed -= 1
            self._out += len(more) - 1
        for piece in more:
            self._start(piece)
        self._pump()

    def failed(self, fetch: W, error: BaseException) -> None:
        """Take that a piece couldn't begin."""
        del fetch
        self.stop(error)
        with self._lock:
            self._out -= 1
        self._conclude()

    # Inside

    def _pump(self) -> None:
        """Start pieces until the window is full, and look whether all is over."""
        while True:
            with self._lock:
                if self._cause is not None or self._exhausted or self._out >= self._window:
                    break
                piece = self._job.take()
                if piece is None:
                    self._exhausted = self._out == 0
                    break
                self._out += 1
            self._start(piece)
        self._conclude()

    def _start(self, piece: W) -> None:
        try:
            self._job.start(piece, self)
        except Exception as error:  # noqa: BLE001 - it's the future's
            self.failed(piece, error)

    def _conclude(self) -> None:
        """Settle the future if nothing writes any more and nothing will.

        Each step may be done twice, so that one that an interrupt cut short can be
        repeated by whoever comes next.
        """
        with self._lock:
            if self._claimed or (self._cause is None and not self._exhausted):
                return
            self._over = True
        if self.future.done():
            return
        # Re-entrant, as what the future calls back may well call this operation.
        with self._settling:
            if self.future.done():
                return
            if self._deadline is not None:
                self._deadline.call_off()
            self._job.release()
            if self._on_over is not None:
                self._on_over(self)
            self._settle_future(self._cause)

    def _settle_future(self, cause: BaseException | None) -> None:
        if cause is None:
            try:
                value = self._job.result()
            except BaseException as error:  # noqa: BLE001 - the user's progress may raise anything; it's the future's
                self.future.set_exception(error)
            else:
                self.future.set_result(value)
        elif isinstance(cause, CancelledError):
            # Future's own: the subclass's cancel asks this operation.
            Future[Any].cancel(self.future)
            self.future.set_running_or_notify_cancel()
        else:
            self.future.set_exception(cause)
