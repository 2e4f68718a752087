"""Who shares a connection with whom: seen by servers that count connections."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pycurl
import pytest

from respool import LoggingObserver, PoolTimeoutError
from respool.curl import Origin
from tests.helpers.http_servers import Answer, Certificate, RecordingServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.curl import EasyHandlePool
    from tests.helpers.http_servers import Request

SECRET = "hunter2"


def fetch(pool: EasyHandlePool, origin: Origin | str, url: str | None = None) -> tuple[bytes, int]:
    """Read a URL on a handle of this origin; its body, and how many connections that took."""
    with pool.lease(origin) as easy:
        if url is not None:
            easy.setopt(pycurl.URL, url)
        return easy.perform_rb(), easy.getinfo(pycurl.NUM_CONNECTS)


def test_credentials_never_share_a_connection(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U06: users with different credentials, with a bearer token and with none have connections of their own."""
    url = server.url()
    credentials: list[Any] = [None, ("a", "1"), ("a", "2"), ("b", "1"), "token", "other"]
    origins = [Origin.of(url, credential=credential) for credential in credentials]
    for _ in range(3):
        for origin in origins:
            fetch(pool, origin, url)
    used = [request.connection for request in server.requests]
    assert used == [1, 2, 3, 4, 5, 6] * 3
    sent = [request.header("authorization") for request in server.requests]
    assert sent == [None, "Basic YTox", "Basic YToy", "Basic Yjox", "Bearer token", "Bearer other"] * 3
    assert pool.stats().created == 6


def test_a_connection_that_a_user_authenticated_stays_with_that_user(pool: EasyHandlePool) -> None:
    """U06: where the connection is authenticated, as by NTLM, nobody speaks as somebody else.

    The server takes the first credential on a connection for all requests on it, as NTLM does.
    """
    users: dict[int, str] = {}

    def authenticate(request: Request) -> Answer:
        user = users.setdefault(request.connection, request.header("authorization") or "nobody")
        return Answer(user.encode())

    with RecordingServer(answers={"/": authenticate}) as server:
        url = server.url()
        for _ in range(2):
            for credential, user in ((None, b"nobody"), ("one", b"Bearer one"), ("two", b"Bearer two")):
                assert fetch(pool, Origin.of(url, credential=credential), url)[0] == user


def test_international_credentials(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U06: a user and password that aren't ASCII are sent as UTF-8 (RFC 7617)."""
    fetch(pool, Origin.of(server.url(), credential=("jürgen", "pässwörd")), server.url())
    assert server.requests[-1].header("authorization") == "Basic asO8cmdlbjpww6Rzc3fDtnJk"


def test_no_secret_in_what_a_pool_shows(
    make_pool: Callable[..., EasyHandlePool], server: RecordingServer, caplog: pytest.LogCaptureFixture
) -> None:
    """U06: the secret is in no repr, error, stats or log of a pool, of its leases and of its handles."""
    caplog.set_level(logging.DEBUG)
    pool = make_pool(max_size=1, observer=LoggingObserver(), track_leases=True)
    url = server.url("/object?signature=" + SECRET).replace("//", f"//user:{SECRET}@")
    with pool.lease(url) as easy:
        easy.perform_rb()
        shown = [repr(pool), str(pool), repr(pool.stats()), repr(pool.stats(url)), repr(easy)]
        with pytest.raises(PoolTimeoutError) as caught:
            pool.lease(url, timeout=0)
        shown += [str(caught.value), repr(caught.value), repr(caught.value.key)]
        with pytest.raises(ValueError, match="carries a credential") as refused:
            easy.setopt(pycurl.URL, f"http://other.example/?{SECRET}")
        shown += [str(refused.value)]
    held = pool.lease(url)
    shown += [repr(held), repr(held.key)]
    held.discard()
    shown += [repr(held), caplog.text]
    assert [text for text in shown if SECRET in text] == []


def test_spellings_share_a_connection(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U07: URLs of one origin, however spelled, are served over one connection."""
    with_port = server.url()
    for url in (
        with_port,
        with_port.upper().replace("HTTP", "Http"),
        server.url("/a?b#c"),
        server.url("//a/b"),
    ):
        fetch(pool, url)
    assert server.connections == 1
    assert [request.target for request in server.requests] == ["/", "/", "/a?b", "//a/b"]


def test_hosts_in_either_case_share_a_connection(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U07: a host's case doesn't matter, another name for the same address does."""
    resolve = [f"host.test:{server.port}:127.0.0.1", f"other.test:{server.port}:127.0.0.1"]
    for host in ("host.test", "HOST.test", "Host.Test", "other.test"):
        url = server.url(host=host)
        fetch(pool, Origin.of(url, resolve=resolve), url)
    assert [request.connection for request in server.requests] == [1, 1, 1, 2]


def test_the_default_port_may_be_left_out(pool: EasyHandlePool) -> None:
    """U07: ``http://h`` and ``http://h:80``, ``https://h`` and ``https://h:443`` are one key each."""
    for short, long in (("http://h.test", "http://h.test:80"), ("https://h.test", "https://H.test:443/x")):
        pool.lease(short).release()
        with pool.lease(long):
            assert pool.stats(short).leased == pool.stats(long).leased == 1
    assert pool.stats().created == 2


def test_ipv6(pool: EasyHandlePool) -> None:
    """U07: an IPv6 address is one key in all its spellings, and works."""
    with RecordingServer(host="::1") as server:
        for url in (server.url(), server.url().replace("::1", "0:0::1")):
            assert fetch(pool, url)[0] == b"fine"
        assert server.connections == 1
        assert server.requests[-1].header("host") == f"[::1]:{server.port}"


def test_international_hosts(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U07: an international host is asked for by its ASCII form, which this libcurl can't make itself."""
    url = server.url("/ü", host="bücher.test")
    origin = Origin.of(url, resolve=[f"xn--bcher-kva.test:{server.port}:127.0.0.1"])
    with pool.lease(origin) as easy:
        easy.setopt(pycurl.URL, f"{origin.url}/")
        assert easy.perform_rb() == b"fine"
    assert server.requests[-1].header("host") == f"xn--bcher-kva.test:{server.port}"


def test_proxies_have_their_own_connections(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U07: another proxy, other credentials for it, and none at all are distinct; the proxy gets its credential."""
    url = "http://host.test/object"
    with RecordingServer() as other:
        proxies = [
            server.url(),
            other.url(),
            server.url().replace("//", "//a:1@"),
            server.url().replace("//", "//b:1@"),
        ]
        for _ in range(2):
            for proxy in proxies:
                assert fetch(pool, Origin.of(url, proxy=proxy), url)[0] == b"fine"
        assert [request.connection for request in server.requests] == [1, 2, 3] * 2
        assert [request.connection for request in other.requests] == [1, 1]
    assert {request.target for request in server.requests} == {url}
    sent = [request.header("proxy-authorization") for request in server.requests]
    assert sent == [None, "Basic YTox", "Basic Yjox"] * 2


def test_the_environment_s_proxy(
    pool: EasyHandlePool, server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U07: no proxy given means the environment's; a named proxy, and "" for none, are not moved by it."""
    url = "http://127.0.0.1:1/object"
    monkeypatch.setenv("http_proxy", server.url())
    assert fetch(pool, url)[0] == b"fine"
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "*")
    assert fetch(pool, Origin.of(url, proxy=server.url()), url)[0] == b"fine"
    monkeypatch.setenv("no_proxy", "")
    assert fetch(pool, Origin.of(server.url(), proxy=""), server.url("/direct"))[0] == b"fine"
    assert [request.target for request in server.requests] == [url, url, "/direct"]


def test_resolve_overrides_are_told_apart(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U07: a name that is resolved elsewhere is another key: each goes to the address that it was given."""
    with RecordingServer(host="127.0.0.2") as other:
        ports = sorted({server.port, other.port})
        for _ in range(2):
            for target in (server, other):
                url = f"http://host.test:{target.port}/"
                resolve = [f"host.test:{port}:{target.host}" for port in ports]
                assert fetch(pool, Origin.of(url, resolve=resolve), url)[0] == b"fine"
        assert (len(server.requests), len(other.requests)) == (2, 2)
        assert (server.connections, other.connections) == (1, 1)


def test_http_versions_are_told_apart(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U07: another HTTP version is another key, and another connection."""
    url = server.url()
    for _ in range(2):
        for version in (None, "1.1", "1.0"):
            fetch(pool, Origin.of(url, http_version=version), url)
    assert pool.stats().created == 3
    # HTTP/1.0 keeps no connection here, so each of its requests has one of its own.
    assert [request.connection for request in server.requests[:5]] == [1, 2, 3, 1, 2]
    assert [request.head.partition("\r\n")[0] for request in server.requests[:3]] == [
        "GET / HTTP/1.1",
        "GET / HTTP/1.1",
        "GET / HTTP/1.0",
    ]


def test_tls_settings_are_told_apart(
    pool: EasyHandlePool, certificate: Certificate, tmp_path: Path, tls_server: RecordingServer
) -> None:
    """U07: verify, CA bundle and client certificate are in the key; an unverified connection serves no verifying user."""
    mine = Certificate.make(tmp_path, "client")
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(Path(certificate.cert).read_bytes())
    url = tls_server.url()
    options: list[dict[str, Any]] = [
        {"verify": False},
        {"ca_bundle": certificate.cert},
        {"ca_bundle": bundle},
        {"ca_bundle": bundle, "client_cert": (mine.cert, mine.key)},
    ]
    for _ in range(2):
        for given in options:
            assert fetch(pool, Origin.of(url, **given), url)[0] == b"fine"
        with pytest.raises(pycurl.error) as caught:
            fetch(pool, Origin.of(url), url)
        assert caught.value.args[0] == pycurl.E_PEER_FAILED_VERIFICATION
    assert [request.connection for request in tls_server.requests] == [1, 2, 3, 4] * 2


def test_client_certificates_are_shown(
    pool: EasyHandlePool, certificate: Certificate, tmp_path: Path
) -> None:
    """U07: a client certificate reaches the server that asks for one, on its own connection; without one there is none."""
    mine = Certificate.make(tmp_path, "client")
    seen: dict[int, str] = {}
    context = certificate.server_context(clients=mine)
    with RecordingServer(tls=context) as server:
        server.on_connection = lambda number, peer: seen.__setitem__(number, str(peer.getpeercert()))
        url = server.url()
        for _ in range(2):
            fetch(pool, Origin.of(url, ca_bundle=certificate.cert), url)
            fetch(pool, Origin.of(url, ca_bundle=certificate.cert, client_cert=(mine.cert, mine.key)), url)
        assert [request.connection for request in server.requests] == [1, 2, 1, 2]
    assert "client" not in seen[1]
    assert "client" in seen[2]


def test_a_directory_of_certificates(
    pool: EasyHandlePool, certificate: Certificate, tmp_path: Path, tls_server: RecordingServer
) -> None:
    """U07: ca_bundle may be a directory as OpenSSL has them; an empty one trusts nobody, also not the default ones."""
    with pytest.raises(pycurl.error) as caught:
        fetch(pool, Origin.of(tls_server.url(), ca_bundle=tmp_path), tls_server.url())
    assert caught.value.args[0] in (pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CACERT_BADFILE)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("PROXY", ""),
        ("NOPROXY", "*"),
        ("PROXYUSERPWD", "a:b"),
        ("PROXYHEADER", ["X: y"]),
        ("SSL_VERIFYPEER", 1),
        ("SSL_VERIFYHOST", 2),
        ("SSLVERSION", 0),
        ("CAINFO", "/dev/null"),
        ("CAPATH", None),
        ("SSL_CIPHER_LIST", "DEFAULT"),
        ("USERPWD", "a:b"),
        ("USERNAME", "a"),
        ("PASSWORD", "b"),
        ("HTTPAUTH", 1),
        ("XOAUTH2_BEARER", "token"),
        ("NETRC", 0),
        ("RESOLVE", ["h:1:127.0.0.1"]),
        ("CONNECT_TO", ["::127.0.0.1:"]),
        ("INTERFACE", "127.0.0.1"),
        ("IPRESOLVE", 1),
        ("HTTP_VERSION", 1),
        ("PROTOCOLS", 3),
        ("NOSIGNAL", 1),
        ("TCP_NODELAY", 0),
        ("OPENSOCKETFUNCTION", print),
        ("CLOSESOCKETFUNCTION", print),
    ],
)
def test_connection_bound_options_cost_the_handle(
    pool: EasyHandlePool, server: RecordingServer, option: str, value: object
) -> None:
    """U07: a connection-bound option set, or unset, after the lease makes the handle be destroyed on release."""
    lease = pool.lease(server.url())
    lease.resource.setopt(getattr(pycurl, option), value)
    lease.release()
    assert pool.stats().destroyed_for["discarded"] == 1
    assert pool.stats().idle == 0


@pytest.mark.parametrize("how", ["setopt_string", "unsetopt", "set_ca_certs", "number", "reset"])
def test_connection_bound_options_by_other_ways(
    pool: EasyHandlePool, server: RecordingServer, how: str
) -> None:
    """U07: the same by setopt_string, unsetopt, set_ca_certs and a bare number, and a reset doesn't undo it."""
    lease = pool.lease(server.url())
    easy = lease.resource
    if how == "setopt_string":
        easy.setopt_string(pycurl.USERPWD, "a:b")
    elif how == "unsetopt":
        easy.unsetopt(pycurl.PROXY)
    elif how == "set_ca_certs":
        easy.set_ca_certs("some certificates")
    elif how == "number":
        easy.setopt(326, 1)
    else:
        easy.setopt(pycurl.USERPWD, "a:b")
        easy.reset()
    lease.release()
    assert pool.stats().destroyed_for["discarded"] == 1


@pytest.mark.parametrize(
    "url", ["http://other.test/", "http://a:b@127.0.0.1:{port}/", "127.0.0.1:{port}/", "x"]
)
def test_another_origin_s_url_costs_the_handle(
    pool: EasyHandlePool, server: RecordingServer, url: str
) -> None:
    """U07: a handle that was given the URL of another origin, credentials, or something unclear isn't kept."""
    lease = pool.lease(server.url())
    lease.resource.setopt(pycurl.URL, url.format(port=server.port))
    lease.release()
    assert pool.stats().destroyed_for["discarded"] == 1


@pytest.mark.parametrize("path", ["", "/", "/a?b#c", "?x"])
def test_its_own_origin_s_url_does_not(pool: EasyHandlePool, server: RecordingServer, path: str) -> None:
    """U07: any URL of its own origin, as text or bytes, leaves the handle good."""
    for url in (server.url(path), server.url(path).encode(), server.url(path).replace("http", "HTTP")):
        lease = pool.lease(server.url())
        lease.resource.setopt(pycurl.URL, url)
        assert lease.resource.perform_rb() == b"fine"
        lease.release()
    assert pool.stats().idle == 1
    assert server.connections == 1


@pytest.mark.parametrize(
    "url", ["http://other.test/", "https://127.0.0.1:{port}/", "http://127.0.0.1:1/", "x"]
)
def test_a_credential_goes_nowhere_else(pool: EasyHandlePool, server: RecordingServer, url: str) -> None:
    """U06: a handle that carries a credential refuses the URL of another origin: libcurl would send it there."""
    lease = pool.lease(server.url().replace("//", f"//user:{SECRET}@"))
    for setopt in (lease.resource.setopt, lease.resource.setopt_string):
        with pytest.raises(ValueError, match="carries a credential for"):
            setopt(pycurl.URL, url.format(port=server.port))
    assert lease.resource.perform_rb() == b"fine"
    lease.release()


def test_a_redirect_takes_no_credential_along(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U06: libcurl, told to follow, keeps the origin's credential from another port."""
    with RecordingServer() as other:
        server.answers["/away"] = Answer(status="302 Found", headers=[f"Location: {other.url('/there')}"])
        for credential in ("token", ("user", SECRET)):
            with pool.lease(Origin.of(server.url(), credential=credential)) as easy:
                easy.setopt(pycurl.URL, server.url("/away"))
                easy.setopt(pycurl.FOLLOWLOCATION, 1)
                assert easy.perform_rb() == b"fine"
        assert [request.header("authorization") for request in other.requests] == [None, None]
