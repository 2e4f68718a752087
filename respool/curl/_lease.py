"""How a pooled handle is lent, and what happens when it comes back.

Owns `EasyLease`, and the judgement on a returned handle: refused while it is in use, kept
where it is fit, destroyed otherwise.  The signs are read in ``_pooled``; room and waiters are
the core's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from respool.errors import InvalidReleaseError, LeaseReleasedError

from ._easy import EasyHandle
from ._pooled import disown, inherited, lend, refusal, unfit

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from respool._slot import Record
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


class Free:
    """A `when` for handles that may be in use yet: free are those of which its user's `when` says so and on which nothing runs.

    It has been asked once already, and has said no: what the core asks first is answered without asking again.
    """

    __slots__ = ("_asked", "_handles", "_when")

    def __init__(self, when: Callable[[], object], handles: tuple[EasyHandle, ...]) -> None:
        self._when: Callable[[], object] | None = when
        self._handles = handles
        self._asked = False

    def __call__(self) -> bool:
        if not self._asked:
            self._asked = True
            return False
        if self._when is not None:
            if not self._when():
                return False
            self._when = None  # it's not asked again once it has said yes
        return all(refusal(handle) is None for handle in self._handles)


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

    def release(self, when: Callable[[], object] | None = None) -> None:
        """Give the handle back; does nothing on a spent lease.

        A handle that failed, whose callback raised, or on which a connection-bound option was
        set, is destroyed instead of kept.

        Parameters
        ----------
        when : callable, optional
            Tells whether the handle is free, if it isn't free at once, as `Lease.release` says.
            Until then it may be in use and in a ``CurlMulti``, and it isn't taken back before it's
            out of there either.  What is wrong with it by then is told to the observer.

        Raises
        ------
        InvalidReleaseError
            It is in use or in a ``CurlMulti``, and no `when` says that it isn't free yet; the lease
            stays good.
        Exception
            What `when` raises in this call; the lease stays good.
        """
        lease, handle = self._lease, self._handle
        if lease.released:
            return
        if when is not None and not is_free(lease._record, when):  # noqa: SLF001
            lease.release(Free(when, (handle,)))
            return
        try:
            _take_back(handle, lease.release, lease.discard)
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


def is_free(record: Record, when: Callable[[], object]) -> bool:
    """Ask for the first time whether what is given back is free, as the core would."""
    core: Any = record.row.engine
    free: bool = core.is_free(record, when)
    return free


def give_back(pool: Pool, handle: EasyHandle, when: Callable[[], object] | None) -> None:
    """Take a bare handle back, as its lease would."""
    if not isinstance(handle, EasyHandle):  # pyright: ignore[reportUnnecessaryIsInstance]
        pool.release(handle, when)  # what is no handle at all, the core knows what to say of
    elif when is not None and not is_free(pool._core.claim(handle)[0], when):  # noqa: SLF001
        pool.release(handle, Free(when, (handle,)))
    else:
        _take_back(handle, lambda: pool.release(handle), lambda: pool.discard(handle))


def throw_away(pool: Pool, handle: EasyHandle) -> None:
    """Destroy a bare handle that comes back."""
    if isinstance(handle, EasyHandle):  # pyright: ignore[reportUnnecessaryIsInstance]
        _take_back(handle, lambda: pool.discard(handle), lambda: pool.discard(handle))
    else:
        pool.discard(handle)
