"""CUDA events, pooled by context.

Imports without CUDA, its driver or its Python bindings; the first use of the driver says what is missing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from respool.cuda.errors import CudaError, CudaUnavailableError, NoContextError, WrongContextError

if TYPE_CHECKING:
    from .event import CudaEvent
    from .event_pool import CudaEventPool

__all__ = [
    "CudaError",
    "CudaEvent",
    "CudaEventPool",
    "CudaUnavailableError",
    "NoContextError",
    "WrongContextError",
]

_LAZY = {"CudaEvent": ".event", "CudaEventPool": ".event_pool"}


def __getattr__(name: str) -> object:
    """Import the pool when it is first asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_LAZY[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
