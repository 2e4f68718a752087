"""Pooled libcurl easy handles, kept by origin so that their connections are reused.

Imports without pycurl; the first use of `EasyHandlePool` says what to install.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .origin import Origin

if TYPE_CHECKING:
    from .handle_pool import EasyHandlePool

__all__ = ["EasyHandlePool", "Origin"]

_LAZY = {"EasyHandlePool": ".handle_pool"}

if not TYPE_CHECKING:  # a type checker would take any name for one of this module's

    def __getattr__(name: str) -> object:
        """Import what needs pycurl when it is first asked for."""
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(_LAZY[name], __name__), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
