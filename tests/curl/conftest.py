"""Fixtures for tests of pooled handles: servers on loopback, and pools that are closed at the end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolLimits
from respool.curl import EasyHandlePool
from tests.helpers.http_servers import Certificate, Nginx, RecordingServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the proxies of the machine's environment out of the tests."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    """A recording HTTP server."""
    with RecordingServer() as server:
        yield server


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate for loopback, its own authority."""
    return Certificate.make(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def tls_server(certificate: Certificate) -> Iterator[RecordingServer]:
    """A recording HTTPS server with that certificate."""
    with RecordingServer(tls=certificate.server_context()) as server:
        yield server


@pytest.fixture(scope="session")
def nginx(tmp_path_factory: pytest.TempPathFactory, certificate: Certificate) -> Iterator[Nginx]:
    """An nginx that serves a file ``small`` of 1,000 bytes and a file ``large`` of 1 MiB."""
    folder = tmp_path_factory.mktemp("nginx")
    files = folder / "files"
    files.mkdir()
    (files / "small").write_bytes(b"0123456789" * 100)
    (files / "large").write_bytes(bytes(range(256)) * 4096)
    with Nginx(folder, files, certificate) as nginx:
        yield nginx


@pytest.fixture
def make_pool() -> Iterator[Callable[..., EasyHandlePool]]:
    """Make pools: limits by their names, all else as the pool's own arguments."""
    pools: list[EasyHandlePool] = []

    def make(**options: Any) -> EasyHandlePool:
        limits = {name: options.pop(name) for name in PoolLimits.__dataclass_fields__ if name in options}
        pools.append(EasyHandlePool(limits=PoolLimits(**limits), **options))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close(0)


@pytest.fixture
def pool(make_pool: Callable[..., EasyHandlePool]) -> EasyHandlePool:
    """A pool without limits."""
    return make_pool()
