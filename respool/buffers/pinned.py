"""Pinned memory, which a GPU copies from and to by itself: allocated by the driver, or mapped here and registered with it.

This module owns getting such memory and giving it back in the right order.  How much there may be, and who has it, is the
pool's affair; what a context is, and whether it's there yet, `respool.cuda.context`'s.

Freeing either kind waits until every stream of the context stands idle, on a real driver.  So a pool frees it on a thread of
its own.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING, Any, NamedTuple

from respool.buffers.host import PageAlignedAllocator, positive
from respool.cuda._driver import load
from respool.cuda.context import DESTROYED, ODD, current_id, fate, handle_of
from respool.cuda.errors import CudaError
from respool.errors import Quarantine

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.cuda._driver import Driver

__all__ = ["PinnedAllocator", "RegisteredAllocator"]

_OUT_OF_MEMORY = 2


class _Block(NamedTuple):
    """What has been allocated: the object that stands for it, where it is, and whose it is."""

    memory: Any
    address: int
    context_id: int
    context: Any
    """Its handle, which tells something only together with the id; of the bindings' class, which is the fastest way."""


class _Pinned:
    """What both kinds have in common: whose a block is, and how it ends."""

    __slots__ = ("_blocks",)

    #: Freeing it may wait for the device: a pool does it on its background thread.
    frees_slowly: bool = True

    def __init__(self) -> None:
        # By identity.  A block leaves when it has been freed, so that what can't be freed is never unmapped.
        self._blocks: dict[int, _Block] = {}

    def _keep(self, memory: Any, address: int, context_id: int) -> None:  # noqa: ANN401 - whatever allocate returns
        context = load().CUcontext(handle_of(context_id))
        self._blocks[id(memory)] = _Block(memory, address, context_id, context)

    def _block(self, memory: object) -> _Block:
        block = self._blocks.get(id(memory))
        if block is None:
            raise ValueError(f"this memory is not of {self!r}, or has been freed")
        return block

    def valid(self, memory: object, /) -> bool:
        """Tell whether the memory's context is there yet: with it goes what makes it pinned."""
        block = self._blocks.get(id(memory))
        if block is None:
            return False
        try:  # `Driver.is_alive`, written out: each take of a buffer comes by here
            code, number = load().cuCtxGetId(block.context)
        except ODD:
            return False
        return not code and number == block.context_id

    def _end(self, block: _Block, end: Callable[[Driver, _Block], None]) -> None:
        """Give a block back to the driver, unless its context is gone; then nothing may be said of it to the driver.

        Raises
        ------
        Quarantine
            The driver has not taken it, so that the device may yet use it.
        """
        driver = load()
        code = fate(driver, block.context_id)
        if not code:
            try:
                with driver.relaxed():
                    end(driver, block)
            except CudaError as error:
                code = fate(driver, block.context_id)
                if code != DESTROYED:  # else it has gone just now
                    raise Quarantine(f"pinned memory can't be freed: {error}") from error
        elif code != DESTROYED:
            cause = driver.failed(code, "cuCtxGetId", block.context_id)
            raise Quarantine(f"pinned memory can't be freed: {cause}") from cause
        self._blocks.pop(id(block.memory), None)


class PinnedAllocator(_Pinned):
    """Memory that the driver allocates, pinned for all contexts (``cuMemHostAlloc``, ``PORTABLE``).

    It belongs to the context that is current when it's allocated, and **is gone with it**: a view that somebody still holds then
    is a crash of the process to touch.  `RegisteredAllocator`'s isn't, copies as fast and is made as fast, so that is the kind to
    use by default.  It isn't fit for O_DIRECT, as nobody promises that it begins with a page.

    A detached buffer stays pinned until its context or the process ends.

    May be shared by threads and pools.
    """

    __module__ = "respool.buffers"
    __slots__ = ()

    #: What a device's own accesses like; not a page.
    alignment: int = 64
    #: What is really locked, and so charged: whole pages.
    granularity: int = mmap.PAGESIZE

    def allocate(self, nbytes: int, /) -> ctypes.Array[ctypes.c_ubyte]:
        """Allocate whole pages for `nbytes` bytes; not cleared.

        Raises
        ------
        NoContextError
            No context is current.
        MemoryError
            The driver has none; its `CudaError` is the cause.
        CudaError, CudaUnavailableError
            What else the driver says.
        """
        nbytes = -(-positive(nbytes) // self.granularity) * self.granularity
        context_id = current_id()
        driver = load()
        try:
            with driver.relaxed():
                address = driver.host_alloc(nbytes)
        except CudaError as error:
            _raise_if_memory(error, nbytes)
            raise
        memory = (ctypes.c_ubyte * nbytes).from_address(address)
        self._keep(memory, address, context_id)
        return memory

    def free(self, memory: object, /) -> None:
        """Give memory back to the driver, which may wait for the device; nothing is done if its context is gone.

        Raises
        ------
        Quarantine
            The driver doesn't take it.
        """
        self._end(self._block(memory), lambda driver, block: driver.host_free(block.address))

    def __repr__(self) -> str:
        return "PinnedAllocator()"


class RegisteredAllocator(_Pinned):
    """Whole pages mapped from the kernel, touched, and then pinned for all contexts (``cuMemHostRegister``, ``PORTABLE``).

    The kind of pinned memory to use by default: fit for O_DIRECT, and views that somebody still holds are safe to touch whatever
    becomes of the context, though it's no longer pinned then.  A buffer whose views are held when it's freed is unregistered,
    and stays mapped until the last of them is gone.

    A detached buffer stays pinned and mapped until the process ends.

    Parameters
    ----------
    huge_pages, numa_node
        As for `PageAlignedAllocator`.

    Notes
    -----
    May be shared by threads and pools.
    """

    __module__ = "respool.buffers"
    __slots__ = ("_pages",)

    def __init__(self, *, huge_pages: bool = False, numa_node: int | None = None) -> None:
        super().__init__()
        self._pages = PageAlignedAllocator(huge_pages=huge_pages, numa_node=numa_node)

    @property
    def alignment(self) -> int:
        """The size of a page, or of a huge page, in bytes."""
        return self._pages.alignment

    def allocate(self, nbytes: int, /) -> mmap.mmap | memoryview:
        """Map, touch and register whole pages for `nbytes` bytes; they're cleared.

        Raises
        ------
        NoContextError
            No context is current.
        MemoryError
            The kernel, or the driver, has none; the `CudaError` is the cause then.
        CudaError, CudaUnavailableError
            What else the driver says: nothing stays mapped.
        """
        context_id = current_id()
        driver = load()
        memory = self._pages.allocate(nbytes)
        try:
            size = len(memory)
            address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            # First by this thread, which decides on the pages' node: the driver would do it under locks of its own.
            ctypes.memset(address, 0, size)
            self._keep(memory, address, context_id)
            with driver.relaxed():
                driver.host_register(address, size)
        except BaseException as error:
            self._blocks.pop(id(memory), None)
            self._pages.free(memory)
            if isinstance(error, CudaError):
                _raise_if_memory(error, nbytes)
            raise
        return memory

    def free(self, memory: mmap.mmap | memoryview, /) -> None:
        """Unregister, which may wait for the device, and only then unmap; just unmap if the context is gone.

        Raises
        ------
        Quarantine
            The driver doesn't let go of it: it stays mapped.
        """
        self._end(self._block(memory), lambda driver, block: driver.host_unregister(block.address))
        self._pages.free(memory)

    def __repr__(self) -> str:
        return repr(self._pages).replace("PageAligned", "Registered", 1)


def _raise_if_memory(error: CudaError, nbytes: int) -> None:
    if error.code == _OUT_OF_MEMORY:
        raise MemoryError(f"no pinned memory for {nbytes} bytes: {error}") from error
