"""Which context and which stream is meant: contexts by their ids, streams by what the driver takes for one.

Handles of contexts are given out again, ids never are.  So contexts are known by their ids, and a handle is used only
together with the id that it had: to make that context current for a moment, or to see whether it still lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from respool.errors import safe_repr

from ._driver import load
from .errors import STICKY, CudaError

if TYPE_CHECKING:
    from types import TracebackType

    from ._driver import Driver

__all__ = ["DESTROYED", "ODD", "Current", "current_id", "fate", "handle_of", "id_of", "is_gone", "stream_of"]

ODD = (RuntimeError, ValueError, KeyError)
"""What a call of the bindings raises in place of returning a code; see `Driver.odd`."""

DESTROYED = 709
"""What the driver says of a context that is gone."""

_MOST = 1 << 64

# The handle that each context had which has been seen, by its id.  One id a handle: the last one that was seen there.
_handles: dict[int, int] = {}


def current_id() -> int:
    """Give the id of the calling thread's current context.

    Raises
    ------
    NoContextError
        There is none.
    CudaError
        709: it has been destroyed, or its device reset; or its sticky error; or 3, in a forked process.
    CudaUnavailableError
        CUDA can't be used here.
    """
    driver = load()
    try:
        code, number = driver.cuCtxGetId(None)
    except ODD as error:
        driver.raise_odd(error, "cuCtxGetId")
    if code:
        raise driver.failed(code, "cuCtxGetId")
    if number not in _handles:
        handle, number = driver.current_context()
        _learn(driver, handle, number)
    return number


def _learn(driver: Driver, handle: int, number: int) -> None:
    for old, its in list(_handles.items()):
        if its == handle and old != number:  # it lives no more: its handle has been given out again
            _handles.pop(old, None)
    driver.broken.know(handle, number)
    _handles[number] = handle


def id_of(context: object) -> int:
    """Give the id of the context that is meant.

    Parameters
    ----------
    context
        None for the calling thread's current one, an int for an id, or an object that stands for one: a ``CUcontext``, or
        what has one as its ``handle``, such as a context of cuda.core.

    Raises
    ------
    TypeError, ValueError
        It's none of these, or stands for no context.
    NoContextError, CudaError, CudaUnavailableError
        As `current_id`.
    """
    if context is None:
        return current_id()
    if type(context) is int:
        if context <= 0:
            raise ValueError(f"a context's id is more than 0, got {context}")
        return context
    handle: Any = getattr(context, "handle", context)
    driver = load()
    if not isinstance(handle, driver.CUcontext):
        raise TypeError(f"a context is None, an id, a CUcontext or cuda.core's, got {safe_repr(context)}")
    if not int(handle):
        raise ValueError(f"{safe_repr(context)} stands for no context")
    number = driver.context_id(handle)
    if number not in _handles:
        _learn(driver, int(handle), number)
    return number


def handle_of(context_id: int) -> int:
    """Give the handle of a context that has been seen; 0 if another one has been seen there since."""
    return _handles.get(context_id, 0)


def fate(driver: Driver, context_id: int) -> int:
    """Tell what has become of a context: 0 if it's alive, else 709 if it's gone, or its sticky error, which is noted."""
    handle = _handles.get(context_id)
    if handle is None:
        return DESTROYED
    try:
        code, number = driver.cuCtxGetId(handle)
    except ODD:  # something that nobody has heard of: nothing more is said to this driver
        return DESTROYED
    if not code:
        return 0 if number == context_id else DESTROYED
    if code not in STICKY:
        return DESTROYED
    driver.failed(code, "cuCtxGetId", context_id)
    return int(code)


def is_gone(driver: Driver, context_id: int) -> bool:
    """Tell whether nothing can be done any more with what belongs to a context: it's gone, or has a sticky error."""
    return fate(driver, context_id) != 0


class Current:
    """Makes a context current within a with-block, unless it is.

    Raises
    ------
    CudaError
        709: it's gone.
    ValueError
        Nobody has seen a context with this id.
    """

    __slots__ = ("_driver", "_id", "_pushed")

    def __init__(self, driver: Driver, context_id: int) -> None:
        self._driver = driver
        self._id = context_id
        self._pushed = False

    def __enter__(self) -> None:
        driver, number = self._driver, self._id
        try:
            code, current = driver.cuCtxGetId(None)
        except ODD as error:
            driver.raise_odd(error, "cuCtxGetId")
        if not code and current == number:
            return
        driver.check_alive(number)
        handle = _handles.get(number)
        if handle is None:
            raise ValueError(
                f"no CUDA context with id {number} has been seen here, or it's gone: "
                "make it current once, or give the context itself"
            )
        if not driver.is_alive(handle, number):
            raise driver.failed(DESTROYED, "cuCtxGetId", number)
        driver.push_context(handle)
        self._pushed = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pushed:
            self._pushed = False
            try:
                self._driver.pop_context()
            except CudaError:
                if error is None:  # else it would hide what has happened before
                    raise


def stream_of(driver: Driver, stream: Any) -> Any:  # noqa: ANN401 - see below
    """Give what the driver takes for a stream.

    Parameters
    ----------
    driver
        The driver.
    stream
        None or 0 for the legacy default stream, a positive int for a handle, a ``CUstream`` of the bindings, or anything
        that has ``__cuda_stream__``, as the streams of cuda.core, PyTorch and CuPy have.

    Returns
    -------
    object
        None for the legacy default stream; an int, or what the bindings have for a stream.

    Raises
    ------
    TypeError
        It's no stream.
    ValueError
        A negative or too large number, or a stream that is closed.
    """
    if stream is None:
        return None
    if type(stream) is int:
        if not 0 <= stream < _MOST:
            raise ValueError(f"a stream's handle is an int from 0 to 2**64 - 1, got {stream}")
        return stream or None
    if isinstance(stream, driver.CUstream):
        return stream
    return _by_protocol(stream)


def _by_protocol(stream: Any) -> Any:  # noqa: ANN401 - as `stream_of`
    if not hasattr(stream, "__cuda_stream__"):
        raise TypeError(f"a stream is None, a handle, or has __cuda_stream__, got {safe_repr(stream)}")
    try:
        told = stream.__cuda_stream__()
    except Exception as error:
        if getattr(stream, "is_closed", False):
            raise ValueError(f"the stream is closed: {safe_repr(stream)}") from error
        raise
    if getattr(stream, "is_closed", False):
        raise ValueError(f"the stream is closed: {safe_repr(stream)}")
    try:
        version, handle = told
    except (TypeError, ValueError):
        version, handle = None, None
    if version != 0 or type(handle) is not int or not 0 <= handle < _MOST:
        raise TypeError(f"__cuda_stream__ of {safe_repr(stream)} gave {safe_repr(told)}, not (0, handle)")
    return handle or None
