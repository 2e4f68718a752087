"""The head of an HTTP answer as raw lines, and strict readings of its fields.

This module owns turning lines as they came over the wire into fields, and the few field
values that decide whether a body may be trusted: Content-Length, Content-Range, the
validators.  It is pure.  What a reading means for a request is `respool.io.verdict`'s
business; framing and protocol are libcurl's.

Readings are stricter than libcurl's on purpose: libcurl 8.23 takes a Content-Length of
2^64 + 5 for a body without one, and one of two codings where both are given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The largest size that any file system or libcurl can count, 2^63 - 1.
MAX_SIZE: Final = (1 << 63) - 1

_STATUS = re.compile(rb"HTTP/([0-9](?:\.[0-9])?) ([0-9]{3})(?: (.*))?\r?\n?\Z", re.DOTALL)
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*(.*?)[ \t]*\r?\n?\Z", re.DOTALL)
_DIGITS = re.compile(r"[0-9]{1,40}\Z")
_CONTENT_RANGE = re.compile(r"([^ \t]+)[ \t]+(?:([0-9]{1,40})-([0-9]{1,40})|(\*))/([0-9]{1,40}|\*)\Z")
_ETAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"\Z')


class MalformedHeadError(ValueError):
    """A head, or a field of it, that can't be read in one way only."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """One answer's status and fields.

    Attributes
    ----------
    version : str
        As in the status line: ``"1.1"``, ``"1.0"``, ``"2"``.
    status : int
        Three digits.
    fields : tuple of (str, str)
        Names in lower case, values without the blanks around them (ISO 8859-1), in order.
    """

    version: str
    status: int
    fields: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_lines(cls, lines: Iterable[bytes]) -> ResponseHead:
        """Read the lines of one head; the status line comes first, the empty line may be left out.

        Raises
        ------
        MalformedHeadError
            A line is no status line or no field.
        """
        rest = iter(lines)
        first = _STATUS.match(next(rest, b""))
        if first is None:
            raise MalformedHeadError("no status line")
        fields: list[tuple[str, str]] = []
        for line in rest:
            if line in (b"\r\n", b"\n", b""):
                break
            if line[:1] in b" \t" and fields:
                # A folded value (RFC 9112, 5.2); libcurl unfolds these itself.
                name, value = fields[-1]
                fields[-1] = name, f"{value} {line.strip().decode('latin-1')}".strip()
                continue
            match = _FIELD.match(line)
            if match is None:
                raise MalformedHeadError(f"no header field: {line[:80]!r}")
            fields.append((match[1].decode("ascii").lower(), match[2].decode("latin-1")))
        return cls(first[1].decode("ascii"), int(first[2]), tuple(fields))

    def all(self, name: str) -> list[str]:
        """Return every value of a field, given its name in lower case."""
        return [value for field, value in self.fields if field == name]

    def one(self, name: str) -> str | None:
        """Return a field's value, or None where it's missing.

        Raises
        ------
        MalformedHeadError
            It's there twice with different values.
        """
        values = set(self.all(name))
        if len(values) > 1:
            raise MalformedHeadError(f"{len(values)} different values of {name}: {sorted(values)!r}"[:200])
        return values.pop() if values else None


def content_length(head: ResponseHead) -> int | None:
    """Return the Content-Length, or None where there's none.

    Raises
    ------
    MalformedHeadError
        It's no plain number of at most 2^63 - 1, given with differing values, or together
        with a Transfer-Encoding: then nobody knows where the body ends (RFC 9112, 6.3).
    """
    length = head.one("content-length")
    codings = head.all("transfer-encoding")
    if codings:
        if length is not None:
            raise MalformedHeadError("Content-Length and Transfer-Encoding together")
        if [coding.lower() for coding in codings] != ["chunked"]:
            raise MalformedHeadError(f"Transfer-Encoding {', '.join(codings)!r}"[:200])
        if head.version == "1.0":
            raise MalformedHeadError("Transfer-Encoding in an HTTP/1.0 answer")
    if length is None:
        return None
    return _number("Content-Length", length)


def is_delimited(head: ResponseHead) -> bool:
    """Whether the end of a body without Content-Length shows: only where the close of the connection isn't it."""
    return bool(head.all("transfer-encoding")) or not head.version.startswith("1")


def _number(what: str, text: str) -> int:
    # int() would take signs, blanks, underscores and other scripts' digits, and takes long for long texts.
    if not _DIGITS.match(text) or int(text) > MAX_SIZE:
        raise MalformedHeadError(f"{what} {text[:80]!r}")
    return int(text)


class ContentRange(NamedTuple):
    """A Content-Range in bytes.

    ``start`` and ``end`` (inclusive) are None in the form of a 416, ``total`` is where the
    server doesn't say the object's size.
    """

    start: int | None
    end: int | None
    total: int | None


def content_range(head: ResponseHead) -> ContentRange | None:
    """Return the Content-Range, or None where there's none.

    Raises
    ------
    MalformedHeadError
        It isn't one valid range in bytes.
    """
    text = head.one("content-range")
    if text is None:
        return None
    match = _CONTENT_RANGE.match(text)
    if match is None or match[1].lower() != "bytes":
        raise MalformedHeadError(f"Content-Range {text[:80]!r}")
    total = None if match[5] == "*" else _number("Content-Range", match[5])
    if match[4]:
        if total is None:
            raise MalformedHeadError(f"Content-Range {text[:80]!r}")
        return ContentRange(None, None, total)
    start, end = _number("Content-Range", match[2]), _number("Content-Range", match[3])
    if start > end or (total is not None and end >= total):
        raise MalformedHeadError(f"Content-Range {text[:80]!r}")
    return ContentRange(start, end, total)


@dataclass(frozen=True, slots=True)
class Validator:
    """What tells two versions of an object apart: the ETag and date as the server sent them.

    Attributes
    ----------
    etag : str or None
        As sent, with its quotes and the ``W/`` of a weak one.
    last_modified : str or None
        As sent.
    """

    etag: str | None = None
    last_modified: str | None = None

    @classmethod
    def of(cls, head: ResponseHead) -> Validator:
        """Read an answer's validators; empty ones count as missing."""
        return cls(head.one("etag") or None, head.one("last-modified") or None)

    def __bool__(self) -> bool:
        return self.etag is not None or self.last_modified is not None

    @property
    def strong_etag(self) -> str | None:
        """The ETag if it's well-formed and strong: fit for If-Match."""
        match = None if self.etag is None else _ETAG.match(self.etag)
        return None if match is None or match[1] else self.etag

    def difference(self, answer: Validator, *, vouched: bool = False) -> str | None:
        """Tell why an answer with these validators is of another version, or None.

        ETags are compared where both sides have one, and dates only where that can't be
        done.  A strong ETag must stay the same strong one; a weak one only its tag, as the
        server vouches for no more.  An answer with nothing to compare proves nothing, so
        that's a difference too, unless the server was asked by If-Match and has thereby
        `vouched` for the ETag.
        """
        if self.etag is not None and answer.etag is not None:
            if _same_etag(self.etag, answer.etag):
                return None
            return f"its ETag was {self.etag} and is {answer.etag}"
        if self.last_modified is not None and answer.last_modified is not None:
            if _same_date(self.last_modified, answer.last_modified):
                return None
            return f"its Last-Modified was {self.last_modified!r} and is {answer.last_modified!r}"
        if self and not vouched:
            return f"the answer has none of what it was opened with ({self.etag or self.last_modified})"
        return None


def _same_etag(opened: str, answer: str) -> bool:
    if opened == answer:
        return True
    first, second = _ETAG.match(opened), _ETAG.match(answer)
    return first is not None and second is not None and bool(first[1]) and first[2] == second[2]


def _same_date(opened: str, answer: str) -> bool:
    if opened == answer:
        return True
    try:
        return parsedate_to_datetime(opened) == parsedate_to_datetime(answer)
    except (TypeError, ValueError):
        return False


#: Of an object of which nothing is known.
NOTHING: Final = Validator()
