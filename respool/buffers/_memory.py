"""What a `BufferPool` is made of below its face: kinds of buffers, and the hooks that make and free them.

This module owns `BufferKind`, which the `respool.ResourcePool` within is keyed by, the checks of
what allocators give, and what becomes of it when there is no memory.  Who gets a buffer, and how
much there may be, is the `ResourcePool`'s affair.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeAlias

from respool.buffers._sizes import aligned, check_size, size_class
from respool.buffers.buffer import Buffer
from respool.errors import PoolError, PoolExhaustedError, safe_repr
from respool.pool import ResourcePool

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool._lifecycle import Core
    from respool._work import Work
    from respool.buffers.host import Allocator
    from respool.limits import PoolLimits
    from respool.observers import PoolObserver

    Pool: TypeAlias = ResourcePool["BufferKind", Buffer]


_LOOK_AGAIN: Final = 0.1
"""Seconds after which whoever waits for a free looks for itself whether there's anything left to wait for."""


class BufferKind:
    """What buffers that can stand in for each other have in common; a `BufferPool`'s leases are keyed by it.

    There is one object for each allocator of a pool and each size class in use, so kinds are equal
    only to themselves.  Immutable.

    Attributes
    ----------
    allocator : Allocator
        Where the memory comes from.
    capacity : int
        Bytes that each such buffer is charged.
    """

    __module__ = "respool.buffers"
    __slots__ = ("capacity", "memory")

    def __init__(self, memory: Memory, capacity: int) -> None:
        self.memory = memory
        self.capacity = capacity

    @property
    def allocator(self) -> Allocator:
        """Where the memory comes from."""
        return self.memory.allocator

    def __repr__(self) -> str:
        return f"<{self.capacity} bytes of {safe_repr(self.allocator)}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a kind of buffers can't be pickled or copied: its allocator belongs to this process")


class Asked(NamedTuple):
    """A size that was asked for, and the kind of buffers that serves it."""

    nbytes: int
    kind: BufferKind


def over_budget(asked: Asked, n: int, budget: int | None) -> PoolExhaustedError | None:
    """Give the error for so many buffers that are more than the whole budget; None where they aren't."""
    charged = asked.kind.capacity
    if budget is None or n * charged <= budget:
        return None
    what, is_more = ("a buffer", "is more") if n == 1 else (f"{n} buffers", "are more")
    slack = (
        "" if charged == asked.nbytes else f" (charged {charged})" if n == 1 else f" (charged {charged} each)"
    )
    return PoolExhaustedError(f"{what} of {asked.nbytes} bytes{slack} {is_more} than max_bytes={budget}")


class Memory:
    """One allocator in one pool: its kinds of buffers.

    Thread-safe: all that changes is a dict, by single operations.
    """

    __slots__ = ("_kinds", "alignment", "allocator", "step", "stock", "valid")

    def __init__(self, allocator: Allocator, stock: Stock) -> None:
        for method in ("allocate", "free"):
            if not callable(getattr(allocator, method, None)):
                raise TypeError(f"{allocator!r} is no Allocator: it has no {method}() method")
        if not hasattr(allocator, "alignment"):
            raise TypeError(f"{allocator!r} is no Allocator: it has no alignment")
        self.alignment = check_size("alignment", allocator.alignment)
        # Sizes are counted, and charged, in these: pinned memory is locked by the page, wherever it begins.
        self.step = check_size("granularity", getattr(allocator, "granularity", self.alignment))
        # Whether a piece is as good as when it was allocated; None where nothing can have happened to it.
        self.valid: Callable[[object], bool] | None = getattr(allocator, "valid", None)
        self.allocator = allocator
        self.stock = stock
        # Never more than there are classes, and those few sizes that only their class would take over the budget.
        self._kinds: dict[int, BufferKind] = {}

    def kind(self, capacity: int) -> BufferKind:
        """Give the one kind of this capacity, a multiple of the alignment."""
        return self._kinds.get(capacity) or self._kinds.setdefault(capacity, BufferKind(self, capacity))

    def usual(self, buffer_size: int, budget: int | None) -> Asked:
        """Give a size that is to have buffers of its own, without slack but the alignment's; it must fit into the budget."""
        nbytes = check_size("buffer_size", buffer_size)
        charged = aligned(nbytes, self.step)
        asked = Asked(nbytes, self.kind(charged))
        refused = over_budget(asked, 1, budget)
        if refused is not None:
            raise refused
        return asked

    def about(self, nbytes: int, usual: BufferKind, budget: int | None) -> Asked:
        """Give a size that shares its buffers with others of its class.

        Usual ones serve as well, where they have no more slack than the class.  And where only the class is
        more than the budget, the size gets buffers of its own.
        """
        least, most = aligned(nbytes, self.step), size_class(nbytes, self.step)
        if least <= usual.capacity <= most:
            return Asked(nbytes, usual)
        if budget is not None and most > budget >= least:
            most = least
        return Asked(nbytes, self.kind(most))


class _Live(weakref.ref["Buffer"]):
    """A living buffer, and the memory that its own is of."""

    __slots__ = ("memory",)

    memory: Memory


class Stock:
    """What all faces of a pool share: the memories, which buffer has which of it, and the way to the pool.

    The pool's hooks refer to this, so it refers to the pool weakly, and to no face: a pool that its own hooks
    referred to would be found dropped only by the collector.
    """

    __slots__ = ("freed", "live", "memories", "pool", "slow")

    def __init__(self, *, slow: bool = False) -> None:
        # Whether freeing may wait for a device, and what is idle may have lost its context.
        self.slow = slow
        # Woken after each free, by those who wait for memory.
        self.freed: deque[threading.Event] = deque()
        # By address, the buffer that has the memory there.  Weak, as a detached buffer dies without any hook;
        # its entry goes with it, before its memory does.
        self.live: dict[int, _Live] = {}
        # By the identity of the allocator, which its memory keeps alive.
        self.memories: dict[int, Memory] = {}
        self.pool: weakref.ref[Pool] | None = None

    def memory(self, allocator: Allocator) -> Memory:
        """Give the one memory of an allocator."""
        known = self.memories.get(id(allocator))
        if known is None and not self.slow and getattr(allocator, "frees_slowly", False):
            raise ValueError(
                f"{allocator!r} may wait for a device when it frees: make the pool with it, and share that with others"
            )
        return known or self.memories.setdefault(id(allocator), Memory(allocator, self))

    def new_pool(
        self, *, limits: PoolLimits, name: str, observer: PoolObserver | None, track_leases: bool
    ) -> Pool:
        """Make the pool of which the faces are."""
        pool: Pool = ResourcePool(
            _create,
            _destroy,
            cost=_cost,
            limits=limits,
            name=name,
            observer=observer,
            at_exit="leak" if self.slow else "destroy",
            destroy_in="background" if self.slow else "caller",
            track_leases=track_leases,
        )
        self.pool = weakref.ref(pool)
        return pool

    def enter(self, buffer: Buffer, memory: Memory) -> None:
        """Refuse memory that another living buffer has: two holders would write to it."""
        address, live = buffer.address, self.live

        def drop(dead: weakref.ref[Buffer]) -> None:
            if live.get(address) is dead:
                del live[address]

        mine = _Live(buffer, drop)
        mine.memory = memory
        found = live.setdefault(address, mine)
        if found is not mine and self.slow:
            # Memory that a context took with it when it ended may come again while its buffer is still about.
            other, valid = found(), found.memory.valid
            if other is None or (valid is not None and not valid(other._memory)):  # noqa: SLF001 - see below
                live[address] = found = mine
        if found is not mine:
            # Not freed: it's the other one's.
            raise PoolError(f"the allocator returned memory that is in use already, by {found()!r}")

    def evict_idle(self) -> int:
        """Free all idle buffers; give how many there were."""
        pool = None if self.pool is None else self.pool()
        if pool is None:
            return 0
        core = pool._core  # noqa: SLF001 - a special pool is made of a core
        count: int = core.work_under_lock(_evict_locked, core)
        return count

    def await_freed(self) -> None:
        """Wait until all has been freed that is being freed, by the background thread."""
        news = threading.Event()
        self.freed.append(news)
        try:
            while (pool := None if self.pool is None else self.pool()) is not None:
                news.clear()
                if not pool.stats().destroying:
                    break
                del pool
                news.wait(_LOOK_AGAIN)
        finally:
            self.freed.remove(news)

    def describe(self) -> str:
        """Tell the budget and what is in existence, for the message of a MemoryError."""
        pool = None if self.pool is None else self.pool()
        budget = None if pool is None else pool.limits.max_cost
        return f"budget max_bytes={budget}, {len(self.live)} in existence"


def _evict_locked(core: Core, work: Work) -> int:
    core.settle_locked(work)
    rows = list(core.keys.all_locked())
    return sum(core._condemn_idle_locked(row, "evicted", work) for row in rows)  # noqa: SLF001 - see evict_idle


def _cost(kind: BufferKind) -> int:
    return kind.capacity


def _create(kind: BufferKind) -> Buffer:
    """Get memory and wrap it, or free what can't be used."""
    memory = kind.memory
    piece = _allocate(kind)
    try:
        buffer = Buffer(piece, nbytes=kind.capacity, capacity=kind.capacity, alignment=memory.alignment)
    except BaseException as error:
        _free_unusable(memory, piece, error)
        raise
    memory.stock.enter(buffer, memory)
    return buffer


def _allocate(kind: BufferKind) -> Any:  # noqa: ANN401 - whatever has the buffer protocol
    allocate, stock = kind.memory.allocator.allocate, kind.memory.stock
    try:
        return allocate(kind.capacity)
    except MemoryError as error:
        failure = error
    try:
        if stock.evict_idle():
            if stock.slow:
                stock.await_freed()
            try:
                return allocate(kind.capacity)
            except MemoryError as error:
                failure = error
        reason = str(failure) or "out of memory"
        # The package's own allocators say just this, so it would be said twice.
        tail = "" if reason.startswith(f"no memory for {kind.capacity} bytes") else f": {reason}"
        raise MemoryError(
            f"can't allocate a buffer of {kind.capacity} bytes ({stock.describe()}){tail}"
        ) from (failure.__cause__ if isinstance(failure.__cause__, PoolError) else failure)  # a CudaError
    finally:
        del failure  # its traceback holds this frame


def _destroy(kind: BufferKind, buffer: Buffer) -> None:
    """Free a buffer's memory through its allocator."""
    memory = kind.memory
    stock = memory.stock
    mine = stock.live.get(buffer.address)
    if mine is not None and mine() is buffer:
        stock.live.pop(buffer.address, None)
    try:
        # The one reference to the memory is handed on and not kept in a local: free may wish to see it go.
        memory.allocator.free(buffer._retire())  # noqa: SLF001 - the pool is the one that may
    finally:
        for waiting in list(stock.freed):
            waiting.set()


def _free_unusable(memory: Memory, piece: object, error: BaseException) -> None:
    try:
        memory.allocator.free(piece)
    except Exception as second:  # noqa: BLE001 - whatever free raises, the first error is the one to tell
        error.add_note(f"and freeing it failed too: {second!r}")
