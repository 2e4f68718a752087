"""`open`: from an address to a file.

This module owns telling URLs from paths, and which kind of file each is.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes, urlsplit

from respool.curl.origin import redact

if TYPE_CHECKING:
    from respool.curl.origin import Credential
    from respool.io.file import File
    from respool.io.remote import Headers
    from respool.io.session import Session

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
#: A scheme with one slash: of a file URL that's a form of its RFC, of the others a slip.
_ONE_SLASH: Final = re.compile(r"(file|https?):/(?=[^/])", re.IGNORECASE)


def open(  # noqa: A001 - the contract's name, to be called as respool.io.open
    url: str | os.PathLike[str],
    *,
    session: Session | None = None,
    size: int | None = None,
    headers: Headers | None = None,
    auth: Credential | None = None,
) -> File:
    """Open something to read from.

    Parameters
    ----------
    url : str or path
        ``http://`` or ``https://``, ``file://`` (percent-encoded), or the path of a file.
    session : Session, optional
        Whose pools and settings to use; None takes the process's own.
    size : int, optional
        The object's size in bytes where it's known already: no request is made for it then.
        A server that later says another one is an `ObjectChangedError`.
    headers : mapping or iterable of pairs, optional
        Further header fields for each request, to the URL's own origin only.
    auth : (str, str) or str, optional
        (user, password) for HTTP Basic, or a bearer token; to the URL's own origin only.

    Returns
    -------
    File
        A `RemoteFile` or `LocalFile`; close it, or use it as a context manager.

    Raises
    ------
    TypeError
        An argument of another kind than those above.
    ValueError
        A URL that is empty, has no host or an unknown scheme; `size`, `headers` or `auth`
        for a local file; a closed session.
    HTTPStatusError
        The server refuses; for 404 it's a `FileNotFoundError` too, for 401 and 403 a
        `PermissionError`.
    RemoteIOError
        Nothing can be had of the server: one of its subclasses, in the manual under "Reading".
    OSError
        A local file can't be opened; ESPIPE for a pipe.

    Examples
    --------
    >>> import respool.io
    >>> with respool.io.open(__file__) as f:
    ...     head = f.read(size=3)
    """
    from respool.io.session import Session, default_session

    if session is None:
        session = default_session()
    elif not isinstance(session, Session):
        raise TypeError(f"session must be a Session, not {type(session).__name__}")
    return session.open(url, size=size, headers=headers, auth=auth)


open.__module__ = "respool.io"


def open_with(
    session: Session,
    url: str | os.PathLike[str],
    *,
    size: int | None,
    headers: Headers | None,
    auth: Credential | None,
) -> File:
    """Open an address with a session; see `open`."""
    path = _local_path(url)
    if path is None:
        from respool.io.remote import RemoteFile

        assert isinstance(url, str)  # noqa: S101 - a path is never a URL
        return RemoteFile(session, url, size=size, headers=headers, auth=auth)
    for name, value in (("size", size), ("headers", headers), ("auth", auth)):
        if value is not None:
            raise ValueError(f"{name} is for remote files, not for {path!r}")
    from respool.io.local import LocalFile

    try:
        return LocalFile(session, path)
    except FileNotFoundError as error:
        url_meant = missing_slashes(url)
        if url_meant is not None:
            error.add_note(
                f"taken for a path, as a URL has :// behind its scheme; did you mean {redact(url_meant)}?"
            )
        raise


def missing_slashes(url: str | os.PathLike[str]) -> str | None:
    """Return the URL that was probably meant by a text that is one but for a slash or two, or None."""
    slipped = _ONE_SLASH.match(url) if isinstance(url, str) else None
    if slipped is None:
        return None
    scheme = slipped[1].lower()
    return f"{scheme}:{'///' if scheme == 'file' else '//'}{slipped.string[slipped.end() :]}"


def _local_path(url: str | os.PathLike[str]) -> str | None:
    """Return the path that an address means, or None for a remote one."""
    if isinstance(url, os.PathLike):
        text = os.fspath(url)
        is_path = True
    else:
        text, is_path = url, False
    if not isinstance(text, str):
        raise TypeError(f"a URL or path must be a str or path, not {type(url).__name__}")
    if not text:
        raise ValueError("an empty URL or path: ''")
    scheme = None if is_path else _URL.match(text)
    if scheme is None:
        return text
    match scheme[1].lower():
        case "http" | "https":
            return None
        case "file":
            return _path_of_url(text)
        case other:
            raise ValueError(f"unknown scheme {other!r} (http, https, file, or a path): {redact(text)!r}")


def _path_of_url(url: str) -> str:
    """Return the path that a file URL names."""
    parts = urlsplit(url)
    if parts.netloc.lower() not in {"", "localhost"}:
        raise ValueError(f"a file URL with a host, {parts.netloc!r}: {redact(url)!r}")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise ValueError(
            f"a file URL with a query or fragment (a ? in a name is written %3F, a # %23): {redact(url)!r}"
        )
    path = unquote_to_bytes(parts.path)
    if not path.startswith(b"/") or b"\0" in path:
        raise ValueError(f"a file URL without an absolute path: {redact(url)!r}")
    return os.fsdecode(path)
