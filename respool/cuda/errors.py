"""The exceptions of everything that calls the CUDA driver, and what a code of the driver says to a user.

Needs neither CUDA nor its Python bindings.  All of them can be pickled.
"""

from __future__ import annotations

from respool.errors import PoolError

__all__ = [
    "STICKY",
    "CudaError",
    "CudaUnavailableError",
    "NoContextError",
    "WrongContextError",
    "error_class",
]

STICKY = frozenset({214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721})
"""Codes after which a context is of no use any more: each later call in it gives the same one.

These are the codes of which the documentation of ``CUresult`` says that the process is left in an inconsistent state or
that the context can't be used any more, and uncorrectable errors of memory (214) and of NVLink (220).
"""

_HINTS = {
    3: "this process was forked from one that had initialised CUDA, or CUDA is shutting down; use the start method "
    "'spawn' (or 'forkserver') instead of 'fork'",
    201: "no CUDA context is current on this thread; make one current first, for example by cuda.core's "
    "Device(0).set_current() or torch.cuda.init()",
    400: "an event, stream and pinned block can be used only with the context that they belong to, and while they live",
    600: "the work before the event isn't done yet; wait for it by the event's synchronize()",
    709: "the context has been destroyed, or its device reset; nothing that belonged to it can be used any more",
    900: "the call isn't allowed while a stream capture is open",
    907: "the event was last recorded in a stream capture",
}


class CudaError(PoolError, RuntimeError):
    """A call of the CUDA driver failed.

    Parameters
    ----------
    code
        The driver's code, a ``CUresult``.
    name
        Its name, such as ``CUDA_ERROR_OUT_OF_MEMORY``.
    call
        The driver's function.
    text
        What the driver says about the code.
    since
        Where the context has been useless for a while: since when, in words.

    Attributes
    ----------
    code : int
        The driver's code.
    name : str
        Its name.
    call : str
        The driver's function.
    """

    __module__ = "respool.cuda"

    def __init__(self, code: int, name: str = "", call: str = "", text: str = "", since: str = "") -> None:
        super().__init__(code, name, call, text, since)
        self.code = code
        self.name = name
        self.call = call

    def __str__(self) -> str:
        code, name, call, text, since = self.args
        parts = [f"{call or 'the CUDA driver'} failed with {name or 'code'} ({code})"]
        if text:
            parts[0] += f": {text}"
        if code in STICKY:
            parts.append(since or "nothing can be done in this context any more")
        hint = _HINTS.get(code)
        if hint:
            parts.append(hint)
        return "; ".join(parts)


class NoContextError(CudaError):
    """No CUDA context is current on the calling thread (201)."""

    __module__ = "respool.cuda"


class WrongContextError(CudaError):
    """Things of different contexts were used together, or a handle is none (400)."""

    __module__ = "respool.cuda"


class CudaUnavailableError(PoolError, RuntimeError):
    """CUDA can't be used here: no bindings or unsuitable ones, no driver or too old a one, or no GPU.

    The same at each use.  Its ``__cause__`` is what was found, if that was an exception.
    """

    __module__ = "respool.cuda"


_CLASSES: dict[int, type[CudaError]] = {201: NoContextError, 400: WrongContextError}


def error_class(code: int) -> type[CudaError]:
    """Give the class of the error for a code of the driver."""
    return _CLASSES.get(code, CudaError)
