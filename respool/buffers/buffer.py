"""`Buffer`: one piece of pooled memory, as its holder sees it.

This module owns the checks of what an allocator returned and the life of the views of
it.  Who holds a buffer is the pool's affair, how memory is had and given back the
allocator's.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from respool.errors import PoolError

if TYPE_CHECKING:
    from typing_extensions import Buffer as SupportsBuffer


class Buffer:
    """A piece of writable memory, made and owned by a `BufferPool`.

    Take one with `BufferPool.lease` or `BufferPool.acquire`; there is no reason to make
    one by hand.  From Python 3.12 on it's an object with the buffer protocol itself, so
    it can go wherever `bytearray` can; on Python 3.11 pass `view`.

    Its memory isn't cleared between two holders.  Whoever gives a buffer back gives up
    every view of it: a view kept longer writes into the next holder's data.  The next one
    may have asked for another size of the same class, so `nbytes` belongs to the holder too.

    Once the pool has freed it, `view`, `address` and the buffer protocol raise
    `ValueError`.  Views taken before are still safe to touch where the allocator's memory
    lives as long as its views do, as that of both allocators of this package does.

    Thread safety: attributes may be read from any thread; the memory is the holder's.
    """

    __module__ = "respool.buffers"

    __slots__ = ("__weakref__", "_address", "_capacity", "_memory", "_nbytes", "_whole")

    def __init__(self, memory: SupportsBuffer, *, nbytes: int, capacity: int, alignment: int) -> None:
        """Check and wrap what an allocator returned.

        Parameters
        ----------
        memory : object with the buffer protocol
            Writable, C-contiguous, at least `capacity` bytes, aligned.
        nbytes : int
            Bytes asked for: the length of `view`, until the pool lends it for another size.
        capacity : int
            Bytes charged to the pool's budget.
        alignment : int
            What the address must be a multiple of, in bytes.

        Raises
        ------
        PoolError
            The memory isn't as promised; the text says in which way.
        """
        self._whole = _checked(memory, capacity)
        self._memory: SupportsBuffer | None = memory
        self._address = _address_of(self._whole)
        self._nbytes = nbytes
        self._capacity = capacity
        if self._address % alignment:
            self._retire()
            raise PoolError(
                f"the allocator returned memory at {self._address:#x}, not {alignment}-byte aligned"
            )

    @property
    def view(self) -> memoryview:
        """A new writable `memoryview` of the first `nbytes` bytes, format ``"B"``.

        Each call makes one, so that releasing it (``with buffer.view as view:``) takes
        nothing from the next holder.

        Raises
        ------
        ValueError
            The buffer has been freed.
        """
        try:
            return self._whole[: self._nbytes]
        except ValueError:
            raise _freed() from None

    @property
    def address(self) -> int:
        """Where the memory begins, as an integer.

        Raises
        ------
        ValueError
            The buffer has been freed.
        """
        if self._memory is None:
            raise _freed()
        return self._address

    @property
    def nbytes(self) -> int:
        """Bytes asked for: the length of `view`."""
        return self._nbytes

    @property
    def capacity(self) -> int:
        """Bytes charged to the pool's budget: `nbytes` rounded up, as `BufferPool` says."""
        return self._capacity

    def __buffer__(self, flags: int, /) -> memoryview:
        """Give the interpreter (3.12 and later) a view for a consumer of the buffer protocol."""
        return self.view

    def __release_buffer__(self, view: memoryview, /) -> None:
        """End a view that `__buffer__` gave."""
        view.release()

    def __repr__(self) -> str:
        if self._memory is None:
            return f"<Buffer of {self._nbytes} bytes, freed>"
        return f"<Buffer of {self._nbytes} bytes at {self._address:#x}>"

    def _retire(self) -> SupportsBuffer:
        """End this buffer's own view and hand out the memory, for its allocator to free.

        Called once, by the pool.  Afterwards nothing in here refers to the memory, so
        that its life is decided by the allocator and by views that users still hold.
        """
        memory = self._memory
        if memory is None:
            raise PoolError(f"{self!r} is to be freed twice; please report this")
        self._memory = None
        self._whole.release()
        return memory


def _freed() -> ValueError:
    return ValueError("the buffer has been freed: it no longer has any memory")


def _checked(memory: SupportsBuffer, capacity: int) -> memoryview:
    """Give a view of all of `memory` as bytes, or say what is wrong with it."""
    what = f"the allocator returned a {type(memory).__name__}"
    try:
        view = memoryview(memory)
    except (TypeError, ValueError, BufferError) as error:
        raise PoolError(f"{what}, whose memory can't be viewed: {error}") from error
    wrong = ""
    if view.readonly:
        wrong = "that is read-only"
    elif not view.c_contiguous:
        wrong = "that is not C-contiguous"
    elif view.nbytes < capacity:
        wrong = f"of {view.nbytes} bytes, asked for {capacity}"
    else:
        try:
            return view.cast("B")
        except (TypeError, ValueError) as error:
            wrong = f"that can't be seen as bytes ({error})"
    # The error's traceback keeps this frame.  A view living on in it would keep the
    # allocator from freeing the memory.
    view.release()
    raise PoolError(f"{what} {wrong}")


def _address_of(view: memoryview) -> int:
    # The ctypes object holds an export of the view.  It's gone with this expression, so
    # that releasing the view later can't fail for it.
    borrowed: Any = ctypes.c_char.from_buffer(view)
    return ctypes.addressof(borrowed)
