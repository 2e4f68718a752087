"""How a pooled handle is lent, and what happens when it comes back.

Owns `EasyLease`, and the judgement on a returned handle: refused while it is in use, kept
where it is fit, destroyed otherwise.  The signs are read in ``_easy``; room and waiters are
the core's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, TypeAlias

from respool.errors import InvalidReleaseError, LeaseReleasedError

from ._easy import EasyHandle, disown, inherited, lend, refusal, unfit

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from respool.bound import BoundPool
    from respool.lease import Lease
    from respool.pool import ResourcePool

    from .origin import Origin

    Pool: TypeAlias = ResourcePool[Origin, EasyHandle] | BoundPool[Origin, EasyHandle]


def _take_back(handle: EasyHandle, release: Callable[[], object], discard: Callable[[], object]) -> None:
    """Judge a handle that comes back: refuse it while it's in use, keep it only if it's fit."""
    if inherited(handle):
        release()  # the pool lets it be: it's the parent's
        return
    why = refusal(handle)
    if why is not None:
        raise InvalidReleaseError(f"{handle!r} {why}")
    if unfit(handle) is None:
        release()
    else:
        discard()


class EasyLease:
    """A handle lent by an `EasyHandlePool`, and the duty to give it back: a `Lease` that looks before it does.

    Made by ``pool.lease`` and ``pool.try_lease``.  Used as a context manager it gives the
    handle, keeps it for the next one when the block ends well, and discards it when the
    block raises.

    A handle on which a transfer runs, or which sits in a ``CurlMulti``, can't be given back:
    `InvalidReleaseError`, and the lease stays good.  Where a with-block raised, its own
    exception leaves the block, with a note on that.
    """

    __module__ = "respool.curl"
    __slots__ = ("__weakref__", "_handle", "_lease")

    def __init__(self, lease: Lease[Origin, EasyHandle], handle: EasyHandle) -> None:
        self._lease = lease
        self._handle = handle

    @property
    def key(self) -> Origin:
        """The origin that the handle is for."""
        return self._lease.key

    @property
    def resource(self) -> EasyHandle:
        """The handle; `LeaseReleasedError` on a spent lease."""
        return self._lease.resource

    @property
    def released(self) -> bool:
        """Whether the lease is spent."""
        return self._lease.released

    def release(self) -> None:
        """Give the handle back; does nothing on a spent lease.

        A handle that failed, whose callback raised, or on which a connection-bound option was
        set, is destroyed instead of kept.

        Raises
        ------
        InvalidReleaseError
            It is in use or in a ``CurlMulti``; the lease stays good.
        """
        if self._lease.released:
            return
        try:
            _take_back(self._handle, self._lease.release, self._lease.discard)
        except LeaseReleasedError:
            pass  # another thread was faster

    def discard(self) -> None:
        """Destroy the handle and close its connection.

        Raises
        ------
        LeaseReleasedError
            The lease is spent.
        InvalidReleaseError
            The handle is in use or in a ``CurlMulti``; the lease stays good.
        """
        if not self._lease.released:
            _take_back(self._handle, self._lease.discard, self._lease.discard)
        else:
            self._lease.discard()  # which raises

    def detach(self) -> EasyHandle:
        """Take the handle out of the pool for good; closing it is then the caller's."""
        handle = self._lease.detach()
        disown(handle)
        return handle

    def __enter__(self) -> EasyHandle:
        return self._lease.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease.released:
            return
        if error is None:
            self.release()
            return
        try:
            self.discard()
        except InvalidReleaseError as refused:
            error.add_note(f"its handle was not given back: {refused}")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a lease can't be pickled or copied: it's the one hold on its handle")

    def __repr__(self) -> str:
        return repr(self._lease).replace("respool.Lease", "respool.curl.EasyLease", 1)


def lent(lease: Lease[Origin, EasyHandle], url: str | None) -> EasyLease:
    """Make a lease of the core's one for its user."""
    handle = lease.resource
    try:
        lend(handle, url)
    except BaseException:
        lease.discard()
        raise
    return EasyLease(lease, handle)


def acquired(pool: Pool, handle: EasyHandle, url: str | None) -> EasyHandle:
    """Hand a bare handle to its user."""
    try:
        lend(handle, url)
    except BaseException:
        pool.discard(handle)
        raise
    return handle


def give_back(pool: Pool, handle: EasyHandle) -> None:
    """Take a bare handle back, as its lease would."""
    # What is no handle at all, the core knows what to say of.
    if isinstance(handle, EasyHandle):  # pyright: ignore[reportUnnecessaryIsInstance]
        _take_back(handle, lambda: pool.release(handle), lambda: pool.discard(handle))
    else:
        pool.release(handle)


def throw_away(pool: Pool, handle: EasyHandle) -> None:
    """Destroy a bare handle that comes back."""
    if isinstance(handle, EasyHandle):  # pyright: ignore[reportUnnecessaryIsInstance]
        _take_back(handle, lambda: pool.discard(handle), lambda: pool.discard(handle))
    else:
        pool.discard(handle)
