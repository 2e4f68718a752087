"""``respool bench handles``: what it saves to keep a TLS connection with its handle.

This module owns the list of what is measured and the target that the result is held to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from respool.cli.bench._measure import Contender, Effort, bars, close_all, measure
from respool.cli.bench._peers import load
from respool.cli.bench._results import Claim, Missing, Result
from respool.cli.bench._tls_server import BODY, Serving, tls_server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

UNIT = "one pycurl handle, kept by hand"
_POOLED = "EasyHandlePool.lease"
_FRESH = "a fresh pycurl handle each time"
_CHEAPER = 10.0

PACKAGES = ("pycurl", "requests", "httpx", "urllib3")


def steps(effort: Effort) -> int:
    """Tell how often `run` will call `tick`."""
    return effort.repeats * effort.rounds


def run(effort: Effort, tick: Callable[[], object]) -> Result:
    """Measure, and hold the result to its target."""
    with tls_server() as server:
        found: list[Contender | Missing] = [*_curls(server), *_peers(server)]
        contenders = [one for one in found if isinstance(one, Contender)]
        try:
            seconds = measure(contenders, effort, tick=tick)
        finally:
            close_all(contenders)
    return Result(
        name="handles",
        title="Small objects over TLS",
        what=(
            f"An object of {len(BODY)} bytes is read, again and again, from a TLS server on the loopback "
            "address, in another process; the certificate is checked. A fresh handle connects and shakes hands each time; a "
            "pooled one finds its connection still there. Across a real network a fresh connection costs "
            "round trips on top, so the difference is larger there."
        ),
        repeats=effort.repeats,
        sections=[bars("One object", UNIT, contenders, seconds)],
        claims=[
            Claim(
                text=f"{_POOLED}: cheaper than {_FRESH}",
                unit="times",
                figure=seconds[_FRESH].over(seconds[_POOLED]),
                target=_CHEAPER,
                at_most=False,
            )
        ],
        missing=[one for one in found if isinstance(one, Missing)],
        packages=PACKAGES,
        quick=effort.quick,
    )


def _curls(server: Serving) -> Sequence[Contender]:
    from respool.curl import EasyHandlePool, Origin

    pycurl = load("pycurl")
    got: list[bytes] = []

    def keep(data: bytes) -> None:
        got[:] = [data]

    kept = pycurl.Curl()
    kept.setopt(pycurl.URL, server.url)
    kept.setopt(pycurl.CAINFO, server.ca_bundle)
    kept.setopt(pycurl.WRITEFUNCTION, keep)
    kept.perform()
    if got != [BODY]:
        raise ConnectionError("the TLS server to measure against sent something else")
    pool = EasyHandlePool()
    origin = Origin.of(server.url, ca_bundle=server.ca_bundle)
    options = {"URL": pycurl.URL, "CAINFO": pycurl.CAINFO, "WRITEFUNCTION": pycurl.WRITEFUNCTION}
    common = {**options, "url": server.url, "keep": keep}
    fresh = """\
easy = Curl()
easy.setopt(URL, url)
easy.setopt(CAINFO, ca_bundle)
easy.setopt(WRITEFUNCTION, keep)
easy.perform()
easy.close()
"""
    pooled = """\
with pool.lease(origin) as easy:
    easy.setopt(URL, url)
    easy.setopt(WRITEFUNCTION, keep)
    easy.perform()
"""
    return (
        Contender(
            name=UNIT, role="floor", statement="easy.perform()", names={"easy": kept}, close=kept.close
        ),
        Contender(
            name=_POOLED,
            role="respool",
            statement=pooled,
            names={**common, "pool": pool, "origin": origin},
            close=pool.close,
        ),
        Contender(
            name=_FRESH,
            role="peer",
            statement=fresh,
            names={**common, "Curl": pycurl.Curl, "ca_bundle": server.ca_bundle},
        ),
    )


def _peers(server: Serving) -> Sequence[Contender | Missing]:
    makers: dict[str, Callable[[Serving], Sequence[Contender]]] = {
        "requests": _requests,
        "httpx": _httpx,
        "urllib3": _urllib3,
    }
    found: list[Contender | Missing] = []
    for name, make in makers.items():
        try:
            found += make(server)
        except ImportError as error:
            found.append(Missing(name=name, why=str(error)))
    return found


def _requests(server: Serving) -> Sequence[Contender]:
    requests = load("requests")

    session = requests.Session()
    names: dict[str, Any] = {"url": server.url, "ca_bundle": server.ca_bundle}
    return (
        Contender(
            name="requests.Session.get",
            role="peer",
            statement="session.get(url, verify=ca_bundle).content",
            names={**names, "session": session},
            close=session.close,
        ),
        Contender(
            name="requests.get",
            role="peer",
            statement="get(url, verify=ca_bundle).content",
            names={**names, "get": requests.get},
        ),
    )


def _httpx(server: Serving) -> Sequence[Contender]:
    import ssl

    httpx = load("httpx")

    client = httpx.Client(verify=ssl.create_default_context(cafile=server.ca_bundle))
    return (
        Contender(
            name="httpx.Client.get",
            role="peer",
            statement="client.get(url).content",
            names={"client": client, "url": server.url},
            close=client.close,
        ),
    )


def _urllib3(server: Serving) -> Sequence[Contender]:
    urllib3 = load("urllib3")

    manager = urllib3.PoolManager(ca_certs=server.ca_bundle)
    return (
        Contender(
            name="urllib3.PoolManager.request",
            role="peer",
            statement="manager.request('GET', url).data",
            names={"manager": manager, "url": server.url},
            close=manager.clear,
        ),
    )
