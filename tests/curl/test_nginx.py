"""Keep-alive against a real nginx, which counts the requests of each connection."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pycurl
import pytest

from respool.curl import Origin
from tests.helpers.threads import run_together

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.curl import EasyHandlePool
    from tests.helpers.http_servers import Certificate, Nginx


def read(pool: EasyHandlePool, origin: Origin, url: str) -> tuple[bytes, int]:
    """Read a URL; its body, and the HTTP version spoken."""
    with pool.lease(origin) as easy:
        easy.setopt(pycurl.URL, url)
        return easy.perform_rb(), easy.getinfo(pycurl.INFO_HTTP_VERSION)


@pytest.mark.parametrize(
    ("tls", "version", "spoken"),
    [
        (False, None, pycurl.CURL_HTTP_VERSION_1_1),
        (True, None, pycurl.CURL_HTTP_VERSION_2_0),
        (True, "1.1", pycurl.CURL_HTTP_VERSION_1_1),
        (True, "2", pycurl.CURL_HTTP_VERSION_2_0),
    ],
    ids=["http", "https", "https 1.1", "https 2"],
)
def test_one_connection_serves_all(
    make_pool: Callable[..., EasyHandlePool],
    nginx: Nginx,
    certificate: Certificate,
    *,
    tls: bool,
    version: str | None,
    spoken: int,
) -> None:
    """U14: a hundred requests, errors among them, over one connection, with HTTP and HTTPS, 1.1 and 2."""
    pool = make_pool(max_size=1)
    path = f"/small?{uuid.uuid4()}"
    missing = f"/missing?{uuid.uuid4()}"
    origin = Origin.of(nginx.url(tls=tls), ca_bundle=certificate.cert, http_version=version)
    for _ in range(50):
        assert read(pool, origin, nginx.url(path, tls=tls)) == (b"0123456789" * 100, spoken)
        assert b"404" in read(pool, origin, nginx.url(missing, tls=tls))[0]
    assert len(set(nginx.connections(path, 50) + nginx.connections(missing, 50))) == 1
    assert pool.stats().created == 1


def test_threads_share_a_few(
    make_pool: Callable[..., EasyHandlePool], nginx: Nginx, certificate: Certificate
) -> None:
    """U16: eight threads on four handles make four connections at most, and read right bytes."""
    pool = make_pool(max_per_key=4)
    path = f"/large?{uuid.uuid4()}"
    origin = Origin.of(nginx.url(tls=True), ca_bundle=certificate.cert)

    def work() -> set[int]:
        return {hash(read(pool, origin, nginx.url(path, tls=True))[0]) for _ in range(5)}

    bodies = run_together(*[work] * 8)
    assert set.union(*bodies) == {hash(bytes(range(256)) * 4096)}
    assert len(set(nginx.connections(path, 40))) <= 4


def test_ranges_and_headers_do_not_stick(pool: EasyHandlePool, nginx: Nginx) -> None:
    """U01: after a range request the next answer is whole."""
    results: list[Any] = []
    for wanted in ("10-19", None, "0-0"):
        with pool.lease(nginx.url("/small")) as easy:
            if wanted:
                easy.setopt(pycurl.RANGE, wanted)
            results.append(
                (
                    len(easy.perform_rb()),
                    easy.getinfo(pycurl.RESPONSE_CODE),
                    easy.getinfo(pycurl.NUM_CONNECTS),
                )
            )
    assert results == [(10, 206, 1), (1000, 200, 0), (1, 206, 0)]
