"""The acting side, part three: numbers, clearing, closing, and what a fork and the interpreter's end do to a pool."""

from __future__ import annotations

from _thread import allocate_lock, get_ident
from collections import OrderedDict, deque
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from respool._defer import ASK
from respool._rows import SHUT
from respool._slot import ASKING, CHECKING, GONE, LIMBO, PENDING, QUARANTINED, READY, RESETTING, silence
from respool._upkeep import Upkeep
from respool._waiter import FIRST_PAUSE, Closer, backstop, longer
from respool._work import LOST, MARK, STALE, Lane, Work, trying
from respool.errors import PoolTimeoutError, safe_repr
from respool.limits import check_timeout
from respool.stats import HOOKS, REASONS, PoolStats

if TYPE_CHECKING:
    from respool._accounting import Accounts
    from respool._slot import Guard

__all__ = ["Core"]

_OUT: Final = frozenset({READY, CHECKING, RESETTING, PENDING, ASKING, QUARANTINED})
"""The phases of what has been handed out, or isn't free yet."""

_NAMED: Final = 5
"""How many keys the error of close() names."""


class Core(Upkeep):
    """A pool without its public face."""

    __slots__ = ()

    # -- numbers ---------------------------------------------------------------------------------------

    def stats(self, lane: Lane | None) -> PoolStats:
        """Count one row, or the whole pool for None."""
        work = Work()
        snapshot: PoolStats = self.under_lock(self._stats_locked, lane, work)
        return snapshot

    def _stats_locked(self, lane: Lane | None, work: Work) -> PoolStats:
        self.settle_locked(work, may_destroy=False)
        now: Accounts | Lane = self.accounts if lane is None else lane
        ledger = self.accounts.total if lane is None else lane.ledger
        acquired, firsts = ledger.retired, ledger.retired_firsts
        for record in list(self.by_id.values()):
            if record.phase not in {LIMBO, GONE} and (lane is None or record.row is lane):
                uses = record.uses
                acquired += uses
                firsts += uses > 0
        idle = len(lane.idle) if lane is not None else self.count_idle_locked()
        pending = self.accounts.pending if lane is None else lane.deferred
        sleeping = self.accounts.sleeping
        waiters = len(sleeping) if lane is None else sum(seq in sleeping for seq in lane.queue)
        return PoolStats(
            idle=idle,
            leased=now.size - idle - pending - now.creating - now.destroying - now.quarantined,
            pending=pending,
            quarantined=now.quarantined,
            creating=now.creating,
            destroying=now.destroying,
            size=now.size,
            cost=now.cost,
            waiters=waiters,
            acquired=acquired,
            created=ledger.created,
            reused=acquired - firsts,
            adopted=ledger.adopted,
            detached=ledger.detached,
            abandoned=ledger.abandoned,
            destroyed=ledger.destroyed,
            destroyed_for=MappingProxyType({name: ledger.destroyed_for.get(name, 0) for name in REASONS}),
            hook_errors=MappingProxyType({name: ledger.hook_errors.get(name, 0) for name in HOOKS}),
            leaked=ledger.leaked,
            timeouts=ledger.timeouts,
            rejected=ledger.rejected,
            cancelled=ledger.cancelled,
            waits=ledger.waits,
            wait_seconds=ledger.wait_seconds,
        )

    def describe(self) -> str:
        """Tell the state in a few words.  Takes no lock, so it may be called anywhere; the numbers may be a moment old."""
        accounts = self.accounts
        idle = sum(len(row.idle) for row in list(self.keys.rows.values()))
        busy = accounts.pending + accounts.creating + accounts.destroying + accounts.quarantined
        leased = max(0, accounts.size - idle - busy)
        state = " closed" if self.closed else ""
        rare = "".join(
            f" {name}={count}"
            for name, count in (
                ("pending", accounts.pending),
                ("destroying", accounts.destroying),
                ("quarantined", accounts.quarantined),
            )
            if count
        )
        return f"{self.name}{state} idle={idle} leased={leased} waiters={len(accounts.sleeping)}{rare} {self.limits}"

    # -- clear and close -------------------------------------------------------------------------------

    def clear(self, lane: Lane | None) -> int:
        """Destroy what is idle now, and what is leased or being created once it's given back."""
        count: int = self.work_under_lock(self._clear_locked, lane)
        return count

    def _clear_locked(self, lane: Lane | None, work: Work) -> int:
        self.settle_locked(work)
        count = 0
        for row in list(self.keys.all_locked()) if lane is None else [lane]:
            row.generation += 1
            count += self._condemn_idle_locked(row, "cleared", work)
        for record in list(self.by_id.values()):
            if (lane is None or record.row is lane) and record.phase in _OUT and record.lane is record.row:
                record.lane = STALE
        return count

    def _condemn_idle_locked(self, row: Lane, reason: str, work: Work) -> int:
        count = 0
        self.accounts.counted = False
        while True:
            try:
                guard = row.idle.popleft()
            except IndexError:
                break
            self.accounts.condemn(guard.record, reason)
            work.condemned.append(guard)
            count += 1
        return count

    def close(self, timeout: object) -> None:
        """Close the pool and wait until all that is out has come back."""
        seconds = check_timeout(timeout)
        deadline = None if seconds is None else monotonic() + seconds
        closer = Closer()
        self.work_under_lock(self._close_locked)
        if self.hooks.inside():
            return  # the hook's own resource can't come back as long as this call lasts
        self.ask_all()
        pause = FIRST_PAUSE
        try:
            while True:
                nap = closer.nap  # before the look: whoever wakes it puts a new one in its place
                if self.work_under_lock(self._await_empty_locked, closer):
                    break
                left = backstop(1) if deadline is None else min(backstop(1), deadline - monotonic())
                if left <= 0:
                    raise self._still_out(seconds)
                if self.destroyer is not None:
                    self.destroyer.revive()
                polls = bool(self.accounts.pending)
                closer.listen(nap, self.gate, min(left, pause) if polls else left)
                if polls:
                    pause = FIRST_PAUSE if self.ask(None, ASK, others=True) else longer(pause)
                if (
                    deadline is not None and monotonic() >= deadline
                ):  # all of them, once more, before it's given up
                    self.ask_all()
            self._log_quarantined()
        finally:
            self.under_lock(self._stop_closer_locked, closer)

    def _close_locked(self, work: Work) -> None:
        # In one straight line: whoever settles next does what a close begins with, should it be cut short here.
        self.closing = self.closing or not self.closed  # one that was cut short is finished by the next
        self.closed = True
        self.shut_locked()
        self.settle_locked(work)

    def fail_all_locked(self, work: Work) -> None:
        """Do what a closed pool owes to those who wait, and to what is idle."""
        for row in list(self.keys.all_locked()):
            self.accounts.fail(row)
            self._condemn_idle_locked(row, "closed", work)

    def _await_empty_locked(self, closer: Closer, work: Work) -> bool:
        self.settle_locked(work)
        if self.accounts.size == self.accounts.quarantined:
            return True
        if closer not in self.closers:
            self.closers.append(closer)
            self.appoint_locked()
        return False

    def _stop_closer_locked(self, closer: Closer) -> None:
        if closer in self.closers:
            self.closers.remove(closer)
        self.appoint_locked()

    def _log_quarantined(self) -> None:
        """Tell what a close leaves behind."""
        count = self.accounts.quarantined
        if count:
            import logging

            logging.getLogger("respool").warning(
                "pool %s: closed, and %d of its resources stay quarantined: they could not be freed",
                self.name,
                count,
            )

    def _still_out(self, seconds: float | None) -> PoolTimeoutError:
        out = [record for record in list(self.by_id.values()) if record.phase is not LIMBO]
        message = f"pool {self.name} is closed, but not everything has come back within {seconds:g} s"
        if out:
            keys = sorted({safe_repr(record.row.key) for record in out})
            message = f"{message}: out are {len(out)}, of key {', '.join(keys[:_NAMED])}{', ...' if len(keys) > _NAMED else ''}"
        error: PoolTimeoutError = self.under_lock(
            self.timeout_error_locked, message, out[0].row.key if out else None
        )
        return error

    # -- the end ---------------------------------------------------------------------------------------

    def drop(self) -> int:
        """Forget everything, the pool having been dropped without close; run no hook; count what there was."""
        self.dropped = True
        self.gate.appendleft(MARK)
        if self.destroyer is not None:
            self.destroyer.stop()
        size = self.accounts.size
        for row in list(self.keys.rows.values()):
            while True:
                try:
                    guard = row.idle.popleft()
                except IndexError:
                    break
                silence(guard)
                self.unregister(guard.record)
                guard.record.resource = None
        return size

    def at_interpreter_exit(self) -> None:
        """Destroy what is idle, once, while modules still live."""
        if self.dropped or self.at_exit != "destroy":
            return
        if self.destroyer is not None:
            for guard in self.destroyer.left():  # the thread, a daemon, will not come to these
                self._destroy_at_exit(guard)
        if self.closed:
            return
        # Nobody holds the lock for long, but a daemon thread that holds it may never run again.
        if not self.lock.acquire(timeout=1.0):
            return
        work = Work()
        try:
            for row in list(self.keys.all_locked()):
                self._condemn_idle_locked(row, "closed", work)
        finally:
            self.lock.release()
        for guard in work.condemned:
            self._destroy_at_exit(guard)

    def _destroy_at_exit(self, guard: Guard) -> None:
        try:
            self._destroy(guard)
        except BaseException:  # noqa: BLE001, S110 - exit goes on, whatever a hook does; it has been counted
            pass

    # -- fork ------------------------------------------------------------------------------------------

    def after_fork_in_child(self) -> None:
        """Start empty: now, or at the end of the locked section that this very thread is in, if its signal handler has forked.

        That section goes on, on this process's copy of the books, which nobody else can see any more.
        """
        if self.owner == get_ident():  # pragma: no cover - in a forked child: test_fork_in_handlers
            self.owner = -self.owner
            return
        self.begin_anew()
        self.lock = allocate_lock()
        self.try_lock = trying(self.lock)
        self.owner = 0

    def begin_anew(self) -> None:
        """Start empty.  What is inherited stays referenced for good, so that neither finalisers nor reused addresses do harm.

        Takes no lock, runs no code of the user and drops no reference.  The state may be that of any moment
        in the middle of another thread's section, so it's replaced, not repaired.
        """
        rows = list(dict.fromkeys([*self.keys.rows.values(), *self.keys.all_locked()]))
        marks = self.hooks.renew()
        kept: list[Any] = [
            list(self.gate),
            list(self.inbox),
            self.leftover,
            self.suspects,
            self.former,
            self.accounts,
            marks,
        ]
        self.bell.__call__ = self.gate.append
        self.gate.clear()
        self.inbox.clear()
        self.leftover = Work()
        self.suspects = []
        self.closers = []
        self.listener = None
        self.former = deque()
        self.poller = None
        self.deferring = OrderedDict()
        self.watched = False
        self.closing = False
        if self.resizing is not None:  # another thread was at it
            self.resizing = None
            self.apply(self.limits)
        if self.destroyer is not None:
            kept.append(self.destroyer.renew())
        self.accounts = self.new_accounts()
        kept += self.keys.renew()
        for row in rows:
            row.dead = True
            row.gate = row.due = SHUT
            kept += [row.idle, row.pending, row.stuck]
            row.idle = deque()
            row.pending = row.stuck = None
            for ticket in row.queue.values():
                ticket.record.phase = LIMBO
                try:
                    # If it's this thread's own, it was in a signal handler: it must not sleep on.
                    ticket.wake(None)
                except RuntimeError:  # it's awake already, and only not out of line yet
                    pass
        for record in self.by_id.values():
            kept.append(record.resource)
            _strand(record)
        for mark in marks.values():
            if mark is not None:
                _strand(mark)
        self.inherited.append(kept)
        self.again = False
        if self.closed:
            self.gate.append(MARK)


def _strand(record: Any) -> None:  # noqa: ANN401 - a Record
    record.phase = LIMBO
    record.lane = LOST
    record.resource = None
