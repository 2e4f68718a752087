"""Redirects: followed safely, with what may go along."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from respool.curl.origin import split
from respool.io import HTTPStatusError, RedirectError
from respool.io._redirect import MOST, Address, follow
from tests.helpers import lies
from tests.helpers.range_server import CONTENT, honest, honest_head

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.io import Session
    from tests.helpers.range_server import Exchange, RangeServer, Script


def to(location: str, status: str = "302 Found", body: bytes = b"moved") -> Script:
    """Send everybody elsewhere, except for what is at ``/there``."""

    def script(exchange: Exchange) -> None:
        if exchange.asked.target.startswith("/there"):
            (honest_head if exchange.asked.method == "HEAD" else honest)(exchange)
        else:
            lies.status(status, f"Location: {location}", body=body)(exchange)

    return script


@pytest.mark.parametrize(
    "status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"]
)
@pytest.mark.parametrize("location", ["/there", "there", "./x/../there", "//{host}/there?x=1#part"])
def test_same_origin(serve: Callable[..., RangeServer], session: Session, status: str, location: str) -> None:
    """R35: HEAD and GET are redirected, each with its method and range, and the body is the target's."""
    server = serve()
    script = to(location.format(host=server.origin.removeprefix("http://")), status)
    server.get = server.head = script
    with session.open(server.url, headers={"X-Key": "k"}, auth="t0ken") as file:
        assert file.size == len(CONTENT)
        assert file.read(offset=7, size=50) == CONTENT[7:57]
    assert [asked.method for asked in server.asked] == ["HEAD", "HEAD", "GET", "GET"]
    assert {(asked.one("x-key"), asked.one("authorization")) for asked in server.asked} == {
        ("k", "Bearer t0ken")
    }
    assert server.connections == 1


def test_other_origin(serve: Callable[..., RangeServer], session: Session) -> None:
    """R34: what is the user's stays behind on another port; range and If-Match go along, and it doesn't come back."""
    other = serve()
    server = serve()
    # There and back again: the way back doesn't get it either.
    server.get = server.head = to(f"{other.origin}/hop")
    other.get = other.head = to(f"{server.origin}/there")
    url = server.url.replace("//", "//user:pass@")
    with session.open(url, headers={"X-Api-Key": "5ecret", "Cookie": "c=1", "User-Agent": "mine"}) as file:
        assert file.read(offset=7, size=50) == CONTENT[7:57]
    first, middle, last = server.gets()[0], other.gets()[0], server.gets()[1]
    for name in ("authorization", "x-api-key", "cookie"):
        assert first.one(name)
        assert middle.one(name) is None
        assert last.one(name) is None
    for asked in (first, middle, last):
        assert asked.range == (7, 56)
        assert asked.one("if-match") == '"v1"'
        assert asked.one("accept-encoding") == "identity"
    assert first.one("user-agent") == "mine"
    assert (middle.one("user-agent") or "").startswith("respool/")


def test_circle(serve: Callable[..., RangeServer], session: Session) -> None:
    """R36: a circle ends in an error after ten redirects."""
    server = serve()
    server.head = to("/here")
    with pytest.raises(RedirectError, match="more than 10 redirects"):
        session.open(server.url)
    assert len(server.asked) == MOST + 1


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "ftp://host/x",
        "javascript:1",
        "http://",
        "http://ho st/",
        "http://host:99999/",
        "gopher://x/",
        "http://[::1",
        "http://[::::/x",
        "//[",
    ],
)
def test_no_http(serve: Callable[..., RangeServer], session: Session, location: str) -> None:
    """R36: a redirect to what isn't http, or isn't anything, is refused."""
    server = serve(to(location))
    with session.open(server.url) as file, pytest.raises(RedirectError):
        file.read(size=5)


def test_redirect_to_nowhere(serve: Callable[..., RangeServer], session: Session) -> None:
    """R36: a redirect without a Location, or with two, is an error; 300 and 304 are no redirects."""
    server = serve(lies.status("302 Found"))
    with session.open(server.url) as file:
        with pytest.raises(RedirectError, match="where to"):
            file.read(size=5)
        server.get = lies.status("302 Found", "Location: /a", "Location: /b")
        with pytest.raises(OSError, match=r"(?i)location"):
            file.read(size=5)
        for status in ("300 Multiple Choices", "304 Not Modified"):
            server.get = lies.status(status, "Location: /there")
            with pytest.raises(HTTPStatusError, match=status[:3]):
                file.read(size=5)


def test_error_behind_a_redirect(serve: Callable[..., RangeServer], session: Session) -> None:
    """R35: an error behind a redirect names both addresses, without secrets."""
    other = serve(lies.ignores_range)
    server = serve(to(f"{other.origin}/key?sig=5ecret"))
    with session.open(server.url) as file, pytest.raises(OSError, match="after a redirect to") as caught:
        file.read(offset=1, size=5)
    assert server.url in str(caught.value)
    assert other.origin in str(caught.value)
    assert "5ecret" not in str(caught.value)


def test_body_of_a_redirect_is_never_data(serve: Callable[..., RangeServer], session: Session) -> None:
    """R35: a redirect whose own body has just the size asked for isn't taken for the object."""
    server = serve(to("/there", body=b"!" * 50))
    with session.open(server.url) as file:
        assert file.read(offset=7, size=50) == CONTENT[7:57]


HTTPS = Address(split("https://host/a/b?c"), ("user", "pass"), (("X", "y"),))


def test_downgrade() -> None:
    """R36: https leads to http only where that's allowed; and that's another origin."""
    with pytest.raises(RedirectError, match="from https to http"):
        follow(HTTPS, "http://host/x", allow_downgrade=False)
    led = follow(HTTPS, "http://host/x", allow_downgrade=True)
    assert (led.url, led.credential, led.headers, led.hops) == ("http://host/x", None, (), 1)


@pytest.mark.parametrize(
    ("location", "url", "keeps"),
    [
        ("https://host:443/x", "https://host/x", True),
        ("https://HOST/x", "https://host/x", True),
        ("?d", "https://host/a/b?d", True),
        ("https://host:444/x", "https://host:444/x", False),
        ("https://other/x", "https://other/x", False),
        ("https://evil:pw@host/x", "https://host/x", True),
        ("/caf\xc3\xa9", "https://host/caf%C3%A9", True),
        ("/a b", "https://host/a%20b", True),
    ],
)
def test_where_it_leads(location: str, url: str, *, keeps: bool) -> None:
    """R34: origins are compared with explicit default ports and in any case; a user in a Location is ignored."""
    led = follow(HTTPS, location, allow_downgrade=False)
    assert led.url == url
    assert (led.credential, led.headers) == ((HTTPS.credential, HTTPS.headers) if keeps else (None, ()))
