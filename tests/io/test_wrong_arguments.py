"""What a wrong argument is told by: its own name, what may be there, and never a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import respool.io
from respool.io import Session

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = "http://127.0.0.1:1/"


@pytest.mark.parametrize("given", [5, "session", respool.io.Config()])
def test_session(path: Path, given: Any) -> None:
    """What is no session is told as such, for whatever address."""
    for url in (path, NOWHERE):
        with pytest.raises(TypeError, match=r"^session must be a Session, not (int|str|Config)$"):
            respool.io.open(url, session=given)


def test_a_session_of_a_subclass(path: Path) -> None:
    """A session of a subclass is a session."""

    class Mine(Session):
        pass

    with Mine() as session, respool.io.open(path, session=session) as file:
        assert file.session is session


@pytest.mark.parametrize(
    ("ranges", "told"),
    [
        ([0, 5], r"^ranges must be pairs of offset and size, not 0$"),
        ((3, 4), r"^ranges must be pairs of offset and size, not 3$"),
        ([(0, 5), (1,)], r"^ranges must be pairs of offset and size, not \(1,\)$"),
        ([(0, 5, 6)], r"^ranges must be pairs of offset and size, not \(0, 5, 6\)$"),
        ([(0, None)], r"^size must be an int, not None$"),
        (["ab"], r"^offset must be an int, not 'a'$"),
        (5, r"^ranges must be an iterable of \(offset, size\), not int$"),
        (None, r"^ranges must be an iterable of \(offset, size\), not NoneType$"),
    ],
)
def test_ranges(path: Path, session: Session, ranges: Any, told: str) -> None:
    """R08: a list of ranges that isn't one is told by what it should be, before anything is read."""
    with session.open(path) as file, pytest.raises(TypeError, match=told):
        file.read_many(ranges)


def test_ranges_that_fail_by_themselves(path: Path, session: Session) -> None:
    """R08: an error of the caller's own iterator is the caller's to see, unchanged."""

    def ranges() -> Any:
        yield 0, 5
        raise TypeError("mine")

    with session.open(path) as file, pytest.raises(TypeError, match=r"^mine$"):
        file.read_many(ranges())


@pytest.mark.parametrize("pair", [[2, 3], range(2, 4)])
def test_ranges_of_any_pairs(path: Path, session: Session, pair: Any) -> None:
    """R08: any two are a pair."""
    with session.open(path) as file:
        assert file.read_many([pair]) == [file.read(offset=2, size=3)]


@pytest.mark.parametrize(
    ("auth", "told"),
    [
        (5, r"^auth must be \(user, password\) or a bearer token, not int$"),
        (b"5ecret", r"^auth must be \(user, password\) or a bearer token, not bytes$"),
        (["user", "5ecret"], r"^auth must be \(user, password\) or a bearer token, not list$"),
        (("5ecret",), r"^auth must be \(user, password\) or a bearer token, not a tuple of 1$"),
        (("user", 5), r"^auth: user and password must be str, not int$"),
        ((b"user", "5ecret"), r"^auth: user and password must be str, not bytes$"),
    ],
)
def test_auth(session: Session, auth: Any, told: str) -> None:
    """R34: what is no credential is told by the argument's name and by kind, never by value."""
    with pytest.raises(TypeError, match=told):
        session.open(NOWHERE, auth=auth)


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"X-Key": 5}, r"^the header X-Key must have a str as its value, not int$"),
        ({"X-Key": None}, r"^the header X-Key must have a str as its value, not NoneType$"),
        (
            [("Authorization", b"5ecret")],
            r"^the header Authorization must have a str as its value, not bytes$",
        ),
        ({"bad\nname": 5}, r"^no header name: 'bad\\nname'$"),
        ({1: "5ecret"}, r"^a header's name must be a str, not int$"),
        ([("5ecret",)], r"^headers must be a mapping of str to str, or pairs of str, not hold a tuple of 1$"),
        (["5ecret"], r"^headers must be a mapping of str to str, or pairs of str, not hold a str$"),
        (5, r"^headers must be a mapping of str to str, or pairs of str, not int$"),
    ],
)
def test_headers(session: Session, headers: Any, told: str) -> None:
    """R34: a header that is none is told by its name, never by its value."""
    with pytest.raises((TypeError, ValueError), match=told):
        session.open(NOWHERE, headers=headers)
