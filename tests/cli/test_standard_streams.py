"""The command line with standard streams that are closed or can't be written to: one line at most, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from respool.cli.__main__ import main
from tests.helpers.threads import HANG_GUARD

from .commands import Ended, command, environment, names, one_line, respool, running
from .content import CONTENT, SIZE
from .pausing import pausing

CLOSED = "respool: stdout: is closed\n"


def without(closed: str, *arguments: str | os.PathLike[str]) -> list[str]:
    """Give the command line that runs respool with some streams closed, as a shell spells that."""
    return ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *command(*arguments)]


def run(closed: str, *arguments: str | os.PathLike[str], **options: Any) -> Ended:
    """Run a command to its end with some streams closed."""
    options.setdefault("env", environment())
    done = subprocess.run(
        without(closed, *arguments),
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
        check=False,
        **options,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


class TestClosedStdout:
    """``>&-``: what can't be told is an error, found before anything is done."""

    @pytest.mark.parametrize("report", [(), ("--json",)])
    def test_get(self, source: str, tmp_path: Path, report: tuple[str, ...]) -> None:
        """Reading is one line and 1, wherever the bytes were to go, and makes no file."""
        assert run(">&-", "get", source, *report) == (1, "", CLOSED)
        assert run(">&-", "get", source, "-o", "-", *report) == (1, "", CLOSED)
        assert run(">&-", "get", source, "-o", tmp_path / "out", *report) == (1, "", CLOSED)
        assert names(tmp_path) == []

    def test_others(self, tmp_path: Path) -> None:
        """So it is with every command, and with what explains them."""
        assert run(">&-", "serve", tmp_path) == (1, "", CLOSED)
        assert run(">&-", "bench", "pool") == (1, "", CLOSED)
        assert run(">&-", "demo", "--json", env=environment(TMPDIR=str(tmp_path))) == (1, "", CLOSED)
        assert names(tmp_path) == []
        assert run(">&-", "--help") == (1, "", CLOSED)
        assert run(">&-", "get", "--help") == (1, "", CLOSED)
        assert run(">&-", "--version") == (1, "", CLOSED)

    def test_usage(self) -> None:
        """Wrong usage stays wrong usage: one line and 2."""
        code, out, err = run(">&-", "get", "x", "--range=5")
        assert (code, out) == (2, "")
        assert "--range" in one_line(err)

    def test_with_stderr(self, content: Path) -> None:
        """Where nothing can be told at all, the exit code tells."""
        assert run(">&- 2>&-", "get", content) == (1, "", "")
        assert run("<&- >&- 2>&-", "--version") == (1, "", "")
        assert run(">&- 2>&-", "nonsense") == (2, "", "")


class TestClosedStderr:
    """``2>&-``: nothing that was meant for stderr goes anywhere else."""

    def test_error(self, tmp_path: Path) -> None:
        """An error is told by the exit code alone."""
        assert run("2>&-", "get", tmp_path / "none") == (1, "", "")
        assert run("2>&-", "get", "x", "--range=5") == (2, "", "")

    def test_report(self, content: Path) -> None:
        """A report goes to stdout as ever."""
        code, out, _ = run("2>&-", "get", content)
        assert code == 0
        assert f"{SIZE:,} bytes" in out

    @pytest.mark.parametrize("report", [(), ("--json",)])
    def test_report_beside_the_data(self, content: Path, report: tuple[str, ...]) -> None:
        """The report that goes to stderr beside the data isn't mixed into them."""
        done = subprocess.run(
            without("2>&-", "get", content, "-o", "-", *report),
            capture_output=True,
            check=True,
            env=environment(),
        )
        assert done.stdout == CONTENT

    def test_demo(self, tmp_path: Path) -> None:
        """The demo's own server needs none either."""
        code, out, _ = run("<&- 2>&-", "demo", "--size=1MiB", env=environment(TMPDIR=str(tmp_path)))
        assert code == 0
        assert "(as it should be)" in out


def test_numbers_stay_taken(tmp_path: Path) -> None:
    """No file or socket gets the number of a closed stream, where others' output would end up in it."""
    with (
        pausing(CONTENT, pause_at=5_000_000) as (url, server),
        subprocess.Popen(
            without("<&- 2>&-", "get", url, "-o", tmp_path / "out"), stdout=subprocess.PIPE, env=environment()
        ) as process,
    ):
        assert server.paused.wait(HANG_GUARD)
        for number in (0, 2):
            assert str(Path(f"/proc/{process.pid}/fd/{number}").readlink()) == "/dev/null"
        server.go_on.set()
        assert process.communicate(timeout=HANG_GUARD)[0]
        assert process.returncode == 0
    assert (tmp_path / "out").read_bytes() == CONTENT


class TestClosedStdin:
    """``<&-``."""

    def test_get(self, source: str) -> None:
        """Nothing is read from it."""
        code, out, err = run("<&-", "get", source)
        assert (code, err) == (0, "")
        assert f"{SIZE:,} bytes" in out

    def test_server_that_is_to_go_with_it(self, tmp_path: Path) -> None:
        """A server that is to end when stdin is closed ends at once where it's closed already, or can't be read."""
        code, out, err = run("<&-", "serve", "--until-stdin-closes", tmp_path)
        assert (code, err) == (0, "")
        assert out.startswith("http://")
        code, _, err = run("0>/dev/null", "serve", "--until-stdin-closes", tmp_path)
        assert (code, err) == (0, "")


class TestNobodyReads:
    """Pipes whose reader goes away, as ``head`` does: the same end each time, never silence with an error code."""

    @pytest.mark.parametrize("report", [(), ("--json",)])
    def test_report_is_written_at_once(self, content: Path, report: tuple[str, ...]) -> None:
        """``respool get … | head -1``: what is told goes out in one piece, so whoever reads a part of it breaks nothing."""
        for buffering in ("", "1"):
            with running(
                "get", content, *report, text=False, env=environment(PYTHONUNBUFFERED=buffering)
            ) as process:
                assert process.stdout is not None
                told = os.read(process.stdout.fileno(), 1 << 16)
                assert process.stdout.read() == b""
                assert process.wait(HANG_GUARD) == 0
            assert told.startswith(b"{" if report else b"9,000,001 bytes")
            assert told.endswith(b"}\n" if report else b"\n")
            assert b"buffers" in told

    @pytest.mark.parametrize(
        "arguments",
        [
            ("get", "/dev/null"),
            ("get", "/dev/null", "--json"),
            ("demo", "--size=1kB"),
            ("bench", "pool:memory", "--quick"),
            ("--help",),
        ],
    )
    def test_gone_before(self, arguments: tuple[str, ...]) -> None:
        """``… | true``: where nothing can be told, that's one line and 1."""
        there, back = os.pipe()
        os.close(there)
        with running(*arguments, stdout=back) as process:
            os.close(back)
            assert process.stderr is not None
            assert one_line(process.stderr.read()) == "nobody reads the output any more"
            assert process.wait(HANG_GUARD) == 1


class TestFull:
    """Streams to a full device."""

    @pytest.mark.parametrize("arguments", [("--help",), ("get", "--help"), ("--version",)])
    def test_explanations(self, arguments: tuple[str, ...]) -> None:
        """Help that can't be written is one line and 1."""
        expected = (1, "", "respool: No space left on device\n")
        assert run(">/dev/full", *arguments, env=environment(PYTHONUNBUFFERED="1")) == expected
        assert run(">/dev/full", *arguments, env=environment(PYTHONUNBUFFERED="")) == expected

    def test_errors(self, tmp_path: Path) -> None:
        """An error that can't be told keeps its exit code."""
        assert run("2>/dev/full", "get", tmp_path / "none") == (1, "", "")
        assert run("2>/dev/full", "get", "x", "--range=5") == (2, "", "")


def test_the_caller_s_streams_stay(monkeypatch: pytest.MonkeyPatch, content: Path) -> None:
    """Called as a function, it leaves the streams as they were, also where there are none."""
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", None)
    assert main(["get", str(content)]) == 1
    assert sys.stdout is None
    assert sys.stderr is None


def test_open_streams_are_left_alone(content: Path) -> None:
    """With all of them there, nothing changes."""
    assert respool("get", content).code == 0
