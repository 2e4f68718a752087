"""`CudaEvent`: an event of a `CudaEventPool`, and what it takes for recorded.

Whether its holder has recorded an event is known without a hook that each release would have to pay for: the pool counts how
often each of its resources has been handed out, and the event remembers at which of these uses it was recorded last.

Which events are given to the driver at all is `respool.cuda._source`'s.
"""

# ruff: noqa: SLF001 - an event looks into another one, and is made from outside

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from respool._slot import LIMBO
from respool._work import DETACHED, FORGOTTEN, STALE
from respool.errors import LeaseLostError, LeaseReleasedError, safe_repr

from .context import DESTROYED, ODD, is_gone, stream_of
from .errors import STICKY, CudaError

if TYPE_CHECKING:
    from respool._slot import Record

    from ._driver import Driver
    from ._source import Source

__all__ = ["CudaEvent"]

_NEVER: Final = 0
"""In place of the number of a use: in none."""

_CAPTURED: Final = -1
"""In place of the number of a use: in this one, which is its last, in a stream capture."""

_NOT_READY = 600
_CAPTURED_EVENT = 907


class CudaEvent:
    """A CUDA event, lent by a `CudaEventPool`.

    Its `is_done` may be given to ``release(when=…)`` of any pool; give the event itself back only after it has said True,
    as from then on another holder may record it.

    An event that its holder has not recorded is done, whatever an earlier holder did with it.

    Thread safety: an event is for one holder.  `is_done` may be called by any thread meanwhile.

    A reset of the device's context, or its end, while an event of it is held is the caller's error, which isn't looked for
    each time: where the driver says so it's a `LeaseLostError`, but after a reset and a new retain a real driver may crash.

    Attributes
    ----------
    context_id : int
        The id of its context.
    handle : int
        The driver's handle, a ``CUevent``, for other libraries.  It's the pool's: nobody else may destroy it.
    timing : bool
        Whether `elapsed_ms` can be asked.
    """

    __module__ = "respool.cuda"
    __slots__ = ("__weakref__", "_driver", "_event", "_generation", "_slot", "_source", "_used", "context_id")

    context_id: int
    _driver: Driver
    _event: Any
    _source: Source
    # The pool's record of this event; another one in its place if it's nobody's, or has left the pool.
    _slot: Any
    # At which use, by the record's count, it was recorded last.
    _used: int
    # While it's captured: the row's generation before, or -1 if it was to be destroyed anyway.
    _generation: int

    def __init__(self) -> None:
        raise TypeError("events are made by a CudaEventPool: call its lease() or acquire()")

    @classmethod
    def _made(
        cls, driver: Driver, handle: object, context_id: int, source: Source, slot: Record
    ) -> CudaEvent:
        event = cls.__new__(cls)
        event._driver = driver
        event._event = handle
        event.context_id = context_id
        event._source = source
        event._slot = slot
        event._used = _NEVER
        event._generation = -1
        return event

    @property
    def handle(self) -> int:
        """The driver's handle."""
        return int(self._event)

    @property
    def timing(self) -> bool:
        """Whether `elapsed_ms` can be asked."""
        return self._source.timing

    def record(self, stream: object = None) -> None:  # noqa: C901 - a hot path: a call more would cost time
        """Record the event in a stream: it's done once all has been done that the stream was given before.

        Parameters
        ----------
        stream
            None or 0 for the legacy default stream, a positive int for a handle, a ``CUstream``, or anything that has
            ``__cuda_stream__`` (cuda.core, PyTorch, CuPy).  Of the event's own context.

        Raises
        ------
        WrongContextError
            The stream is of another context.  The event is as before.
        CudaError
            Whatever else the driver says.
        TypeError, ValueError
            It's no stream, or a closed one.
        LeaseLostError
            The event's context is gone, or the process has forked.
        LeaseReleasedError
            The pool has destroyed the event.

        Notes
        -----
        On a stream that is being captured, the event becomes a part of the capture: `is_done` and `synchronize` raise
        until it's recorded otherwise, and given back like this, it's destroyed instead of kept (counted as cleared).
        """
        slot = self._slot
        if slot.resource is not self:
            slot = self._living()
        driver = self._driver
        before = self._used
        if stream is not None:
            if type(stream) is not driver.CUstream:
                stream = stream_of(driver, stream)
            if stream is not None:  # the legacy one can't be captured
                try:
                    code, capturing = driver.cuStreamIsCapturing(stream)
                except ODD as error:
                    driver.raise_odd(error, "cuStreamIsCapturing")
                if code:
                    raise self._failed(code, "cuStreamIsCapturing")
                if capturing:
                    self._record_captured(slot, stream)
                    return
        # Noted first: cut short in between, it's asked in vain, while work would be taken for done otherwise.
        self._used = slot.uses
        try:
            code = driver.cuEventRecord(self._event, stream)[0]
        except ODD as error:
            self._used = before
            driver.raise_odd(error, "cuEventRecord")
        if code:
            self._used = before
            raise self._failed(code, "cuEventRecord")
        if before == _CAPTURED:
            self._keep(slot)

    def _record_captured(self, slot: Record, stream: object) -> None:
        """Record in a capture.  From before it on, until it's recorded otherwise, the pool will destroy what comes back."""
        before = self._used
        if before != _CAPTURED:
            # In one straight line, as clear() and forget() may say something else about the lane.
            if slot.lane is slot.row:
                self._generation = slot.row.generation
                slot.lane = STALE
            else:
                self._generation = -1
            self._used = _CAPTURED
        try:
            self._driver.record_event(self._event, stream, self.context_id)
        except Exception as error:  # an interrupt may have come after the call
            self._used = before
            if before != _CAPTURED:
                self._keep(slot)
            if isinstance(error, CudaError):
                raise self._failed(error.code, error.call) from error
            raise

    def _keep(self, slot: Record) -> None:
        """End what a capture began, unless the pool was cleared meanwhile."""
        if slot.lane is STALE and slot.row.generation == self._generation:
            slot.lane = slot.row

    def is_done(self) -> bool:
        """Tell whether all is done that stood in the stream before the event's record.

        Returns
        -------
        bool
            True too if its holder has not recorded it.

        Raises
        ------
        CudaError
            907, without a call of the driver: it was last recorded in a stream capture.  Else what the driver says.
        LeaseLostError, LeaseReleasedError
            As `record`.

        Notes
        -----
        Pools ask from whatever thread comes along.  So it's asked in relaxed capture mode, in which it does no harm to a
        capture that somebody else has open.
        """
        slot = self._slot
        if slot.resource is not self:
            slot = self._living()
        if self._used != slot.uses:
            if self._used == _CAPTURED:
                raise self._captured("cuEventQuery")
            return True
        driver = self._driver
        exchange = driver.cuThreadExchangeStreamCaptureMode
        try:
            code, mode = exchange(driver.relaxed_mode)
            if not code:
                try:
                    code = driver.cuEventQuery(self._event)[0]
                finally:
                    exchange(mode)
        except ODD as error:
            driver.raise_odd(error, "cuEventQuery")
        if not code:
            return True
        if code == _NOT_READY:
            return False
        raise self._failed(code, "cuEventQuery")

    def synchronize(self) -> None:
        """Wait until the event is done; return at once if its holder has not recorded it.

        Other threads run meanwhile, but the wait can't be interrupted.  While a stream capture is open it's refused
        (900), and ruins the capture.

        Raises
        ------
        CudaError, LeaseLostError, LeaseReleasedError
            As `is_done`.
        """
        slot = self._slot
        if slot.resource is not self:
            slot = self._living()
        if self._used != slot.uses:
            if self._used == _CAPTURED:
                raise self._captured("cuEventSynchronize")
            return
        driver = self._driver
        try:
            code = driver.cuEventSynchronize(self._event)[0]
        except ODD as error:
            driver.raise_odd(error, "cuEventSynchronize")
        if code:
            raise self._failed(code, "cuEventSynchronize")

    def wait(self, stream: object) -> None:
        """Make a stream wait for the event, as it stands now; a later record doesn't change that.

        Parameters
        ----------
        stream
            As for `record`; of any context.  It doesn't wait for an event that its holder has not recorded.

        Raises
        ------
        CudaError, TypeError, ValueError, LeaseLostError, LeaseReleasedError
            As `record`.
        """
        slot = self._slot
        if slot.resource is not self:
            slot = self._living()
        driver = self._driver
        stream = stream_of(driver, stream)
        if self._used not in {slot.uses, _CAPTURED}:
            return
        try:
            code = driver.cuStreamWaitEvent(stream, self._event, 0)[0]
        except ODD as error:
            driver.raise_odd(error, "cuStreamWaitEvent")
        if code:
            raise self._failed(code, "cuStreamWaitEvent")

    def elapsed_ms(self, end: CudaEvent) -> float:
        """Give the time from this event to another one, both recorded and done.

        Parameters
        ----------
        end
            The later one: an event with timing, of the same context.

        Returns
        -------
        float
            Milliseconds, to about half a microsecond; negative if it was the earlier one.

        Raises
        ------
        ValueError
            One of them is of a pool without ``timing=True``, or its holder has not recorded it.
        CudaError
            600: one isn't done yet; or what else the driver says.
        TypeError, LeaseLostError, LeaseReleasedError
            `end` is no event; or as `record`.
        """
        if not isinstance(end, CudaEvent):
            raise TypeError(f"end must be a CudaEvent, got {safe_repr(end)}")
        for event in (self, end):
            slot = event._slot
            if slot.resource is not event:
                slot = event._living()
            if not event.timing:
                raise ValueError(f"{event!r} can't be timed: its pool was made without timing=True")
            if event._used != slot.uses:
                if event._used == _CAPTURED:
                    raise event._captured("cuEventElapsedTime")
                raise ValueError(f"{event!r} has not been recorded since it was handed out")
        driver = self._driver
        try:
            code, elapsed = driver.api.cuEventElapsedTime(self._event, end._event)
        except ODD as error:
            driver.raise_odd(error, "cuEventElapsedTime")
        if code:
            raise self._failed(code, "cuEventElapsedTime")
        return float(elapsed)

    # -- what is wrong ---------------------------------------------------------------------------------

    def _living(self) -> Any:  # noqa: ANN401 - a Record, or what stands for one
        """Find the record that counts now, the pool having let go of this event."""
        slot = self._slot
        if slot.phase is LIMBO:
            raise LeaseLostError(
                f"{self!r} was made before a fork, in the parent process: it's not for use here"
            )
        if slot.lane is FORGOTTEN:
            raise LeaseLostError(f"{self!r} is of a CUDA context that is gone: its pool has forgotten it")
        if slot.reason is DETACHED:
            self._slot = own = _Own(self, slot.uses)
            return own
        raise LeaseReleasedError(f"{self!r} is no more: its pool has destroyed it")

    def _failed(self, code: int, call: str) -> Exception:
        """Give the error for a code; see whether the event's context is gone or broken, or the one that is current."""
        driver = self._driver
        grave = code == DESTROYED or code in STICKY
        gone = grave and is_gone(driver, self.context_id)
        error = driver.failed(code, call, self.context_id if gone or not grave else None)
        if not gone or code != DESTROYED:
            return error
        self._source.lost(self.context_id)
        lost = LeaseLostError(f"{self!r}: its CUDA context has been destroyed, or its device reset")
        lost.__cause__ = error
        return lost

    def _captured(self, call: str) -> CudaError:
        return self._driver.failed(_CAPTURED_EVENT, call, self.context_id)

    def __repr__(self) -> str:
        return f"<respool.cuda.CudaEvent {int(self._event):#x} of context {self.context_id}>"

    def __reduce_ex__(self, protocol: object) -> Any:  # noqa: ANN401 - it never returns
        raise TypeError("a CudaEvent can't be pickled or copied: it belongs to this process")


class _Nowhere:
    """The row of an event that has left its pool."""

    generation = -1


class _Own:
    """Stands for the record of an event that has left its pool: always at the use it was detached at."""

    __slots__ = ("lane", "phase", "reason", "resource", "row", "uses")

    def __init__(self, event: CudaEvent, uses: int) -> None:
        self.resource = event
        self.uses = uses
        self.row = self.lane = _Nowhere()
        self.phase = self.reason = DETACHED
