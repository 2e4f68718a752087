"""The GPU that is measured on: its context, what it is, and a stream of it that stands still for a while."""

from __future__ import annotations

import ctypes
import mmap
import re
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool.buffers._sizes import aligned
from respool.cli._errors import CommandError
from respool.cuda import CudaError
from respool.cuda._driver import NON_BLOCKING, PORTABLE, Driver, load

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import ExitStack

#: What is measured with.
PACKAGES = ("cuda-bindings", "cuda-core", "cupy-cuda12x", "cupy-cuda13x", "torch")

_INVALID_DEVICE = 101
_PAGE = 4096


class Gpu:
    """A device with its primary context current on this thread.

    The context is kept until the process ends: libraries that are compared with drop objects of it whenever they like.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.driver: Driver = load()
        try:
            self.context = self.driver.retain_primary(number)
        except CudaError as error:
            if error.code != _INVALID_DEVICE:
                raise
            raise CommandError(f"there is no GPU {number}: there are {self._count()}") from None
        self.driver.set_context(self.context)

    def _count(self) -> int:
        return int(self.driver.checked("cuDeviceGetCount", self.driver.api.cuDeviceGetCount))

    def make_current(self) -> None:
        """Make its context current on the calling thread."""
        self.driver.set_context(self.context)

    @contextmanager
    def stream(self) -> Generator[Any]:
        """Make a stream for the length of a block."""
        stream = self.driver.create_stream(NON_BLOCKING)
        try:
            yield stream
        finally:
            self.driver.destroy_stream(stream)

    def facts(self) -> dict[str, str]:
        """Tell the device and its driver."""
        api = self.driver.api
        device = self.driver.checked("cuDeviceGet", api.cuDeviceGet, self.number)
        name = self.driver.checked("cuDeviceGetName", api.cuDeviceGetName, 256, device)
        version = int(self.driver.checked("cuDriverGetVersion", api.cuDriverGetVersion))
        return {
            "gpu": bytes(name).split(b"\0")[0].decode(errors="replace"),
            "driver": f"{_driver_version()} (CUDA {version // 1000}.{version % 1000 // 10})",
        }


def _driver_version() -> str:
    try:
        text = Path("/proc/driver/nvidia/version").read_text("utf-8", errors="replace")
    except OSError:
        return "of unknown version"
    found = re.search(r"\s(\d+\.\d+(?:\.\d+)*)\s", text)
    return found[1] if found else "of unknown version"


def touched(size: int, ends: ExitStack) -> tuple[int, int]:
    """Map whole pages that hold so many bytes, and touch them; give address and bytes.

    They stay as long as the stack isn't closed.
    """
    memory = mmap.mmap(-1, aligned(size, mmap.PAGESIZE))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    ctypes.memset(address, 0, len(memory))
    ends.callback(lambda: memory)  # which refers to it until then
    return address, len(memory)


class Holder:
    """A stream, and the means to let it stand still: it waits for a word in memory to become large enough."""

    def __init__(self, gpu: Gpu) -> None:
        self._driver = driver = gpu.driver
        self._stream = driver.create_stream(NON_BLOCKING)
        self._address = driver.host_alloc(_PAGE, PORTABLE)
        self._word = ctypes.c_uint32.from_address(self._address)
        self._word.value = self._turn = 0
        api = driver.api
        self._seen = int(
            driver.checked("cuMemHostGetDevicePointer", api.cuMemHostGetDevicePointer, self._address, 0)
        )

    def during(self, seconds: float, act: Callable[[], object]) -> tuple[float, float]:
        """Hold the stream for so long, and act meanwhile.

        Returns
        -------
        tuple of float
            The seconds that `act` took; and when it had ended, over when the hold did, both counted from its begin.
        """
        driver, self._turn = self._driver, self._turn + 1
        turn, ended = self._turn, [0.0]
        go, pause = threading.Event(), threading.Event()

        def end() -> None:
            go.wait()
            pause.wait(seconds)
            ended[0] = time.perf_counter()
            self._word.value = turn

        # Whatever becomes of this thread, which may be stuck in the driver: another one ends the hold.
        ending = threading.Thread(target=end)
        ending.start()
        try:
            driver.checked(
                "cuStreamWaitValue32",
                driver.api.cuStreamWaitValue32,
                self._stream,
                self._seen,
                turn,
                driver.api.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ,
            )
            began = time.perf_counter()
            go.set()
            started = time.perf_counter()  # what comes before isn't what is timed
            act()
            done = time.perf_counter()
        finally:
            go.set()
            ending.join()
            driver.synchronize_stream(self._stream)
        return done - started, (done - began) / (ended[0] - began)

    def close(self) -> None:
        """Give back the stream and the word."""
        self._driver.synchronize_stream(self._stream)
        self._driver.destroy_stream(self._stream)
        self._driver.host_free(self._address)
