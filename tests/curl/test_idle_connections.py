"""Connections that lie idle: what may come in on them, how long they stay, and how many there are."""

from __future__ import annotations

import os
import select
import socket
from typing import TYPE_CHECKING, Any

import pycurl
import pytest

from respool.curl import EasyHandlePool, Origin, _easy
from tests.helpers.clocks import without_reaper
from tests.helpers.gates import Gate
from tests.helpers.http_servers import Answer
from tests.helpers.invariants import assert_quiet
from tests.helpers.range_server import HangUp, RangeServer
from tests.helpers.threads import Threads, wait_until, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from respool.curl._easy import EasyHandle
    from tests.helpers.http_servers import Certificate, RecordingServer
    from tests.helpers.range_server import Exchange

FORGED = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL"


class Forger(RangeServer):
    """Answers each request rightly; on its first connection it sends, later, an answer to a question nobody has asked."""

    def __init__(self, **options: Any) -> None:
        self.gate = Gate()
        super().__init__(get=self.answer, **options)

    def answer(self, exchange: Exchange) -> None:
        """Send a right answer, and once the test says so, a forged one; or hang up, if the test has it so."""
        exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")
        if exchange.asked.connection == 1 and self.gate.arrived == 0:
            self.gate.stop()
            if self.hangs_up:
                raise HangUp
            exchange.send(FORGED)

    hangs_up = False


@pytest.fixture(params=["http", "https"])
def forger(request: pytest.FixtureRequest, certificate: Certificate) -> Iterator[Forger]:
    """The server, with and without TLS."""
    tls = certificate.server_context() if request.param == "https" else None
    with Forger(tls=tls) as server:
        yield server
        server.gate.open()


def origin_of(server: Forger) -> Origin:
    """The key for a server whose certificate nobody knows."""
    return Origin.of(server.url, verify=False)


def ask(easy: EasyHandle, server: Forger) -> tuple[bytes, int]:
    """Make a request; its body, and how many connections it made."""
    easy.setopt(pycurl.URL, server.url)
    return easy.perform_rb(), easy.getinfo(pycurl.NUM_CONNECTS)


def has_news(number: int) -> bool:
    """Whether something has come in on a socket."""
    return bool(select.select([number], [], [], 0)[0])


def spoil(server: Forger, number: int) -> None:
    """Have the server send what nobody has asked for, or hang up, and wait until it's there."""
    server.gate.open()
    wait_until(lambda: has_news(number), "what the server sends unasked")


TAKES: dict[str, Callable[[EasyHandlePool, Origin], Any]] = {
    "lease": lambda pool, origin: pool.lease(origin),
    "try_lease": lambda pool, origin: pool.try_lease(origin),
    "lease_many": lambda pool, origin: pool.lease_many(1, origin),
    "bound": lambda pool, origin: pool.bind(origin).lease(),
    "acquire": lambda pool, origin: pool.acquire(origin),
    "try_acquire": lambda pool, origin: pool.try_acquire(origin),
}


@pytest.mark.parametrize("what", ["forged answer", "hang-up"])
@pytest.mark.parametrize("take", TAKES)
def test_a_spoilt_connection_is_not_lent(pool: EasyHandlePool, forger: Forger, take: str, what: str) -> None:
    """U09: a handle on whose idle connection bytes came, or the end, is destroyed; whoever takes one next gets its own answer."""
    forger.hangs_up = what == "hang-up"
    origin = origin_of(forger)
    with pool.lease(origin) as first:
        assert ask(first, forger) == (b"fine", 1)
        number = first.getinfo(pycurl.ACTIVESOCKET)
    spoil(forger, number)
    hold = TAKES[take](pool, origin)
    easy = hold.resources[0] if take == "lease_many" else getattr(hold, "resource", hold)
    assert easy is not first
    assert first.closed
    assert ask(easy, forger) == (b"fine", 1)
    assert ask(easy, forger) == (b"fine", 0)
    pool.release(hold) if hold is easy else hold.release()
    stats = assert_quiet(pool, leased=0, idle=1)
    assert stats.destroyed_for["invalid"] == 1


def test_the_danger_is_real(pool: EasyHandlePool, forger: Forger, monkeypatch: pytest.MonkeyPatch) -> None:
    """U09: without the look at the connection, the next one would take the forged answer for its own."""
    monkeypatch.setattr(_easy, "is_silent", lambda socket: True)
    monkeypatch.setattr("respool.curl._pooled.is_silent", lambda socket: True)
    origin = origin_of(forger)
    with pool.lease(origin) as easy:
        ask(easy, forger)
        number = easy.getinfo(pycurl.ACTIVESOCKET)
    spoil(forger, number)
    with pool.lease(origin) as easy:
        assert ask(easy, forger) == (b"EVIL", 0)


def test_spoilt_while_it_is_held(pool: EasyHandlePool, forger: Forger) -> None:
    """U09: perform looks again: what came since the last transfer of the same holder is no answer, the connection is dropped."""
    with pool.lease(origin_of(forger)) as easy:
        assert ask(easy, forger) == (b"fine", 1)
        spoil(forger, easy.getinfo(pycurl.ACTIVESOCKET))
        assert ask(easy, forger) == (b"fine", 1)
        wait_until(lambda: forger.open_connections == 1, "the closing of the spoilt connection")
        assert ask(easy, forger) == (b"fine", 0)
        assert ask(easy, forger) == (b"fine", 0)
    assert pool.stats().idle == 1


def test_spoilt_between_take_and_use(pool: EasyHandlePool, forger: Forger) -> None:
    """U09: what comes after the handle was lent, and before it's used, is no answer either."""
    origin = origin_of(forger)
    with pool.lease(origin) as easy:
        ask(easy, forger)
        number = easy.getinfo(pycurl.ACTIVESOCKET)
    with pool.lease(origin) as easy:
        spoil(forger, number)
        assert ask(easy, forger) == (b"fine", 1)


def test_spoilt_when_it_is_handed_over(make_pool: Callable[..., EasyHandlePool], forger: Forger) -> None:
    """U09, P13: a waiter to whom a spoilt handle comes gets a new one instead."""
    pool = make_pool(max_size=1)
    origin = origin_of(forger)
    held = pool.lease(origin)
    ask(held.resource, forger)
    spoil(forger, held.resource.getinfo(pycurl.ACTIVESOCKET))
    with Threads() as threads:
        waiter = threads.start(pool.lease, origin)
        wait_until_queued(pool, 1)  # type: ignore[arg-type]  # any pool will do
        held.release()
        with waiter.result() as easy:
            assert ask(easy, forger) == (b"fine", 1)
    assert pool.stats().created == 2


@pytest.mark.parametrize("fresh", [0, 1])
def test_fresh_connect_stays_its_users(pool: EasyHandlePool, forger: Forger, fresh: int) -> None:
    """U09: dropping a connection doesn't change what the user has set about new connections."""
    with pool.lease(origin_of(forger)) as easy:
        easy.setopt(pycurl.FRESH_CONNECT, 1)
        easy.setopt(pycurl.FRESH_CONNECT, fresh)
        ask(easy, forger)
        spoil(forger, easy.getinfo(pycurl.ACTIVESOCKET))
        assert ask(easy, forger) == (b"fine", 1)
        assert ask(easy, forger) == (b"fine", fresh)
        easy.reset()
        easy.setopt(pycurl.SSL_VERIFYPEER, 0)
        assert ask(easy, forger) == (b"fine", 0)


def test_fresh_connect_does_not_outlive_its_user(pool: EasyHandlePool, forger: Forger) -> None:
    """U01, U09: what one user has set about new connections isn't brought back for the next one."""
    origin = origin_of(forger)
    with pool.lease(origin) as easy:
        ask(easy, forger)
        number = easy.getinfo(pycurl.ACTIVESOCKET)
        easy.setopt(pycurl.FRESH_CONNECT, 1)
    with pool.lease(origin) as again:
        assert again is easy
        spoil(forger, number)
        assert ask(again, forger) == (b"fine", 1)
        assert ask(again, forger) == (b"fine", 0)


def test_a_living_connection_is_preferred(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U09: of two idle handles of which the server has hung up on the one used last, the other is lent."""
    with pool.lease_many(2, server.url()) as handles:
        for easy in handles:
            easy.perform_rb()
        sockets = {easy: easy.getinfo(pycurl.ACTIVESOCKET) for easy in handles}
    with pool.lease(server.url()) as last:
        pass
    client = server.requests[handles.index(last)].peer
    with server._lock:
        connection = next(one for one in server._open if one.getpeername() == client)
    connection.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: has_news(sockets[last]), "the hang-up")
    with pool.lease(server.url()) as easy:
        assert easy is not last
        assert easy.perform_rb() == b"fine"
        assert easy.getinfo(pycurl.NUM_CONNECTS) == 0
    assert last.closed


def test_one_handle_has_one_connection(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U09, U16: a transfer that was sent on to another host leaves one connection open, the last one: limits on handles count connections."""
    from tests.helpers.http_servers import RecordingServer as Server

    with Server() as other:
        server.answers["/moved"] = Answer(status="302 Found", headers=[f"Location: {other.url('/new')}"])
        for turn in range(2):
            with pool.lease(server.url("/moved")) as easy:
                easy.setopt(pycurl.FOLLOWLOCATION, 1)
                assert easy.perform_rb() == b"fine"
            assert server.wait_ended(turn + 1) == "closed"
        assert [request.target for request in other.requests] == ["/new"] * 2
        wait_until(lambda: (server.open_connections, other.open_connections) == (0, 1), "one connection")
        assert pool.stats().created == 1


def test_new_connections_replace_old_ones(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U16: a user who asks for new connections has one at the end."""
    with pool.lease(server.url()) as easy:
        easy.setopt(pycurl.FRESH_CONNECT, 1)
        for _ in range(3):
            easy.perform_rb()
    wait_until(lambda: server.open_connections == 1, "one connection")
    assert server.connections == 3


def descriptors() -> int:
    """Count this process's open descriptors."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the kernel's list, names only


@pytest.mark.parametrize("limit", ["idle_timeout", "max_lifetime"])
def test_time_closes_connections(
    make_pool: Callable[..., EasyHandlePool], server: RecordingServer, limit: str
) -> None:
    """U18: beyond idle_timeout or max_lifetime connections are closed while nobody takes anything; then a new one is made."""
    before = descriptors()
    pool = make_pool(**{limit: 0.05})
    with pool.lease_many(3, server.url()) as handles:
        for easy in handles:
            easy.perform_rb()
        assert descriptors() >= before + 6  # both ends are in this process
    wait_until(lambda: pool.stats().size == 0, "the end of idle handles")
    wait_until(lambda: descriptors() == before, "the closing of their descriptors")
    assert set(server.ends.values()) == {"closed"}
    with pool.lease(server.url()) as easy:
        assert easy.perform_rb() == b"fine"
        assert easy.getinfo(pycurl.NUM_CONNECTS) == 1
    reason = "idle" if limit == "idle_timeout" else "lifetime"
    assert pool.stats().destroyed_for[reason] >= 3


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"idle_timeout": 10}, "idle"), ({"max_lifetime": 10, "lifetime_jitter": 0}, "lifetime")],
)
def test_too_old_is_not_reused(
    make_pool: Callable[..., EasyHandlePool],
    server: RecordingServer,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, float],
    reason: str,
) -> None:
    """U18: up to the limit a connection is reused, from then on it isn't: without reap, the take sees to it."""
    clock = without_reaper(monkeypatch)
    pool = make_pool(**limits)
    connects = []
    for age in (0, 9.9, 10):
        clock.advance(age)
        with pool.lease(server.url()) as easy:
            easy.perform_rb()
            connects.append(easy.getinfo(pycurl.NUM_CONNECTS))
    assert connects == [1, 0, 1]
    assert pool.stats().destroyed_for[reason] == 1
    clock.advance(10)
    assert pool.reap() == 1
    assert server.wait_ended(2) == "closed"


def test_a_held_handle_is_left_alone(
    make_pool: Callable[..., EasyHandlePool], server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U18, P54: a handle in use outlives its lifetime, and its connection is closed when it comes back."""
    clock = without_reaper(monkeypatch)
    pool = make_pool(max_lifetime=10)
    with pool.lease(server.url()) as easy:
        easy.perform_rb()
        clock.advance(100)
        assert pool.reap() == 0
        easy.perform_rb()
        assert easy.getinfo(pycurl.NUM_CONNECTS) == 0
    assert server.wait_ended(1) == "closed"
    assert_quiet(pool, leased=0, idle=0)
