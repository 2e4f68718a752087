"""Ctrl-C once more: while a command is still tidying up after the first, and when it has decided on its end."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, cast

import pytest

from respool.cli.__main__ import main

from .commands import ended, environment, names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Reading that is interrupted and then can't be left, as where a file system doesn't answer any more.
STUCK = """
    import os, sys, threading
    from respool.cli import _read
    from respool.cli.__main__ import main

    def read(session, source, sink, **options):
        sink.write(memoryview(b"a half"))
        try:
            print("reading", flush=True)
            threading.Event().wait()
        finally:
            os.write(1, b"leaving\\n")
            while True:
                try:
                    threading.Event().wait()
                except BaseException:
                    pass

    _read.read = read
    sys.exit(main())
"""

#: An end that takes a while: the interpreter's, after the command's.
SLOW_TO_GO = """
    import atexit, sys
    from respool.cli.__main__ import main

    def last():
        print("going", flush=True)
        sys.stdin.readline()

    atexit.register(last)
    sys.exit(main())
"""


@contextmanager
def program(source: str, *arguments: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program with these arguments; it's killed if it's still there at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**more),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str]) -> str:
    """Read the next line that a program prints."""
    return cast("IO[str]", process.stdout).readline().strip()


@pytest.mark.parametrize("command", ["get", "demo"])
def test_while_it_tidies_up(command: str, tmp_path: Path) -> None:
    """The second ends the command at once, with the line and 130 of the first, and leaves no file either."""
    out, source = tmp_path / "out", tmp_path / "source"
    out.mkdir()
    source.write_bytes(b"all of it")
    arguments = {"get": ["get", str(source), "-o", str(out / "file")], "demo": ["demo", "--size=1MiB"]}[
        command
    ]
    with program(STUCK, *arguments, TMPDIR=str(out)) as process:
        assert heard(process) == "reading"
        assert len(names(out)) == 1
        process.send_signal(signal.SIGINT)
        assert heard(process) == "leaving"
        process.send_signal(signal.SIGINT)
        assert ended(process) == (130, "", "respool: interrupted\n")
    assert names(out) == []


@pytest.mark.parametrize(
    ("arguments", "code"), [(("--version",), 0), (("get", "none"), 1), (("get", "x", "y"), 2)]
)
def test_when_all_is_done(arguments: tuple[str, ...], code: int, tmp_path: Path) -> None:
    """One that comes when a command is over, and the interpreter still ending, doesn't change how it ended."""
    with program(SLOW_TO_GO, *arguments) as process:
        if code == 0:
            assert heard(process).startswith("respool ")
        assert heard(process) == "going"
        process.send_signal(signal.SIGINT)
        told = ended(process)
    assert told.code == code
    assert told.err.count("\n") == bool(code)


def test_when_the_first_is_done(tmp_path: Path) -> None:
    """So it is where the command ended by a first one."""
    source = SLOW_TO_GO.replace(
        "sys.exit(main())",
        "import signal\n"
        "    from respool.cli import _read\n"
        "    _read.read = lambda *_, **__: signal.raise_signal(signal.SIGINT)\n"
        "    sys.exit(main())",
    )
    (tmp_path / "file").touch()
    with program(source, "get", str(tmp_path / "file")) as process:
        assert heard(process) == "going"
        process.send_signal(signal.SIGINT)
        assert ended(process) == (130, "", "respool: interrupted\n")


def test_who_calls_it_keeps_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    """A program that runs a command has its own way with Ctrl-C back afterwards."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert main(["--version"]) == 0
    assert main(["get", "/none"]) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert main(["--version"]) == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err.count("\n") == 1
