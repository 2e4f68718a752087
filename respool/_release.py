"""The acting side, part one: resources that come back, and resources that are destroyed.

Everything here is called by the one who holds the guard of the resource in question, and outside the lock.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from respool import _stack
from respool._engine import DETACHED, FREED, GOING, KEPT, LOST, RETURNED, STALE, Engine, Lane, Work
from respool._slot import CONDEMNED, DESTROYING, READY, RESETTING, silence
from respool.errors import InvalidReleaseError, LeaseLeakWarning, Quarantine, safe_repr

if TYPE_CHECKING:
    from respool._slot import Guard, Record

__all__ = ["Releasing"]


class Releasing(Engine):
    """What becomes of resources that are given back, discarded, detached or condemned."""

    __slots__ = ()

    # -- coming back -----------------------------------------------------------------------------------

    def give_back(self, guard: Guard, record: Record) -> None:
        """Take a resource back on the slow way.  Its holder has let go of it already."""
        lane = record.lane
        if lane is LOST:
            silence(guard)
            return
        if self.dropped:
            self._abandon(guard, record)
            return
        if self.closed or lane is STALE:
            self.destroy(guard, "closed" if self.closed else "cleared")
            return
        if self.hooks.reset is not None and not self._reset(guard, record):
            return
        row = record.row
        use = row.use
        if use.last is not row:
            use.last = row
            use.tick += 1
        record.stamp = use.tick
        record.holder = None
        if self.gate or row.queue or self.limits.max_idle is not None or record.lane is not row:
            self.inbox.append([RETURNED, guard])
            self.pump()
        else:
            row.idle.append(guard)

    def _reset(self, guard: Guard, record: Record) -> bool:
        hooks = self.hooks
        assert hooks.reset is not None  # noqa: S101 - the caller has looked
        record.phase = RESETTING
        hooks.enter(record)
        try:
            hooks.reset(record.row.key, record.resource)
        except BaseException as error:
            hooks.leave(record)
            try:
                self.destroy(guard, "invalid")
            finally:
                hooks.failed(record.row, record.row.key, "reset", error)
            if not isinstance(error, Exception):
                raise
            return False
        hooks.leave(record)
        record.phase = READY
        return True

    def claim(self, resource: object) -> tuple[Record, Guard]:
        """Find the record and the guard of a resource that is held on the fast tier."""
        record = self.by_id.get(id(resource))
        if record is None:
            msg = f"{safe_repr(resource)} does not belong to pool {self.name}"
            raise InvalidReleaseError(msg)
        guard = record.guard
        if guard is None:
            msg = f"{safe_repr(resource)} is not held on the fast tier of pool {self.name}: it's idle, or a lease holds it"
            raise InvalidReleaseError(msg)
        return record, guard

    def discard(self, guard: Guard, record: Record) -> None:
        """Destroy a resource instead of taking it back.  Its holder has let go of it already."""
        if record.lane is LOST:
            silence(guard)
        elif self.dropped:
            self._abandon(guard, record)
        else:
            self.destroy(guard, "discarded")

    def detach(self, guard: Guard, record: Record) -> None:
        """Take a leased resource out of the pool for good.  Its holder has let go of the guard already."""
        self._unregister(record)
        self.inbox.append([DETACHED, record])
        silence(guard)
        self.pump()

    def _abandon(self, guard: Guard, record: Record) -> None:
        """Let go of a resource whose pool was dropped without close: no hook is run any more."""
        silence(guard)
        self._unregister(record)
        record.resource = None

    # -- destroying ------------------------------------------------------------------------------------

    def act(self, work: Work) -> None:
        """Do what a locked section has left, all of it, whatever single hooks do."""
        while work:
            interrupt: BaseException | None = None
            condemned, work.condemned = work.condemned, []
            for guard in condemned:
                try:
                    self._destroy(guard)
                except BaseException as error:  # noqa: BLE001 - not an Exception: those are reported; the rest goes on first
                    interrupt = error
            for lane in work.rows:
                self.keys.forget(lane)
            work.rows.clear()
            self._report(work)
            if interrupt is not None:
                self.pump()
                raise interrupt
            if condemned:
                self.pump()

    def destroy(self, guard: Guard, reason: str) -> None:
        """Destroy a resource that the caller holds, and give its room back."""
        record = guard.record
        record.reason = reason
        record.phase = CONDEMNED
        self.inbox.append([GOING, record])
        try:
            self._destroy(guard)
        finally:
            self.pump()

    def _destroy(self, guard: Guard) -> None:
        """Run the destroy hook, and put into the inbox what came of it.  Raises only what is not an Exception."""
        record = guard.record
        lane = record.row
        hooks = self.hooks
        record.guard = None
        record.phase = DESTROYING
        failure: BaseException | None = None
        if hooks.destroy is not None:
            hooks.enter(record)
            try:
                hooks.destroy(lane.key, record.resource)
            except BaseException as error:  # noqa: BLE001 - raised again below, if it's no Exception
                failure = error
            hooks.leave(record)
        if isinstance(failure, Quarantine):
            self.inbox.append([KEPT, record])
            silence(guard)
        else:
            self._freed(guard, record)
        if failure is not None:
            hooks.failed(lane, lane.key, "destroy", failure)
        if not isinstance(failure, Quarantine):
            hooks.tell("destroyed", lane.key, record.reason)
        if failure is not None and not isinstance(failure, Exception):
            raise failure

    def _freed(self, guard: Guard, record: Record) -> None:
        self._unregister(record)
        self.inbox.append([FREED, record])
        silence(guard)
        record.resource = None  # the last reference goes here, outside the lock

    def _report(self, work: Work) -> None:
        """Tell the observer, and warn of leaks."""
        events, work.events = work.events, []
        for event, key, *rest in events:
            if event == "leaked":
                stack = _stack.render(rest[0][1]) if rest[0] else None
                self.hooks.tell("leaked", key, stack)
                where = (
                    f", acquired at:\n{stack}"
                    if stack
                    else " (make the pool with track_leases=True to see where it was acquired)"
                )
                warn_of_leak(
                    f"pool {self.name}: a lease for key {safe_repr(key)} was dropped without release{where}"
                )
            else:
                self.hooks.tell(event, key, *rest)


def warn_of_leak(message: str) -> None:
    """Warn without ever failing the call that happens to find the leak."""
    try:
        warnings.warn(LeaseLeakWarning(message), stacklevel=2)
    except LeaseLeakWarning:
        # Warnings are errors here, but the caller isn't the one who leaked: print it as Python does in finalisers.
        import sys  # noqa: PLC0415
        from types import SimpleNamespace  # noqa: PLC0415

        kind, value, trace = sys.exc_info()
        sys.unraisablehook(
            SimpleNamespace(
                exc_type=kind,
                exc_value=value,
                exc_traceback=trace,
                err_msg="Leak found by respool",
                object=None,
            )
        )  # type: ignore[arg-type]
