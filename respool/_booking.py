"""What each entry of the inbox means for the books.

Runs under the lock.  An entry may be told twice, after an interrupt: booking it again does no harm.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from respool import _reaper
from respool._engine import Engine
from respool._hooks import ERROR
from respool._rows import PARKED, SERVED
from respool._slot import CREATING, LIMBO, PENDING, silence
from respool._work import (
    ABANDONED,
    CANCELLED,
    DEFERRED,
    DETACHED,
    FORGOTTEN,
    FREED,
    GOING,
    KEPT,
    RETURNED,
    STUCK,
    UNMADE,
    UNTIL,
    WAITED,
)

if TYPE_CHECKING:
    from respool._rows import Batch
    from respool._slot import Guard, Record
    from respool._waiter import Waiter
    from respool._work import Lane, Work

__all__ = ["Booking"]


class Booking(Engine):
    """The part of the locked section that books news."""

    __slots__ = ()

    def book_locked(  # noqa: C901, PLR0912, PLR0915 - a table: what each kind means
        self, entry: list[Any], work: Work
    ) -> None:
        """Book one entry.  Told twice, after an interrupt, it does no harm."""
        kind, subject = entry
        accounts = self.accounts
        if kind is WAITED:
            row, seconds = subject
            total, ledger = accounts.total, row.ledger
            entry[1] = None
            total.wait_seconds += seconds
            ledger.wait_seconds += seconds
            return
        about = getattr(subject, "record", subject)
        row = getattr(about, "row", None)  # None: it's about a row
        if row is not None and (
            row.dead or about.phase is LIMBO
        ):  # from before a fork, and this is the child
            return
        if kind is RETURNED:
            record = subject.record
            row = record.row
            if record.deferred:
                accounts.undefer(record)
            if record.lane is FORGOTTEN:
                self.abandon_locked(subject, work)
            elif self.closed or record.lane is not row:
                accounts.condemn(record, "closed" if self.closed else "cleared")
                entry[1] = None
                work.condemned.append(subject)
            else:
                if row.where is PARKED:
                    accounts.stir(row)
                entry[1] = None
                use = row.use
                if use.last is not row:
                    use.last = row
                    use.tick += 1
                    use.news[row] = None
                record.stamp = use.tick
                accounts.idle += 1
                row.idle.append(subject)
        elif kind is DEFERRED:
            self.defer_locked(subject, work, entry)
        elif kind is UNTIL:  # pragma: no cover - without the interpreter lock: the session free_threaded
            guard, when = subject
            record = guard.record
            record.holder = None
            record.when = when
            record.phase = PENDING
            entry[0] = DEFERRED
            entry[1] = guard
            self.defer_locked(guard, work, entry)
        elif kind is STUCK:
            self.stick_locked(subject, work, entry)
        elif kind is GOING:
            accounts.undefer(subject)
            accounts.going(subject)
        elif kind is FREED:
            accounts.gone(subject)
            self.drop_resource_locked(subject, work)
            self.tidy_locked(subject.row, work)
        elif kind is UNMADE:
            accounts.unmade(subject)
            self.tidy_locked(subject.row, work)
        elif kind is DETACHED:
            accounts.taken_out(subject)
            self.drop_resource_locked(subject, work)
            self.tidy_locked(subject.row, work)
        elif kind is ABANDONED:
            accounts.abandoned(subject)
            self.drop_resource_locked(subject, work)
            self.tidy_locked(subject.row, work)
        elif kind is KEPT:
            accounts.stays(subject)
        elif kind is ERROR:
            row, hook = subject
            ledgers = (accounts.total,) if row is None else (accounts.total, row.ledger)
            entry[1] = None
            for ledger in ledgers:
                if hook not in ledger.hook_errors:
                    ledger.hook_errors[hook] = 0
                ledger.hook_errors[hook] += 1
        elif kind is CANCELLED:
            total, ledger = accounts.total, subject.ledger
            entry[1] = None
            total.cancelled += 1
            ledger.cancelled += 1
        else:
            self.tidy_locked(subject, work)

    def defer_locked(self, guard: Guard, work: Work, entry: list[Any]) -> None:
        """Keep what isn't free yet, behind what else its key has; `entry` is spent in the same step."""
        record = guard.record
        if record.lane is FORGOTTEN:
            self.abandon_locked(guard, work)
        elif record.phase is PENDING:
            row = record.row
            first = not self.accounts.pending
            self.accounts.defer(record)
            if first:
                self.wake_help_locked()
            if row.pending is None:
                row.pending = deque()
            self.deferring[row] = None
            entry[1] = None
            row.pending.append(guard)

    def wake_help_locked(self) -> None:
        """Have the background threads, if there are any, ask what is pending from now on."""
        if self.destroyer is not None:
            self.destroyer.poll()
        if self.watched:
            _reaper.nudge(self)

    def stick_locked(self, guard: Guard, work: Work, entry: list[Any]) -> None:
        """Keep what nobody can tell when it's free; `entry` is spent in the same step."""
        row = guard.record.row
        if guard.record.lane is FORGOTTEN:
            self.abandon_locked(guard, work)
            return
        self.accounts.stick(guard.record)
        if row.stuck is None:
            row.stuck = deque()
        entry[1] = None
        row.stuck.append(guard)

    def abandon_locked(self, guard: Guard, work: Work) -> None:
        """Leave a resource behind without destroy."""
        record = guard.record
        self.accounts.abandoned(record)
        silence(guard)
        self.drop_resource_locked(record, work)
        work.rubbish.append(guard)  # with its `when`, which may be the last reference to it
        self.tidy_locked(record.row, work)

    def tidy_locked(self, lane: Lane, work: Work) -> None:
        """Drop a row that has no room and no waiter: a key used once leaves nothing behind."""
        if not lane.dead and not lane.size and not lane.queue:
            self.keys.drop_locked(lane)
            self.accounts.rows -= 1
            self.accounts.use.news.pop(lane, None)
            work.rows.append(lane)

    def trim_locked(self, most: int, work: Work) -> None:
        """Condemn idle resources beyond `most`, the least recently used first."""
        accounts = self.accounts
        for _ in range(self.known_idle_locked() - most):
            guard = accounts.oldest_idle()
            if guard is not None:
                accounts.condemn(guard.record, "surplus")
                work.condemned.append(guard)

    def known_idle_locked(self) -> int:
        """Tell how many are idle over all rows, where they are limited: known, and counted only if it isn't."""
        accounts = self.accounts
        if not accounts.counted:
            accounts.idle = self.count_idle_locked()
            accounts.counted = True
        return accounts.idle

    def count_idle_locked(self) -> int:
        """Count what is idle, over all rows."""
        return sum(len(lane.idle) for lane in self.keys.all_locked())

    def unregister(self, record: Record) -> None:
        """Take the resource of a record out of the register."""
        if self.by_id.get(id(record.resource)) is record:
            self.by_id.pop(id(record.resource), None)  # a fork in between has emptied it

    def drop_resource_locked(self, record: Record, work: Work) -> None:
        """Make up for a destroy that was cut short before it let the resource go."""
        if record.resource is not None:
            self.unregister(record)
            work.rubbish.append(record.resource)
            record.resource = None

    # -- what was granted --------------------------------------------------------------------------------

    def withdraw_locked(self, ticket: Waiter) -> None:
        """Take a ticket out of line whatever it was given meanwhile: that goes on to the next."""
        accounts = self.accounts
        if ticket.record.row.dead:  # pragma: no cover - in a forked child: test_fork_in_handlers
            return
        accounts.leave(ticket)
        if ticket.state is SERVED:
            guard = ticket.grant
            if ticket.batch is not None:
                pass  # below
            elif guard is None:
                accounts.unmade(ticket.record)
            else:
                ticket.grant = None
                self.inbox.append([RETURNED, guard])
        if ticket.batch is not None:  # it may have been given something before it was served
            self.return_batch_locked(ticket.batch)
        self.again = True  # those behind it are looked at again

    def return_batch_locked(self, batch: Batch) -> None:
        """Give back all that has been granted for a batch."""
        while batch.grants:
            self.inbox.append([RETURNED, batch.grants.pop()])
        for record in batch.records:
            if record.phase is CREATING and record.resource is None and not record.row.dead:
                self.accounts.unmade(record)
