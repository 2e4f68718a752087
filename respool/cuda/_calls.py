"""The driver's functions outside the hot paths, as methods that raise: contexts, events, streams, memory, copies.

A part of `respool.cuda._driver.Driver`, which owns what a code means; nothing is imported from the bindings here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ._sticky import BrokenContexts
    from .errors import CudaError

__all__ = ["Calls", "Relaxed"]

_NOT_READY = 600
_RELAXED = 2


class Calls:
    """Checked calls.  Each raises the `CudaError` of its code; handles may be given as ints or as the bindings' classes."""

    __slots__ = ()

    if TYPE_CHECKING:
        api: Any
        broken: BrokenContexts
        modes: tuple[Any, ...]
        cuCtxGetId: Callable[[object], tuple[int, int]]  # noqa: N815 - the driver's own name

        def checked(
            self, call: str, function: Callable[..., Any], *arguments: object, context_id: int | None = None
        ) -> Any: ...  # noqa: ANN401 - whatever the driver's function gives
        def check_alive(self, context_id: int) -> None: ...
        def failed(self, code: int, call: str, context_id: int | None = None) -> CudaError: ...

    # -- contexts --------------------------------------------------------------------------------------

    def context_id(self, context: object = None) -> int:
        """Give the id of a context, never given to another; None is the current one.

        Ask only about handles that once were a context: real drivers crash on others.

        Raises
        ------
        NoContextError
            No context is current.
        CudaError
            709: it's destroyed or reset; or its sticky error.
        """
        return int(self.checked("cuCtxGetId", self.cuCtxGetId, context))

    def current_context(self) -> tuple[int, int]:
        """Give handle and id of the current context, and remember that they belong together; raises as `context_id`."""
        number = self.context_id()
        handle = int(self.checked("cuCtxGetCurrent", self.api.cuCtxGetCurrent))
        self.broken.know(handle, number)
        return handle, number

    def is_alive(self, handle: int, context_id: int) -> bool:
        """Tell whether the context that had this handle and id still exists; safe after its end and its handle's reuse.

        One with a sticky error isn't alive: nothing can be done with what belongs to it.
        """
        try:
            code, number = self.cuCtxGetId(handle)
        except (ValueError, KeyError):
            return False
        return not code and int(number) == context_id

    def retain_primary(self, device: int) -> int:
        """Take part in a device's primary context, making it if need be; give its handle.  Release it once."""
        ordinal = self.checked("cuDeviceGet", self.api.cuDeviceGet, device)
        return int(self.checked("cuDevicePrimaryCtxRetain", self.api.cuDevicePrimaryCtxRetain, ordinal))

    def release_primary(self, device: int) -> None:
        """Give up what `retain_primary` took."""
        ordinal = self.checked("cuDeviceGet", self.api.cuDeviceGet, device)
        self.checked("cuDevicePrimaryCtxRelease", self.api.cuDevicePrimaryCtxRelease, ordinal)

    def push_context(self, handle: object) -> None:
        """Make a context current on this thread, above the one that is."""
        self.checked("cuCtxPushCurrent", self.api.cuCtxPushCurrent, handle)

    def pop_context(self) -> int:
        """Take the current context off this thread's stack; give its handle."""
        return int(self.checked("cuCtxPopCurrent", self.api.cuCtxPopCurrent))

    def set_context(self, handle: object) -> None:
        """Make a context current on this thread, in place of the one that is; 0 takes that one off."""
        self.checked("cuCtxSetCurrent", self.api.cuCtxSetCurrent, handle)

    # -- events and streams ----------------------------------------------------------------------------

    def create_event(self, flags: int, context_id: int | None = None) -> Any:  # noqa: ANN401 - a CUevent
        """Create an event in the current context; fail at once where that is known (as `context_id`) to be broken."""
        if context_id is not None:
            self.check_alive(context_id)
        return self.checked("cuEventCreate", self.api.cuEventCreate, flags, context_id=context_id)

    def destroy_event(self, event: object, context_id: int | None = None) -> None:
        """Destroy an event, at once, whether it's pending or not.  Never one of a dead context."""
        self.checked("cuEventDestroy", self.api.cuEventDestroy, event, context_id=context_id)

    def record_event(self, event: object, stream: object, context_id: int | None = None) -> None:
        """Record an event on a stream of its own context."""
        self.checked("cuEventRecord", self.api.cuEventRecord, event, stream, context_id=context_id)

    def synchronize_event(self, event: object, context_id: int | None = None) -> None:
        """Wait until the last record of an event is done."""
        self.checked("cuEventSynchronize", self.api.cuEventSynchronize, event, context_id=context_id)

    def elapsed_ms(self, start: object, end: object, context_id: int | None = None) -> float:
        """Give the time between two events in milliseconds."""
        return float(
            self.checked("cuEventElapsedTime", self.api.cuEventElapsedTime, start, end, context_id=context_id)
        )

    def create_stream(self, flags: int = 1) -> Any:  # noqa: ANN401 - a CUstream
        """Create a stream in the current context, one that the legacy stream doesn't wait for by default."""
        return self.checked("cuStreamCreate", self.api.cuStreamCreate, flags)

    def destroy_stream(self, stream: object, context_id: int | None = None) -> None:
        """Destroy a stream; work that it has left is still done."""
        self.checked("cuStreamDestroy", self.api.cuStreamDestroy, stream, context_id=context_id)

    def synchronize_stream(self, stream: object, context_id: int | None = None) -> None:
        """Wait for what a stream has been given so far."""
        self.checked("cuStreamSynchronize", self.api.cuStreamSynchronize, stream, context_id=context_id)

    def stream_is_done(self, stream: object, context_id: int | None = None) -> bool:
        """Tell whether a stream has done all that it was given."""
        code = int(self.api.cuStreamQuery(stream)[0])
        if code and code != _NOT_READY:
            raise self.failed(code, "cuStreamQuery", context_id)
        return not code

    def stream_context(self, stream: object) -> int:
        """Give the handle of the context that a stream belongs to."""
        return int(self.checked("cuStreamGetCtx", self.api.cuStreamGetCtx, stream))

    def capture_status(self, stream: object) -> int:
        """Give 0 for a stream that isn't capturing, 1 while it is, 2 when its capture has been ruined.

        Raises
        ------
        CudaError
            906: the legacy stream, while a blocking stream of its context captures.
        """
        return int(self.checked("cuStreamIsCapturing", self.api.cuStreamIsCapturing, stream))

    def relaxed(self) -> Relaxed:
        """Give a context manager in which this thread's calls do no harm to a stream capture that is open elsewhere."""
        return Relaxed(self)

    # -- memory and copies -----------------------------------------------------------------------------

    def host_alloc(self, nbytes: int, flags: int = 1) -> int:
        """Allocate pinned host memory, for all contexts by default; give its address.  It dies with the current context."""
        return int(self.checked("cuMemHostAlloc", self.api.cuMemHostAlloc, nbytes, flags))

    def host_free(self, address: int, context_id: int | None = None) -> None:
        """Free what `host_alloc` gave.  Waits for every stream of its context."""
        self.checked("cuMemFreeHost", self.api.cuMemFreeHost, address, context_id=context_id)

    def host_register(self, address: int, nbytes: int, flags: int = 1) -> None:
        """Pin memory of one's own, for all contexts by default."""
        self.checked("cuMemHostRegister", self.api.cuMemHostRegister, address, nbytes, flags)

    def host_unregister(self, address: int, context_id: int | None = None) -> None:
        """End what `host_register` did.  Waits for every stream of its context."""
        self.checked("cuMemHostUnregister", self.api.cuMemHostUnregister, address, context_id=context_id)

    def to_device(self, device: int, host: int, nbytes: int, stream: object) -> None:
        """Submit a copy of host memory to the device; it may be read until the stream has done it."""
        self.checked("cuMemcpyHtoDAsync", self.api.cuMemcpyHtoDAsync, device, host, nbytes, stream)

    def to_host(self, host: int, device: int, nbytes: int, stream: object) -> None:
        """Submit a copy of device memory to the host; it may be written until the stream has done it."""
        self.checked("cuMemcpyDtoHAsync", self.api.cuMemcpyDtoHAsync, host, device, nbytes, stream)


class Relaxed:
    """Relaxed capture mode for the calling thread within a with-block; the mode of before comes back, also after an error.

    One event is never to be queried even so: one recorded in a capture that is still open (907, and the capture is ruined).
    An interrupt within the two calls of the driver may leave the thread in relaxed mode, which only takes checks away.
    """

    __slots__ = ("_before", "_calls")

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._before: Any = None

    def __enter__(self) -> None:
        exchange = self._calls.api.cuThreadExchangeStreamCaptureMode
        self._before = self._calls.checked(
            "cuThreadExchangeStreamCaptureMode", exchange, self._calls.modes[_RELAXED]
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Not checked: it can't fail where the other call hasn't, and must not hide what passes through.
        self._calls.api.cuThreadExchangeStreamCaptureMode(self._before)
