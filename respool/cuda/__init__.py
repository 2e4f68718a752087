"""CUDA events, pooled by context.

Imports without CUDA, its driver or its Python bindings; the first use of the driver says what is missing.
"""

from __future__ import annotations

from respool.cuda.errors import CudaError, CudaUnavailableError, NoContextError, WrongContextError

__all__ = ["CudaError", "CudaUnavailableError", "NoContextError", "WrongContextError"]
