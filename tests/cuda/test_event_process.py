"""The pool of events and its process: forks, exit, and machines without CUDA."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from respool import LeaseLostError
from respool.cuda import CudaError, CudaEventPool
from tests.helpers.cuda_driver import run_with_fake
from tests.helpers.forks import in_child
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, wait_until

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tests.helpers.cuda_driver import FakeCuda


def test_a_fork(fake: FakeCuda, context_id: int, stream: Any) -> None:
    """C49: in the child the pool is empty, what was inherited is LeaseLostError to use and a no-op to give back; no call is made."""
    pool = CudaEventPool()
    bound = pool.bind()
    lease, bare, group = pool.lease(), pool.acquire(), pool.lease_many(2)
    pool.prefill(1)
    for event in (lease.resource, bare):
        event.record(stream)
    before = pool.stats()
    held = lease.resource

    def child() -> tuple[int, list[int]]:
        assert (pool.stats().size, pool.stats().created, pool.total_free_events()) == (0, 0, 0)
        for event in (held, bare):
            for use in (event.record, event.is_done, event.synchronize, partial(event.wait, stream)):
                with pytest.raises(LeaseLostError, match="fork"):
                    use()
        with pytest.raises(LeaseLostError):
            assert lease.resource
        with pytest.raises(LeaseLostError):
            assert group.resources
        lease.release()
        pool.release(bare)
        group.release()
        codes = []
        for take in (
            pool.acquire,
            pool.lease,
            bound.acquire,
            lambda: pool.prefill(1),
            CudaEventPool.shared().acquire,
        ):
            with pytest.raises(CudaError, match="spawn") as refused:
                take()
            codes.append(refused.value.code)
        assert_quiet(pool, leased=0, idle=0)
        pool.reap()
        pool.clear()
        pool.close()
        return fake.count("fork_calls"), codes

    calls, codes = in_child(child)
    assert (calls, codes) == (0, [3] * 5)
    assert pool.stats() == before
    lease.release()
    pool.release(bare)
    group.release()
    assert_quiet(pool, leased=0, idle=5)
    pool.close()


def test_a_child_has_a_shared_pool_of_its_own(fake: FakeCuda, context_id: int) -> None:
    """C49: shared() gives another pool in the child, and in the parent the same as before."""
    pool = CudaEventPool.shared()
    pool.prefill(1)

    def child() -> bool:
        mine = CudaEventPool.shared()
        return mine is not pool and mine is CudaEventPool.shared() and not mine.closed

    assert in_child(child)
    assert CudaEventPool.shared() is pool
    pool.close()


def test_forks_while_others_are_at_it(fake: FakeCuda, context_id: int) -> None:
    """C51: forks while other threads take, give back and count: no child hangs, each finds the pool empty."""
    pool = CudaEventPool()
    bound = pool.bind()
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            bound.lease_many(3).release()
            pool.stats()
            pool.clear(context_id)
            CudaEventPool.shared()

    with Threads() as threads:
        for _ in range(3):
            threads.start(busy)
        try:
            for _ in range(8):
                assert in_child(lambda: (pool.total_free_events(), CudaEventPool.shared().stats().size)) == (
                    0,
                    0,
                )
        finally:
            stop.set()
    pool.close()
    CudaEventPool.shared().close()


FORK_FIRST = """
import os
from respool.cuda import CudaEventPool, _driver
pool, shared = CudaEventPool(), CudaEventPool.shared()
child = os.fork()
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
driver = _driver.load()
driver.push_context(driver.retain_primary(0))
for one in (pool, CudaEventPool.shared()):
    with one.lease() as event:
        event.record()
        event.synchronize()
    one.close()
print("worked", CudaEventPool.shared() is shared)
"""


def test_a_fork_before_cuda_was_used(fake_library: Path) -> None:
    """C50: a child of a process that has made pools, but not used CUDA yet, works."""
    ended = run_with_fake(fake_library, FORK_FIRST)
    assert (ended.code, ended.printed, ended.errors) == (0, "worked False\n", "")


EXIT = """
import atexit, sys, threading
from respool import PoolLimits
from respool.cuda import CudaEventPool, _driver
driver = _driver.load()
driver.push_context(driver.retain_primary(0))
pool, shared = CudaEventPool(limits=PoolLimits(max_size=4)), CudaEventPool.shared()
stream = driver.create_stream()
pool.prefill(1)
lease, bare, group = pool.lease(), pool.acquire(), shared.lease_many(2)
lease.resource.record(stream)
shared.prefill(2)
pending = pool.acquire()
pending.record(stream)
pool.release(pending, pending.is_done)
inside = threading.Event()
def wait():
    held = pool.acquire()
    inside.set()
    pool.acquire()
"""

THREAD = """
def hold():
    driver.push_context(driver.retain_primary(0))
    held = [pool.lease(), shared.acquire()]
    inside.set()
    pool.acquire(timeout=None)
    pool.acquire(timeout=None)
threading.Thread(target=hold, daemon=True).start()
inside.wait()
"""


@pytest.mark.parametrize(
    "more", ["", THREAD, "import os\nsys.exit(0)\n"], ids=["plain", "daemon", "sys.exit"]
)
def test_exit(fake_library: Path, tmp_path: Path, more: str) -> None:
    """C52: the interpreter exits with 0 and prints nothing; no event is destroyed, and no call is made too late."""
    report = tmp_path / "report"
    ended = run_with_fake(fake_library, EXIT + more, report=report)
    assert (ended.code, ended.printed, ended.errors) == (0, "", "")
    told = dict(line.split() for line in report.read_text(encoding="utf-8").splitlines())
    assert int(told["events"]) >= 6
    assert int(told["late_calls"]) == int(told["bad_handles"]) == int(told["stale"]) == 0


NO_CUDA = """
import sys
{first}
import respool, respool.cuda
from respool.cuda import CudaEventPool, CudaUnavailableError
pool = CudaEventPool()
for take in (pool.acquire, pool.lease, pool.bind, CudaEventPool.shared().lease, lambda: pool.acquire(5)) * 2:
    try:
        take()
        print("taken")
    except CudaUnavailableError as error:
        print(error)
assert pool.stats().size == pool.total_free_events() == pool.reap() == pool.clear() == 0
pool.close()
with respool.ResourcePool(lambda key: object()) as other, other.lease() as thing:
    assert thing is not None
"""


@pytest.mark.parametrize("what", ["bindings", "driver"])
def test_without_cuda(tmp_path: Path, what: str, request: pytest.FixtureRequest) -> None:
    """C54, C55: without bindings or driver pools can be made; the first use says what is missing, each time the same."""
    first = ""
    path = tmp_path / "libcuda.so.1"
    path.write_text("no library")
    if what == "bindings":
        first = "sys.modules['cuda'] = sys.modules['cuda.bindings'] = None"
    else:
        request.getfixturevalue("fake_library")  # which says if there are no bindings
    ended = run_with_fake(path, NO_CUDA.format(first=first))
    assert ended.code == 0, ended.errors
    lines = ended.printed.splitlines()
    assert (len(lines), len(set(lines))) == (10, 1)
    assert ("respool[cuda]" if what == "bindings" else "no CUDA driver") in lines[0]


def test_a_driver_without_a_function(fake_library: Path) -> None:
    """C56: each function that the driver lacks is named by the call that needs it."""
    program = """
from respool.cuda import CudaEventPool, CudaUnavailableError, _driver
driver = _driver.load()
driver.push_context(driver.retain_primary(0))
stream = driver.create_stream()
with CudaEventPool(timing=True) as pool, pool.lease_many(2) as (event, other):
    event.record()
    other.record()
    for use in (lambda: event.record(stream), event.is_done, event.synchronize, lambda: event.wait(stream),
                lambda: event.elapsed_ms(other)):
        try:
            print("done", use())
        except CudaUnavailableError as error:
            print(error)
"""
    missing = [
        "cuStreamIsCapturing",
        "cuEventQuery",
        "cuEventSynchronize",
        "cuStreamWaitEvent",
        "cuEventElapsedTime",
    ]
    ended = run_with_fake(fake_library, program, without=",".join(missing))
    assert ended.code == 0, ended.errors
    for line, name in zip(ended.printed.splitlines(), missing, strict=True):
        assert f"has no {name}" in line


def test_a_signal_during_a_wait(fake: FakeCuda, context_id: int, stream: Any) -> None:
    """C53: giving an event back from a signal handler that interrupts the pool is no deadlock."""
    with CudaEventPool() as pool:
        pool.prefill(1)
        lease = pool.lease()
        core = pool._pool._core

        def handler(number: int, frame: object) -> None:
            lease.release()

        before = signal.signal(signal.SIGUSR1, handler)
        try:
            core.under_lock(lambda: os.kill(os.getpid(), signal.SIGUSR1))
            wait_until(lambda: lease.released, "the handler")
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert pool.num_free_events() == 1


def test_a_module_that_imports_nothing(tmp_path: Path) -> None:
    """C54: importing respool.cuda imports neither the bindings nor the pool; asking for the pool imports no bindings."""
    program = """
import sys, respool.cuda
assert not [name for name in sys.modules if name.startswith('cuda.bindings') or name == 'respool.cuda.event_pool']
from respool.cuda import CudaEvent, CudaEventPool
CudaEventPool.shared().stats()
assert not [name for name in sys.modules if name.startswith('cuda.bindings')]
"""
    ended = run_with_fake(tmp_path / "libcuda.so.1", program)
    assert (ended.code, ended.errors) == (0, "")
