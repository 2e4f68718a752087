"""The locked part of a pool: what has come in is booked, and who can be served is served.

Decide under the lock, act outside it
-------------------------------------
Every section under the lock fills a `Work` with what has to be done afterwards: resources to destroy, rows
to forget, observers to tell.  No hook, no observer, no key's ``__hash__`` or ``__eq__`` and no last
reference to a resource is ever run or dropped under the lock.

Whoever has news puts it into the inbox (or, for a lost guard, its finaliser does) and calls `pump`, which
*tries* the lock.  If somebody else has it, they look at `again` after letting go.  So a release never waits,
and one that interrupts this very section on its own thread (a signal handler, a finaliser run by the
collector) is done when the section ends.
"""

from __future__ import annotations

import itertools
from _thread import allocate_lock, get_ident
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from itertools import chain
from typing import TYPE_CHECKING, Any

from respool._accounting import Accounts
from respool._free import FREE_THREADED
from respool._keys import KeyTable
from respool._rows import SHUT, WAITING
from respool._slot import Bell, Guard, Record, guard_class
from respool._waiter import FIRST_PAUSE, Closer, Sleeper, Waiter
from respool._work import MARK, Work, trying
from respool.errors import PoolReentrancyError

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    from respool._destroyer import Destroyer
    from respool._hooks import Hooks
    from respool._work import Lane
    from respool.limits import PoolLimits

__all__ = ["Engine"]


class Engine(ABC):
    """The locked part of a pool.

    Lock contract: `lock` guards `accounts`, `closed`, `closing`, `closers`, `deferring`, `former`, `leftover`, `limits`
    (and what follows from them), `listener`, `poller`, `suspects` and the truth in `keys`.  Nothing slow and no
    code of the user runs under it (save what the collector or a signal runs there), and no other lock is taken
    inside.  `owner` is the thread that has it.  All other fields are set once, or are deques and dicts whose
    single operations are atomic.
    """

    __slots__ = (
        "__weakref__",
        "accounts",
        "again",
        "at_exit",
        "bell",
        "by_id",
        "closed",
        "closers",
        "closing",
        "counts_idle",
        "deferring",
        "destroyer",
        "discard_on_error",
        "dropped",
        "former",
        "gate",
        "guards",
        "hooks",
        "inbox",
        "inherited",
        "keys",
        "leftover",
        "limits",
        "listener",
        "lock",
        "name",
        "numbers",
        "owner",
        "poller",
        "resizing",
        "slow_acquire",
        "slow_release",
        "spare",
        "suspects",
        "timed",
        "track",
        "try_lock",
        "watched",
    )

    def __init__(
        self,
        hooks: Hooks,
        inbox: deque[list[Any]],
        *,
        limits: PoolLimits,
        name: str,
        at_exit: str,
        destroyer: Destroyer | None,
        discard_on_error: bool,
        track: bool,
    ) -> None:
        self.hooks = hooks
        self.name = name
        self.at_exit = at_exit
        self.discard_on_error = discard_on_error
        self.track = track
        self.apply(limits)
        # Non-empty: acquires and releases go the slow way.  MARK is in it while the pool is closed or
        # somebody waits for the total;
        # else it holds the notes of lost guards, appended by their finalisers.
        self.gate: deque[Guard | None] = deque()
        self.bell = Bell(self.gate.append)
        self.guards = guard_class(self.bell)
        self.spare: deque[Guard] = deque()  # see `Losses.put_away`
        # [kind, subject] each, in order; the subject is None once it's booked.
        self.inbox = inbox
        self.numbers = itertools.count(1)
        # Every record that has a resource, by the id of the resource, which the record keeps alive.
        self.by_id: dict[int, Record] = {}
        self.keys = KeyTable()
        self.accounts = self.new_accounts()
        self.lock = allocate_lock()
        self.try_lock = trying(self.lock)
        self.owner = 0
        self.again = False
        self.closed = False
        self.closing = False  # closed, but not everybody has been told yet
        self.dropped = False
        # While `limits` are new: the caps of the rows by them, and whether there were limits on time before.
        self.resizing: tuple[dict[Lane, int | None], bool] | None = None
        # Background: the thread that destroys, once there is one; and whether the reaper knows this pool.
        self.destroyer = destroyer
        self.watched = False
        self.closers: list[Closer] = []
        self.listener: Sleeper | None = None
        self.former: deque[Sleeper] = deque()  # listeners before it, whose bells may hold notes yet
        self.poller: Waiter | None = None  # the one of those who sleep that asks what is pending
        # Rows with something to ask, to be asked in turn.
        self.deferring: OrderedDict[Lane, None] = OrderedDict()
        self.leftover = Work()  # of sections that must not run hooks
        self.suspects: list[Guard] = []  # lost in cyclic garbage that isn't cleared yet
        self.inherited: list[Any] = []  # from before a fork: only kept referenced

    def new_accounts(self) -> Accounts:
        """Open new books."""
        limits = self.limits
        return Accounts(limits.max_size, limits.max_cost)

    def apply(self, limits: PoolLimits) -> None:
        """Make `limits` those of the pool, as far as no books are concerned."""
        self.limits = limits
        self.timed = limits.idle_timeout is not None or limits.max_lifetime is not None
        # Whether each acquire, or each release, has something to do that the fast way doesn't.
        self.counts_idle = limits.max_idle is not None
        limited = self.timed or self.counts_idle or FREE_THREADED
        self.slow_acquire = limited or self.hooks.validate is not None or self.track
        self.slow_release = limited or self.hooks.reset is not None

    def calm(self) -> tuple[Sized, Sized]:
        """Give what a row's `gate` and `due` are while nobody waits for it."""
        return SHUT if self.slow_acquire else self.gate, SHUT if self.slow_release else self.gate

    # -- under the lock --------------------------------------------------------------------------------

    def under_lock(self, step: Callable[..., Any], *rest: Any) -> Any:  # noqa: ANN401 - passes on what `step` takes and gives
        """Run `step` under the lock, then look whether somebody came in vain meanwhile."""
        me = get_ident()
        if abs(self.owner) == me:
            raise PoolReentrancyError(
                f"pool {self.name}: called from a finaliser or signal handler that interrupts this pool's own locked section"
            )
        try:
            with self.lock:
                self.owner = me
                try:
                    return step(*rest)
                except BaseException:
                    self.again = True  # whatever was begun is finished below
                    self.accounts.counted = False
                    raise
                finally:
                    if self.owner != me:  # pragma: no cover - in a forked child: test_fork_in_handlers
                        self.begin_anew()
                    self.owner = 0
        finally:
            if self.again:
                self.pump()

    def work_under_lock(self, step: Callable[..., Any], *rest: Any) -> Any:  # noqa: ANN401 - as above
        """Run `step` under the lock, with a `Work` to fill behind its other arguments, and do what it has left."""
        work = Work()
        try:
            return self.under_lock(step, *rest, work)
        finally:
            if work:
                self.act(work)

    def post(self, kind: str, subject: object) -> None:
        """Put an entry into the inbox and see that it's booked, even if an interrupt comes in between."""
        try:
            self.inbox.append([kind, subject])
            self.pump()
        except BaseException:
            self.pump()
            raise

    def pump(self) -> None:
        """Book what is in the inbox and serve who can be served, unless somebody else is at it and will see to it."""
        try:
            self._pump()
        except BaseException:
            self._pump()  # an interrupt between two steps: finish what was begun, then let it out
            raise

    def _pump(self) -> None:
        me = get_ident()
        work = Work()
        try:
            while True:
                self.again = True  # note first, then try: the holder looks after letting go
                # Until `owner` is set no call may come: a signal handler that ran there would wait for its own thread's lock.
                # And a try that succeeds can't be lost to an interrupt: a `for` step is one instruction, unlike a call and
                # a store.
                taken = False
                for taken in self.try_lock:  # noqa: B007 - used below
                    break
                if not taken:
                    break
                self.owner = me
                # No loop in here: from Python 3.12 on a loop's jump back isn't inside the `try` around it, and an
                # interrupt that came with it would leave with the lock taken.
                try:
                    self.again = False
                    self.settle_locked(work)
                except BaseException:  # pragma: no cover - by interrupts only: tests/core/test_interrupts.py
                    self.again = True
                    self.accounts.counted = False
                    raise
                finally:
                    if self.owner != me:  # pragma: no cover - in a forked child: test_fork_in_handlers
                        self.begin_anew()
                    self.owner = 0
                    self.lock.release()
                if not self.again:
                    break
        finally:
            if work:
                self.act(work)  # last: it may take long

    @abstractmethod
    def book_locked(self, entry: list[Any], work: Work) -> None:
        """Book one entry of the inbox."""

    @abstractmethod
    def trim_locked(self, most: int, work: Work) -> None:
        """Condemn idle resources beyond `most`."""

    @abstractmethod
    def begin_anew(self) -> None:
        """Start empty, in a child whose fork came in the middle of this section, which is why `owner` is negative."""

    @abstractmethod
    def finish_resizing_locked(self) -> None:
        """Put the new limits in force."""

    @abstractmethod
    def fail_all_locked(self, work: Work) -> None:
        """Do what a closed pool owes to those who wait, and to what is idle."""

    @abstractmethod
    def settle_lost_locked(self, work: Work) -> None:
        """Give back what the guards that were lost stood for."""

    @abstractmethod
    def act(self, work: Work) -> None:
        """Do what a locked section has left, all of it, whatever single hooks do."""

    def settle_locked(  # noqa: C901, PLR0912 - one list of steps, whose order matters
        self, work: Work, *, may_destroy: bool = True
    ) -> None:
        """Book the news, serve who can be served, and say who goes the slow way from now on."""
        listener = self.listener
        if listener is not None and listener.bell.qsize():
            listener.hand_over(self.gate)  # it may have been interrupted, and be beyond hearing
        if self.former:
            self._relieve_locked()
        if self.suspects or (self.gate and self.has_notes()):
            self.settle_lost_locked(work)
        inbox = self.inbox
        while inbox:
            entry = inbox[0]
            if entry[1] is not None:
                self.book_locked(entry, work)
            inbox.popleft()
        if self.resizing is not None:
            self.finish_resizing_locked()
        if self.closing:
            self.fail_all_locked(work)
            self.closing = False
        if self.accounts.shrunk:
            self.accounts.shed(work.condemned)
        self.accounts.match(work.condemned)
        if self.limits.max_idle is not None:
            self.trim_locked(self.limits.max_idle, work)
        if may_destroy:
            if self.leftover:
                work.take_over(self.leftover)
        else:
            self.leftover.take_over(work)
            if self.leftover and self.listener is not None:
                self.listener.bell.put(None)
        if self.closed and self.accounts.size == self.accounts.quarantined:
            for closer in self.closers:
                closer.kick()
            if self.destroyer is not None:
                self.destroyer.stop()
        if listener is not None or self.accounts.sleeping or self.closers:
            self.appoint_locked()
        if self.accounts.pending or self.poller is not None:
            self.appoint_poller_locked()
        if self.closed or self.dropped or self.accounts.blocked or self.accounts.shrunk or self.leftover:
            self.shut_locked()
        else:
            while MARK in self.gate:
                self.gate.remove(MARK)

    def has_notes(self) -> bool:
        """Tell whether guards have been lost that nobody has looked at yet.  Needs no lock."""
        return len(self.gate) > self.gate.count(MARK)

    def shut_locked(self) -> None:
        """Send all that comes the slow way, until `settle_locked` finds that nobody waits for the total."""
        if MARK not in self.gate:
            self.gate.appendleft(MARK)

    # -- waiting ---------------------------------------------------------------------------------------

    def appoint_locked(self) -> None:
        """See that one of those who sleep hears the notes of lost guards; if nobody sleeps, the gate gets them."""
        now = self.listener
        if isinstance(now, Waiter) and now.state is WAITING and now.seq in self.accounts.sleeping:
            return
        if now is not None and now in self.closers:
            return
        # The one who came last will sleep for longest.
        following: Any = next(reversed(self.accounts.sleeping.values()), None)
        if following is None or following.nap is not None:
            asleep: Any = chain(reversed(self.accounts.sleeping.values()), self.closers)
            following = next((sleeper for sleeper in asleep if sleeper.nap is None), None)
        if following is None and now is None:
            return
        if now is not None:
            self.former.append(now)  # first, or what it has heard would be lost to an interrupt
        self.bell.__call__ = self.gate.append if following is None else following.bell.put
        self.listener = following
        self._relieve_locked()

    def _relieve_locked(self) -> None:
        """Take over the notes of those who listen no more."""
        while self.former:
            self.former[0].hand_over(self.gate)
            self.former.popleft()

    def appoint_poller_locked(self) -> None:
        """See that one of those who sleep asks what is pending, time and again, as long as something is."""
        accounts = self.accounts
        now = self.poller
        if not accounts.pending:
            self.poller = None
        elif now is None or now.state is not WAITING or now.seq not in accounts.sleeping:
            following: Any = next(
                (one for one in accounts.sleeping.values() if isinstance(one, Waiter)), None
            )
            self.poller = following
            if following is not None:
                following.pause = FIRST_PAUSE
                following.kick()
