"""A thread that waits: how it sleeps, and what can wake it.

Each waiter sleeps on a bell of its own, a `queue.SimpleQueue`: its ``put`` is one C call that is safe in
finalisers and signal handlers.  None on the bell means "look again".  One waiter of a pool is its
*listener*: the notes of lost guards are put on its bell, so that a lease dropped while everybody sleeps
wakes somebody.  A note may not get lost on its way from the bell to the pool, not even if an interrupt
arrives with it.  So it is moved by C code alone, from the bell straight into the pool's inbox.
"""

from __future__ import annotations

import sys
import threading
from _thread import allocate_lock, get_ident
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from respool._free import FREE_THREADED
from respool._rows import Ticket
from respool._slot import CREATING
from respool._work import RETURNED

if TYPE_CHECKING:
    from collections import deque

    from respool._rows import Batch
    from respool._slot import Guard, Record

__all__ = ["BACKSTOP", "FIRST_PAUSE", "Armful", "Closer", "Hand", "Sleeper", "Waiter", "backstop", "longer"]

BACKSTOP: Final = 5.0
"""Seconds after which a sleeper looks for itself.  No wake-up relies on it: it bounds what an unknown defect, or two interrupts within the few
instructions that answer the first, could cost."""

NAP: Final = 0.25
"""Seconds after which a sleeper that can't listen looks for notes itself."""

_LOOKERS: Final = 16


def backstop(sleepers: int) -> float:
    """Give the seconds after which one of so many sleepers looks for itself.

    A look serves everybody who can be served, so it's enough that somebody looks now and then: if each of 10,000 did,
    they'd do little else.  Without the interpreter lock an object whose maker is asleep lives on until that one has looked
    again, and it may be a lease that somebody else has dropped: so the looks aren't for defects only there.
    """
    return (NAP if FREE_THREADED else BACKSTOP) * max(1.0, sleepers / _LOOKERS)


_NOTHING: Final = object()  # is never on a bell

FIRST_PAUSE: Final = 0.0002
"""Seconds between the first and the second time that what is pending is asked while somebody waits for it."""

_LONGEST_PAUSE: Final = 0.02


def longer(pause: float) -> float:
    """Give the pause after one in which nothing became free."""
    return min(2 * pause, _LONGEST_PAUSE)


_HANDLERS_BREAK_GET: Final = sys.version_info < (3, 13)
"""Before Python 3.13, ``SimpleQueue.get(timeout)`` waits for ever if a signal handler runs past its end."""


def _nap() -> Any:  # noqa: ANN401 - a lock has no public type in 3.11
    """Make what the calling thread sleeps on instead of its bell, if it has to."""
    if not (_HANDLERS_BREAK_GET and get_ident() == threading.main_thread().ident):
        return None
    nap = allocate_lock()
    nap.acquire()
    return nap


class Sleeper:
    """Something that can be woken, and can listen for the notes of lost guards.

    Signal handlers run in the main thread.  Where they break the bell (`_HANDLERS_BREAK_GET`), the main thread
    sleeps on a lock instead, its `nap`.  It can't listen then: another sleeper does, or, if there's none, it looks
    for notes itself a few times a second.
    """

    __slots__ = ()

    bell: SimpleQueue[Any]
    nap: Any  # a lock, or None

    def arm(self) -> None:
        """Make sure that the next ring is not an earlier one."""
        if self.nap is not None:
            self.nap.acquire(blocking=False)

    def kick(self) -> None:
        """Make the owner look again.  Under the pool's lock."""
        if self.nap is None:
            self.bell.put(None)
            return
        # A lock that is open already can't be opened, and the owner may be anywhere between waking up and looking.
        # So the old nap is opened once and for all, and the next one takes its place.
        following = allocate_lock()
        following.acquire()
        old = self.nap
        self.nap = following
        self.wake_by(following)
        old.__exit__(None)

    def wake_by(self, nap: Any) -> None:  # noqa: ANN401 - a lock
        """Take note of a new nap."""

    def listen(self, nap: Any, notes: deque[Any], seconds: float) -> None:  # noqa: ANN401 - a lock, or None
        """Sleep until the bell rings, at most for `seconds`; a note that rang it is in `notes` afterwards.

        `nap` is this sleeper's nap, fetched before the caller looked whether there is something to do.
        """
        if nap is not None:
            nap.acquire(timeout=min(seconds, NAP))
            return
        try:
            # One item: None ends the iteration with nothing moved, a note is appended.  No Python code runs
            # in between.
            notes.extend(islice(iter(partial(self.bell.get, timeout=seconds), None), 1))
        except Empty:
            pass

    def hand_over(self, notes: deque[Any]) -> None:
        """Move the notes that were not heard yet to `notes`.

        What else was on the bell was meant to wake the owner, who may be asleep: ring again.
        """
        bell = self.bell
        try:
            # C code all the way, as in `listen`; what rings from now on finds the next listener, or rings for the owner.
            notes.extend(filter(None, islice(iter(bell.get_nowait, _NOTHING), bell.qsize())))
        except Empty:  # the owner has taken it meanwhile
            pass
        finally:
            bell.put(None)


class Waiter(Sleeper, Ticket):
    """A ticket whose owner is a thread."""

    __slots__ = ("asked", "bell", "keeps_place", "nap", "outcome", "pause", "seconds", "slept", "thread")

    def __init__(self, record: Record, thread: int) -> None:
        self.bell = SimpleQueue()
        self.nap = _nap()
        # `__exit__` of a lock is its release, and takes an argument.  A ticket is served, so woken, once.
        Ticket.__init__(self, record, self.bell.put if self.nap is None else self.nap.__exit__)
        self.thread = thread
        self.keeps_place = False  # has been put back in line already by whoever gave back what it was offered
        self.asked = 0  # how often it has asked what is pending before going to sleep
        self.pause = FIRST_PAUSE  # until it asks again, if it's the poller
        self.slept = False  # has waited: its acquire counts as one wait, however often it was offered something invalid
        self.seconds = 0.0  # how long
        self.outcome = "failed"  # for the observer

    def wake_by(self, nap: Any) -> None:  # noqa: ANN401 - as above
        """Have whoever serves it open `nap`."""
        self.wake = nap.__exit__


class Closer(Sleeper):
    """A thread that waits in close() for what is still out."""

    __slots__ = ("bell", "nap")

    def __init__(self) -> None:
        self.bell = SimpleQueue()
        self.nap = _nap()


class Armful:
    """What a `lease_many` holds until it's done, as `Hand` is for one.  What is moved is lost on the way rather than in two places."""

    __slots__ = ("guards", "invalid", "own", "spare", "unseen")

    def __init__(self) -> None:
        self.guards: list[Guard] = []  # of the resources in hand
        self.unseen: list[Guard] = []  # of those that are in hand but not validated yet
        self.invalid: list[Guard] = []  # of those that are to be destroyed
        self.own: list[Guard] = []  # of its own records that have a room to create in; the last one is next
        self.spare: list[Guard] = []  # of its own records that have none

    def open(self, guards: list[Guard]) -> None:
        """Begin to wait in line with records of one's own."""
        self.spare = guards

    def receive(self, batch: Batch) -> None:
        """Take what the ticket was served with."""
        self.unseen, batch.grants = batch.grants, []
        self.own = [guard for guard in self.spare if guard.record.phase is CREATING]
        self.spare = [guard for guard in self.spare if guard.record.phase is not CREATING]

    def keep_own(self) -> None:
        """Take the resource of the next own record, which has been made, in hand."""
        self.guards.append(self.own.pop())

    def pass_invalid(self, condemned: deque[Guard]) -> None:
        """Pass what is to be destroyed on to those who do it."""
        while self.invalid:
            condemned.append(self.invalid.pop())

    def put_back(self, inbox: deque[list[Any]]) -> None:
        """Give back what is in hand and good; it was never in the user's hands."""
        for held in (self.guards, self.unseen):
            while held:
                inbox.append([RETURNED, held.pop()])


class Hand:
    """What an acquire holds until it's done.

    The frames of an acquire refer to guards through their hand only.  So a frame that outlives its call,
    because somebody keeps a traceback, keeps nothing but an empty hand.  Each method body is one straight
    line.
    """

    # Defaults on the class, and no __init__: one is made for each acquire of a validating pool.
    guard: Guard | None = None  # of the resource in hand
    invalid: Guard | None = None  # of one that is to be destroyed
    own: Guard | None = None  # of the acquire's own record: it has a place in line, or a room to create in

    def open(self, guard: Guard, record: Record) -> None:
        """Begin to wait in line with a record of one's own."""
        guard.record = record
        self.own = guard

    def receive(self, ticket: Ticket) -> None:
        """Take the idle resource that the ticket was served with."""
        self.guard = ticket.grant
        ticket.grant = None

    def keep_own(self) -> None:
        """Take the resource of the own record, which has been made, in hand."""
        self.guard = self.own
        self.own = None

    def pass_invalid(self, condemned: deque[Guard]) -> None:
        """Pass what is to be destroyed on to those who do it."""
        if self.invalid is not None:
            condemned.append(self.invalid)
            self.invalid = None

    def note(self, holder: object) -> None:
        """Note on the record who holds the resource."""
        guard = self.guard
        if guard is not None:
            guard.record.holder = holder

    def lease(self, lease: Any) -> Any:  # noqa: ANN401 - a MadeLease, which is not to be imported from here
        """Pass what is in hand on to a new lease."""
        guard: Any = self.guard
        record = guard.record
        lease._record = record
        if FREE_THREADED:
            lease._hold = [guard]
        else:
            lease._guard = guard
        self.guard = None
        record.uses += 1
        return lease

    def bare(self) -> Any:  # noqa: ANN401 - the resource
        """Pass what is in hand on to the fast tier."""
        guard: Any = self.guard
        record = guard.record
        if FREE_THREADED:
            record.held = [guard]
        else:
            record.guard = guard
        self.guard = None
        record.uses += 1
        return record.resource
