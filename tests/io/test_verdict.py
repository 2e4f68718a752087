"""The verdict, against an oracle that knows nothing of how it's written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from respool.io._head import ResponseHead, Validator
from respool.io.verdict import Accept, Described, Fault, RangeRequest, Redirect, Refuse, describe, judge_range

SMALL = st.integers(0, 12)
MAYBE = st.none() | SMALL
ETAGS = st.sampled_from([None, '"a"', '"b"', 'W/"a"'])


@st.composite
def requests(draw: st.DrawFn) -> RangeRequest:
    """Make a request whose range lies within the known size, as readers make them."""
    size = draw(st.none() | st.integers(1, 12))
    start = draw(st.integers(0, 11 if size is None else size - 1))
    length = draw(st.integers(1, 12 if size is None else size - start))
    return RangeRequest(
        start=start,
        length=length,
        size=size,
        validator=Validator(draw(ETAGS)),
        allow_full=draw(st.booleans()),
    )


@st.composite
def heads(draw: st.DrawFn) -> ResponseHead:
    """Make an answer of the fields that matter, true or not."""
    fields: list[tuple[str, str]] = []

    def maybe(name: str, values: st.SearchStrategy[Any]) -> None:
        fields.extend((name, str(value)) for value in draw(st.lists(values, max_size=2)))

    ranges = st.tuples(SMALL, SMALL, SMALL | st.just("*")).map(lambda found: "bytes {}-{}/{}".format(*found))
    maybe("content-range", ranges | SMALL.map(lambda total: f"bytes */{total}"))
    maybe("content-length", SMALL | st.sampled_from(["+3", "x", str(1 << 64)]))
    maybe("transfer-encoding", st.sampled_from(["chunked", "gzip"]))
    maybe("content-encoding", st.sampled_from(["gzip", "identity"]))
    maybe("content-type", st.sampled_from(["text/plain", "multipart/byteranges; boundary=x"]))
    maybe("etag", ETAGS.filter(bool))
    maybe("location", st.just("/elsewhere"))
    status = draw(st.sampled_from([200, 206, 206, 206, 204, 302, 404, 412, 416, 500, 101]))
    return ResponseHead(draw(st.sampled_from(["1.0", "1.1", "2"])), status, tuple(fields))


@st.composite
def near_truths(draw: st.DrawFn) -> tuple[RangeRequest, ResponseHead]:
    """Make a request and its honest answer with up to two things changed: where a check that's missing shows."""
    request = draw(requests())
    size = request.size or 12
    end = min(request.start + request.length, size)
    status = draw(st.sampled_from([206, 200]))
    length = size if status == 200 else end - request.start
    fields = [("content-length", str(length))]
    if status == 206:
        fields.append(
            ("content-range", f"bytes {request.start}-{end - 1}/{draw(st.sampled_from([size, '*']))}")
        )
    if request.validator.etag:
        fields.append(("etag", request.validator.etag))
    for _ in range(draw(st.integers(0, 2))):
        name, value = draw(
            st.sampled_from(
                [
                    ("content-length", str(draw(SMALL))),
                    ("transfer-encoding", draw(st.sampled_from(["chunked", "gzip"]))),
                    ("content-encoding", "br"),
                    ("content-type", "Multipart/Byteranges; boundary=x"),
                    ("content-range", f"bytes {draw(SMALL)}-{draw(SMALL)}/{draw(SMALL)}"),
                    ("content-range", f"bytes */{size}"),
                    ("etag", draw(ETAGS) or '"c"'),
                ]
            )
        )
        if draw(st.booleans()):
            fields = [field for field in fields if field[0] != name]
        if draw(st.booleans()):
            fields.append((name, value))
    return request, ResponseHead(draw(st.sampled_from(["1.0", "1.1", "2"])), status, tuple(fields))


def single(head: ResponseHead, name: str) -> str | None:
    """Return a field that every line of it agrees on; anything else fails the test."""
    values = {value for field, value in head.fields if field == name}
    assert len(values) <= 1, f"{name} was accepted with {values}"
    return values.pop() if values else None


@settings(max_examples=300)
@given(near_truths() | st.tuples(requests(), heads()))
@example((RangeRequest(start=0, length=5), ResponseHead("1.1", 206, (("content-range", "bytes 0-4/5"),))))
@example(
    (RangeRequest(start=2, length=3, allow_full=True), ResponseHead("1.1", 200, (("content-length", "9"),)))
)
@example(
    (
        RangeRequest(start=0, length=9, size=9, validator=Validator('"a"')),
        ResponseHead("1.1", 200, (("content-length", "9"), ("etag", '"a"'))),
    )
)
def test_an_accepted_answer_is_the_range(pair: tuple[RangeRequest, ResponseHead]) -> None:
    """R02, R03, R04, R05, R06, R07, R09, R11, R12, R13, R17, R18, R19: what is accepted is exactly what was asked for."""
    request, head = pair
    verdict = judge_range(request, head)
    if not isinstance(verdict, Accept):
        return
    # Framing and encoding can be trusted.
    length = single(head, "content-length")
    coding = single(head, "transfer-encoding")
    assert length is None or (length.isdecimal() and coding is None)
    assert coding in {None, "chunked"}
    if head.status != 416:
        assert single(head, "content-encoding") in {None, "identity"}
    # It's the range that was asked for, short only at the object's end.
    assert verdict.start == request.start
    assert 0 <= verdict.length <= request.length
    asked_end = request.start + request.length
    if head.status == 206:
        assert "multipart" not in (single(head, "content-type") or "").lower()
        span, _, total = (single(head, "content-range") or "").removeprefix("bytes ").partition("/")
        first, last = map(int, span.split("-"))
        assert (first, last) == (verdict.start, verdict.start + verdict.length - 1)
        assert last + 1 == asked_end or (total != "*" and last + 1 == int(total) < asked_end)
        assert verdict.skip == 0
        assert length is None or int(length) == verdict.length
        assert verdict.total == (None if total == "*" else int(total))
        assert verdict.exact
    elif head.status == 200:
        if not request.allow_full:
            # All of an object of known size was wanted, and an ETag that both sides have says that it's this one.
            assert length is not None
            assert (request.start, request.length, request.size) == (0, int(length), int(length))
            assert request.validator.etag is not None
            assert verdict.validator.etag is not None
        assert verdict.skip == request.start
        if length is not None:
            assert verdict.skip + verdict.length == min(asked_end, int(length))
        # A length that isn't told is no promise, unless it has been known before.
        assert verdict.exact is (length is not None or request.size is not None)
        assert verdict.exact or coding is not None or head.version == "2"
    else:
        assert head.status == 416
        assert request.size is None
        assert single(head, "content-range") == f"bytes */{request.start}"
        assert verdict.length == 0
    # And of the same version, as far as anybody tells.
    if request.size is not None:
        assert verdict.total in {None, request.size}
        assert verdict.length == request.length
    etag = request.validator.etag
    if etag is not None and head.status != 416:
        assert verdict.validator.etag in ({etag} if etag[0] == '"' else {etag, etag.removeprefix("W/")})


@given(
    request=requests(), version=st.sampled_from(["1.0", "1.1", "2"]), told=st.booleans(), sized=st.booleans()
)
def test_an_honest_answer_is_accepted(
    request: RangeRequest, version: str, *, told: bool, sized: bool
) -> None:
    """R01, R07, R12: the answer that RFC 9110 asks for is accepted, with and without total and length."""
    total = request.size or 12
    end = min(request.start + request.length, total)
    if end <= request.start or (end < request.start + request.length and not told):
        return
    fields = [("content-range", f"bytes {request.start}-{end - 1}/{total if told else '*'}")]
    if sized:
        fields.append(("content-length", str(end - request.start)))
    if request.validator.etag:
        fields.append(("etag", request.validator.etag))
    verdict = judge_range(request, ResponseHead(version, 206, tuple(fields)))
    assert isinstance(verdict, Accept)
    assert (verdict.start, verdict.length) == (request.start, end - request.start)


@given(requests(), heads())
def test_every_answer_has_a_verdict(request: RangeRequest, head: ResponseHead) -> None:
    """R19: no answer makes the verdict fail, and a refusal says why and whether its body may be drained."""
    verdict = judge_range(request, head)
    if isinstance(verdict, Redirect):
        assert verdict.status == head.status == 302
    elif isinstance(verdict, Refuse):
        assert verdict.reason or verdict.fault is Fault.STATUS
        if verdict.drain:
            assert verdict.status not in {200, 206}
    assert isinstance(describe(head, probe=request.allow_full), Described | Redirect | Refuse)


@pytest.mark.parametrize(
    ("status", "fields", "probe", "size"),
    [
        (200, {"content-length": "7"}, False, 7),
        (200, {"content-length": "7"}, True, 7),
        (200, {}, False, None),
        (200, {"content-length": "7", "content-encoding": "gzip"}, False, None),
        (206, {"content-range": "bytes 0-0/9", "content-length": "1"}, True, 9),
        (206, {"content-range": "bytes 0-0/*"}, True, None),
        (416, {"content-range": "bytes */0"}, True, 0),
    ],
)
def test_what_tells_the_size(status: int, fields: dict[str, str], *, probe: bool, size: int | None) -> None:
    """R37: the size comes from a HEAD's length or from the range of a one-byte GET; an encoded length is none."""
    described = describe(ResponseHead("1.1", status, tuple(fields.items())), probe=probe)
    assert isinstance(described, Described)
    assert described.size == size


@pytest.mark.parametrize(
    ("status", "fields", "probe"),
    [
        (200, {"content-length": "+7"}, False),
        (206, {"content-range": "bytes 1-1/9"}, True),
        (206, {}, True),
        (206, {"content-range": "bytes 0-0/9"}, False),
        (416, {"content-range": "bytes */5"}, True),
        (416, {}, True),
        (404, {}, False),
        (204, {}, False),
    ],
)
def test_what_tells_no_size(status: int, fields: dict[str, str], *, probe: bool) -> None:
    """R37: an answer that can't be trusted tells no size, and is refused."""
    assert isinstance(describe(ResponseHead("1.1", status, tuple(fields.items())), probe=probe), Refuse)


@pytest.mark.parametrize(
    "extra",
    [
        ("transfer-encoding", "chunked"),
        ("content-length", "6"),
        ("content-length", "5, 5"),
        ("content-range", "bytes 2-6/10"),
        ("content-encoding", "gzip"),
        ("content-type", "MULTIPART/byteranges"),
        ("etag", '"b"'),
    ],
)
def test_one_field_too_many(extra: tuple[str, str]) -> None:
    """R05, R17, R18, R19, R22: an honest answer with one field added that contradicts it is refused."""
    request = RangeRequest(start=1, length=5, size=10, validator=Validator('"a"'))
    fields = (("content-range", "bytes 1-5/10"), ("content-length", "5"), ("etag", '"a"'))
    assert isinstance(judge_range(request, ResponseHead("1.1", 206, fields)), Accept)
    assert isinstance(judge_range(request, ResponseHead("1.1", 206, (*fields, extra))), Refuse)
