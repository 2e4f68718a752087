"""``respool serve`` as a command: its URL, its end, and its arguments."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from .client import CONTENT, Client
from .commands import ended, environment, one_line, respool, running, serving

if TYPE_CHECKING:
    from pathlib import Path


class TestCommand:
    """The command."""

    def test_tells_its_url_first(self, directory: Path) -> None:
        """The first line is the URL; it serves there; Ctrl-C ends it with 130 and one line."""
        with serving(directory) as (url, process):
            assert url.startswith("http://127.0.0.1:")
            client = Client(url)
            assert client("/file.bin", Range="bytes=3-5").body == CONTENT[3:6]
            client.connection.close()
            process.send_signal(signal.SIGINT)
            assert ended(process) == (130, "", "respool: interrupted\n")

    @pytest.mark.parametrize(
        ("name", "shown"), [("file.bin", "file.bin"), ("a b?.bin", "a%20b%3F.bin"), (None, "NAME")]
    )
    def test_hint_on_a_terminal(self, tmp_path: Path, name: str | None, shown: str) -> None:
        """On a terminal stderr tells how to go on, with a URL that works, if there's a file; stdout has its one line."""
        root = tmp_path / "root"
        (root / "folder").mkdir(parents=True)
        (root / "0 link").symlink_to("../secret")
        (root / ".hidden").touch()
        if name is not None:
            (root / name).write_bytes(CONTENT)
        leader, follower = os.openpty()
        with os.fdopen(leader) as terminal, running("serve", root, stderr=follower) as process:
            os.close(follower)
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert terminal.readline().rstrip() == (
                f"respool: serving {root} until Ctrl-C; each file is found by its path: {url}{shown}"
            )
            if name is not None:
                client = Client(url)
                assert client(f"/{shown}").body == CONTENT
                client.connection.close()
            process.send_signal(signal.SIGINT)
            assert process.stdout.read() == ""
            assert terminal.readline().rstrip() == "respool: interrupted"
            assert process.wait(20) == 130

    def test_no_hint_for_a_parent(self, directory: Path) -> None:
        """A server that another program has started says nothing to that program's terminal."""
        leader, follower = os.openpty()
        with (
            os.fdopen(leader) as terminal,
            running(
                "serve", "--until-stdin-closes", directory, stdin=subprocess.PIPE, stderr=follower
            ) as process,
        ):
            os.close(follower)
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline().startswith("http://")
            process.stdin.close()
            assert process.wait(20) == 0
            with pytest.raises(
                OSError, match="Input/output error"
            ):  # nothing more, and the other side is closed
                terminal.read(1)

    def test_a_terminal_that_goes_away(self, directory: Path) -> None:
        """A terminal that can't be told anything is no reason not to serve."""
        leader, follower = os.openpty()
        os.close(leader)
        with running("serve", directory, stderr=follower) as process:
            os.close(follower)
            assert process.stdout is not None
            client = Client(process.stdout.readline().strip())
            assert client("/file.bin").body == CONTENT
            client.connection.close()

    def test_terminated(self, directory: Path) -> None:
        """SIGTERM ends it with 143."""
        with serving(directory) as (_, process):
            process.terminate()
            assert ended(process) == (143, "", "respool: ended by SIGTERM\n")

    def test_ends_with_its_parent(self, directory: Path) -> None:
        """With --until-stdin-closes it ends when whoever started it has gone."""
        with running("serve", "--until-stdin-closes", directory, stdin=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline().startswith("http://")
            process.stdin.close()
            assert process.wait(20) == 0

    def test_host_and_port(self, directory: Path) -> None:
        """A given host and port are used; a port in use is one line and 1."""
        with socket.create_server(("127.0.0.2", 0)) as taken:
            port = taken.getsockname()[1]
            answer = respool("serve", directory, "--host", "127.0.0.2", "--port", str(port))
            assert answer == (1, "", f"respool: 127.0.0.2:{port}: Address already in use\n")
        with serving(directory, "--host", "127.0.0.2", "--port", str(port)) as (url, _):
            assert url == f"http://127.0.0.2:{port}/"

    def test_ipv6(self, directory: Path) -> None:
        """An IPv6 address is put in brackets."""
        with serving(directory, "--host", "::1") as (url, _):
            assert url.startswith("http://[::1]:")
            client = Client(url)
            assert client("/file.bin").body == CONTENT
            client.connection.close()

    @pytest.mark.parametrize("what", ["missing", "file.bin"])
    def test_no_directory(self, directory: Path, what: str) -> None:
        """What is no directory is one line and 1."""
        code, out, err = respool("serve", directory / what)
        assert (code, out) == (1, "")
        assert err.startswith(f"respool: {directory / what}: ")
        assert err.count("\n") == 1

    @pytest.mark.parametrize("port", ["-1", "65536", "99999", "http", "", " 80", "8_0", "\uff12", "9" * 5000])
    def test_bad_port(self, directory: Path, port: str) -> None:
        """A port that is none is wrong usage: one line that says what's allowed, and 2."""
        code, out, err = respool("serve", directory, f"--port={port}")
        assert (code, out) == (2, "")
        assert one_line(err).startswith(
            f"argument --port: must be a whole number from 0 to 65535 (0 takes a free port), not {port!r} (see "
        )

    def test_no_such_host(self, directory: Path) -> None:
        """A host that isn't found is named."""
        code, out, err = respool("serve", directory, "--host", "nowhere.invalid")
        assert (code, out) == (1, "")
        assert one_line(err).startswith("nowhere.invalid:0: ")

    def test_works_without_rich(self, directory: Path, tmp_path: Path) -> None:
        """Serving needs no extra."""
        (tmp_path / "rich.py").write_text("raise ImportError('no rich', name='rich')")
        with running("serve", directory, env=environment(PYTHONPATH=str(tmp_path))) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("http://")
