"""Pooled libcurl easy handles, kept by origin so that their connections are reused.

Imports without pycurl; the first use of `EasyHandlePool` says what to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from respool._lazy import lazy

from .origin import Origin

if TYPE_CHECKING:
    from .handle_pool import EasyHandlePool

__all__ = ["EasyHandlePool", "Origin"]

if not TYPE_CHECKING:  # a type checker would take any name for one of this module's
    __getattr__, __dir__ = lazy(__name__, {"EasyHandlePool": "handle_pool"})
