"""``respool demo``: generated, served, read and compared on one machine."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from respool.cli import demo
from respool.cli.__main__ import main

from .commands import PROXIED, environment, one_line, respool


class TestCommand:
    """As a user runs it."""

    def test_shows_what_it_did(self, tmp_path: Path) -> None:
        """It tells throughput, that every byte was right, and the pools; nothing stays in the temporary folder."""
        code, out, err = respool("demo", "--size", "20MiB", env=environment(TMPDIR=str(tmp_path)))
        assert (code, err) == (0, "")
        assert "20,971,520 bytes (20.0 MiB)" in out
        assert "(as it should be)" in out
        assert "handles" in out
        assert "buffers" in out
        assert list(tmp_path.iterdir()) == []

    def test_json(self) -> None:
        """--json tells the same; handles and buffers were reused, and none is out."""
        code, out, err = respool("demo", "--size", "200MB", "--json")
        assert (code, err) == (0, "")
        told = json.loads(out)
        assert (told["bytes"], told["verified"]) == (200_000_000, True)
        for pool in ("handles", "buffers"):
            stats = told["pools"][pool]
            assert stats["acquired"] >= 200_000_000 // (4 << 20)
            assert stats["created"] + stats["reused"] == stats["acquired"]
            assert 0 < stats["created"] < stats["reused"]
            assert (stats["leased"], stats["leaked"]) == (0, 0)

    def test_goes_to_its_own_server_directly(self) -> None:
        """A proxy that the environment names is for other servers than the one that the demo runs itself."""
        code, out, err = respool("demo", "--size=1MiB", env=environment(**PROXIED))
        assert (code, err) == (0, "")
        assert "(as it should be)" in out

    @pytest.mark.parametrize("size", ["0", "-1", "1.5", "much", ""])
    def test_bad_size(self, size: str) -> None:
        """A size that is none is wrong usage, told once by the option's name."""
        code, out, err = respool("demo", f"--size={size}")
        assert (code, out) == (2, "")
        assert one_line(err).startswith("argument --size: ")
        assert err.count("--size") == 1
        assert repr(size) in err

    @pytest.mark.parametrize("size", ["8M", "8 Mb/s", "8MBit"])
    def test_unknown_unit(self, size: str) -> None:
        """A size with a unit that isn't known is told those that are."""
        code, out, err = respool("demo", f"--size={size}")
        assert (code, out) == (2, "")
        assert re.match(
            r"argument --size: must be a size like 4194304 or \"4MiB\" "
            r"\(units are kB, MB, GB and TB, of 1000, and KiB, MiB, GiB and TiB, of 1024\), not '8",
            one_line(err),
        )

    def test_room_that_runs_out(self, tmp_path: Path) -> None:
        """A disk that fills up in the middle (here RLIMIT_FSIZE) is one line that names it, and 1; nothing stays."""
        code, out, err = respool(
            "demo",
            "--size=10MiB",
            env=environment(TMPDIR=str(tmp_path)),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5 << 20, 5 << 20)),
        )
        assert (code, out) == (1, "")
        assert re.fullmatch(
            rf"{re.escape(str(tmp_path))}/respool-demo-\w+/demo\.bin: File too large", one_line(err)
        )
        assert list(tmp_path.iterdir()) == []

    def test_no_such_folder(self, tmp_path: Path) -> None:
        """A folder that TMPDIR names and that can't be used is told, and no other one is taken for it."""
        (tmp_path / "file").touch()
        for folder, reason in (
            (tmp_path / "none", "No such file or directory"),
            (tmp_path / "file", "Not a directory"),
        ):
            code, out, err = respool("demo", "--size=1MB", env=environment(TMPDIR=str(folder)))
            assert (code, out) == (1, "")
            assert one_line(err) == f"{folder}: {reason} (from TMPDIR)"
        (tmp_path / "shut").mkdir(mode=0o500)
        if not os.access(tmp_path / "shut", os.W_OK):  # as it is for who may do everything
            code, out, err = respool("demo", "--size=1MB", env=environment(TMPDIR=str(tmp_path / "shut")))
            assert (code, one_line(err)) == (
                1,
                f"{tmp_path / 'shut'}: can't be written to: Permission denied (from TMPDIR)",
            )
        code, _, err = respool("demo", "--size=1MB", env=environment(TMPDIR=""))
        assert (code, err) == (0, "")

    @pytest.mark.parametrize("command", [("demo", "--size=1MB"), ("bench", "handles", "--quick")])
    def test_folder_in_which_nothing_can_be_made(self, command: tuple[str, ...]) -> None:
        """A folder in which even who may do everything can make nothing isn't passed over for another one."""
        code, out, err = respool(*command, env=environment(TMPDIR="/proc"))
        assert (code, out) == (1, "")
        assert re.fullmatch(r"/proc: can't be written to: .+ \(from TMPDIR\)", one_line(err))

    def test_no_room(self, tmp_path: Path) -> None:
        """A file for which there's no room is one line, with the folder and what is free, and 1; nothing is written."""
        code, out, err = respool("demo", "--size=100000TB", env=environment(TMPDIR=str(tmp_path)))
        assert (code, out) == (1, "")
        told = re.fullmatch(
            rf"{re.escape(str(tmp_path))}: a file of 100,000,000,000,000,000 bytes doesn't fit, "
            r"([0-9,]+) are free: ask for a smaller --size, or for another folder by TMPDIR",
            one_line(err),
        )
        assert told
        assert int(told[1].replace(",", "")) < 10**17
        assert list(tmp_path.iterdir()) == []

    def test_as_much_as_there_is(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Just as much as is free fits, one byte more doesn't; where the system can't tell, it's tried."""
        Free = namedtuple("Free", "f_blocks f_bavail f_frsize")  # noqa: PYI024 - a stand-in for a tuple of the system's
        free = Free(10, 3, 512)
        monkeypatch.setattr(demo.os, "statvfs", lambda _: free)
        demo.check_room(str(tmp_path), 1536)
        with pytest.raises(OSError, match="1,537 bytes doesn't fit, 1,536 are free"):
            demo.check_room(str(tmp_path), 1537)
        free = Free(0, 0, 512)
        demo.check_room(str(tmp_path), 1537)


class TestFailure:
    """What isn't right is not told to be."""

    def test_wrong_bytes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A file that isn't what was generated is one line with both digests, and 1."""
        generate = demo.generate

        def spoil(path: Path, size: int, *args: object) -> str:
            digest = generate(path, size)
            with path.open("r+b") as file:
                file.seek(size // 2)
                file.write(b"X")
            return digest

        monkeypatch.setattr(demo, "generate", spoil)
        assert main(["demo", "--size", "1MiB"]) == 1
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith("respool: ")
        assert told.err.count("\n") == 1
        assert told.err.count("sha256") == 1

    def test_interrupted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Ctrl-C while it reads: 130; server and file are gone."""
        servers: list[subprocess.Popen[str]] = []
        popen = subprocess.Popen

        def noted(*args: object, **kwargs: object) -> subprocess.Popen[str]:
            servers.append(popen(*args, **kwargs))  # type: ignore[call-overload]
            return servers[-1]

        def interrupt(*args: object, **kwargs: object) -> None:
            assert servers[0].poll() is None
            assert list(tmp_path.iterdir())
            raise KeyboardInterrupt

        monkeypatch.setattr(subprocess, "Popen", noted)
        monkeypatch.setattr("respool.cli._read.read", interrupt)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert main(["demo", "--size", "1MiB"]) == 130
        assert servers[0].returncode is not None
        assert list(tmp_path.iterdir()) == []
        assert capsys.readouterr().err == "respool: interrupted\n"

    def test_server_does_not_start(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A server that doesn't start is one line, and 1."""
        popen = subprocess.Popen
        monkeypatch.setattr(
            subprocess, "Popen", lambda _, **options: popen([sys.executable, "-c", ""], **options)
        )
        assert main(["demo", "--size", "1MiB"]) == 1
        assert capsys.readouterr().err == "respool: the demo's own server didn't start\n"


class TestGenerate:
    """The generated file."""

    @pytest.mark.parametrize("size", [1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_000_000])
    def test_digest_is_the_file_s(self, tmp_path: Path, size: int) -> None:
        """It has the size asked for, and the digest told."""
        digest = demo.generate(tmp_path / "file", size)
        content = (tmp_path / "file").read_bytes()
        assert len(content) == size
        assert hashlib.sha256(content).hexdigest() == digest

    def test_full_device(self) -> None:
        """An error in writing it names it."""
        with pytest.raises(OSError, match="No space left on device: '/dev/full'") as caught:
            demo.generate(Path("/dev/full"), 3_000_000)
        assert caught.value.errno == errno.ENOSPC

    def test_same_each_time(self, tmp_path: Path) -> None:
        """It's the same each time, and no two blocks are alike."""
        assert demo.generate(tmp_path / "a", 2 << 20) == demo.generate(tmp_path / "b", 2 << 20)
        content = (tmp_path / "a").read_bytes()
        assert content[: 1 << 20] != content[1 << 20 :]
