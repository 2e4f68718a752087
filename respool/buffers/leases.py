"""Leases of buffers: what a `BufferPool` gives in place of a plain `respool.Lease`, to be given back after a stream, too.

Owns how a lease that the pool within has made becomes one of these, and what the end of a with-block does.  What it takes to
know when a stream has come so far is `respool.buffers._after`'s.
"""

# ruff: noqa: SLF001 - these are the pool's own leases, with more methods

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from respool._free import FREE_THREADED
from respool._work import LOST
from respool.buffers._after import give_back_after
from respool.buffers.buffer import Buffer
from respool.cuda._driver import load
from respool.cuda.context import stream_of
from respool.group import LeaseGroup, _MadeGroup
from respool.lease import MadeLease

if TYPE_CHECKING:
    from types import TracebackType

    from respool.buffers._memory import BufferKind
    from respool.lease import Lease

__all__ = ["NO_STREAM", "BufferLease", "BufferLeaseGroup", "check_stream", "group_of", "lease_of"]


class _NoStream:
    """Its one object stands for a stream that isn't given."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "none"


NO_STREAM: Final = _NoStream()
"""Stands for a stream that isn't given: None is the legacy one."""


def check_stream(stream: object) -> None:
    """See that a stream is one, if it's given: before anything is taken that is to be given back after it."""
    if stream is not NO_STREAM:
        stream_of(load(), stream)


class BufferLease(MadeLease["BufferKind", Buffer]):
    """A lease of a buffer: a `respool.Lease` that can be given back after a CUDA stream.

    Made by `BufferPool.lease` and its kin only.
    """

    __module__ = "respool.buffers"
    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("leases are made by a pool: call lease() or try_lease()")

    def release_after(self, stream: object) -> None:
        """Give the buffer back once all is done that a stream has been given so far; a spent lease does nothing.

        Until then the buffer is pending: it counts, and nobody has it.  An event is recorded now, one of the shared
        `CudaEventPool`'s or else a fresh one; nothing is waited for.  With an interrupt, such as Ctrl-C, that comes in between, it's
        done all the same.

        Parameters
        ----------
        stream
            As for `CudaEvent.record`: None or 0 for the legacy default stream, a handle, or what has ``__cuda_stream__``.  Of any
            context, whichever is current.

        Raises
        ------
        CudaError
            900 or the like: the stream is being captured; each replay would use the buffer again, so that the lease stays, with
            nothing recorded.  Otherwise no event could be recorded: then the stream was waited for instead and the buffer is
            back, or it's quarantined, if that failed too.
        NoContextError
            It's the default stream of the current context, and there's none; the lease stays.
        TypeError, ValueError, CudaUnavailableError
            It's no stream, or CUDA can't be used here; the lease stays.
        """
        if self.released:
            return
        record = self._record
        if record.lane is LOST:  # from before a fork
            self.release()
        else:
            give_back_after(record.row, self.release, stream)


class _AtEnd:
    """What gives itself back after a stream at the end of its with-block."""

    __slots__ = ()

    if TYPE_CHECKING:
        _stream: object

        @property
        def released(self) -> bool: ...
        def release_after(self, stream: object) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release_after(self._stream)
        except Exception as second:
            if error is None:
                raise
            error.add_note(f"and giving back after its stream failed: {second!r}")


class _StreamLease(_AtEnd, BufferLease):
    """A lease whose with-block gives the buffer back after a stream."""

    __slots__ = ("_stream",)


class BufferLeaseGroup(_MadeGroup["BufferKind", Buffer]):
    """Several buffers leased together: a `respool.LeaseGroup` that can be given back after a CUDA stream.

    Made by `BufferPool.lease_many` only.
    """

    __module__ = "respool.buffers"
    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("groups are made by a pool: call lease_many()")

    def release_after(self, stream: object) -> None:
        """Give all buffers back once all is done that a stream has been given so far; one event serves for all.

        Parameters and errors are those of `BufferLease.release_after`.
        """
        guards = self._guards
        if not guards:
            return
        if guards[0].record.lane is LOST:
            self.release()
        else:
            give_back_after(self._lane, self.release, stream)


class _StreamGroup(_AtEnd, BufferLeaseGroup):
    """A group whose with-block gives the buffers back after a stream."""

    __slots__ = ("_stream",)


def _made(kind: Any, at_end: Any, stream: object) -> Any:  # noqa: ANN401 - one of two classes, and one of it
    """Make an empty one: of the class that a stream at the end of its with-block asks for, if there's one."""
    if stream is NO_STREAM:
        return kind.__new__(kind)
    made = at_end.__new__(at_end)
    made._stream = stream
    return made


def lease_of(lease: Lease[BufferKind, Buffer], stream: object = NO_STREAM) -> BufferLease:
    """Make one of these of a lease; for the stream that its with-block ends with, if there is one."""
    if stream is NO_STREAM and not FREE_THREADED:  # there a change of class stops all threads
        lease.__class__ = BufferLease
        return cast("BufferLease", cast("object", lease))
    made = _made(BufferLease, _StreamLease, stream)
    made._record = lease._record
    # Both for a moment: it's given back once, whichever is dropped first.
    if FREE_THREADED:
        made._hold = cast("Any", lease)._hold
        cast("Any", lease)._hold = []
    else:
        made._guard = lease._guard
        lease._guard = None
    return cast("BufferLease", made)


def group_of(group: LeaseGroup[BufferKind, Buffer], stream: object = NO_STREAM) -> BufferLeaseGroup:
    """Make one of these of a group."""
    if stream is NO_STREAM and not FREE_THREADED:
        group.__class__ = BufferLeaseGroup
        return cast("BufferLeaseGroup", cast("object", group))
    made = _made(BufferLeaseGroup, _StreamGroup, stream)
    made._lane = group._lane
    made._guards = group._guards
    group._guards = []
    return cast("BufferLeaseGroup", made)
