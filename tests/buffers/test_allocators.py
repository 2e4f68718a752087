"""The allocators themselves, with no pool around them."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from respool.buffers import Allocator, HostAllocator, PageAlignedAllocator, _numa, host

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""


def address_of(memory: bytearray | mmap.mmap | memoryview) -> int:
    """Give the address of the first byte."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def mappings() -> list[tuple[int, int]]:
    """Give the process's mappings, as the kernel lists them."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [tuple(int(end, 16) for end in line.split()[0].split("-")) for line in lines]  # type: ignore[misc]


def mapped(address: int) -> bool:
    """Tell whether the process has anything mapped there."""
    return any(start <= address < stop for start, stop in mappings())


@pytest.mark.parametrize(
    "allocator", [HostAllocator(), PageAlignedAllocator(), PageAlignedAllocator(huge_pages=True)], ids=repr
)
class TestBoth:
    """What every allocator promises."""

    def test_fits_the_protocol(self, allocator: Allocator) -> None:
        """An allocator of the package is an Allocator, also at run time."""
        assert isinstance(allocator, Allocator)

    @PATIENT
    @given(nbytes=st.integers(1, 3 << 20))
    def test_memory(self, allocator: Allocator, nbytes: int) -> None:
        """Memory is writable, contiguous, cleared, large enough, and aligned as promised."""
        memory = allocator.allocate(nbytes)
        with memoryview(memory) as view:
            assert not view.readonly
            assert view.c_contiguous
            assert view.nbytes >= nbytes
            assert view[0] == view[-1] == view[nbytes - 1] == 0
            view[0] = view[nbytes - 1] = 0xA5
            assert view[0] == view[nbytes - 1] == 0xA5
        assert address_of(memory) % allocator.alignment == 0
        allocator.free(memory)

    @pytest.mark.parametrize("nbytes", [0, -1])
    def test_nothing_is_no_size(self, allocator: Allocator, nbytes: int) -> None:
        """A size below 1 is a ValueError with the size in its text."""
        with pytest.raises(ValueError, match=str(nbytes)):
            allocator.allocate(nbytes)

    @pytest.mark.parametrize("nbytes", [1 << 62, 1 << 70])
    def test_too_much_is_a_memory_error(self, allocator: Allocator, nbytes: int) -> None:
        """More than an address space holds is MemoryError, not OverflowError or OSError."""
        with pytest.raises(MemoryError):
            allocator.allocate(nbytes)

    def test_views_outlive_free(self, allocator: Allocator) -> None:
        """A view still held keeps its memory, and stays writable."""
        memory = allocator.allocate(1 << 20)
        view = memoryview(memory)
        view[:3] = b"abc"
        allocator.free(memory)
        del memory
        assert bytes(view[:3]) == b"abc"
        view[-1] = 7
        assert view[-1] == 7


class TestPages:
    """What only PageAlignedAllocator does."""

    def test_free_unmaps(self) -> None:
        """Freed memory without views is unmapped at once."""
        allocator = PageAlignedAllocator()
        memory = allocator.allocate(64 << 20)
        address = address_of(memory)
        assert mapped(address)
        allocator.free(memory)
        assert not mapped(address)

    @pytest.mark.parametrize("huge_pages", [False, True])
    def test_last_view_unmaps(self, *, huge_pages: bool) -> None:
        """A mapping that lives on with a view goes with the last one."""
        allocator = PageAlignedAllocator(huge_pages=huge_pages)
        memory = allocator.allocate(64 << 20)
        address = address_of(memory)
        view = memoryview(memory)[5:10]
        allocator.free(memory)
        del memory
        assert mapped(address)
        view.release()
        del view
        assert not mapped(address)

    def test_whole_pages(self) -> None:
        """Sizes are rounded up to whole pages."""
        with PageAlignedAllocator().allocate(1) as memory:
            assert len(memory) == mmap.PAGESIZE

    def test_private_after_fork(self) -> None:
        """A child's writes don't reach the parent: Python's own anonymous mappings are shared."""
        code = """
import os
from respool.buffers import PageAlignedAllocator
memory = PageAlignedAllocator().allocate(4096)
memory[:6] = b"parent"
child = os.fork()
if not child:
    memory[:6] = b"child!"
    os._exit(0)
os.waitpid(child, 0)
print(memory[:6].decode())
"""
        assert python(code) == "parent"

    def test_limit_of_the_process(self) -> None:
        """RLIMIT_AS met: MemoryError, and memory can be had again when the limit allows."""
        code = """
import resource
from respool.buffers import PageAlignedAllocator
allocator = PageAlignedAllocator()
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, resource.RLIM_INFINITY))
try:
    allocator.allocate(2 << 30)
except MemoryError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
memory = allocator.allocate(2 << 30)
memory[-1] = 1
allocator.free(memory)
"""
        assert python(code) == f"no memory for {2 << 30} bytes: {os.strerror(errno.ENOMEM)}"

    def test_huge_pages_are_advised(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """huge_pages=True aligns to a huge page, and the kernel notes the advice."""
        allocator = PageAlignedAllocator(huge_pages=True)
        memory = allocator.allocate(1)
        address = address_of(memory)
        assert address % allocator.alignment == 0
        assert len(memory) == allocator.alignment > mmap.PAGESIZE
        flags = mapping_field(address, "VmFlags").split()
        assert "hg" in flags

    def test_no_huge_pages_in_the_kernel(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A kernel without huge pages refuses the advice: ordinary pages do."""
        monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 12345)  # unknown to any kernel: EINVAL
        allocator = PageAlignedAllocator(huge_pages=True)
        memory = allocator.allocate(1)
        assert address_of(memory) % allocator.alignment == 0
        allocator.free(memory)

    def test_unknown_huge_page_size(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Where the kernel doesn't tell the size of a huge page, the usual one is taken."""
        monkeypatch.setattr(host, "_HUGE_PAGE_SIZE_FILE", tmp_path / "none")
        assert PageAlignedAllocator(huge_pages=True).alignment == 2 << 20

    def test_repr(self) -> None:
        """The repr tells how it was made."""
        assert repr(PageAlignedAllocator()) == "PageAlignedAllocator(huge_pages=False, numa_node=None)"


class TestNuma:
    """Placing memory on a node."""

    def test_node_0(self) -> None:
        """The kernel notes the preference, or the refusal comes from the constructor with its errno."""
        try:
            allocator = PageAlignedAllocator(numa_node=0)
        except OSError as error:
            # A kernel without NUMA, or a container that forbids the call.
            if error.errno not in (errno.ENOSYS, errno.EPERM) or "numa_node=0" not in str(error):
                raise
            return
        memory = allocator.allocate(1)
        memory[0] = 1
        line = next(
            line
            for line in Path("/proc/self/numa_maps").read_text().splitlines()
            if int(line.split()[0], 16) == address_of(memory)
        )
        assert line.split()[1].startswith("prefer")

    def test_no_such_node(self) -> None:
        """A node that doesn't exist is an OSError from the constructor that names it."""
        with pytest.raises(OSError, match="numa_node=1000"):
            PageAlignedAllocator(numa_node=1000)

    def test_refusal_gives_the_mapping_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """When the kernel refuses, nothing stays mapped."""
        seen: list[int] = []

        def refuse(address: int, nbytes: int, node: int) -> None:
            seen.append(address)
            assert mapped(address)
            raise OSError(errno.EPERM, "numa_node=3: no")

        monkeypatch.setattr(host, "prefer_node", refuse)
        with pytest.raises(PermissionError, match="numa_node=3"):
            PageAlignedAllocator(numa_node=3)
        assert len(seen) == 1
        assert not mapped(seen[0])

    def test_unknown_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """On a machine whose call number isn't known, the error says so."""
        monkeypatch.setattr(_numa.platform, "machine", lambda: "pdp11")
        with pytest.raises(OSError, match="pdp11") as caught:
            PageAlignedAllocator(numa_node=0)
        assert caught.value.errno == errno.ENOSYS

    @pytest.mark.parametrize("node", [True, 1.5, "0"])
    def test_no_number(self, node: object) -> None:
        """A node that is no int is a TypeError."""
        with pytest.raises(TypeError):
            PageAlignedAllocator(numa_node=node)  # type: ignore[arg-type]

    def test_negative(self) -> None:
        """A negative node is a ValueError with it in the text."""
        with pytest.raises(ValueError, match="-1"):
            PageAlignedAllocator(numa_node=-1)


def mapping_field(address: int, field: str) -> str:
    """Read a field of the mapping at an address from /proc/self/smaps."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split()[0]
        if "-" in head and not head.endswith(":"):
            start, stop = (int(end, 16) for end in head.split("-"))
            inside = start <= address < stop
        elif inside and head == f"{field}:":
            return line.partition(":")[2]
    raise AssertionError(field)


def python(code: str) -> str:
    """Run code in an interpreter of its own and give what it printed."""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not done.stderr
    return done.stdout.strip()
