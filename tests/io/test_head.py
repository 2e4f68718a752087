"""Heads as raw lines: read strictly, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.io._head import (
    MAX_SIZE,
    MalformedHeadError,
    ResponseHead,
    Validator,
    content_length,
    content_range,
)

TOKENS = st.text("abcXYZ019-_!", min_size=1, max_size=12)
VALUES = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=20
)


def head(*lines: str, version: str = "1.1", status: int = 206) -> ResponseHead:
    """Make a head of field lines."""
    return ResponseHead.of_lines(
        [f"HTTP/{version} {status}".encode(), *(line.encode("latin-1") for line in lines)]
    )


@given(
    st.lists(st.tuples(TOKENS, VALUES), max_size=5),
    st.sampled_from(["\r\n", "\n", ""]),
    st.text(" \t", max_size=3),
)
def test_fields_are_read_as_sent(fields: list[tuple[str, str]], end: str, blanks: str) -> None:
    """R20: names in any case, blanks around values, and either line ending make no difference."""
    lines = [f"HTTP/1.1 206 Some Reason{end}".encode()]
    lines += [f"{name}:{blanks}{value}{blanks}{end}".encode("latin-1") for name, value in fields]
    found = ResponseHead.of_lines(lines)
    assert found.fields == tuple((name.lower(), value.strip(" \t")) for name, value in fields)


@given(st.lists(st.binary(max_size=30), max_size=6))
def test_any_lines_are_read_or_refused(lines: list[bytes]) -> None:
    """R20, R21: whatever comes is a head or a MalformedHeadError, never another failure."""
    try:
        found = ResponseHead.of_lines([b"HTTP/1.1 206 OK\r\n", *lines])
        content_length(found)
        content_range(found)
        Validator.of(found)
    except MalformedHeadError:
        pass


@pytest.mark.parametrize(
    "line", ["HTTP/1.1 2006", "HTTP/1.1 20", "HTTP/1.1 2x6", "HTTPS/1.1 206", "ICY 200 OK", "", "206"]
)
def test_no_status_line(line: str) -> None:
    """R20: what doesn't begin with a status line is no head."""
    with pytest.raises(MalformedHeadError, match="status line"):
        ResponseHead.of_lines([line.encode()])


@pytest.mark.parametrize(
    "line", ["no colon", ": value", "na me: value", "name : value", "näme: value", "a\0: b"]
)
def test_no_field(line: str) -> None:
    """R19: a line that is no field makes the head untrusted."""
    with pytest.raises(MalformedHeadError, match="no header field"):
        head(line)


def test_folded_value() -> None:
    """R20: a folded value is one value."""
    assert head("X-Long: one", "  two", "\tthree").one("x-long") == "one two three"


@given(st.integers(0, MAX_SIZE), st.integers(0, 3))
def test_plain_lengths(length: int, zeros: int) -> None:
    """R19: a plain number up to 2^63 - 1 is a length, given once or several times alike."""
    line = f"Content-Length: {'0' * zeros}{length}"
    assert content_length(head(line)) == length
    assert content_length(head(line, line)) == length


@given(st.text(max_size=30).filter(lambda text: not (text.isascii() and text.strip(" \t").isdigit())))
def test_no_lengths(text: str) -> None:
    """R19: anything but digits is no length."""
    found = ResponseHead("1.1", 206, (("content-length", text),))
    with pytest.raises(MalformedHeadError):
        content_length(found)


@given(st.integers(MAX_SIZE + 1, 1 << 200))
def test_too_large_lengths(length: int) -> None:
    """R19: a length beyond 2^63 - 1 is refused, also where it would wrap to a small one."""
    with pytest.raises(MalformedHeadError):
        content_length(head(f"Content-Length: {length}"))


@given(st.integers(0, MAX_SIZE), st.integers(0, MAX_SIZE), st.none() | st.integers(0, MAX_SIZE))
def test_content_ranges(start: int, end: int, total: int | None) -> None:
    """R05: a Content-Range is read exactly, and refused where its numbers contradict each other."""
    found = head(f"Content-Range: bytes {start}-{end}/{'*' if total is None else total}")
    if start > end or (total is not None and end >= total):
        with pytest.raises(MalformedHeadError):
            content_range(found)
    else:
        assert content_range(found) == (start, end, total)


@pytest.mark.parametrize(
    ("opened", "answer", "same"),
    [
        (('"1"', None), ('"1"', None), True),
        (('"1"', None), ('"2"', None), False),
        (('"1"', None), ('W/"1"', None), False),
        (('W/"1"', None), ('W/"1"', None), True),
        (('W/"1"', None), ('"1"', None), True),
        (('W/"1"', None), ('W/"2"', None), False),
        (('W/"1"', None), ('w/"1"', None), False),
        (("unquoted", None), ("unquoted", None), True),
        (("unquoted", None), ("other", None), False),
        (('"1"', "Mon"), ('"1"', "Tue"), True),
        (('"1"', "Mon"), ('"2"', "Mon"), False),
        (('"1"', "Mon"), (None, "Mon"), True),
        (('"1"', "Mon"), (None, "Tue"), False),
        ((None, "Mon"), ('"1"', "Mon"), True),
        ((None, "Sun, 06 Nov 1994 08:49:37 GMT"), (None, "Sunday, 06-Nov-94 08:49:37 GMT"), True),
        ((None, "Sun, 06 Nov 1994 08:49:37 GMT"), (None, "Sun, 06 Nov 1994 08:49:38 GMT"), False),
        (('"1"', None), (None, "Mon"), False),
        (('"1"', None), (None, None), False),
        ((None, "Mon"), (None, None), False),
        ((None, None), ('"1"', "Mon"), True),
        ((None, None), (None, None), True),
    ],
)
def test_versions(
    opened: tuple[str | None, str | None], answer: tuple[str | None, str | None], *, same: bool
) -> None:
    """R22, R23, R24: strong ETags must stay, weak ones their tag; dates count where no ETags can be compared."""
    assert (Validator(*opened).difference(Validator(*answer)) is None) is same


def test_vouched_version() -> None:
    """R22: an answer to an If-Match needs no ETag, but a wrong one is still a change."""
    opened = Validator('"1"')
    assert opened.difference(Validator(), vouched=True) is None
    assert opened.difference(Validator('"2"'), vouched=True) is not None


@pytest.mark.parametrize(
    ("etag", "strong"),
    [('"1"', '"1"'), ('""', '""'), ('W/"1"', None), ("1", None), ('"a"b"', None), (None, None)],
)
def test_what_goes_into_if_match(etag: str | None, strong: str | None) -> None:
    """R24: only a well-formed strong ETag is fit for If-Match."""
    assert Validator(etag).strong_etag == strong
