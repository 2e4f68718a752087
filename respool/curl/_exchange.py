"""One GET or HEAD on a leased handle: the way in for respool.io, which must not name pycurl.

Owns setting a request up, running it by ``easy.perform()``, and saying in neutral terms how
it went.  What head and body mean is the caller's business; it gets them by callbacks, and
what those raise leaves `exchange` unchanged.

    with pool.lease(origin, timeout=5) as easy:
        facts = exchange(easy, url, headers=[("Range", "bytes=0-9")], on_head=head.feed, on_body=body.write)

A failed exchange raises out of the with-block, so that the handle is discarded, as it must be.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import pycurl

from ._descriptors import CODES, exhausted
from ._pooled import set_body_sink
from ._urls import CONTROL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ._easy import EasyHandle

CurlError: Final = pycurl.error

Kind: TypeAlias = Literal["connect", "timeout", "broken", "malformed"]

# By the codes of curl/curl.h; what isn't here is "broken".
_KINDS: Final[dict[int, Kind]] = dict.fromkeys(
    (
        5,  # proxy name, 6 host name, 7 connection
        6,
        7,
        35,  # TLS: handshake, 51 and 60 peer's certificate, 53..59 engine, own certificate, cipher, 66, 77, 80..83,
        51,  # 90 pinned key, 91 status, 98 client certificate asked for
        53,
        54,
        58,
        59,
        60,
        66,
        77,
        80,
        82,
        83,
        90,
        91,
        97,  # proxy handshake
        98,
        101,  # ECH
        52,  # closed before any answer
    ),
    "connect",
)
_KINDS[28] = "timeout"
_KINDS.update(
    dict.fromkeys((1, 8, 27, 61, 100), "malformed")
)  # no HTTP, weird reply, memory, encoding, too large

_SUPPRESS_CONNECT_HEADERS: Final = 265  # pycurl has no name for it

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")

_PROTOCOLS: Final = {
    pycurl.CURL_HTTP_VERSION_1_0: "HTTP/1.0",
    pycurl.CURL_HTTP_VERSION_1_1: "HTTP/1.1",
    pycurl.CURL_HTTP_VERSION_2_0: "HTTP/2",
    pycurl.CURL_HTTP_VERSION_3: "HTTP/3",
}


class TransferError(Exception):
    """A transfer that libcurl gave up.

    Attributes
    ----------
    code : int
        libcurl's number for it.
    kind : {"connect", "timeout", "broken", "malformed"}
        "connect": no answer began.  "broken": anything that ended it later.
    text : str
        libcurl's own words; no URL and no secret in them.
    facts : Facts
        What was known when it ended.
    hint : str or None
        What it probably comes of, where libcurl's words mislead.
    """

    def __init__(self, code: int, kind: Kind, text: str, facts: Facts, hint: str | None = None) -> None:
        super().__init__(code, kind, text, facts, hint)
        self.code = code
        self.kind = kind
        self.text = text
        self.facts = facts
        self.hint = hint

    def __str__(self) -> str:
        told = f"{self.text} (libcurl error {self.code})"
        return told if self.hint is None else f"{told}, probably as there are {self.hint}"


@dataclass(frozen=True, slots=True)
class Facts:
    """What libcurl knows of an exchange.

    Attributes
    ----------
    status : int
        Of the last head; 0 where none came.
    connects : int
        New connections that it took: 0 where one was reused.
    protocol : str or None
        Such as "HTTP/1.1".
    peer : str or None
        Address and port of the other side.
    head_bytes, body_bytes : int
        What came over the connection.
    seconds : float
        From the start to the end; likewise ``connect_seconds`` to the connection (TLS
        included) and ``first_byte_seconds`` to the first byte of the answer.
    """

    status: int
    connects: int
    protocol: str | None
    peer: str | None
    head_bytes: int
    body_bytes: int
    seconds: float
    connect_seconds: float
    first_byte_seconds: float


def exchange(
    easy: EasyHandle,
    url: str | None = None,
    *,
    method: Literal["GET", "HEAD"] = "GET",
    headers: Iterable[tuple[str, str]] = (),
    on_head: Callable[[bytes], object] | None = None,
    on_body: Callable[[memoryview], object] | None = None,
    on_beat: Callable[[], object] | None = None,
    timeout: float | None = None,
    low_speed: tuple[int, int] | None = None,
    buffer_size: int = 1 << 18,
) -> Facts:
    """Make one request on a leased handle, and return how it went.

    Redirects are not followed, and the status is nobody's business here.

    Parameters
    ----------
    easy : EasyHandle
        Leased by the caller.
    url : str, optional
        Where the lease has not set it.
    method : {"GET", "HEAD"}
        What to ask.
    headers : iterable of (str, str)
        Request fields; an empty value sends the field empty.
    on_head : callable, optional
        Gets each line of each head (100 and 103 answers too) and of the trailers, with its CRLF.
    on_body : callable, optional
        Gets the body piece by piece.  The view is libcurl's own memory, without a copy: it must
        not be kept, nor anything sliced off it.
    on_beat : callable, optional
        Called about once a second and around each piece; raising ends the transfer.
    timeout : float, optional
        Seconds for the whole exchange; at least a millisecond is given.
    low_speed : (int, int), optional
        (bytes a second, seconds): ends a transfer that stays slower than this for so long.
    buffer_size : int
        Most bytes of one piece of the body.

    Raises
    ------
    TransferError
        libcurl failed; ``kind`` says how.
    BaseException
        What a callback raised: that very exception, and nothing else about the transfer.
    ValueError
        For a header that can't be sent; its text doesn't show the value.
    """
    if url is not None:
        easy.setopt(pycurl.URL, url)
    if method == "HEAD":
        easy.setopt(pycurl.NOBODY, 1)
    easy.setopt(pycurl.HTTPHEADER, [_field(name, value) for name, value in headers])
    easy.setopt(pycurl.PATH_AS_IS, 1)  # whatever a store keeps under "a/../b" is another object than "b"
    easy.setopt(_SUPPRESS_CONNECT_HEADERS, 1)  # the head of a proxy's answer to CONNECT is not the object's
    easy.setopt(pycurl.BUFFERSIZE, buffer_size)
    easy.setopt(pycurl.HEADERFUNCTION, on_head or _drop)
    set_body_sink(easy, on_body or _drop)
    if on_beat is not None:
        easy.setopt(pycurl.XFERINFOFUNCTION, _beat(on_beat))
        easy.setopt(pycurl.NOPROGRESS, 0)
    if timeout is not None:
        easy.setopt(pycurl.TIMEOUT_MS, max(1, min(int(timeout * 1000), 2**31 - 1)))
    if low_speed is not None:
        easy.setopt(pycurl.LOW_SPEED_LIMIT, low_speed[0])
        easy.setopt(pycurl.LOW_SPEED_TIME, low_speed[1])
    try:
        easy.perform()
    except pycurl.error as error:
        code, text = error.args[0], str(error.args[-1])
        if not isinstance(code, int):
            raise  # the handle was misused, and pycurl says how
        facts = facts_of(easy)
        kind, hint = _kind(code, text, facts), exhausted() if code in CODES else None
        if hint is not None:
            kind = "connect"  # and not the memory that libcurl takes it for
        raise TransferError(code, kind, text or "no reason given", facts, hint) from None
    return facts_of(easy)


def _drop(piece: object) -> None:
    """Take what nobody wants; without a callback libcurl would write it to stdout."""


def _beat(callback: Callable[[], object]) -> Callable[..., None]:
    def beat(*_numbers: object) -> None:
        callback()  # and not what it returns: that would end the transfer

    return beat


def _field(name: str, value: str) -> bytes:
    """Return a request field as libcurl takes it."""
    try:
        line = f"{name}: {value}" if value else f"{name};"  # libcurl's way of saying: empty, not left out
        data = line.encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError(f"the header {name!r} has a value that isn't Latin-1") from None
    if not _TOKEN.match(name) or CONTROL.search(value.replace("\t", " ")):
        raise ValueError(f"a bad name, or a control character in the value, of the header {name!r}")
    return data


def _kind(code: int, text: str, facts: Facts) -> Kind:
    kind = _KINDS.get(code, "broken")
    if kind == "broken" and not facts.head_bytes:
        return "connect"  # reset before any answer, say
    if kind == "broken" and not facts.body_bytes and "header" in text.lower():
        return "malformed"  # too many or too long: libcurl calls it a failed receive
    return kind


def facts_of(easy: EasyHandle) -> Facts:
    """Return what libcurl knows of the handle's last exchange, also one that a callback ended."""
    get = easy.getinfo
    address, port = get(pycurl.PRIMARY_IP), get(pycurl.PRIMARY_PORT)
    return Facts(
        status=get(pycurl.RESPONSE_CODE),
        connects=get(pycurl.NUM_CONNECTS),
        protocol=_PROTOCOLS.get(get(pycurl.INFO_HTTP_VERSION)),
        peer=f"{f'[{address}]' if ':' in address else address}:{port}" if address else None,
        head_bytes=get(pycurl.HEADER_SIZE),
        body_bytes=get(pycurl.SIZE_DOWNLOAD_T),
        seconds=get(pycurl.TOTAL_TIME),
        connect_seconds=max(get(pycurl.CONNECT_TIME), get(pycurl.APPCONNECT_TIME)),
        first_byte_seconds=get(pycurl.STARTTRANSFER_TIME),
    )
