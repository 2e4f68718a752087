"""Where buffers' memory comes from: the `Allocator` contract and two allocators of host memory.

This module owns getting and giving back plain memory.  How much there may be, and who has
it, is the pool's affair.  Nothing here knows of any driver.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import operator
import struct
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from respool._free import FREE_THREADED
from respool.buffers._numa import prefer_node

_PAGE = mmap.PAGESIZE
_HUGE_PAGE_SIZE_FILE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
_HUGE_PAGE_USUALLY = 2 << 20
#: Private: a child after fork gets a copy.  Python's own default for an anonymous mapping
#: is a shared one, which parent and child would both write to.
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


@runtime_checkable
class Allocator(Protocol):
    """What a `BufferPool` asks of whoever provides its memory; any object with these three will do.

    Both methods are called with no lock of the pool held, from whatever thread misses or
    frees, so several calls may run at once.

    Three more are looked for and may be left out: ``frees_slowly = True``, where `free` may wait for a
    device (all that its pool frees is freed on a background thread then), ``granularity``, what memory is really
    charged in where that isn't `alignment`, and, together with the first, ``valid(memory)``, which tells whether idle
    memory is as good as when it was allocated.
    """

    @property
    def alignment(self) -> int:
        """What each address is a multiple of, in bytes, ≥ 1; read once, when a pool is made.

        A pool asks for, and charges, multiples of it.
        """
        ...

    def allocate(self, nbytes: int, /) -> Any:  # noqa: ANN401 - any object with the buffer protocol
        """Return a writable, C-contiguous object with the buffer protocol, of at least `nbytes` bytes.

        Raises
        ------
        MemoryError
            There is none; the pool adds its budget to the text.  Other exceptions reach
            whoever asked for a buffer unchanged.
        """

    def free(self, memory: Any, /) -> object:  # noqa: ANN401 - what allocate returned
        """Give back the very object that `allocate` returned.

        Users may still hold views of it.  Where these keep the memory alive, as
        `mmap.mmap` and `bytearray` have it, leave it to them.
        """


# Not in the class body, where it would be one more thing to have for whoever fits the protocol.
Allocator.__module__ = "respool.buffers"


class HostAllocator:
    """Ordinary memory from the interpreter's heap, cleared, of no useful alignment.

    For small buffers, or where page alignment is of no use.  The memory lives as long as
    any view of it.  May be shared by threads and pools.
    """

    __module__ = "respool.buffers"

    #: What the interpreter's allocator promises: two pointers' size, or one where there's no interpreter lock.
    alignment: int = (1 if FREE_THREADED else 2) * struct.calcsize("P")

    def allocate(self, nbytes: int, /) -> bytearray:
        """Return a new, cleared `bytearray` of `nbytes` bytes; `MemoryError` if there's no room."""
        nbytes = positive(nbytes)
        try:
            return bytearray(nbytes)
        except (MemoryError, OverflowError) as error:  # the former without a text
            raise MemoryError(f"no memory for {nbytes} bytes") from error

    def free(self, memory: bytearray, /) -> None:
        """Leave the memory to its last reference: the pool's goes now, a user's view may be another."""

    def __repr__(self) -> str:
        return "HostAllocator()"


class PageAlignedAllocator:
    """Whole pages mapped from the kernel: cleared, touched on first use, given back at once when freed.

    Fit for O_DIRECT and for registering with a device.  A buffer whose views are still
    held when it's freed stays mapped until the last of them is gone.

    Parameters
    ----------
    huge_pages : bool
        Align to, and charge, huge pages (2 MiB on most machines), and advise the kernel to
        use them (``MADV_HUGEPAGE``).  It's advice: where the kernel has none to give, the
        buffer is made of ordinary pages.
    numa_node : int, optional
        Take pages from this NUMA node while it has free ones (``mbind``, ``MPOL_PREFERRED``).

    Raises
    ------
    OSError
        The kernel refuses `numa_node`: no such node (EINVAL), forbidden here (EPERM), or not
        supported on this machine (ENOSYS).  Found out here, not at the first buffer.

    Notes
    -----
    May be shared by threads and pools.
    """

    __module__ = "respool.buffers"

    def __init__(self, *, huge_pages: bool = False, numa_node: int | None = None) -> None:
        if numa_node is not None:
            if isinstance(numa_node, bool):
                raise TypeError(f"numa_node must be an int or None, not {numa_node!r}")
            numa_node = operator.index(numa_node)
            if numa_node < 0:
                raise ValueError(f"numa_node must be 0 or more, not {numa_node}")
        self._huge_pages = bool(huge_pages)
        self._numa_node = numa_node
        self._alignment = _huge_page_size() if huge_pages else _PAGE
        if numa_node is not None:
            self.free(self.allocate(_PAGE))

    @property
    def alignment(self) -> int:
        """The size of a page, or of a huge page, in bytes."""
        return self._alignment

    def allocate(self, nbytes: int, /) -> mmap.mmap | memoryview:
        """Map at least `nbytes` bytes of cleared memory.

        Returns
        -------
        mmap.mmap or memoryview
            With huge pages an aligned part of a mapping made larger by one huge page less
            an ordinary one: room in the address space, but no memory, as nobody touches it.

        Raises
        ------
        MemoryError
            The kernel has none, or a limit of the process (RLIMIT_AS) is met.
        OSError
            Another refusal, with its errno.
        """
        nbytes = -(-positive(nbytes) // self._alignment) * self._alignment
        spare = self._alignment - _PAGE
        try:
            mapping = mmap.mmap(-1, nbytes + spare, flags=_FLAGS)
        except OverflowError as error:
            raise MemoryError(f"no memory for {nbytes} bytes") from error
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            raise MemoryError(f"no memory for {nbytes} bytes: {error.strerror}") from error
        start = _address(mapping)
        offset = -start % self._alignment
        if self._numa_node is not None:
            try:
                prefer_node(start, nbytes + spare, self._numa_node)
            except BaseException:
                mapping.close()
                raise
        if not self._huge_pages:
            return mapping
        _advise_huge_pages(mapping, offset, nbytes)
        return memoryview(mapping)[offset : offset + nbytes]

    def free(self, memory: mmap.mmap | memoryview, /) -> None:
        """Unmap, now or, if anybody still holds a view, when the last one is gone."""
        try:
            if isinstance(memory, memoryview):
                mapping = cast("mmap.mmap", memory.obj)
                memory.release()
                mapping.close()
            else:
                memory.close()
        except BufferError:
            # Somebody's view points into it.  The view refers to the mapping, which the
            # interpreter unmaps with the last reference: until then nothing dangles.
            pass

    def __repr__(self) -> str:
        return f"PageAlignedAllocator(huge_pages={self._huge_pages}, numa_node={self._numa_node})"


def positive(nbytes: int) -> int:
    """Check a number of bytes."""
    nbytes = operator.index(nbytes)
    if nbytes < 1:
        raise ValueError(f"nbytes must be 1 or more, not {nbytes}")
    return nbytes


def _address(mapping: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


def _huge_page_size() -> int:
    """Give the size in bytes of what the kernel calls a transparent huge page."""
    try:
        return int(_HUGE_PAGE_SIZE_FILE.read_text("ascii"))
    except (OSError, ValueError):
        return _HUGE_PAGE_USUALLY


def _advise_huge_pages(mapping: mmap.mmap, offset: int, nbytes: int) -> None:
    try:
        mapping.madvise(mmap.MADV_HUGEPAGE, offset, nbytes)
    except OSError as error:
        # A kernel built without them.  It was advice, so ordinary pages will do.
        if error.errno != errno.EINVAL:
            mapping.close()
            raise
