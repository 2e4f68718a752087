"""A CUDA driver for tests on machines without a GPU: builds fake_cuda/, loads it in place of libcuda.so.1, and steers it.

The bindings look for the driver at their first call and keep what they find, so the fake is loaded before that, once a
process; a test begins with `FakeCuda.reset`, not with another copy.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import importlib.util
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .programs import Ended, run_program
from .threads import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from respool.cuda._driver import Driver

SOURCES = Path(__file__).with_name("fake_cuda")
FLAGS = [
    "-std=gnu11",
    "-O1",
    "-g",
    "-shared",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
]

#: Counters that are zero at the end of a test, unless it says otherwise: what is left over, and what must not happen.
LEFT_OVER = [
    "events",
    "streams",
    "contexts",
    "device_blocks",
    "host_blocks",
    "registered",
    "graphs",
    "queued",
    "pinned_bytes",
]
MISTAKES = [
    "faults",
    "stale",
    "crashes",
    "bad_handles",
    "bad_frees",
    "free_pending",
    "unregister_unmapped",
    "violations",
    "fork_calls",
]


def compiler() -> list[str] | None:
    """The command that compiles C here: the system's own, or else the one of the wheel ``ziglang``."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return [name]
    return [sys.executable, "-m", "ziglang", "cc"] if importlib.util.find_spec("ziglang") else None


def build(folder: Path) -> Path:
    """Build the fake in ``folder`` unless it is there; several processes may ask at once. Gives the library."""
    command = compiler()
    assert command is not None, "needs a C compiler (cc, gcc, clang) or the package ziglang"
    text = b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir()) if path.suffix in {".c", ".h"})
    name = hashlib.sha256(text + repr(command).encode()).hexdigest()[:16]
    target = folder / f"fake-cuda-{name}" / "libcuda.so.1"
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            made = target.with_suffix(f".{os.getpid()}")
            arguments = [*FLAGS, "-Wl,-soname,libcuda.so.1", "-o", str(made), str(SOURCES / "libcuda.c")]
            done = subprocess.run([*command, *arguments], check=False, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            made.replace(target)
    return target


class FakeCuda:
    """The fake driver of this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lib = lib = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        text, number, size = ctypes.c_char_p, ctypes.c_long, ctypes.c_size_t
        self._declare("fake_count", number, text)
        self._declare("fake_counter", text, ctypes.c_int)
        self._declare("fake_calls", number, text)
        self._declare("fake_hold", None, ctypes.c_void_p, ctypes.c_int)
        self._declare("fake_step", None, ctypes.c_void_p, number)
        self._declare("fake_copy_delay", None, ctypes.c_ulonglong)
        self._declare("fake_limit_pinned", None, size)
        self._declare("fake_fail", ctypes.c_int, text, number, ctypes.c_int, number)
        self._declare("fake_latch", None, text, ctypes.c_int)
        self._declare("fake_inside", number, text)
        self._declare("fake_break", ctypes.c_int, ctypes.c_ulonglong, ctypes.c_int)
        for name in ("run", "clear_faults", "late", "settle", "reset"):
            self._declare(f"fake_{name}", None)
        self.run = lib.fake_run
        self.clear_faults = lib.fake_clear_faults
        self.settle = lib.fake_settle
        self.reset = lib.fake_reset

    def _declare(self, name: str, result: Any, *arguments: Any) -> None:
        function = getattr(self._lib, name)
        function.restype, function.argtypes = result, arguments

    def count(self, name: str) -> int:
        """One counter: events, streams, contexts, registered, pinned_bytes, queued, stale, faults …"""
        value = int(self._lib.fake_count(name.encode()))
        assert value != -1, f"there is no counter {name}"
        return value

    def calls(self, name: str) -> int:
        """How often a driver function has been called since the last reset."""
        return int(self._lib.fake_calls(name.encode()))

    def hold(self, stream: Any = None) -> None:
        """Let nothing run any more, on this stream or on the whole device, until `release` or `step`."""
        self._lib.fake_hold(None if stream is None else int(stream), 1)

    def release(self, stream: Any = None) -> None:
        """End `hold`."""
        self._lib.fake_hold(None if stream is None else int(stream), 0)

    def step(self, n: int = 1, stream: Any = None) -> None:
        """While held, let the next n operations run: copies, records and waits each count as one."""
        self._lib.fake_step(None if stream is None else int(stream), n)

    def copy_delay(self, seconds: float) -> None:
        """Let each copy take so long."""
        self._lib.fake_copy_delay(round(seconds * 1e9))

    def limit_pinned(self, nbytes: int | None) -> None:
        """Answer 2 (out of memory) to what would pin more than this."""
        self._lib.fake_limit_pinned(nbytes or 0)

    def fail(self, name: str, code: int, *, nth: int = 1, times: int = 1) -> None:
        """Make the nth call from now of a function fail, and those after it up to ``times`` (0: all)."""
        assert self._lib.fake_fail(name.encode(), nth, code, times) == 0, "too many faults"

    def break_context(self, context_id: int, code: int = 700) -> None:
        """Give a context a sticky error."""
        assert self._lib.fake_break(context_id, code) == 0, "no such context"

    @contextlib.contextmanager
    def latch(self, name: str) -> Iterator[Latch]:
        """Let calls of a function stand still until the latch is opened, at the end of the block at the latest."""
        self._lib.fake_latch(name.encode(), 1)
        latch = Latch(self._lib, name)
        try:
            yield latch
        finally:
            latch.open()

    def leftovers(self) -> dict[str, int]:
        """What isn't zero of what should be."""
        self.settle()
        return {name: n for name in (*LEFT_OVER, *MISTAKES) if (n := self.count(name))}


class Latch:
    """A function of the driver that stands still."""

    def __init__(self, lib: Any, name: str) -> None:
        self._lib, self._name = lib, name

    def inside(self) -> int:
        """How many threads stand in it."""
        return int(self._lib.fake_inside(self._name.encode()))

    def wait_inside(self, n: int = 1) -> None:
        """Wait until n threads stand in it."""
        wait_until(lambda: self.inside() == n, f"{n} threads in {self._name}")

    def open(self) -> None:
        """Let them go on."""
        self._lib.fake_latch(self._name.encode(), 0)


class Capture:
    """A stream capture that the test begins and ends."""

    def __init__(self, driver: Driver, stream: Any, mode: int = 0) -> None:
        self._driver, self._stream = driver, stream
        api = driver.api
        driver.checked("begin", api.cuStreamBeginCapture, stream, api.CUstreamCaptureMode(mode))

    def end(self) -> int:
        """End it; the code, 0 if it hasn't been ruined."""
        code, graph = self._driver.api.cuStreamEndCapture(self._stream)
        if not int(code):
            self._driver.checked("cuGraphDestroy", self._driver.api.cuGraphDestroy, graph)
        return int(code)


def create_context(driver: Driver, device: int = 0) -> Any:
    """Create a context, current on this thread; the bindings of CUDA 13 want an argument more."""
    create = driver.api.cuCtxCreate
    more = [None] if len(inspect.signature(create).parameters) == 3 else []
    return driver.checked("cuCtxCreate", create, *more, 0, device)


def run_with_fake(path: Path, source: str, **settings: object) -> Ended:
    """Run a program in an interpreter of its own that finds the fake at ``path`` as its driver.

    Settings: devices, version, init (the code of cuInit), without (names of functions), faults
    ("name:nth:code[:times],…"), hang (seconds), report (a file for the counters).
    """
    before = dict(os.environ)
    os.environ["LD_LIBRARY_PATH"] = str(path.parent)
    os.environ |= {f"FAKE_CUDA_{name.upper()}": str(value) for name, value in settings.items()}
    try:
        return run_program(source)
    finally:
        os.environ.clear()
        os.environ.update(before)
