"""Reading URLs: taken apart by `split`, made fit for messages by `redact`.

Pure: nothing is opened or looked up.  Callers outside this package take both names from
`respool.curl.origin`.

Reading is strict on purpose.  The URL that a handle gets is put together again from the
parts found here, so that libcurl cannot see another host in it than the one of the key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address
from typing import TYPE_CHECKING, Final, NoReturn, cast
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_PORTS: Final = {"http": 80, "https": 443}

CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*\Z")
_HOST = re.compile(r"[a-z0-9._~-]+\Z")
_ZONE = re.compile(r"[A-Za-z0-9._~-]+\Z")
_PORT = re.compile(r"[0-9]{1,9}\Z")
_SHOWN_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(:[0-9]*)?\Z")
_MASK: Final = "***"
_SHOWN_LENGTH: Final = 1000
_MAX_PORT: Final = 65535
#: What DNS can carry (RFC 1035), the final dot apart.
_MAX_LABEL: Final = 63
_MAX_NAME: Final = 253
_PAIR: Final = 2
#: All of printable ASCII: what `quote` leaves alone, so that it encodes blanks and non-ASCII only.
_PRINTABLE: Final = "".join(map(chr, range(0x21, 0x7F)))


def redact(url: str) -> str:
    """Return a URL that may be shown: without user, password, query values and fragment.

    Works on any text, also one that is no URL; what could be a credential in it is taken
    for one.  Control characters come out escaped, and a very long text is cut.

    Parameters
    ----------
    url : str
        The URL, or what a user took for one.

    Returns
    -------
    str
        For example ``https://host/path?X-Amz-Signature=***``.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or not _SCHEME.match(scheme):
        # No URL: a user name may stand anywhere before an "@".
        prefix, rest = "", url.rpartition("@")[2]
    else:
        prefix = scheme + separator
        authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
        tail = rest[len(authority) :]
        host = authority.rpartition("@")[2]
        # A password with a raw "/", "?" or "#" ends the authority early and leaves something
        # that is no port; then all up to the last "@" is the user's.
        rest = host + tail if _SHOWN_AUTHORITY.match(host) else rest.rpartition("@")[2]
    path, mark, query = rest.partition("#")[0].partition("?")
    path = re.sub(r";[^/;]*", ";" + _MASK, path)
    if mark:
        query = "&".join(
            name + "=" + _MASK if equals else _MASK if name else ""
            for name, equals, _value in (part.partition("=") for part in query.split("&"))
        )
    text = prefix + path + mark + query
    if not text.isprintable():
        text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return text if len(text) <= _SHOWN_LENGTH else text[: _SHOWN_LENGTH - 1] + "…"


def refuse(what: str, url: str) -> NoReturn:
    """Raise ValueError for this URL, without its secrets and without a cause that holds them."""
    raise ValueError(f"{what}: '{redact(url)}'") from None


@dataclass(frozen=True)
class SplitURL:
    """A URL taken apart: what `split` returns.

    Attributes
    ----------
    scheme : str
        ``http`` or ``https``.
    host : str
        In lower case, IDNA-encoded; an IPv6 address without its brackets.
    port : int
        The scheme's own where the URL names none.
    target : str
        Path and query, beginning with ``/``; what isn't ASCII is percent-encoded.
    credential : tuple of (str, str) or None
        User and password, percent-decoded; never shown in the repr.
    """

    scheme: str
    host: str
    port: int
    target: str
    credential: tuple[str, str] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """The URL put together again, without user, password and fragment."""
        return f"{base(self.scheme, self.host, self.port)}{self.target}"


def base(scheme: str, host: str, port: int) -> str:
    """Return ``scheme://host[:port]``, the port only where it isn't the scheme's own."""
    text = f"{scheme}://{bracketed(host)}"
    return text if DEFAULT_PORTS.get(scheme) == port else f"{text}:{port}"


def bracketed(host: str) -> str:
    """Return a host as it stands in a URL."""
    # RFC 6874: in a URL the zone of an address is set off by an encoded percent sign.
    return f"[{host.replace('%', '%25')}]" if ":" in host else host


def split(url: str) -> SplitURL:
    """Take an http or https URL apart, strictly.

    Parameters
    ----------
    url : str
        An absolute URL.  ``user:password@`` is taken out of it, a fragment is dropped.

    Returns
    -------
    SplitURL
        Its parts, in the one spelling in which equal origins are equal.

    Raises
    ------
    TypeError
        For what is no string.
    ValueError
        For a URL that is empty, has no host, a scheme other than http and https, a port
        that is none, a blank or control character, or is ambiguous.  The text shows the
        URL without its secrets.
    ImportError
        For a host that isn't ASCII, where the package ``idna`` is missing.
    """
    scheme, userinfo, authority, tail = cut(url, "URL", DEFAULT_PORTS)
    try:
        host, port = host_and_port(authority)
    except ValueError as error:
        refuse(f"{error} in URL", url)
    tail = tail.partition("#")[0]
    if not tail.startswith("/"):
        tail = "/" + tail
    if not tail.isascii() or " " in tail:
        try:
            tail = quote(tail, safe=_PRINTABLE)
        except UnicodeEncodeError:
            refuse("characters that are no text in URL", url)
    credential = None if not userinfo else decode_userinfo(userinfo, url)
    return SplitURL(scheme, host, port or DEFAULT_PORTS[scheme], tail, credential)


def cut(url: object, what: str, schemes: Iterable[str]) -> tuple[str, str, str, str]:
    """Cut text into scheme, userinfo, host with port, and the rest."""
    if not isinstance(url, str):
        raise TypeError(f"{what} must be a str, not {type(url).__name__}")
    if not url:
        raise ValueError(f"empty {what}: ''")
    if CONTROL.search(url) or url[0].isspace() or url[-1].isspace():
        refuse(f"blanks around, or control characters in, {what}", url)
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator or not _SCHEME.match(scheme):
        refuse(f"no scheme (http:// or https://) in {what}", url)
    if scheme not in schemes:
        refuse(f"unsupported scheme {scheme!r} (only {', '.join(schemes)}) in {what}", url)
    # The authority ends at the first of these (RFC 3986).
    end = min((i for i in map(rest.find, "/?#") if i >= 0), default=len(rest))
    userinfo, _, authority = rest[:end].rpartition("@")
    if "\\" in rest[:end]:
        # To browsers it ends the host, to RFC 3986 it doesn't: "good\\@evil" is two hosts.
        refuse(f"a backslash before the path in {what}", url)
    if "@" in userinfo:
        refuse(f"more than one '@' before the host (one in a password is written %40) in {what}", url)
    return scheme, userinfo, authority, rest[end:]


@lru_cache(maxsize=1024)
def host_and_port(authority: str) -> tuple[str, int | None]:
    """Return host and port of an authority without userinfo; the texts of its errors hold no secret."""
    if authority.startswith("["):
        host, bracket, port = authority[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise ValueError("a bracket without its match, or text behind it,")
        host, port = _ipv6(host), port[1:]
    else:
        host, _, port = authority.partition(":")
        host = _name(host)
    if not port:
        return host, None
    # \Z and ASCII digits only: int() would take "+80", "8_0", " 80" and digits of other scripts.
    if not _PORT.match(port) or not 0 < int(port) <= _MAX_PORT:
        raise ValueError("a port that is no number from 1 to 65535")
    return host, int(port)


def _ipv6(text: str) -> str:
    """Return an IPv6 address in its one spelling, its zone, if any, behind a bare ``%``."""
    address, percent, zone = text.partition("%")
    zone = zone.removeprefix("25")
    try:
        # The zone is kept out: it is case-sensitive, and ipaddress is laxer about it than a URL.
        compressed = IPv6Address(address).compressed
    except AddressValueError:
        raise ValueError("no valid IPv6 address") from None
    if percent and not _ZONE.match(zone):
        raise ValueError("no valid IPv6 zone")
    return compressed + percent + zone


def _name(host: str) -> str:
    """Return a host name or IPv4 address in its one spelling: lower case, IDNA."""
    if not host:
        raise ValueError("no host")
    if not host.isascii():
        host = _idna(host)
    host = host.lower()
    if not _HOST.match(host):
        raise ValueError("characters that no host has")
    name = host.removesuffix(".")
    if len(name) > _MAX_NAME or not all(0 < len(label) <= _MAX_LABEL for label in name.split(".")):
        raise ValueError("a host that is too long or has an empty or too long label")
    return host


def _idna(host: str) -> str:
    """Encode an international name, by IDNA 2008 with the mapping that browsers use (UTS 46)."""
    try:
        import idna
    except ImportError:
        raise ImportError(
            "hosts that aren't ASCII need the package idna: pip install respool[curl]"
        ) from None
    try:
        return idna.encode(host, uts46=True, std3_rules=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise ValueError("no valid international host name") from None


def decode_userinfo(text: str, url: str) -> tuple[str, str] | None:
    """Return the user and password before the "@" of a URL, decoded."""
    user, _, password = text.partition(":")
    try:
        credential = unquote(user, errors="strict"), unquote(password, errors="strict")
        check_credential(credential)
    except ValueError as error:
        reason = "not valid UTF-8" if isinstance(error, UnicodeError) else error
        refuse(f"bad user or password ({reason}) in URL", url)
    return credential


def check_credential(credential: object, what: str = "credential") -> None:
    """Raise for what can't be sent as a credential; the texts never show it."""
    if isinstance(credential, str):
        if not credential:
            raise ValueError(f"{what}: an empty bearer token")
        parts: tuple[object, ...] = (credential,)
    else:
        kind = type(credential).__name__
        parts = cast("tuple[object, ...]", credential) if isinstance(credential, tuple) else ()
        if len(parts) != _PAIR:
            raise TypeError(f"{what} must be (user, password) or a bearer token, not a {kind}")
    for part in parts:
        if not isinstance(part, str):
            raise TypeError(f"{what}: user, password and token must be str, not {type(part).__name__}")
        if CONTROL.search(part):
            raise ValueError(f"{what}: a control character in it")
        try:
            part.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{what}: no text that UTF-8 can carry") from None
    if len(parts) == _PAIR and ":" in str(parts[0]):
        raise ValueError(f"{what}: a colon in the user name, which HTTP can't carry (RFC 7617)")
