"""Redirects: where one leads, and what may go there.  Pure.

This module owns the address of an object as redirects change it: the rule for following
one, and when the user's credential and headers stay behind.  It is what
``CURLOPT_FOLLOWLOCATION`` would do, done here since libcurl lets headers of the user's own
(an API key, say) follow to any host.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urljoin

from respool.curl.origin import redact, split
from respool.io.errors import RedirectError

if TYPE_CHECKING:
    from respool.curl.origin import Credential, SplitURL

#: Most redirects in a row.
MOST: Final = 10

_PRINTABLE: Final = "".join(map(chr, range(0x21, 0x7F)))


@dataclass(frozen=True, slots=True)
class Address:
    """Where to ask for an object, and with what.

    Attributes
    ----------
    parts : SplitURL
        The URL taken apart, its credential taken out.
    credential : tuple or str or None
        (user, password) or a bearer token.
    headers : tuple of (str, str)
        The user's own.
    hops : int
        How many redirects led here.
    """

    parts: SplitURL
    credential: Credential | None = field(default=None, repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    hops: int = 0

    @property
    def url(self) -> str:
        """The URL, without user, password and fragment."""
        return self.parts.url


def follow(address: Address, location: str | None, *, allow_downgrade: bool) -> Address:
    """Return where a redirect leads.

    Parameters
    ----------
    address : Address
        What was asked for.
    location : str or None
        The answer's Location, as sent.
    allow_downgrade : bool
        Whether https may lead to http.

    Returns
    -------
    Address
        Without credential and headers of the user's where scheme, host or port differ; they
        don't come back when a later redirect does.

    Raises
    ------
    RedirectError
        It leads nowhere, to what isn't http, from https to http, or it's one too many.
    """
    if address.hops >= MOST:
        raise RedirectError(f"more than {MOST} redirects in a row", url=address.url)
    if not location:
        raise RedirectError("a redirect that doesn't say where to", url=address.url)
    # Bytes that aren't ASCII are kept as they are: only the server knows what they mean.
    target = quote(location.encode("latin-1", "replace"), safe=_PRINTABLE)
    try:
        target = urljoin(address.url, target)  # which refuses a broken IPv6 address by itself
        parts = split(target)
    except ValueError:
        reason = f"a redirect to what can't be followed, {redact(target)!r}"
        raise RedirectError(reason, url=address.url) from None
    if address.parts.scheme == "https" and parts.scheme == "http" and not allow_downgrade:
        raise RedirectError(f"a redirect from https to http, {redact(target)!r}", url=address.url)
    hops = address.hops + 1
    if _same_origin(address.parts, parts):
        return Address(parts, address.credential, address.headers, hops)
    return Address(parts, hops=hops)


def _same_origin(one: SplitURL, other: SplitURL) -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)
