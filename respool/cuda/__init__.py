"""CUDA events, pooled by context.

Imports without CUDA, its driver or its Python bindings; the first use of the driver says what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from respool._lazy import lazy
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

if not TYPE_CHECKING:  # a type checker would take any name for one of this module's
    __getattr__, __dir__ = lazy(__name__, {"CudaEvent": "event", "CudaEventPool": "event_pool"})
