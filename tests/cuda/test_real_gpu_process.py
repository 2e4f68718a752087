"""What ends contexts, devices and processes, on a real GPU: each in a process of its own; see test_real_gpu."""

from __future__ import annotations

import pytest

from tests.helpers.programs import run_program

pytestmark = pytest.mark.gpu

BEGIN = """
import os
from respool.buffers import BufferPool, PinnedAllocator, RegisteredAllocator
from respool.cuda import CudaError, CudaEventPool, _driver
driver = _driver.load()
driver.push_context(driver.retain_primary(0))
pool = CudaEventPool()
"""

CONTEXT = """
import inspect
create = driver.api.cuCtxCreate
more = [None] if len(inspect.signature(create).parameters) == 3 else []
context = driver.checked("cuCtxCreate", create, *more, 0, 0)
number = driver.context_id()
"""


def lines(program: str) -> list[str]:
    """What a program prints that must end well."""
    ended = run_program(BEGIN + program)
    assert (ended.code, ended.errors) == (0, ""), ended
    return ended.printed.splitlines()


def test_a_context_that_is_destroyed() -> None:
    """Its idle events are abandoned; the next context, under whatever handle, gets none of them."""
    more = """
pool.prefill(3)
driver.checked("cuCtxDestroy", driver.api.cuCtxDestroy, context)
context = driver.checked("cuCtxCreate", create, *more, 0, 0)
assert driver.context_id() != number
with pool.lease() as event:
    event.record()
    event.synchronize()
pool.reap()
print(pool.stats().abandoned, pool.stats().created, pool.total_free_events())
pool.close()
print(pool.stats().destroyed)
"""
    assert lines(CONTEXT + more) == ["3 4 1", "1"]


def test_a_device_that_is_reset() -> None:
    """Events of before are abandoned, though the context comes back under the same handle."""
    program = """
pool.prefill(3)
device = driver.checked("cuDeviceGet", driver.api.cuDeviceGet, 0)
driver.checked("cuDevicePrimaryCtxReset", driver.api.cuDevicePrimaryCtxReset, device)
try:
    pool.acquire()
except CudaError as error:
    print(error.code)
driver.set_context(driver.retain_primary(0))
with pool.lease() as event:
    event.record()
    event.synchronize()
pool.reap()
print(pool.stats().abandoned, pool.total_free_events())
pool.close()
"""
    assert lines(program) == ["709", "3 1"]


def test_memory_of_a_context_that_is_destroyed() -> None:
    """A view of registered memory can be read on; what is idle is thrown away, and new memory is had instead."""
    more = """
pools = [BufferPool(kind(), buffer_size=8192) for kind in (RegisteredAllocator, PinnedAllocator)]
buffer = pools[0].acquire()
view = buffer.view
view[:5] = b"hello"
for one in pools:
    one.prefill(1)
driver.checked("cuCtxDestroy", driver.api.cuCtxDestroy, context)
print(bytes(view[:5]).decode())
pools[0].release(buffer)
for one in pools:
    with one.lease() as other:
        other.view[:5] = b"again"
        print(bytes(other.view[:5]).decode())
    one.close()
print(bytes(view[:5]).decode())
"""
    assert lines(CONTEXT + more) == ["hello", "again", "again", "hello"]


BROKEN = r"""
PTX = b'''
.version 7.0
.target sm_75
.address_size 64
.visible .entry bad()
{
    .reg .b64 %a;
    .reg .b32 %v;
    mov.u64 %a, 16;
    mov.u32 %v, 1;
    st.global.u32 [%a], %v;
    ret;
}
''' + bytes(1)
held = pool.acquire()
buffers = BufferPool(RegisteredAllocator(), buffer_size=8192)
buffers.prefill(1)
pool.prefill(2)
try:
    module = driver.checked("cuModuleLoadData", driver.api.cuModuleLoadData, PTX)
except Exception as error:
    print("no module:", error)
    raise SystemExit(0)
function = driver.checked("cuModuleGetFunction", driver.api.cuModuleGetFunction, module, b"bad")
driver.checked("cuLaunchKernel", driver.api.cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
held.record()
for use in (held.synchronize, pool.acquire, pool.acquire, pool.bind, CudaEventPool.shared().acquire):
    try:
        use()
        print("no error")
    except CudaError as error:
        print(error.code)
pool.release(held)
pool.reap()
pool.close()
buffers.close()
print(pool.stats().size)
"""


def test_a_broken_context() -> None:
    """After an illegal address acquires fail with its error, what is idle is left alone, and the process ends well."""
    ended = run_program(BEGIN + BROKEN)
    assert ended.code == 0, ended
    told = ended.printed.splitlines()
    if told[0].startswith("no module"):
        pytest.skip(f"needs a real GPU, or one that runs this program: {told[0]}")
    assert told[:-1] == ["700"] * 5
    assert told[-1] == "0"
    # What has to be left is told, once each: the events of that context, and memory that can't be unregistered.
    assert ended.errors.count("has a sticky error; its 2 idle events are left to it") == 1, ended
    assert ended.errors.count("the destroy hook failed") == ended.errors.count("stay quarantined") == 1, ended


def test_a_fork() -> None:
    """In a child of a process that has used CUDA, the pool says so, and gives nothing out."""
    program = """
pool.prefill(2)
held = pool.acquire()
child = os.fork()
if not child:
    codes = []
    for take in (pool.acquire, pool.lease, CudaEventPool.shared().acquire):
        try:
            take()
        except CudaError as error:
            codes.append(error.code)
    pool.release(held)
    pool.close()
    print(codes, flush=True)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
held.record()
held.synchronize()
pool.release(held)
print(pool.total_free_events())
"""
    ended = run_program(BEGIN + program, "-W", "ignore::DeprecationWarning")
    assert (ended.code, ended.errors) == (0, "")
    assert ended.printed.splitlines() == ["[3, 3, 3]", "0", "2"]


def test_exit() -> None:
    """The interpreter exits with 0 and prints nothing, with events and buffers idle, held and pending."""
    program = """
stream = driver.create_stream()
shared = CudaEventPool.shared()
buffers = [BufferPool(kind(), buffer_size=8192) for kind in (RegisteredAllocator, PinnedAllocator)]
pool.prefill(2)
lease, bare, group = pool.lease(), pool.acquire(), shared.lease_many(2)
bare.record(stream)
kept = [one.lease() for one in buffers]
for one in buffers:
    one.prefill(1)
    pending, event = one.acquire(), shared.acquire()
    event.record(stream)
    one.release(pending, event.is_done)
"""
    assert lines(program) == []
