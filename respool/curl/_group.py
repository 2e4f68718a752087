"""Several pooled handles, lent together: a `LeaseGroup` that looks before it gives back.

Owns `EasyLeaseGroup`.  What is looked at is ``_pooled``'s; all or nothing is the core's.
"""

# ruff: noqa: SLF001 - a group of handles and the core's group are one

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from respool.errors import InvalidReleaseError

from ._lease import Free, is_free
from ._pooled import inherited, lend, refusal, unfit

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from respool._slot import Guard
    from respool.group import LeaseGroup

    from ._easy import EasyHandle
    from .origin import Origin


class EasyLeaseGroup:
    """Several handles of one origin, lent by `EasyHandlePool.lease_many`, and the duty to give them back.

    Used as a context manager it gives the tuple of the handles.  When the block ends well, those that are
    fit are kept for the next one, as by their leases; when it raises, all are discarded.

    While one of them is in use, or sits in a ``CurlMulti``, none can be given back:
    `InvalidReleaseError`, and the group stays good.  Where a with-block raised, its own exception
    leaves the block, with a note on that.
    """

    __module__ = "respool.curl"
    __slots__ = ("__weakref__", "_group", "_handles")

    def __init__(self, group: LeaseGroup[Origin, EasyHandle], handles: tuple[EasyHandle, ...]) -> None:
        self._group = group
        self._handles = handles

    @property
    def key(self) -> Origin:
        """The origin that the handles are for."""
        return self._group.key

    @property
    def resources(self) -> tuple[EasyHandle, ...]:
        """The handles; `LeaseReleasedError` on a spent group."""
        return self._group.resources

    @property
    def released(self) -> bool:
        """Whether the group is spent."""
        return self._group.released

    def release(self, when: Callable[[], object] | None = None) -> None:
        """Give all handles back; does nothing on a spent group.

        Parameters
        ----------
        when : callable, optional
            Tells whether the handles are free, if they aren't free at once; see `EasyLease.release`.  It
            speaks for all of them.

        Raises
        ------
        InvalidReleaseError
            One is in use or in a ``CurlMulti``, and no `when` says that it isn't free yet; all stay with
            their holder.
        Exception
            What `when` raises in this call; all stay with their holder.
        """
        group = self._group
        if group.released:
            return
        if when is not None and (left := group._guards[:1]) and not is_free(left[0].record, when):
            group.release(Free(when, self._handles))
            return
        if inherited(self._handles[0]):
            group.release()  # the pool lets them be: they're the parent's
            return
        self._refuse()
        core: Any = group._lane.engine

        def back(guard: Guard) -> None:
            fit = unfit(guard.record.resource) is None
            (core.give_back if fit else core.discard)(guard, guard.record)

        group._end(back)

    def discard(self) -> None:
        """Destroy all handles and close their connections.

        Raises
        ------
        LeaseReleasedError
            The group is spent.
        InvalidReleaseError
            One is in use or in a ``CurlMulti``; all stay with their holder.
        """
        if not self._group.released and not inherited(self._handles[0]):
            self._refuse()
        self._group.discard()

    def _refuse(self) -> None:
        """Raise if one can't be taken back now."""
        for handle in self._handles:
            why = refusal(handle)
            if why is not None:
                raise InvalidReleaseError(f"{handle!r} {why}")

    def __enter__(self) -> tuple[EasyHandle, ...]:
        return self._group.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._group.released:
            return
        if error is None:
            self.release()
            return
        try:
            self.discard()
        except InvalidReleaseError as refused:
            error.add_note(f"its handles were not given back: {refused}")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a group can't be pickled or copied: it's the one hold on its handles")

    def __repr__(self) -> str:
        return repr(self._group).replace("respool.LeaseGroup", "respool.curl.EasyLeaseGroup", 1)


def lent_many(group: LeaseGroup[Origin, EasyHandle], url: str | None) -> EasyLeaseGroup:
    """Make a group of the core's one for its user."""
    handles = group.resources
    try:
        for handle in handles:
            lend(handle, url)
    except BaseException:
        group.discard()
        raise
    return EasyLeaseGroup(group, handles)
