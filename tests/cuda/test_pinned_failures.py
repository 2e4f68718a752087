"""Pinned memory that can't be had, or can't be freed."""

from __future__ import annotations

import ctypes
import mmap
import resource
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolError, Quarantine
from respool.buffers import BufferPool, PinnedAllocator, RegisteredAllocator
from respool.cuda import CudaError, CudaUnavailableError
from tests.helpers.cuda_driver import run_with_fake
from tests.helpers.forks import in_child
from tests.helpers.invariants import assert_quiet
from tests.helpers.recorder import Recorder
from tests.helpers.threads import Threads, wait_until

if TYPE_CHECKING:
    from respool.cuda._driver import Driver
    from tests.helpers.cuda_driver import FakeCuda

PAGE = mmap.PAGESIZE
SIZE = 4 * PAGE

BOTH = pytest.mark.parametrize("allocator", [PinnedAllocator, RegisteredAllocator])
ENDS = {PinnedAllocator: "cuMemFreeHost", RegisteredAllocator: "cuMemHostUnregister"}
BEGINS = {PinnedAllocator: "cuMemHostAlloc", RegisteredAllocator: "cuMemHostRegister"}


def mapped() -> int:
    """How many bytes the process has mapped."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * PAGE


def reset(driver: Driver) -> None:
    """Reset the device, and take part in its new primary context."""
    driver.checked("reset", driver.api.cuDevicePrimaryCtxReset, 0)
    driver.retain_primary(0)


@BOTH
@pytest.mark.parametrize("code", [1, 712, 999, 4242])
def test_refused(fake: FakeCuda, context_id: int, allocator: type, code: int) -> None:
    """C23, C26: memory that the driver refuses is CudaError with its code; nothing is charged, nor freed that wasn't had."""
    pool = BufferPool(allocator(), buffer_size=SIZE, max_bytes=SIZE)
    for _ in range(2):
        fake.fail(BEGINS[allocator], code)
        with pytest.raises(CudaError) as refused:
            pool.acquire()
        assert (refused.value.code, refused.value.call) == (code, BEGINS[allocator])
        assert pool.stats().cost == 0
    assert fake.calls(ENDS[allocator]) == 0
    pool.release(pool.acquire(timeout=0))
    pool.close()


def test_a_thousand_refusals(fake: FakeCuda, context_id: int) -> None:
    """C23: nothing stays mapped after a thousand failed registrations."""
    allocator = RegisteredAllocator()
    before = mapped()
    fake.fail("cuMemHostRegister", 1, times=0)
    for _ in range(1000):
        with pytest.raises(CudaError):
            allocator.allocate(1 << 16)
    fake.clear_faults()
    assert mapped() - before < 100 << 16
    assert allocator._blocks == {}


@pytest.mark.leaves("registered", "pinned_bytes")
def test_registered_by_somebody_else(fake: FakeCuda, driver: Driver, context_id: int) -> None:
    """C26: a range that somebody else has registered is 712, and stays theirs."""
    mapping = mmap.mmap(-1, SIZE)
    driver.host_register(ctypes.addressof(ctypes.c_char.from_buffer(mapping)), SIZE)

    class Pages:
        """What gives these pages."""

        alignment = PAGE

        def allocate(self, nbytes: int) -> mmap.mmap:
            return mapping

        def free(self, memory: mmap.mmap) -> None:
            """Leave them."""

    allocator = RegisteredAllocator()
    allocator._pages = Pages()  # type: ignore[assignment]
    with BufferPool(allocator, buffer_size=SIZE) as pool:
        with pytest.raises(CudaError) as refused:
            pool.acquire()
        assert refused.value.code == 712
    assert fake.count("registered") == 1
    assert fake.calls("cuMemHostUnregister") == 0


@BOTH
def test_out_of_memory(fake: FakeCuda, context_id: int, allocator: type) -> None:
    """C29: what is idle is freed, all of it, and it's tried once more; then MemoryError tells the budget, caused by CudaError 2."""
    pool = BufferPool(allocator(), buffer_size=SIZE, max_bytes=100 * SIZE)
    fake.limit_pinned(4 * SIZE)
    pool.prefill(4)
    with pool.lease(3 * SIZE) as large:
        assert large.nbytes == 3 * SIZE
        assert pool.stats().destroyed_for["evicted"] == 4
        before = fake.calls(BEGINS[allocator])
        with pytest.raises(MemoryError, match=f"max_bytes={100 * SIZE}") as out:
            pool.lease(2 * SIZE)
        assert fake.calls(BEGINS[allocator]) == before + 1  # nothing was idle
        assert isinstance(out.value.__cause__, CudaError)
        assert out.value.__cause__.code == 2
        pool.lease().release()
        with pytest.raises(MemoryError):
            pool.lease(2 * SIZE)
        assert fake.calls(BEGINS[allocator]) == before + 4
    pool.close()
    assert pool.stats().size == 0


@BOTH
def test_out_of_memory_while_the_device_stands_still(
    fake: FakeCuda, driver: Driver, context_id: int, stream: Any, allocator: type
) -> None:
    """C29: the second try comes when what was idle has really been freed, however long the device takes."""
    pool = BufferPool(allocator(), buffer_size=SIZE)
    fake.limit_pinned(2 * SIZE)
    pool.prefill(2)
    event = driver.create_event(2)
    fake.hold()
    driver.record_event(event, stream)

    def want() -> None:
        driver.push_context(driver.retain_primary(0))
        pool.lease(2 * SIZE).release()
        driver.pop_context()
        driver.release_primary(0)

    with Threads() as threads:
        task = threads.start(want)
        wait_until(lambda: fake.count("free_waits") >= 1, "the free that waits")
        assert not task.ended
        fake.release()
        task.result()
    pool.close()
    driver.destroy_event(event)


@pytest.mark.parametrize("huge_pages", [False, True])
def test_no_room_in_the_address_space(fake: FakeCuda, context_id: int, huge_pages: bool) -> None:  # noqa: FBT001 - a parameter
    """C29: where the kernel maps no more, it's MemoryError without a driver's error, and nothing is registered."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pool = BufferPool(RegisteredAllocator(huge_pages=huge_pages), buffer_size=SIZE)
    resource.setrlimit(resource.RLIMIT_AS, (mapped() + (64 << 20), hard))
    try:
        with pytest.raises(MemoryError, match="max_bytes=None"):
            pool.acquire(1 << 30)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert (fake.calls("cuMemHostRegister"), pool.stats().cost) == (0, 0)
    pool.close()


@BOTH
@pytest.mark.leaves("registered", "host_blocks", "pinned_bytes")
def test_a_free_that_fails(fake: FakeCuda, context_id: int, allocator: type) -> None:
    """C25: memory that the driver doesn't take back stays mapped, charged and quarantined, and is told of once."""
    recorder = Recorder()
    pool = BufferPool(allocator(), buffer_size=SIZE, observer=recorder)
    lease = pool.lease()
    view = lease.resource.view
    fake.fail(ENDS[allocator], 999)
    lease.discard()
    wait_until(lambda: pool.stats().quarantined == 1, "the failure")
    stats = pool.stats()
    assert (stats.cost, stats.size, stats.hook_errors["destroy"]) == (SIZE, 1, 1)
    view[:] = b"z" * SIZE
    with pool.lease() as other:
        assert other.nbytes == SIZE
    pool.reap()
    assert fake.calls(ENDS[allocator]) == 1
    failed = recorder.of("hook_failed")
    assert len(failed) == 1
    pool.close()
    assert pool.stats().quarantined == 1
    view.release()


@BOTH
@pytest.mark.leaves("registered", "host_blocks", "pinned_bytes")
def test_a_broken_context(
    fake: FakeCuda, driver: Driver, context_id: int, allocator: type, caplog: pytest.LogCaptureFixture
) -> None:
    """C62: after a sticky error allocating raises it, releases are silent, and close ends and tells what it leaves."""
    pool = BufferPool(allocator(), buffer_size=SIZE)
    lease, other = pool.lease(), pool.lease()
    view = lease.resource.view
    other.release()
    fake.break_context(context_id, 719)
    with pytest.raises(CudaError) as broken:
        pool.acquire()
    assert broken.value.code == 719
    lease.release()
    pool.close()
    assert pool.stats().quarantined == 2
    assert "2 of its resources stay quarantined" in caplog.text
    assert fake.calls(ENDS[allocator]) == 0
    if allocator is RegisteredAllocator:
        view[:] = b"z" * SIZE
    view.release()
    reset(driver)


@BOTH
def test_memory_that_is_not_its_own(fake: FakeCuda, context_id: int, allocator: type) -> None:
    """C33: an allocator frees what it has allocated, once."""
    mine, other = allocator(), allocator()
    memory = mine.allocate(PAGE)
    with pytest.raises(ValueError, match="not of"):
        other.free(memory)
    assert mine.valid(memory)
    mine.free(memory)
    with pytest.raises(ValueError, match="has been freed"):
        mine.free(memory)
    assert not mine.valid(memory)
    for bad in (0, -1):
        with pytest.raises(ValueError, match="nbytes"):
            mine.allocate(bad)


@BOTH
def test_a_fork(fake: FakeCuda, context_id: int, allocator: type) -> None:
    """C49: a child starts with an empty pool; it gets CudaError 3, makes no call, and the parent's memory stays."""
    pool = BufferPool(allocator(), buffer_size=SIZE)
    lease = pool.lease()
    lease.resource.view[:] = b"p" * SIZE
    pool.prefill(1)

    def child() -> tuple[int, int]:
        lease.release()
        with pytest.raises(CudaError, match="spawn") as refused:
            pool.acquire()
        pool.clear()
        pool.close()
        return refused.value.code, fake.count("fork_calls")

    assert in_child(child) == (3, 0)
    assert bytes(lease.resource.view[:1]) == b"p"
    lease.release()
    pool.close()


def test_without_cuda(tmp_path: Path) -> None:
    """C54, C55: pools of pinned memory can be made without CUDA; the first buffer says what is missing."""
    (tmp_path / "libcuda.so.1").write_text("no library")
    program = """
import sys
sys.modules['cuda'] = sys.modules['cuda.bindings'] = None
from respool.buffers import BufferPool, PinnedAllocator, RegisteredAllocator
from respool.cuda import CudaUnavailableError
for allocator in (PinnedAllocator(), RegisteredAllocator()):
    with BufferPool(allocator, buffer_size=100) as pool:
        for _ in range(2):
            try:
                pool.acquire()
            except CudaUnavailableError as error:
                print(error)
        assert pool.stats().cost == 0
"""
    ended = run_with_fake(tmp_path / "libcuda.so.1", program)
    assert (ended.code, ended.errors) == (0, "")
    assert len(ended.printed.splitlines()) == 4
    assert "respool[cuda]" in ended.printed
    assert issubclass(CudaUnavailableError, PoolError)
    assert not issubclass(Quarantine, PoolError)


@pytest.mark.parametrize("allocator", ["PinnedAllocator", "RegisteredAllocator"])
def test_exit(fake_library: Path, tmp_path: Path, allocator: str) -> None:
    """C52: the interpreter exits with 0 and prints nothing, with idle, pending and held pinned buffers; none is freed."""
    program = f"""
from respool.buffers import BufferPool, {allocator}
from respool.cuda import _driver
driver = _driver.load()
driver.push_context(driver.retain_primary(0))
pool = BufferPool({allocator}(), buffer_size=4096)
pool.prefill(3)
lease, pending = pool.lease(), pool.lease()
pending.release(lambda: False)
"""
    report = tmp_path / "report"
    ended = run_with_fake(fake_library, program, report=report)
    assert (ended.code, ended.printed, ended.errors) == (0, "", "")
    told = dict(line.split() for line in report.read_text(encoding="utf-8").splitlines())
    assert int(told["pinned_bytes"]) == 3 * PAGE
    assert int(told["late_calls"]) == int(told["faults"]) == 0


def test_a_user_allocator_that_frees_slowly(fake: FakeCuda, context_id: int) -> None:
    """C60: an allocator of a user's own says so by an attribute, and is freed in the background as well."""

    class Mine:
        """Says that its frees are slow."""

        alignment = 1
        frees_slowly = True
        freed: list[Any]

        def __init__(self) -> None:
            self.freed = []

        def allocate(self, nbytes: int) -> bytearray:
            return bytearray(nbytes)

        def free(self, memory: bytearray) -> None:
            self.freed.append(threading.current_thread().name)

    mine = Mine()
    pool = BufferPool(mine, buffer_size=10)
    pool.lease().discard()
    pool.close()
    assert [name.startswith("respool-destroyer") for name in mine.freed] == [True]
    assert_quiet(pool, leased=0, idle=0)
