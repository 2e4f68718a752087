"""When a buffer that is given back after a stream is free: the event that tells, and what is done where none can.

Owns that an event has been recorded before anybody else can see the buffer, that the event goes back whatever becomes of the
buffer, and what an interrupt between the two may do.  Waiting and asking are `respool.ResourcePool`'s; who holds the buffer is
its lease's affair.
"""

# ruff: noqa: SLF001 - an event tells in which use it was recorded, and a row is the inside of a pool

from __future__ import annotations

import contextlib
from copy import copy
from typing import TYPE_CHECKING, Any, Final

from respool._hooks import ERROR
from respool._work import LOST
from respool.cuda._driver import load
from respool.cuda.context import ODD, id_of, stream_of
from respool.cuda.errors import STICKY, CudaError, NoContextError, WrongContextError
from respool.cuda.event_pool import CudaEventPool
from respool.errors import InvalidReleaseError, PoolClosedError, PoolError
from respool.limits import PoolLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.cuda._driver import Driver
    from respool.cuda.event import CudaEvent
    from respool.lease import Lease
    from respool.pool import ResourcePool

__all__ = ["After", "give_back_after", "give_back_bare_after"]

_NO_CONTEXT: Final = 201
_UNSUPPORTED: Final = 900
_CAPTURE: Final = frozenset({900, 901, 906, 907})
"""What is said of streams that are captured, or that a capture forbids."""
_NOT_YET: Final = frozenset({900, 907})
"""What a query says while a capture forbids it: nothing of the work itself."""
_DEFAULT: Final = frozenset({None, 1, 2})
"""Streams that are the current context's, whichever that is."""

_spare: dict[str, CudaEventPool] = {}


def _lease_event(context: object) -> Lease[int, CudaEvent]:
    """Lease an event without waiting: one of the shared pool's, or, where that has none to give, a fresh one."""
    with contextlib.suppress(PoolClosedError):  # by somebody, just now: it's as good as one that is full
        try:
            lease = CudaEventPool.shared().try_lease(context)
        except CudaError:  # no context, or no event to be had at all
            raise
        except PoolError:  # so small a pool, or this call interrupts it
            lease = None
        if lease is not None:
            return lease
    pool = _spare.get("pool")
    if pool is None:
        spare = CudaEventPool(limits=PoolLimits(max_idle=0), name="events beyond the shared pool's limits")
        pool = _spare.setdefault("pool", spare)
    return pool.lease(context)


class After:
    """A `when`: whether an event is done, which is given back with the first yes, or when nobody can ask any more.

    It may be asked by several threads at once, and again after a yes.
    """

    __slots__ = ("__weakref__", "_event", "_failure", "_lease", "_quiet", "_row", "_told", "armed", "begun")

    def __init__(self, row: Any) -> None:  # noqa: ANN401 - a Lane, whose engine is a Core
        self._row = row
        # Whether an event may have been recorded; and whether it's known what to answer.
        self.begun = False
        self.armed = False
        self._lease: Lease[int, CudaEvent] | None = None
        # None once it's over: the answer is yes then, or for good a failure.
        self._event: CudaEvent | None = None
        self._failure: PoolError | None = None
        # The holder's own release is no place to raise: he'd keep what he has let go of.  It's asked again.
        self._quiet = True
        self._told = False

    def __call__(self) -> bool:
        quiet, self._quiet = self._quiet, False
        event = self._event
        if event is None:
            failure = self._failure
            if failure is None or quiet:
                return failure is None
            raise copy(failure)  # each time without what earlier askers have added to it
        try:
            done = event.is_done()
        except PoolError as error:
            if self._is_grave(error) and not quiet:
                raise
            return False
        if done:
            self._end()
        return done

    def hush(self) -> After:
        """Let the next one who asks hear no error: a holder who is giving the buffer back."""
        self._quiet = True
        return self

    def arm(self, driver: Driver, stream: Any) -> PoolError | None:  # noqa: ANN401 - what the driver takes for one
        """Record an event in a stream; or else wait for the stream; or else know that nobody can tell.

        Returns
        -------
        PoolError | None
            Why no event could be recorded.

        Raises
        ------
        _CapturedError
            The stream has come to be captured meanwhile.
        """
        failure: PoolError | None = None
        try:
            self._record(driver, stream)
        except PoolError as error:
            failure = error.with_traceback(None)
            try:
                with driver.relaxed():
                    driver.synchronize_stream(stream)
            except PoolError:
                self._failure = copy(error)
        self.armed = True
        return failure

    @property
    def lost(self) -> bool:
        """Whether nobody can tell."""
        return self._failure is not None

    def _record(self, driver: Driver, stream: object) -> None:
        """Record: an event of the current context, or else of the stream's own."""
        try:
            self._record_of(None, stream)
        except (WrongContextError, NoContextError):
            if stream is None:
                raise
            self._record_of(id_of(driver.CUcontext(driver.stream_context(stream))), stream)

    def _record_of(self, context: object, stream: object) -> None:
        lease = self._lease  # of a first try that was interrupted
        if lease is None:
            self._lease = lease = _lease_event(context)
        event = lease.resource
        try:
            event.record(stream)
        except PoolError:
            lease.release()
            self._lease = None
            raise
        if event._used < 0:  # in a capture, that has begun just now
            lease.release()
            self._lease = None
            raise _CapturedError
        self._event = event

    def _is_grave(self, error: PoolError) -> bool:
        """See what a failing query says of the buffer: that nobody can tell, for good or just now, or nothing at all."""
        code = error.code if isinstance(error, CudaError) else None
        if code in _NOT_YET:
            core = self._row.engine
            if self._told:  # told once, counted each time
                core.inbox.append([ERROR, (self._row, "when")])
            else:
                self._told = True
                core.hooks.failed(self._row, self._row.key, "when", error)
            return False
        if code is None or code in STICKY:  # its context is gone or broken
            self._failure = copy(error)
            self._event = None
            lease, self._lease = self._lease, None
            if lease is not None:
                with contextlib.suppress(PoolError):
                    lease.discard()
        return True

    def _end(self) -> None:
        self._event = None
        lease = self._lease
        if lease is not None:
            lease.release()  # a second one of two that are here at once does nothing
        self._lease = None

    def __del__(self) -> None:
        # A buffer that was abandoned, say.  Given back, an event needs no waiting.
        try:
            lease = self._lease
            if lease is not None:
                lease.release()
        except Exception:  # noqa: BLE001, S110 - the interpreter's end, when names are gone
            pass


class _CapturedError(Exception):
    """An event has become a part of a capture."""


def give_back_after(row: Any, release: Callable[[After], object], stream: object) -> None:  # noqa: ANN401 - a Lane
    """Record an event in the stream and give a buffer back with it.

    Unless it's refused, it's done, also when an interrupt comes in between: this is raised afterwards.  A holder who still had
    the buffer then would give it back as free.

    Parameters
    ----------
    row
        The buffer's, in its pool.
    release
        Gives the buffer back with a `when`.  Does no harm if it has been given back already.
    stream
        As for `CudaEvent.record`.

    Raises
    ------
    CudaError
        900 or its kin: the stream is captured; 201: it's the current context's, and there's none.  Nothing has been done, and
        the buffer is still held.  Else the event could not be recorded: the buffer has been given back if the stream could be
        waited for, and is quarantined if not.
    TypeError, ValueError, CudaUnavailableError
        It's no stream, or there's no CUDA; the buffer is still held.
    """
    after = After(row)
    failure: PoolError | None = None
    try:
        failure = _see_through(after, stream, release)
    except BaseException as error:
        if after.begun or not isinstance(error, Exception):
            with contextlib.suppress(Exception):  # what is told is what came first
                _see_through(after, stream, release)
        raise
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # its traceback holds this frame


def give_back_bare_after(pool: ResourcePool[Any, Any], buffer: object, stream: object) -> None:
    """Do so with a bare buffer; raises `InvalidReleaseError`, too, where it isn't the caller's to give."""
    record, _ = pool._core.claim(buffer)  # first, as nothing is to be recorded for what isn't held
    if record.lane is LOST:  # from before a fork
        pool.release(buffer)
        return
    use = record.uses

    def release(after: After) -> None:
        if record.uses != use:  # by a second try, after an interrupt: it's somebody else's by now
            raise InvalidReleaseError("the buffer has been given back already")
        pool.release(buffer, after)

    give_back_after(record.row, release, stream)


def _see_through(after: After, stream: object, release: Callable[[After], object]) -> PoolError | None:
    """Do all of it, or what there's left of it; give the reason why no event could be recorded."""
    failure = None
    if not after.armed:
        driver = load()
        stream = stream_of(driver, stream)
        if not after.begun:
            _refuse(driver, stream)
        after.begun = True
        try:
            failure = after.arm(driver, stream)
        except _CapturedError:
            after.begun = False
            raise _captured(driver, _UNSUPPORTED) from None
    release(after.hush())
    if after.lost:
        row = after._row
        # Asked now, as it's known what comes of it: it's quarantined.
        row.engine.ask(row, len(row.pending or ()), others=False)
    return failure


def _refuse(driver: Driver, stream: Any) -> None:  # noqa: ANN401 - what the driver takes for one
    """Refuse a stream that is being captured: each replay would use the buffer again, long after it has another holder."""
    try:
        code, capturing = driver.cuStreamIsCapturing(stream)
    except ODD as error:
        driver.raise_odd(error, "cuStreamIsCapturing")
    if code in _CAPTURE or (not code and capturing):
        raise _captured(driver, code or _UNSUPPORTED)
    if code == _NO_CONTEXT and (stream is None or int(stream) in _DEFAULT):
        raise driver.failed(code, "cuStreamIsCapturing")
    # Another code will be the record's as well, and is dealt with there.


def _captured(driver: Driver, code: int) -> CudaError:
    refused = driver.failed(code, "cuStreamIsCapturing")
    refused.add_note(
        "a buffer can't be given back after a stream that is being captured: keep it as long as the graph"
    )
    return refused
