"""What manages a `BufferPool`, as opposed to using it: its stock, its limits, its end.

The part of `BufferPool` that its users call now and then.  All of it is `respool.ResourcePool`'s
work; here sizes are turned into the keys of the pool within.
"""

from __future__ import annotations

# ruff: noqa: SLF001 - a pool looks into its buffers and leases
import dataclasses
import enum
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from respool._composed import Composed
from respool._keys import ALL, All
from respool.buffers._memory import over_budget
from respool.buffers._sizes import check_size
from respool.buffers.buffer import Buffer
from respool.group import LeaseGroup
from respool.limits import PoolLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.buffers._memory import Asked, BufferKind, Memory, Pool
    from respool.errors import PoolExhaustedError
    from respool.lease import Lease
    from respool.stats import PoolStats

__all__ = ["Managed"]


class _Same(enum.Enum):
    """The one member stands for what there is already."""

    SAME = "as it is"

    def __repr__(self) -> str:
        return self.value


_SAME: Final = _Same.SAME

Same: TypeAlias = Literal[_Same.SAME]

_REMEMBERED: Final = 64
"""For how many sizes a face remembers what it has found."""


class Managed(Composed):
    """The methods of a pool of buffers that look after it; of the whole pool, where there are several faces."""

    __slots__ = ("_memory", "_old", "_recent", "_usual", "_valid")

    _memory: Memory
    _pool: Pool
    # What is asked for without a size, replaced as a whole; and the kinds that this has ever been.
    _usual: Asked
    _old: dict[BufferKind, None]
    # What was found for sizes, with the usual size and the budget that it was found by.
    _recent: dict[int, tuple[Asked, int | None, Asked]]
    # Tells whether a piece of memory is as good as when it was allocated; None where nothing can have happened to it.
    _valid: Callable[[object], bool] | None

    def _begin(self, pool: Pool, memory: Memory, usual: Asked) -> None:
        """Set up a face."""
        self._pool = pool
        self._memory = memory
        self._valid = memory.valid
        self._usual = usual
        self._old = {}
        self._recent = {}

    def _asked(self, nbytes: int | None) -> Asked:
        """Find the buffers that serve a size."""
        usual = self._usual
        if nbytes is None:
            return usual
        budget = self._pool.limits.max_cost
        found = self._recent.get(nbytes) if type(nbytes) is int else None  # True is found where 1 is
        if found is not None and found[0] is usual and found[1] == budget:
            return found[2]
        size = check_size("nbytes", nbytes)
        asked = usual if size == usual.nbytes else self._memory.about(size, usual.kind, budget)
        if len(self._recent) >= _REMEMBERED:
            self._recent.clear()
        self._recent[size] = usual, budget, asked
        return asked

    def _told(self, error: PoolExhaustedError, asked: Asked, n: int = 1) -> PoolExhaustedError:
        """Say it in bytes where it's the budget that is too small; what the pool within says is of keys and costs.

        Its refusal comes first, as it counts it.
        """
        return over_budget(asked, n, self._pool.limits.max_cost) or error

    # -- sizes -----------------------------------------------------------------------------------------

    @property
    def buffer_size(self) -> int:
        """Bytes in a buffer that is asked for without a size."""
        return self._usual.nbytes

    def set_buffer_size(self, nbytes: int) -> int:
        """Change how many bytes a buffer has that is asked for without a size.

        Those of the old size aren't handed out any more: idle ones are freed now, leased ones when they're
        given back.  Where old and new size take the same memory, as with 4,000 and 4,096 bytes in whole
        pages, there are no old ones.  Whoever waits already gets the size that was in force when it asked.

        Parameters
        ----------
        nbytes : int
            The new size, ≥ 1.

        Returns
        -------
        int
            How many idle buffers were freed.

        Raises
        ------
        PoolExhaustedError
            Such a buffer is more than `max_bytes`: it could never be had.  The old size stays.
        TypeError, ValueError
            It's no size.
        """
        usual = self._memory.usual(nbytes, self.limits.max_cost)
        self._old[usual.kind] = (
            None  # noted first: of two threads that are here at once, the last one clears both
        )
        self._old[self._usual.kind] = None
        self._usual = usual
        return sum(self._retire(kind) for kind in list(self._old))

    def _retire(self, kind: BufferKind) -> int:
        """Let no buffer of a kind stay that was the usual one, unless it is."""
        if kind is self._usual.kind:
            return 0
        self._old.pop(kind, None)
        return self._pool.clear(kind)

    def _catch_up(self, asked: Asked, buffer: Buffer | None = None) -> None:
        """See that what was lent by the usual size of a moment ago isn't kept when it comes back.

        A bare buffer is handed in: if this is interrupted, nobody else would give it back.
        """
        try:
            self._retire(asked.kind)
        except BaseException:
            if buffer is not None:
                self._pool.release(buffer)
            raise

    # -- memory that may have been lost ----------------------------------------------------------------

    def _checked(
        self,
        take: Callable[..., Any],
        *arguments: object,
        timeout: float | None = None,
        waits: bool = True,
    ) -> Any:  # noqa: ANN401 - what `take` gives
        """Take until what is taken is good; what isn't is thrown away.

        Not by a validate hook of the pool, which would send each acquire and release the slow way.
        """
        began = monotonic() if timeout and waits else 0.0
        left = timeout
        while True:
            taken = take(*arguments, left) if waits else take(*arguments)
            if taken is None or self._is_good(taken):
                return taken
            if timeout and waits:
                left = max(0.0, began + timeout - monotonic())

    def _is_good(self, taken: Buffer | Lease[Any, Buffer] | LeaseGroup[Any, Buffer]) -> bool:
        """Look at a buffer, or at all of a group, and throw it away if it isn't good.

        If this is interrupted, nobody else would give a bare buffer back.
        """
        bare = taken if isinstance(taken, Buffer) else None
        valid = self._valid
        try:
            if valid is None:
                return True
            if bare is not None:
                if valid(bare._memory):
                    return True
            elif isinstance(taken, LeaseGroup):
                if all(valid(buffer._memory) for buffer in taken.resources):
                    return True
            elif valid(taken._record.resource._memory):  # type: ignore[union-attr]  # it's a Lease
                return True
        except BaseException:
            if bare is not None:
                self._pool.release(bare)
            raise
        if bare is not None:
            self._pool.discard(bare)
        else:
            taken.discard()  # type: ignore[union-attr]  # as above
        return False

    # -- the stock -------------------------------------------------------------------------------------

    def prefill(self, n: int, nbytes: int | None = None) -> int:
        """Create up to `n` more idle buffers now, as far as limits allow, and as long as nobody waits for the room.

        Parameters
        ----------
        n : int
            How many at most.
        nbytes : int, optional
            Bytes in each; `buffer_size` by default.

        Returns
        -------
        int
            How many were created.

        Raises
        ------
        MemoryError
            The allocator has no memory; those created before stay.
        PoolClosedError
            The pool is closed.
        """
        return self._pool.prefill(n, self._asked(nbytes).kind)

    def clear(self, nbytes: int | All | None = ALL) -> int:
        """Free idle buffers now and leased ones when they come back.

        Parameters
        ----------
        nbytes : int, optional
            Those that serve this size (None: `buffer_size`) from this face's allocator.  By default all there
            are, those of other faces of the pool included.

        Returns
        -------
        int
            How many were idle.
        """
        return self._pool.clear(ALL if isinstance(nbytes, All) else self._asked(nbytes).kind)

    def forget(self, nbytes: int | None = None) -> int:
        """Abandon all buffers of a size without freeing them: their memory is gone already, or not to be touched.

        What is idle, pending or quarantined goes at once, what is leased when it's given back.  The allocator's
        ``free`` isn't called, so that the memory lives and dies with the references to it.

        Parameters
        ----------
        nbytes : int, optional
            Those that serve this size, from this face's allocator; `buffer_size` by default.

        Returns
        -------
        int
            How many went at once.
        """
        return self._pool.forget(self._asked(nbytes).kind)

    def resize(self, limits: PoolLimits, *, max_bytes: int | Same | None = _SAME) -> None:
        """Put other limits in force, for all faces of the pool; as `ResourcePool.resize`.

        Parameters
        ----------
        limits : PoolLimits
            The new limits, all of them but the budget: ``max_cost`` is left out, or what the budget is going to be.
        max_bytes : int, optional
            The new budget; None for no bound.  Left out, it stays as it is.

        Raises
        ------
        PoolExhaustedError
            A buffer of `buffer_size` would be more than the budget.  The old limits stay in force.
        TypeError, ValueError
            ``limits.max_cost`` is another budget, or something isn't a limit at all.
        PoolClosedError
            The pool is closed.
        """
        if not isinstance(limits, PoolLimits):
            self._pool.resize(limits)  # which says what is wrong with it
        if isinstance(max_bytes, _Same):
            max_bytes = self.limits.max_cost
        budget = None if max_bytes is None else check_size("max_bytes", max_bytes)
        if limits.max_cost not in {None, budget}:
            raise ValueError(f"limits.max_cost={limits.max_cost} can't be given: say max_bytes")
        self._memory.usual(self.buffer_size, budget)
        self._pool.resize(dataclasses.replace(limits, max_cost=budget))

    # -- what there is ---------------------------------------------------------------------------------

    def stats(self, nbytes: int | All | None = ALL) -> PoolStats:
        """Return a snapshot of the counts; ``cost`` is in bytes.

        Parameters
        ----------
        nbytes : int, optional
            Of the buffers that serve this size (None: `buffer_size`), from this face's allocator.  By default
            of all there are, those of other faces of the pool included.
        """
        return self._pool.stats(ALL if isinstance(nbytes, All) else self._asked(nbytes).kind)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a BufferPool can't be pickled or copied: its buffers belong to this process")
