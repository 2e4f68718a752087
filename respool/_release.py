"""The acting side, part one: resources that come back, and resources that are destroyed.

Everything here is called by the one who holds the guard of the resource in question, and outside the lock.
"""

from __future__ import annotations

import warnings
from time import monotonic
from typing import TYPE_CHECKING, Any

from respool import _stack
from respool._ages import overdue
from respool._free import FREE_THREADED
from respool._losses import Losses
from respool._slot import CONDEMNED, DESTROYING, LEAVING, READY, RESETTING, silence
from respool._work import ABANDONED, DETACHED, FORGOTTEN, FREED, GOING, KEPT, LOST, RETURNED, STALE, Work
from respool.errors import InvalidReleaseError, LeaseLeakWarning, Quarantine, safe_repr

if TYPE_CHECKING:
    from respool._slot import Guard, Record
    from respool._work import Lane

__all__ = ["Releasing"]


class Releasing(Losses):
    """What becomes of resources that are given back, discarded, detached or condemned."""

    __slots__ = ()

    # -- coming back -----------------------------------------------------------------------------------

    def give_back(self, guard: Guard, record: Record) -> None:  # noqa: C901 - one list of where it may go
        """Take a resource back on the slow way.  Its holder has let go of it already."""
        lane = record.lane
        if lane is LOST:
            silence(guard)
            return
        if self.dropped:
            self._abandon(guard, record)
            return
        if lane is FORGOTTEN:
            self._leave(guard, record, ABANDONED)
            return
        if self.closed or lane is STALE:
            self.destroy(guard, "closed" if self.closed else "cleared")
            return
        if self.timed:
            now = monotonic()
            if overdue(record, self.limits, now, idle=False):
                self.destroy(guard, "lifetime")
                return
            record.since = now
        if self.hooks.reset is not None and not self._reset(guard, record):
            return
        row = record.row
        record.holder = None
        if self.gate or row.queue or self.counts_idle or record.lane is not row or record.deferred:
            self.post(RETURNED, guard)
        else:
            use = row.use
            if use.last is not row:
                use.last = row
                use.tick += 1
                use.news[row] = None
            record.stamp = use.tick
            row.idle.append(guard)
            if FREE_THREADED and (self.gate or row.queue or self.closed or record.lane is not row):
                self._look_again(guard, row)

    def _look_again(
        self, guard: Guard, row: Lane
    ) -> None:  # pragma: no cover - without the interpreter lock: the session free_threaded
        """Without the interpreter lock somebody may have begun to wait, or closed the pool, just before the push: undo it."""
        try:
            row.idle.remove(guard)
        except ValueError:  # somebody has it already
            return
        self.post(RETURNED, guard)

    def _reset(self, guard: Guard, record: Record) -> bool:
        hooks = self.hooks
        assert hooks.reset is not None
        record.phase = RESETTING
        hooks.enter(record)
        if record.phase is not RESETTING:  # pragma: no cover - in a forked child: test_fork_in_handlers
            silence(guard)
            return False
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
        if (
            record.phase is not RESETTING
        ):  # pragma: no cover - in a forked child, whose tracer sees no frame begun before
            silence(guard)
            return False
        record.phase = READY
        return True

    def claim(self, resource: object) -> tuple[Record, Guard]:
        """Find the record and the guard of a resource that is held on the fast tier."""
        record = self.by_id.get(id(resource))
        if record is None:
            lease = type(resource).__module__ == "respool" and type(resource).__name__ in {
                "Lease",
                "LeaseGroup",
            }
            hint = ": a lease is given back by its own release()" if lease else ""
            raise InvalidReleaseError(f"{safe_repr(resource)} does not belong to pool {self.name}{hint}")
        guard = next(iter(record.held), None) if FREE_THREADED else record.guard
        if guard is None:
            raise InvalidReleaseError(
                f"{safe_repr(resource)} is not held on the fast tier of pool {self.name}: it's idle, or a lease holds it"
            )
        return record, guard

    def claim_for_good(
        self, record: Record
    ) -> Guard:  # pragma: no cover - without the interpreter lock: the session free_threaded
        """Without the interpreter lock: see that of several who have found the same resource held only one takes it."""
        try:
            return record.held.pop()
        except IndexError:
            raise self.given_back(record) from None

    def given_back(
        self, record: Record
    ) -> InvalidReleaseError:  # pragma: no cover - without the interpreter lock: the session free_threaded
        """Make the error for one who comes second."""
        return InvalidReleaseError(
            f"{safe_repr(record.resource)} is not held on the fast tier of pool {self.name}: somebody else has given it back"
        )

    def discard(self, guard: Guard, record: Record) -> None:
        """Destroy a resource instead of taking it back.  Its holder has let go of it already."""
        if record.lane is LOST:
            silence(guard)
        elif self.dropped:
            self._abandon(guard, record)
        elif record.lane is FORGOTTEN:
            self._leave(guard, record, ABANDONED)
        else:
            self.destroy(guard, "discarded")

    def detach(self, guard: Guard, record: Record) -> None:
        """Take a leased resource out of the pool for good.  Its holder has let go of the guard already."""
        self._leave(guard, record, DETACHED)

    def _leave(self, guard: Guard, record: Record, kind: str) -> None:
        record.reason = kind
        record.phase = LEAVING  # from here on a lost guard means the same as the entry below
        try:
            self.unregister(record)
        finally:
            self.post(kind, record)
        silence(guard)

    def _abandon(self, guard: Guard, record: Record) -> None:
        """Let go of a resource whose pool was dropped without close: no hook is run any more."""
        silence(guard)
        self.unregister(record)
        record.resource = None

    # -- destroying ------------------------------------------------------------------------------------

    def act(self, work: Work) -> None:
        """Do what a locked section has left, all of it, whatever single hooks do."""
        try:
            self._act(work)
        except BaseException:
            self._act(work)  # an interrupt between two steps: finish first, then let it out
            self.pump()
            raise

    def _act(self, work: Work) -> None:
        interrupt: BaseException | None = None
        try:
            while work:
                some = bool(work.condemned)
                while work.condemned:
                    if self.destroyer is not None and self.destroyer.take(work.condemned[0]):
                        work.condemned.popleft()
                        continue
                    try:
                        self._destroy(work.condemned[0])
                    except BaseException as error:  # noqa: BLE001 - no Exception; raised below, when all is done
                        interrupt = error
                    if work.condemned[0].record.phase is not CONDEMNED:  # else the interrupt came too early
                        work.condemned.popleft()
                work.rubbish.clear()
                while work.rows:
                    self.keys.forget(work.rows.pop())
                self._report(work)
                if some:
                    self.pump()
            if interrupt is not None:
                raise interrupt
        finally:
            interrupt = None  # an exception that refers to a frame that refers to it would live until the collector comes

    def destroy(self, guard: Guard, reason: str) -> None:
        """Destroy a resource that the caller holds, and give its room back."""
        record = guard.record
        if record.row.dead:  # pragma: no cover - in a forked child: test_fork_in_handlers
            silence(guard)
            return
        record.reason = reason
        record.phase = CONDEMNED
        self.inbox.append([GOING, record])
        try:
            if self.destroyer is None or not self.destroyer.take(guard):
                self._destroy(guard)
            self.pump()
        except BaseException:
            # Once more does nothing, unless the interrupt came before it began.
            if self.destroyer is None or not self.destroyer.take(guard):
                self._destroy(guard)
            self.pump()
            raise

    def _destroy(self, guard: Guard) -> None:  # noqa: C901 - one straight line, with what may strike in it
        """Run the destroy hook, and put into the inbox what came of it.  Raises only what is not an Exception."""
        record = guard.record
        hooks = self.hooks
        failure: BaseException | None = None
        booked = False
        # Look and take in one line: after an interrupt, a guard may be in two lists of what is to be destroyed.
        if record.phase is not CONDEMNED or record.row.dead:
            return
        if record.lane is FORGOTTEN:  # its world has gone since it was condemned
            self._leave(guard, record, ABANDONED)
            return
        record.phase = DESTROYING
        try:
            record.guard = None
            if hooks.destroy is not None:
                hooks.enter(record)
                if (
                    record.phase is not DESTROYING
                ):  # pragma: no cover - in a forked child: test_fork_in_handlers
                    return
                try:
                    hooks.destroy(record.row.key, record.resource)
                except BaseException as error:  # noqa: BLE001 - raised again below, if it's no Exception
                    failure = error
                hooks.leave(record)
            if not isinstance(failure, Quarantine):
                self.unregister(record)
            self.inbox.append([KEPT if isinstance(failure, Quarantine) else FREED, record])
            booked = True
            silence(guard)
            if not isinstance(failure, Quarantine):
                record.resource = None  # the last reference goes here, outside the lock
                hooks.tell("destroyed", record.row.key, record.reason)
            if failure is not None:
                hooks.failed(record.row, record.row.key, "destroy", failure)
                if not isinstance(failure, Exception):
                    raise failure
        finally:
            # An exception that refers to a frame that refers to it would live until the collector comes.
            failure = None
            # Interrupted: the hook was begun, so the resource counts as gone.
            if not booked:  # pragma: no cover - by interrupts only: tests/core/test_interrupts.py
                self.inbox.append([FREED, record])

    def _report(self, work: Work) -> None:
        """Tell the observer, and warn of leaks."""
        leaks, work.leaks = work.leaks, []
        for key, holder in leaks:
            stack = _stack.render(holder[1]) if holder else None
            self.hooks.tell("leaked", key, stack)
            where = (
                f", acquired at:\n{stack}"
                if stack
                else " (a pool with track_leases=True says where it was acquired)"
            )
            warn_of_leak(
                f"pool {self.name}: a lease for key {safe_repr(key)} was dropped without release{where}"
            )


def warn_of_leak(message: str) -> None:
    """Warn without ever failing the call that happens to find the leak."""
    try:
        warnings.warn(LeaseLeakWarning(message), stacklevel=2)
    except LeaseLeakWarning:
        # Warnings are errors here, but the caller isn't the one who leaked: print it as Python does in
        # finalisers.
        import sys
        from types import SimpleNamespace

        kind, value, trace = sys.exc_info()
        hook: Any = sys.unraisablehook  # which takes anything with these attributes
        hook(
            SimpleNamespace(
                exc_type=kind,
                exc_value=value,
                exc_traceback=trace,
                err_msg="Leak found by respool",
                object=None,
            )
        )
