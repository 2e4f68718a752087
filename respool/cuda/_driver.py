"""The CUDA driver: the only module that imports ``cuda.bindings``.

Owns when the driver is looked for and what a code of it means.  Which context, event, stream or memory is used for what is
the business of its callers.

`load` gives the one `Driver` of the process.  Functions that stand in a hot path are there as the bindings have them
(``driver.cuEventQuery``): a tuple with the code first, which is false when all is well::

    code = query(event)[0]
    if code:
        raise driver.failed(code, "cuEventQuery", context_id)

Everything else has a method that raises.  Codes the bindings don't know come as ValueError or KeyError out of the call;
`Driver.odd` turns those into a `CudaError` too.

The source of all facts about codes and functions is the CUDA driver API's reference, as in the bindings' docstrings.
"""

from __future__ import annotations

import os
import re
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from ._calls import Calls
from ._sticky import Broken, BrokenContexts
from .errors import STICKY, CudaError, CudaUnavailableError, error_class

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DISABLE_TIMING", "NON_BLOCKING", "PORTABLE", "Driver", "forked", "load"]

DISABLE_TIMING = 2
"""Flag of an event that can't be timed, which is cheaper: ``CU_EVENT_DISABLE_TIMING``."""

NON_BLOCKING = 1
"""Flag of a stream that the legacy stream doesn't wait for: ``CU_STREAM_NON_BLOCKING``."""

PORTABLE = 1
"""Flag of memory that is pinned for all contexts: ``CU_MEMHOSTALLOC_PORTABLE``, ``CU_MEMHOSTREGISTER_PORTABLE``."""

_NOT_INITIALIZED = 3
_OLDEST_BINDINGS = (12, 9, 1)
_OLDEST_DRIVER = 12000  # cuCtxGetId, without which a context can't be told from the next one under its handle

_lock = threading.Lock()
_ready: Driver | None = None
_state: dict[str, bool] = {"forked": False, "watching": False}


def forked() -> bool:
    """Tell whether CUDA can't be used since an ancestor of this process had used it here and then forked."""
    return _state["forked"]


def load() -> Driver:
    """Give the driver, ready to be called: look for it and initialise it if that hasn't been done.

    Safe to call from any thread.  A failure isn't remembered: the next call looks again.

    Raises
    ------
    CudaUnavailableError
        No bindings or unsuitable ones, no driver or too old a one, no GPU.
    CudaError
        3: the process was forked from one that had initialised CUDA.
    """
    driver = _ready
    return _load() if driver is None else driver


def _load() -> Driver:
    global _ready  # noqa: PLW0603 - once for the process
    if _state["forked"]:
        raise CudaError(_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "cuInit", "initialization error")
    with _lock:
        if _ready is None:
            driver = _open()
            if not _state["watching"]:
                _state["watching"] = True
                os.register_at_fork(after_in_child=_after_fork_in_child)
            _ready = driver
        return _ready


def _after_fork_in_child() -> None:
    global _lock, _ready  # noqa: PLW0603 - the lock may be in the hands of a thread that isn't there any more
    _lock = threading.Lock()
    if _ready is not None:
        _state["forked"] = True
        _ready.broken.forget_all()
        _left.append(_ready)
        _ready = None


_left: list[Driver] = []
"""What a forked child has of its parent: kept, as a fork handler is no place for finalisers."""


def _bindings() -> Any:  # noqa: ANN401 - the bindings have no types
    """Import the bindings, if they're fit."""
    try:
        bindings = import_module("cuda.bindings")
    except ImportError as error:
        raise CudaUnavailableError(
            "CUDA needs the package cuda-python (cuda.bindings): pip install 'respool[cuda]'"
        ) from error
    version = str(getattr(bindings, "__version__", "of no known version"))
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    if numbers < _OLDEST_BINDINGS:
        held = numbers >= (12, 8)
        reason = "hold the interpreter lock during calls of the driver" if held else "are too old"
        raise CudaUnavailableError(
            f"cuda.bindings {version} {reason}; at least 12.9.1 is needed: pip install --upgrade 'respool[cuda]'"
        )
    try:
        return import_module("cuda.bindings.driver")
    except ImportError as error:
        raise CudaUnavailableError(f"cuda.bindings {version} can't be imported: {error}") from error


def _open() -> Driver:
    """Find the driver and initialise it."""
    driver = Driver(_bindings())
    try:
        (code,) = driver.api.cuInit(0)
    except RuntimeError as error:
        # Not with the error's own text: bindings 12.9.1 give another one at the second call.
        raise CudaUnavailableError("there is no CUDA driver (libcuda.so.1) to be loaded here") from error
    except (ValueError, KeyError) as error:
        raise CudaUnavailableError("the CUDA driver can't be initialised") from driver.odd(error, "cuInit")
    if code == _NOT_INITIALIZED:
        raise driver.failed(code, "cuInit")
    if code:
        cause = driver.failed(code, "cuInit")
        what = "no GPU to be used here" if code == 100 else "a CUDA driver, but it can't be used"  # noqa: PLR2004 - CUDA_ERROR_NO_DEVICE
        raise CudaUnavailableError(f"there is {what}: {cause}") from cause
    version = driver.checked("cuDriverGetVersion", driver.api.cuDriverGetVersion)
    if version < _OLDEST_DRIVER:
        raise CudaUnavailableError(
            f"the CUDA driver is of version {version // 1000}.{version % 1000 // 10}; cuCtxGetId needs 12.0 or later"
        )
    return driver


class Driver(Calls):
    """The functions of the driver.

    Parameters
    ----------
    api
        The module ``cuda.bindings.driver``.

    Attributes
    ----------
    api
        That module, for what isn't wrapped.
    broken
        The contexts with a sticky error.
    cuCtxGetId, cuEventCreate, cuEventDestroy, cuEventQuery, cuEventRecord, cuEventSynchronize, cuStreamIsCapturing,
    cuStreamWaitEvent, cuThreadExchangeStreamCaptureMode
        The bindings' own functions, for hot paths: nothing is checked.
    relaxed_mode
        What the last of these takes for relaxed mode; see `Calls.relaxed`.
    CUevent, CUstream, CUcontext
        The bindings' classes of handles.

    Safe to use from any thread.  The interpreter lock is released during each call.
    """

    __slots__ = (
        "CUcontext",
        "CUevent",
        "CUstream",
        "api",
        "broken",
        "cuCtxGetId",
        "cuEventCreate",
        "cuEventDestroy",
        "cuEventQuery",
        "cuEventRecord",
        "cuEventSynchronize",
        "cuStreamIsCapturing",
        "cuStreamWaitEvent",
        "cuThreadExchangeStreamCaptureMode",
        "modes",
        "relaxed_mode",
    )

    def __init__(self, api: Any) -> None:  # noqa: ANN401 - the bindings have no types
        self.api = api
        self.broken = BrokenContexts()
        self.cuCtxGetId: Callable[[object], tuple[int, int]] = api.cuCtxGetId
        self.cuEventCreate: Callable[[int], tuple[int, Any]] = api.cuEventCreate
        self.cuEventDestroy: Callable[[object], tuple[int]] = api.cuEventDestroy
        self.cuEventQuery: Callable[[object], tuple[int]] = api.cuEventQuery
        self.cuEventRecord: Callable[[object, object], tuple[int]] = api.cuEventRecord
        self.cuEventSynchronize: Callable[[object], tuple[int]] = api.cuEventSynchronize
        self.cuStreamIsCapturing: Callable[[object], tuple[int, Any]] = api.cuStreamIsCapturing
        self.cuStreamWaitEvent: Callable[[object, object, int], tuple[int]] = api.cuStreamWaitEvent
        exchange: Callable[[object], tuple[int, Any]] = api.cuThreadExchangeStreamCaptureMode
        self.cuThreadExchangeStreamCaptureMode = exchange
        self.CUevent: Any = api.CUevent
        self.CUstream: Any = api.CUstream
        self.CUcontext: Any = api.CUcontext
        self.modes = tuple(api.CUstreamCaptureMode(mode) for mode in range(3))
        self.relaxed_mode = self.modes[2]

    # -- what a code means -----------------------------------------------------------------------------

    def failed(self, code: int, call: str, context_id: int | None = None) -> CudaError:
        """Give the error for a code, to be raised; remember it if nothing can be done in that context any more.

        Parameters
        ----------
        code
            What the driver returned: not 0.
        call
            The driver's function.
        context_id
            The id of the context it's about; None for the thread's current one.
        """
        value = int(code)
        since = ""
        if value in STICKY:
            since = self.broken.note(value, call, context_id, self._current_handle()).since()
        return error_class(value)(value, self._name(value), call, self._text(value), since)

    def odd(self, error: Exception, call: str) -> Exception:
        """Give the error for what a call of the bindings raised in place of returning a code.

        Parameters
        ----------
        error
            A ValueError or KeyError for a code that the bindings don't know; a RuntimeError for a function that the driver
            doesn't have.  Others, such as one for a bad argument, come back as they are.
        call
            The driver's function.
        """
        if isinstance(error, RuntimeError):
            unavailable = CudaUnavailableError(f"the CUDA driver has no {call}, it may be too old: {error}")
            unavailable.__cause__ = error
            return unavailable
        told = str(error)
        found = re.fullmatch(r"(\d+)", told) or re.match(r"(\d+) is not a valid .*CUresult", told)
        if found is None:
            return error
        code = int(found[1])
        answer = error_class(code)(code, self._name(code), call, self._text(code))
        answer.__cause__ = error
        return answer

    def _text(self, code: int) -> str:
        return self._told("cuGetErrorString", code)

    def _name(self, code: int) -> str:
        try:
            return str(self.api.CUresult(code).name)
        except (ValueError, KeyError):
            return self._told("cuGetErrorName", code) or "a code that the bindings don't know"

    def _told(self, function: str, code: int) -> str:
        try:
            failed, text = getattr(self.api, function)(self.api.CUresult(code))
        except Exception:  # noqa: BLE001 - an error's text isn't worth another error
            return ""
        return "" if failed or not text else bytes(text).decode(errors="replace")

    def _current_handle(self) -> int:
        try:
            failed, handle = self.api.cuCtxGetCurrent()
        except Exception:  # noqa: BLE001 - only to find out about an error that is being told already
            return 0
        return 0 if failed else int(handle)

    def checked(
        self, call: str, function: Callable[..., Any], *arguments: object, context_id: int | None = None
    ) -> Any:  # noqa: ANN401 - whatever the driver's function gives
        """Call a function of the bindings; give what it gives besides its code: nothing, one value or a tuple.

        Raises
        ------
        CudaError
            The driver's code wasn't 0.
        CudaUnavailableError
            The driver doesn't have this function.
        """
        try:
            code, *values = function(*arguments)
        except (RuntimeError, ValueError, KeyError) as error:
            self.raise_odd(error, call)
        if code:
            raise self.failed(code, call, context_id)
        return values[0] if len(values) == 1 else tuple(values) or None

    def raise_odd(self, error: Exception, call: str) -> NoReturn:
        """Raise what `odd` gives: to be called in the ``except`` clause of a raw call, for RuntimeError, ValueError and KeyError."""
        answer = self.odd(error, call)
        raise answer from (error if answer is not error else error.__cause__)

    def check_alive(self, context_id: int) -> None:
        """Raise the sticky error of a context at once, without a call, if it's known to have one."""
        broken: Broken | None = self.broken.get(context_id)
        if broken is not None:
            raise self.failed(broken.code, broken.call, context_id)
