"""Pooled handles in a user's `CurlMulti`: whose connections are whose, and handles taken out before their time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pycurl

from tests.helpers.gates import Gate
from tests.helpers.http_servers import Answer
from tests.helpers.invariants import assert_quiet

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.curl import EasyHandlePool
    from respool.curl._easy import EasyHandle
    from tests.helpers.http_servers import RecordingServer


def run(multi: pycurl.CurlMulti, until: Callable[[], object] | None = None) -> None:
    """Drive a multi until all of its transfers are over, or the condition holds."""
    while multi.perform()[1] and not (until is not None and until()):
        multi.select(0.05)


def in_multi(multi: pycurl.CurlMulti, easy: EasyHandle) -> int:
    """Make a transfer in a multi; how many connections it took."""
    multi.add_handle(easy)
    run(multi)
    connects: int = easy.getinfo(pycurl.NUM_CONNECTS)
    assert easy.getinfo(pycurl.RESPONSE_CODE) == 200
    multi.remove_handle(easy)
    return connects


def test_three_owners(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U19: perform's connections are the handle's, those made in a multi the multi's: neither uses the other's, all answers are right."""
    multi = pycurl.CurlMulti()
    with pool.lease(server.url()) as easy:
        easy.setopt(pycurl.WRITEFUNCTION, lambda _chunk: None)
        connects = []
        for way in (easy.perform, lambda: in_multi(multi, easy), easy.perform):
            for _ in range(2):
                way()
                connects.append(easy.getinfo(pycurl.NUM_CONNECTS))
        # libcurl 8.23 closes a handle's own connection when it's added to a multi.
        assert connects == [1, 0, 1, 0, 1, 0]
    assert [request.connection for request in server.requests] == [1, 1, 2, 2, 3, 3]
    with pool.lease(server.url()) as again:
        assert again is easy
        assert again.perform_rb() == b"fine"
        assert again.getinfo(pycurl.NUM_CONNECTS) == 0
    assert 2 not in server.ends
    multi.close()
    assert server.wait_ended(2) == "closed"
    with pool.lease(server.url()) as again:
        assert again.perform_rb() == b"fine"
        assert again.getinfo(pycurl.NUM_CONNECTS) == 0


def test_handles_of_two_owners_in_one_multi(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U19: a connection that stays in a multi serves the next handle there, and that handle keeps none when it comes back."""
    multi = pycurl.CurlMulti()
    for turn in range(2):
        lease = pool.lease(server.url())
        lease.resource.setopt(pycurl.WRITEFUNCTION, lambda _chunk: None)
        assert in_multi(multi, lease.resource) == (turn == 0)
        lease.release()
    multi.close()
    with pool.lease(server.url()) as easy:
        assert easy.perform_rb() == b"fine"
        assert easy.getinfo(pycurl.NUM_CONNECTS) == 1


def test_removed_while_it_waits_for_its_turn(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U17: a handle is taken out of a multi while it waits for a connection there: no crash, the others end, and it's used again."""
    gate = Gate()
    server.answers["/slow"] = Answer(b"slow", after_head=gate)
    multi = pycurl.CurlMulti()
    multi.setopt(pycurl.M_MAX_HOST_CONNECTIONS, 1)
    bodies: list[bytes] = []
    leases = [pool.lease(server.url("/slow")), *(pool.lease(server.url("/next")) for _ in range(3))]
    for lease in leases:
        lease.resource.setopt(pycurl.WRITEFUNCTION, bodies.append)
        multi.add_handle(lease.resource)
    run(multi, until=lambda: gate.arrived)
    for lease in leases[1:3]:
        multi.remove_handle(lease.resource)
        lease.release()
    assert (pool.stats().idle, pool.stats().leased) == (2, 2)
    with pool.lease(server.url("/other")) as easy:
        assert easy.perform_rb() == b"fine"
    gate.open()
    run(multi)
    assert bodies == [b"slow", b"fine"]
    for lease in (leases[0], leases[3]):
        multi.remove_handle(lease.resource)
        lease.release()
    multi.close()
    assert_quiet(pool, leased=0, idle=4)
    assert [request.target for request in server.requests] == ["/slow", "/other", "/next"]
