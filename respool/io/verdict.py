"""The verdict on an answer: what its head says about the bytes to come, before any has come.

This module owns every check that can be made on a head: status, Content-Range, encoding,
length, framing, validators.  It is pure: a request and a head go in, a verdict comes out.
No transport accepts a body byte without an `Accept`, and accepts no more than it says.

Sources: RFC 9110 sections 8.6, 14.4 and 15.3.7, RFC 9112 section 6.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from http import HTTPStatus
from typing import Final, TypeAlias

from respool.io._head import (
    NOTHING,
    MalformedHeadError,
    ResponseHead,
    Validator,
    content_length,
    content_range,
    is_delimited,
)
from respool.io.plan import counted

_REDIRECTS: Final = frozenset(
    {
        HTTPStatus.MOVED_PERMANENTLY,
        HTTPStatus.FOUND,
        HTTPStatus.SEE_OTHER,
        HTTPStatus.TEMPORARY_REDIRECT,
        HTTPStatus.PERMANENT_REDIRECT,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRequest:
    """What an answer is judged against: the range that was asked for, and what is known of the object.

    Attributes
    ----------
    start : int
        Offset of the first byte asked for.
    length : int
        How many bytes, ≥ 1; within `size` where that is known.
    size : int or None
        The object's size, where known.
    validator : Validator
        What the object was opened with; empty where nothing is known.
    vouched : bool
        Whether the request had an If-Match with the validator's ETag.
    allow_full : bool
        Take the range out of an answer that holds the whole object (status 200).
    """

    start: int
    length: int
    size: int | None = None
    validator: Validator = NOTHING
    vouched: bool = False
    allow_full: bool = False

    @property
    def header(self) -> str:
        """The value of the Range field."""
        return f"bytes={self.start}-{self.start + self.length - 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept:
    """The body is what was asked for.

    Attributes
    ----------
    start : int
        Offset in the object of the first byte to keep.
    length : int
        How many bytes to keep, ≤ the length asked for: less only at the object's end.
    skip : int
        How many bytes of the body come before them.
    total : int or None
        The object's size, where the answer says it.
    validator : Validator
        The answer's own.
    exact : bool
        Whether `length` is a promise.  Where it isn't (a whole object of unknown length), a
        body that ends properly before that ends at the object's end.
    """

    start: int
    length: int
    skip: int = 0
    total: int | None = None
    validator: Validator = NOTHING
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Redirect:
    """The bytes are elsewhere; `location` is as sent, or None where the answer doesn't say."""

    status: int
    location: str | None


@unique
class Fault(Enum):
    """Why an answer is refused."""

    STATUS = "status"
    """A status that isn't about these bytes: not found, forbidden, overloaded."""
    INTEGRITY = "integrity"
    """Not the bytes asked for, or it can't be told which bytes they are."""
    CHANGED = "changed"
    """Bytes of another version of the object."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The body must not be used.

    Attributes
    ----------
    fault : Fault
        What kind of error it is.
    status : int
        The answer's status.
    reason : str
        One phrase without the URL.
    drain : bool
        The framing can be trusted, so a short body may be read and dropped to keep the
        connection.
    """

    fault: Fault
    status: int
    reason: str
    drain: bool = False


Verdict: TypeAlias = Accept | Redirect | Refuse


def judge_range(request: RangeRequest, head: ResponseHead) -> Verdict:
    """Judge an answer to a GET of one range.

    Parameters
    ----------
    request : RangeRequest
        What was asked for.
    head : ResponseHead
        The answer's final head; interim ones (1xx) are not for judging.

    Returns
    -------
    Accept, Redirect or Refuse
        An `Accept` covers exactly the range asked for, clipped at the object's end.
    """
    try:
        length = content_length(head)
        if head.status == HTTPStatus.PARTIAL_CONTENT:
            return _judge_partial(request, head, length)
        if head.status == HTTPStatus.OK:
            return _judge_full(request, head, length)
        if head.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return _judge_unsatisfiable(request, head)
    except MalformedHeadError as error:
        return _malformed(head, error)
    return judge_status(head)


def judge_status(head: ResponseHead) -> Redirect | Refuse:
    """Judge an answer whose status alone decides: anything but success."""
    if head.status in _REDIRECTS:
        try:
            return Redirect(head.status, head.one("location"))
        except MalformedHeadError as error:
            return _malformed(head, error)
    if head.status == HTTPStatus.PRECONDITION_FAILED:
        # Only ever an answer to this library's own If-Match.
        reason = "the object changed: its ETag is no longer the one it was opened with"
        return Refuse(Fault.CHANGED, head.status, reason, drain=True)
    # A status below 200 that ends a head is a switch of protocols that nobody asked for.
    if head.status < HTTPStatus.OK:
        return Refuse(Fault.INTEGRITY, head.status, f"an answer with status {head.status}")
    return Refuse(Fault.STATUS, head.status, "", drain=True)


def _malformed(head: ResponseHead, error: MalformedHeadError) -> Refuse:
    return Refuse(Fault.INTEGRITY, head.status, f"the answer's head can't be trusted: {error}")


def _judge_partial(  # noqa: PLR0911 - a list of checks, each with its answer
    request: RangeRequest, head: ResponseHead, length: int | None
) -> Verdict:
    """Judge a 206."""
    found = content_range(head)
    refused = _encoded(head) or _multipart(head)
    if refused is not None:
        return refused
    if found is None or found.start is None or found.end is None:
        return _refuse(head, "a partial answer that doesn't say which bytes it holds (no Content-Range)")
    changed = _changed(request, head, found.total)
    if changed is not None:
        return changed
    count = found.end - found.start + 1
    if found.start != request.start:
        return _refuse(head, f"the answer begins at byte {found.start} instead of {request.start}")
    if count > request.length:
        return _refuse(head, f"the answer holds {counted(count)}, more than were asked for")
    if count < request.length and (found.total is None or found.end != found.total - 1):
        return _refuse(head, f"the answer holds only {counted(count)} and doesn't reach the object's end")
    if length is not None and length != count:
        return _refuse(head, f"Content-Length is {length}, but the range has {counted(count)}")
    return Accept(start=request.start, length=count, total=found.total, validator=Validator.of(head))


def _judge_full(  # noqa: PLR0911 - a list of checks, each with its answer
    request: RangeRequest, head: ResponseHead, length: int | None
) -> Verdict:
    """Judge a 200: the whole object, though a range was asked for."""
    refused = _encoded(head)
    if refused is not None:
        return refused
    if not request.allow_full and not _is_all_asked_for(request, head, length):
        return _refuse(
            head,
            "the server ignored the range and sends a whole object (status 200), which only allow_full_response="
            "True (or RESPOOL_ALLOW_FULL_RESPONSE=true in the environment) accepts; each block then downloads the "
            "object from its beginning",
        )
    if head.all("content-range"):
        return _refuse(head, "a whole object (status 200) with a Content-Range")
    changed = _changed(request, head, length)
    if changed is not None:
        return changed
    size = length if length is not None else request.size
    if size is None:
        if not is_delimited(head):
            return _refuse(head, "a body whose end can't be told from a broken connection")
        take, exact = request.length, False
    elif request.start > size:
        reason = f"offset {request.start} is beyond the end: the object has {counted(size)}"
        return Refuse(Fault.STATUS, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, reason)
    else:
        take, exact = min(request.length, size - request.start), True
    return Accept(
        start=request.start,
        length=take,
        skip=request.start,
        total=length,
        validator=Validator.of(head),
        exact=exact,
    )


def _is_all_asked_for(request: RangeRequest, head: ResponseHead, length: int | None) -> bool:
    """Whether a whole object is just what was asked for, and surely the one that was opened.

    The length alone proves nothing, as a login page may have it, too.  So it takes an ETag or
    date of the opened object that the answer has as well; an If-Match is no proof here, as a
    server that ignores ranges may ignore that, too.
    """
    if request.start != 0 or length is None or not request.size == request.length == length:
        return False
    return bool(request.validator) and request.validator.difference(Validator.of(head)) is None


def _judge_unsatisfiable(request: RangeRequest, head: ResponseHead) -> Verdict:
    """Judge a 416: never an empty success where bytes must be."""
    found = content_range(head)
    total = None if found is None or found.start is not None else found.total
    if request.size is None:
        if total is not None and total == request.start:
            # The range begins exactly at the end: nothing is there, and nothing is wrong.
            return Accept(start=request.start, length=0, total=total, validator=Validator.of(head))
        beyond = "" if total is None else f": the object has {counted(total)}"
        reason = f"HTTP status 416 Range Not Satisfiable{beyond}"
        return Refuse(Fault.STATUS, head.status, reason, drain=True)
    if total is not None and total != request.size:
        reason = f"the object changed: it had {counted(request.size)} when it was opened and has {total}"
        return Refuse(Fault.CHANGED, head.status, reason, drain=True)
    reason = f"status 416 to a range within the {request.size} bytes of the object: its size changed, or the server is wrong"
    return Refuse(Fault.INTEGRITY, head.status, reason, drain=True)


def _changed(request: RangeRequest, head: ResponseHead, total: int | None) -> Refuse | None:
    """Refuse bytes of another version."""
    if total is not None and request.size is not None and total != request.size:
        reason = f"the object changed: it had {counted(request.size)} when it was opened and has {total}"
        return Refuse(Fault.CHANGED, head.status, reason)
    difference = request.validator.difference(Validator.of(head), vouched=request.vouched)
    if difference is None:
        return None
    return Refuse(Fault.CHANGED, head.status, f"the object changed: {difference}")


def _encoded(head: ResponseHead) -> Refuse | None:
    """Refuse an encoded body: ranges and lengths count encoded bytes then."""
    encodings = [value for value in head.all("content-encoding") if value.lower() not in {"", "identity"}]
    if not encodings:
        return None
    return _refuse(head, f"the body is encoded ({', '.join(encodings)[:80]}), though identity was asked for")


def _multipart(head: ResponseHead) -> Refuse | None:
    """Refuse a multipart body: its boundaries would be taken for data."""
    # Other multipart types are the object's own, and then there's a Content-Range.
    if any(value.lower().startswith("multipart/byteranges") for value in head.all("content-type")):
        return _refuse(head, "a multipart answer to a single range")
    return None


def _refuse(head: ResponseHead, reason: str) -> Refuse:
    return Refuse(Fault.INTEGRITY, head.status, reason)


@dataclass(frozen=True, slots=True)
class Described:
    """What an answer says of the object as a whole.

    Attributes
    ----------
    size : int or None
        Its size in bytes; None where the answer doesn't say.
    validator : Validator
        Its version.
    ranges : bool
        False where the server says, or shows, that it has no ranges.
    """

    size: int | None
    validator: Validator
    ranges: bool = True


def describe(head: ResponseHead, *, probe: bool) -> Described | Redirect | Refuse:
    """Judge an answer to the question how large the object is.

    Parameters
    ----------
    head : ResponseHead
        The answer's final head.
    probe : bool
        Whether the question was a GET of the first byte, instead of a HEAD.

    Returns
    -------
    Described, Redirect or Refuse
        No body is needed for any of them.
    """
    try:
        length = content_length(head)
        refused = _encoded(head)
        validator = Validator.of(head)
        ranges = "none" not in {value.lower() for value in head.all("accept-ranges")}
        if head.status == HTTPStatus.OK:
            # The length of an encoded body isn't the object's.
            return Described(None if refused else length, validator, ranges=ranges and not probe)
        if probe and head.status == HTTPStatus.PARTIAL_CONTENT:
            found = content_range(head)
            if refused is not None or found is None or found.start != 0:
                return refused or _refuse(head, "a partial answer that isn't the first byte")
            return Described(found.total, validator)
        if probe and head.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            found = content_range(head)
            if found is not None and found.start is None and found.total == 0:
                # An empty object has no first byte.
                return Described(0, validator)
    except MalformedHeadError as error:
        return _malformed(head, error)
    return judge_status(head)
