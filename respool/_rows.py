"""The nouns of the books: a key's row, a ticket in its queue, the order of use, and what has been counted.

Pure data, kept right by `respool._accounting`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from respool._slot import CREATING

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    from respool._slot import Guard, Record

__all__ = [
    "CLOSED",
    "IMPOSSIBLE",
    "LEFT",
    "SERVED",
    "SHUT",
    "WAITING",
    "Batch",
    "Ledger",
    "Row",
    "Ticket",
    "Use",
]

# What has become of a ticket.
WAITING: Final = "waiting"
SERVED: Final = (
    "served"  # with the idle resource in `grant`, or, where that is None, with a room to create in
)
LEFT: Final = "left"
CLOSED: Final = "closed"
IMPOSSIBLE: Final = "impossible"  # the limits have shrunk: it could never be served

# Where a row is in the order of service.
OUT: Final = "nobody waits"
IN_LINE: Final = "in the heap of rows that may be served"
PARKED: Final = "at its own cap: skipped until one of its own rooms or resources comes back"

SHUT: Final = (None,)
"""A `Row.gate` or `Row.due` that never opens."""


class Use:
    """The order in which resources were last given back, over all rows.

    Resources on one row's idle stack are in order anyway, so the count only moves when another row than the
    last one takes a resource back.  That row is noted in `news`, from which whoever wants to know the order learns which
    rows have something: after that it sets `last` to None, so that the next one to take something back is news again.
    """

    __slots__ = ("last", "news", "tick")

    def __init__(self) -> None:
        self.last: object = None
        self.tick = 0
        self.news: dict[Row, None] = {}


class Ledger:
    """What has happened so far, for the pool or for one row.  Guarded by the lock."""

    __slots__ = (
        "abandoned",
        "adopted",
        "cancelled",
        "created",
        "destroyed",
        "destroyed_for",
        "detached",
        "hook_errors",
        "leaked",
        "rejected",
        "retired",
        "retired_firsts",
        "timeouts",
        "wait_seconds",
        "waits",
    )

    def __init__(self, reasons: tuple[str, ...] = (), hooks: tuple[str, ...] = ()) -> None:
        self.created = self.adopted = 0
        self.destroyed = self.detached = self.abandoned = self.leaked = 0
        self.timeouts = self.rejected = self.cancelled = self.waits = 0
        self.wait_seconds = 0.0
        # Of resources that are out of the books: how often they were handed out, and how many were at all.
        self.retired = self.retired_firsts = 0
        self.destroyed_for = dict.fromkeys(reasons, 0)
        self.hook_errors = dict.fromkeys(hooks, 0)


class Row:
    """What belongs to one key: its idle resources, its rooms and those who wait for it."""

    __slots__ = (
        "calm_due",
        "calm_gate",
        "cap",
        "cost",
        "creating",
        "dead",
        "deferred",
        "destroying",
        "due",
        "gate",
        "idle",
        "ledger",
        "listed",
        "no",
        "pending",
        "quarantined",
        "queue",
        "size",
        "stuck",
        "use",
        "where",
    )

    def __init__(self, no: int, cap: int | None, use: Use, gate: Sized, due: Sized) -> None:
        self.no = no  # distinct; breaks ties in heaps
        self.cap = cap
        self.use = use
        # Guards of idle resources, the one given back last on the right.  Pushed and popped without the lock
        # as long as `due` and `gate` are empty.
        self.idle: deque[Guard] = deque()
        # A hit looks at `gate`, a release at `due`: whatever makes them non-empty sends the call the slow
        # way.
        # Read without the lock, written under it.
        self.calm_gate = self.gate = gate
        self.calm_due = self.due = due
        # All that follows is guarded by the lock.
        self.size = self.cost = 0
        self.creating = self.destroying = self.quarantined = self.deferred = 0
        # Guards of what is pending, to be asked in this order, but for those that are being asked; and of what is
        # quarantined because asking failed.  None until there's a first one: most rows never have any.
        self.pending: deque[Guard] | None = None
        self.stuck: deque[Guard] | None = None
        self.queue: OrderedDict[int, Ticket] = OrderedDict()  # by sequence number, oldest first
        self.where = OUT
        self.listed = False  # in `Accounts._lru`, or put aside from there
        self.dead = False  # dropped from the pool's keys; never used again
        self.ledger = Ledger()


class Ticket:
    """One acquire that found nothing on the fast way: its place in the queue and what it was given.

    Its record is the one that the resource gets if it has to be created.
    """

    __slots__ = ("batch", "count", "evicts", "grant", "record", "seq", "state", "wake")

    def __init__(self, record: Record, wake: Callable[[None], object]) -> None:
        self.seq = 0  # its place: given when it first enters, and kept until the acquire ends
        self.record = record
        self.wake = (
            wake  # called once when it's served: a C function that neither blocks nor runs Python code
        )
        self.state = WAITING
        self.grant: Guard | None = None
        self.batch: Batch | None = None  # if it wants several at once
        self.count = 1  # how many it wants
        self.evicts = True  # whether others' idle resources may be destroyed to make room for it


class Batch:
    """Several resources that are wanted at once, all or none: what has been granted, and records for what has to be created."""

    __slots__ = ("count", "grants", "records")

    def __init__(self, records: list[Record]) -> None:
        self.count = len(records)
        self.records = records
        self.grants: list[Guard] = []

    def missing(self) -> int:
        """Tell how many have neither a resource nor a room yet."""
        return self.count - len(self.grants) - sum(record.phase is CREATING for record in self.records)
