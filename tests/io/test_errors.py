"""The exceptions: what they are, what they say, and what they never say."""

from __future__ import annotations

import copy
import errno
import pickle
import traceback

import pytest

from respool.io import (
    ConnectError,
    CredentialsError,
    HTTPStatusError,
    ObjectChangedError,
    RangeIntegrityError,
    ReadTimeoutError,
    RedirectError,
    RemoteIOError,
)

SECRET = "https://user:pa55word@host/key?X-Amz-Signature=5ecret&versionId=3"
ALL = [
    RemoteIOError,
    RangeIntegrityError,
    ObjectChangedError,
    ReadTimeoutError,
    ConnectError,
    RedirectError,
    CredentialsError,
]


@pytest.mark.parametrize("kind", ALL)
def test_what_an_error_says(kind: type[RemoteIOError]) -> None:
    """R14: an error names what happened, the range asked for, what came, and the URL without its secrets."""
    error = kind("the body ended", url=SECRET, offset=10, size=5, got=2)
    text = str(error)
    assert text == f"the body ended; asked for 5 bytes at offset 10, got 2: {error.url}"
    assert error.args == (text,)
    assert error.url == error.filename
    assert "host/key" in text
    for secret in ("pa55word", "5ecret", "user"):
        assert secret not in text + repr(error) + repr(error.__dict__)
    assert isinstance(error, OSError)
    assert isinstance(error.errno, int)


@pytest.mark.parametrize("kind", ALL)
def test_pickling(kind: type[RemoteIOError]) -> None:
    """R48: every error survives pickling and copying with all it says."""
    error = kind("why", url=SECRET, offset=1, size=2, got=0)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):  # noqa: S301 - our own
        assert type(other) is kind
        assert (str(other), other.args, other.errno, other.filename) == (
            str(error),
            error.args,
            error.errno,
            error.filename,
        )
        assert other.__dict__ == error.__dict__


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, FileNotFoundError),
        (401, PermissionError),
        (403, PermissionError),
        (500, OSError),
        (418, OSError),
        (799, OSError),
    ],
)
def test_status_errors(status: int, kind: type[OSError]) -> None:
    """R31: a 404 is a FileNotFoundError, 401 and 403 are PermissionErrors, and all keep status and class by pickle."""
    error = HTTPStatusError(status, SECRET)
    assert isinstance(error, kind)
    # By whatever its class is shown: logs take one, tracebacks the other, repr a third.
    assert (type(error).__name__, type(error).__qualname__) == ("HTTPStatusError", "HTTPStatusError")
    assert repr(error).startswith("HTTPStatusError(")
    assert traceback.format_exception_only(error)[0].startswith("respool.io.HTTPStatusError: ")
    assert isinstance(error, HTTPStatusError)
    assert error.status == status
    assert str(status) in str(error)
    assert "5ecret" not in str(error)
    other = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert type(other) is type(error)
    assert (other.status, str(other), other.errno) == (status, str(error), error.errno)


def test_errno_of_builtin_kinds() -> None:
    """R31: errno is what the built-in class stands for."""
    assert HTTPStatusError(404, "http://h/").errno == errno.ENOENT
    assert HTTPStatusError(403, "http://h/").errno == errno.EACCES
    assert ReadTimeoutError("late").errno == errno.ETIMEDOUT


def test_kinds_of_errors() -> None:
    """R32: a timeout is a TimeoutError, a failed connection a ConnectionError, as callers of other code expect."""
    assert issubclass(ReadTimeoutError, TimeoutError)
    assert issubclass(ConnectError, ConnectionError)
    assert all(issubclass(kind, RemoteIOError) for kind in [*ALL, HTTPStatusError])


@pytest.mark.parametrize(
    ("size", "got", "told"),
    [(1, 0, "asked for 1 byte at offset 1, got 0"), (0, None, "asked for 0 bytes at offset 1")],
)
def test_one_byte(size: int, got: int | None, told: str) -> None:
    """R14: one byte is not several."""
    assert str(RangeIntegrityError("why", offset=1, size=size, got=got)) == f"why; {told}"


def test_local_paths_are_shown_whole() -> None:
    """R49: a path isn't taken for a URL: nothing of it is masked."""
    assert RangeIntegrityError("shrank", url="/home/a@b/x?y;z").url == "/home/a@b/x?y;z"
