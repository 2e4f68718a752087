"""A fork in the middle of everything: both sides read right bytes, and neither touches the other's connections.

The forking process is an interpreter of its own, without threads of the test session; the
server, which sees and counts everything, is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.http_servers import Answer, RecordingServer
from tests.helpers.programs import printed_by

if TYPE_CHECKING:
    from tests.helpers.http_servers import Certificate, Request

#: Begins each program: a pool, a way to read with it, and what both sides do.
PRELUDE = """
import os, sys, pycurl
from respool import LeaseLostError, InvalidReleaseError
from respool.curl import EasyHandlePool, Origin

BASE, BUNDLE = {base!r}, {bundle!r}
pool = EasyHandlePool()
origin = Origin.of(BASE, ca_bundle=BUNDLE)

def read(path):
    with pool.lease(origin) as easy:
        easy.setopt(pycurl.URL, BASE + path)
        body = easy.perform_rb()
    assert body == path.encode() * 100, (path, body)

def read_many(who, n=200):
    for i in range(n):
        read(f"/{{who}}/{{i}}")

def ended(child):
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, status
"""


def echo(request: Request) -> Answer:
    """Answer with the path itself, many times over."""
    return Answer(request.target.encode() * 100)


class Echo(dict):  # type: ignore[type-arg]  # a table with one answer to all
    """Every path has the same answer."""

    def get(self, _path: object, _default: object = None) -> object:
        """Return it."""
        return echo


def run(program: str, certificate: Certificate | None) -> tuple[RecordingServer, list[str]]:
    """Run a forking program against a server of its own; the server, and what the program printed."""
    tls = certificate.server_context() if certificate else None
    with RecordingServer(answers=Echo(), tls=tls) as server:
        bundle = certificate.cert if certificate else None
        source = PRELUDE.format(base=server.url("").rstrip("/"), bundle=bundle) + program
        # From 3.12 on Python warns of what one of these programs does on purpose.
        printed = printed_by(source, "-Wignore:This process:DeprecationWarning")
    return server, printed


def connections(server: RecordingServer, who: str) -> set[int]:
    """The connections over which one side asked."""
    return {request.connection for request in server.requests if request.target.startswith(f"/{who}/")}


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("exit_by", ["os._exit(0)", "sys.exit(0)"])
def test_both_sides_read_on(certificate: Certificate, exit_by: str, *, tls: bool) -> None:
    """U33: with idle and busy handles at the fork both sides read 200 objects each, all bytes right.

    The child makes its own connections, and the parent's live on: as many as before, used before
    and after the child's end, though the child ends by freeing all that it has.
    """
    program = f"""
        busy = pool.lease(origin)
        busy.resource.setopt(pycurl.URL, BASE + "/busy/1")
        busy.resource.perform_rb()
        read("/before/1")

        child = os.fork()
        if child == 0:
            read_many("child")
            busy.release()
            assert pool.stats().created == 1, pool.stats()
            {exit_by}
        read_many("parent")
        ended(child)
        read_many("after", 20)
        busy.resource.setopt(pycurl.URL, BASE + "/busy/2")
        assert busy.resource.perform_rb() == b"/busy/2" * 100
        assert busy.resource.getinfo(pycurl.NUM_CONNECTS) == 0
        busy.release()
        assert pool.stats().created == 2
        pool.close()
    """.replace("\n        ", "\n")
    server, _ = run(program, certificate if tls else None)
    assert connections(server, "busy") == {1}
    assert (
        connections(server, "before") == connections(server, "parent") == connections(server, "after") == {2}
    )
    assert connections(server, "child") == {3}
    assert server.connections == 3
    assert len(server.requests) == 2 + 1 + 200 + 200 + 20
    # No half-sent TLS record and no reset: each connection was closed properly by the side whose it was.
    assert {server.ends[1], server.ends[2]} == {"closed"}


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_generations(certificate: Certificate, *, tls: bool) -> None:
    """U33: children of children, and several at once, read right bytes over connections of their own."""
    program = """
        read("/parent/1")
        children = []
        for name in ("a", "b"):
            child = os.fork()
            if child == 0:
                read_many(name, 20)
                grandchild = os.fork()
                if grandchild == 0:
                    read_many(name + name, 20)
                    sys.exit(0)
                read_many(name, 20)
                ended(grandchild)
                read(f"/{name}/last")
                sys.exit(0)
            children.append(child)
        read_many("parent", 20)
        for child in children:
            ended(child)
        read("/parent/last")
        assert pool.stats().created == 1
        pool.close()
    """.replace("\n        ", "\n")
    server, _ = run(program, certificate if tls else None)
    used = [connections(server, who) for who in ("parent", "a", "aa", "b", "bb")]
    assert [len(numbers) for numbers in used] == [1] * 5
    assert len(set.union(*used)) == server.connections == 5


def test_a_fork_inside_a_transfer(certificate: Certificate) -> None:
    """U33: a handle that another thread is using at the fork is left alone by the child, and goes on in the parent."""
    program = """
        import threading
        gate, go_on = threading.Event(), threading.Event()
        bodies = []

        def slow():
            def sink(chunk):
                bodies.append(bytes(chunk))
                gate.set()
                go_on.wait()
            with pool.lease(origin) as easy:
                easy.setopt(pycurl.URL, BASE + "/slow/1")
                easy.setopt(pycurl.WRITEFUNCTION, sink)
                easy.perform()

        thread = threading.Thread(target=slow)
        thread.start()
        gate.wait()
        child = os.fork()
        if child == 0:
            read_many("child", 20)
            pool.close()
            sys.exit(0)
        ended(child)
        go_on.set()
        thread.join()
        assert b"".join(bodies) == b"/slow/1" * 100
        read_many("parent", 20)
        assert pool.stats().created == 1
        pool.close()
    """.replace("\n        ", "\n")
    server, _ = run(program, certificate)
    assert connections(server, "slow") == connections(server, "parent") == {1}
    assert connections(server, "child") == {2}


def test_inherited_handles_refuse_work(certificate: Certificate) -> None:
    """U33: in the child every use of an inherited handle is a LeaseLostError; giving it back or closing it does nothing."""
    program = """
        lease, bare, spent = pool.lease(origin), pool.acquire(origin), pool.lease(origin)
        for easy in (lease.resource, bare):
            easy.setopt(pycurl.URL, BASE + "/mine/1")
            easy.perform_rb()
        gone = spent.resource
        spent.release()
        easy = lease.resource

        child = os.fork()
        if child == 0:
            uses = [easy.perform, easy.perform_rb, easy.reset, bare.perform, gone.perform]
            uses += [lambda: easy.setopt(pycurl.URL, BASE), lambda: setattr(easy, "tag", 1)]
            uses += [lambda: easy.unsetopt(pycurl.PROXY), lambda: lease.resource, lease.detach]
            for use in uses:
                try:
                    use()
                except LeaseLostError:
                    print("lost")
            easy.close()
            gone.close()
            assert not easy.closed
            lease.release()
            lease.release()
            pool.release(bare)
            assert pool.stats().size == 0, pool.stats()
            read("/child/1")
            pool.close()
            del easy, lease, bare, gone, spent
            sys.exit(0)
        ended(child)
        for easy in (lease.resource, bare):
            easy.setopt(pycurl.URL, BASE + "/mine/2")
            easy.perform_rb()
            assert easy.getinfo(pycurl.NUM_CONNECTS) == 0
        lease.release()
        pool.release(bare)
        assert pool.stats().idle == 3
        pool.close()
    """.replace("\n        ", "\n")
    server, printed = run(program, certificate)
    assert printed == ["lost"] * 10
    assert connections(server, "mine") == {1, 2}
    assert connections(server, "child") == {3}
    assert {server.ends[1], server.ends[2], server.ends[3]} == {"closed"}


def test_a_detached_handle_is_the_parent_s(certificate: Certificate) -> None:
    """U33: a handle taken out of its pool is no less the parent's: the child can't use it, nor hang up on the parent."""
    program = """
        easy = pool.lease(origin).detach()
        easy.setopt(pycurl.URL, BASE + "/mine/1")
        easy.perform_rb()
        child = os.fork()
        if child == 0:
            try:
                easy.perform()
            except LeaseLostError:
                print("lost")
            easy.close()
            del easy
            sys.exit(0)
        ended(child)
        easy.perform_rb()
        assert easy.getinfo(pycurl.NUM_CONNECTS) == 0
        easy.close()
        pool.close()
    """.replace("\n        ", "\n")
    server, printed = run(program, certificate)
    assert printed == ["lost"]
    assert connections(server, "mine") == {1}
    assert server.ends[1] == "closed"


def test_credentials_survive_a_fork(certificate: Certificate) -> None:
    """U33: an origin with a credential means the same in the child: keys are equal, and it can be asked for."""
    program = """
        secret = Origin.of(BASE, ca_bundle=BUNDLE, credential=("user", "secret"))
        child = os.fork()
        if child == 0:
            assert secret == Origin.of(BASE, ca_bundle=BUNDLE, credential=("user", "secret"))
            with pool.lease(secret) as easy:
                easy.setopt(pycurl.URL, BASE + "/child/1")
                easy.perform_rb()
            pool.close()
            sys.exit(0)
        ended(child)
        pool.close()
    """.replace("\n        ", "\n")
    server, _ = run(program, certificate)
    assert server.requests[0].header("authorization") == "Basic dXNlcjpzZWNyZXQ="
