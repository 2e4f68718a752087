"""Reading remote and local files into memory, at any offset, from any thread.

`open` gives a `File`; a `Session` holds the pools, threads and settings (`Config`) that
files share.  The names are imported when they're first used; http and https need pycurl,
``pip install respool[io]``, and say so at the first remote file.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

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

_HOMES: Final = {
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
}

if not TYPE_CHECKING:  # a type checker would take any name for one of this module's

    def __getattr__(name: str) -> object:
        """Import a public name when it's first asked for."""
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
