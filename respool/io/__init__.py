"""Reading remote and local files into memory, at any offset, from any thread.

`open` gives a `File`; a `Session` holds the pools, threads and settings (`Config`) that
files share.  The names are imported when they're first used; http and https need pycurl,
``pip install respool[io]``, and say so at the first remote file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from respool._lazy import lazy

if TYPE_CHECKING:
    from respool.io._future import ReadFuture, ReadStats
    from respool.io._open import open  # noqa: A004 - the contract's name
    from respool.io.config import Config
    from respool.io.errors import (
        ConnectError,
        CredentialsError,
        HTTPStatusError,
        ObjectChangedError,
        RangeIntegrityError,
        ReadTimeoutError,
        RedirectError,
        RemoteIOError,
    )
    from respool.io.file import File
    from respool.io.local import LocalFile
    from respool.io.remote import RemoteFile
    from respool.io.session import Session

__all__ = [
    "Config",
    "ConnectError",
    "CredentialsError",
    "File",
    "HTTPStatusError",
    "LocalFile",
    "ObjectChangedError",
    "RangeIntegrityError",
    "ReadFuture",
    "ReadStats",
    "ReadTimeoutError",
    "RedirectError",
    "RemoteFile",
    "RemoteIOError",
    "Session",
    "open",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of this module's
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "Config": "config",
            "ConnectError": "errors",
            "CredentialsError": "errors",
            "File": "file",
            "HTTPStatusError": "errors",
            "LocalFile": "local",
            "ObjectChangedError": "errors",
            "RangeIntegrityError": "errors",
            "ReadFuture": "_future",
            "ReadStats": "_future",
            "ReadTimeoutError": "errors",
            "RedirectError": "errors",
            "RemoteFile": "remote",
            "RemoteIOError": "errors",
            "Session": "session",
            "open": "_open",
        },
    )
