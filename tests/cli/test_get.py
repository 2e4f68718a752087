"""``respool get``, run as a user runs it: what is read, and what is told."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import pytest

from respool.cli._output import output
from tests.helpers.descriptors import descriptors_left

from .commands import command, ended, environment, names, one_line, respool, running
from .content import CONTENT, DIGEST, SIZE
from .pausing import pausing


def no_more(*_: object) -> NoReturn:
    """Stand in for `os.open`."""
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "x")


class TestReading:
    """What is read, and where it goes."""

    def test_dropped(self, source: str) -> None:
        """Without -o the bytes are dropped: throughput and a table of the pools; nothing on a stderr that's no terminal."""
        code, out, err = respool("get", source)
        assert (code, err) == (0, "")
        assert re.search(r"^9,000,001 bytes \(8\.6 MiB\) in [0-9.]+ s: [0-9,.]+ MiB/s$", out, re.MULTILINE)
        _, blank, *table = out.splitlines()
        assert blank == ""
        assert re.fullmatch(r"pool +size +acquired .* cost  waited s", table[0])
        used = ["buffers", "handles"] if source.startswith("http:") else ["buffers"]
        assert [line.partition(" ")[0] for line in table[2:]] == used
        # It fits a terminal of the usual width.
        assert all(len(line) < 80 and line == line.rstrip() for line in table)

    def test_into_a_file(self, source: str, tmp_path: Path) -> None:
        """-o writes the file, with the permissions of any new file, and leaves nothing else behind."""
        target = tmp_path / "out"
        code, out, err = respool("get", source, "-o", target, umask=0o027)
        assert (code, err) == (0, "")
        assert "MiB/s" in out
        assert target.read_bytes() == CONTENT
        assert stat.S_IMODE(target.stat().st_mode) == 0o640
        assert names(tmp_path) == ["out"]

    def test_to_stdout(self, source: str) -> None:
        """-o - writes the bytes to stdout and the report to stderr."""
        done = subprocess.run(
            command("get", source, "-o", "-"), capture_output=True, check=True, env=environment()
        )
        assert done.stdout == CONTENT
        assert b"MiB/s" in done.stderr

    @pytest.mark.parametrize(
        ("asked", "part"),
        [
            ("0-0", slice(0, 1)),
            ("5-9", slice(5, 10)),
            ("4194300-4194310", slice(4_194_300, 4_194_311)),
            ("8999999-", slice(8_999_999, SIZE)),
            ("9000000-99999999", slice(9_000_000, SIZE)),
            ("-3", slice(SIZE - 3, SIZE)),
            ("-99999999", slice(0, SIZE)),
            ("1-", slice(1, SIZE)),
        ],
    )
    def test_range(self, source: str, tmp_path: Path, asked: str, part: slice) -> None:
        """--range takes what an HTTP range takes, and clips it to the object."""
        answer = respool("get", source, f"--range={asked}", "-o", tmp_path / "out", "--json")
        assert (answer.code, answer.err) == (0, "")
        assert (tmp_path / "out").read_bytes() == CONTENT[part]
        assert json.loads(answer.out)["bytes"] == part.stop - part.start

    def test_range_as_its_own_argument(self, content: Path) -> None:
        """A range that begins with a dash is no option."""
        assert json.loads(respool("get", content, "--range", "-5", "--json").out)["bytes"] == 5

    def test_range_beyond(self, source: str, tmp_path: Path) -> None:
        """A range beyond the end is an error with the size in it, and no file is made."""
        code, out, err = respool("get", source, "--range", f"{SIZE}-", "-o", tmp_path / "out")
        assert (code, out) == (1, "")
        assert str(SIZE) in one_line(err)
        assert names(tmp_path) == []

    def test_empty(self, tmp_path: Path) -> None:
        """An empty object is read in no time."""
        (tmp_path / "empty").touch()
        code, out, err = respool("get", tmp_path / "empty", "-o", tmp_path / "out")
        assert (code, err) == (0, "")
        assert out.startswith("0 bytes in ")
        assert (tmp_path / "out").read_bytes() == b""

    def test_unknown_size(self, tmp_path: Path) -> None:
        """Where the server never tells the size, blocks are read until there's nothing more to be had."""
        with pausing(CONTENT[: 8 << 20], tell_size=False) as server:
            code, _, err = respool("get", server.url, "-o", tmp_path / "out")
        assert (code, err) == (0, "")
        assert (tmp_path / "out").read_bytes() == CONTENT[: 8 << 20]

    def test_unknown_size_and_a_short_block(self, tmp_path: Path) -> None:
        """There a block that comes short may be the end or a cut: the reader doesn't guess, and no file is made."""
        with pausing(CONTENT[:1000], tell_size=False) as server:
            code, out, err = respool("get", server.url, "-o", tmp_path / "out")
        assert (code, out) == (1, "")
        assert "1000 bytes" in one_line(err)
        assert names(tmp_path) == []

    def test_last_bytes_of_unknown_size(self) -> None:
        """The last bytes of an object whose size isn't known can't be had, and the error says so."""
        with pausing(CONTENT[:100], tell_size=False) as server:
            code, _, err = respool("get", server.url, "--range", "-5")
        assert code == 1
        assert "size" in one_line(err)


class TestReport:
    """What is told."""

    def test_json(self, source: str) -> None:
        """--json tells the same, and all of the pools' stats, as one JSON object on stdout."""
        code, out, err = respool("get", source, "--json", "--verify", DIGEST)
        assert (code, err) == (0, "")
        told = json.loads(out)
        assert told["bytes"] == SIZE
        assert told["bytes_per_second"] == pytest.approx(SIZE / told["seconds"])
        assert (told["digest"], told["verified"]) == (DIGEST, True)
        buffers = told["pools"]["buffers"]
        assert (buffers["leased"], buffers["leaked"]) == (0, 0)
        assert buffers["acquired"] == 3
        assert buffers["cost"] == buffers["size"] * (4 << 20)
        if source.startswith("http:"):
            assert told["pools"]["handles"]["acquired"] >= 3
            assert told["pools"]["handles"]["leased"] == 0

    def test_plain_letters(self, content: Path) -> None:
        """Where output can't have more than ASCII, the table is drawn with that."""
        code, out, err = respool("get", content, env=environment(PYTHONIOENCODING="ascii"))
        assert (code, err) == (0, "")
        assert out.isascii()
        assert "buffers" in out

    def test_json_beside_stdout(self, content: Path) -> None:
        """With -o - the JSON goes to stderr."""
        done = subprocess.run(
            command("get", content, "-o", "-", "--json"), capture_output=True, check=True, env=environment()
        )
        assert done.stdout == CONTENT
        assert json.loads(done.stderr)["bytes"] == SIZE

    def test_progress_on_a_terminal(self, content: Path) -> None:
        """On a terminal there's a progress bar on stderr, and it's gone at the end."""
        leader, follower = os.openpty()
        with running(
            "get", content, stderr=follower, env=environment(TERM="xterm", COLUMNS="100")
        ) as process:
            os.close(follower)
            shown = b""
            try:
                while part := os.read(leader, 65536):
                    shown += part
            except OSError:
                pass  # EIO: the other side is closed
            os.close(leader)
            out, _ = process.communicate()
        assert process.returncode == 0
        assert "MiB/s" in out
        assert b"8.6/8.6 MiB" in shown
        assert shown.rstrip().endswith(b"\x1b[2K") or b"\x1b[2K" in shown

    def test_no_secrets(self) -> None:
        """User, password and signature of a URL appear nowhere."""
        with pausing(CONTENT[:100]) as server:
            secret = server.url.replace("http://", "http://user:hunter2@") + "?X-Amz-Signature=hunter3"
            good = respool("get", secret, "--json")
            bad = respool("get", secret, "--range", "100-")
        assert good.code == 0
        assert bad.code == 1
        assert "hunter" not in good.out + good.err + bad.out + bad.err


class TestVerify:
    """--verify."""

    def test_right(self, source: str) -> None:
        """The right digest, in any case of letters, is told to be right."""
        code, out, _ = respool("get", source, "--verify", DIGEST.upper().replace("SHA256", "sha256"))
        assert code == 0
        assert f"{DIGEST}  (as it should be)" in out

    def test_of_a_range(self, content: Path) -> None:
        """With --range it's the digest of the bytes read."""
        digest = hashlib.sha256(CONTENT[10:20]).hexdigest()
        assert respool("get", content, "--range", "10-19", "--verify", f"sha256:{digest}").code == 0

    def test_wrong(self, source: str, tmp_path: Path) -> None:
        """A wrong one is one line and 1; the file that was there stays as it was."""
        (tmp_path / "out").write_text("old")
        code, out, err = respool("get", source, "--verify", f"sha256:{'0' * 64}", "-o", tmp_path / "out")
        assert (code, out) == (1, "")
        assert DIGEST[7:] in one_line(err)
        assert (tmp_path / "out").read_text() == "old"
        assert names(tmp_path) == ["out"]


class TestFiles:
    """What becomes of a file that's there."""

    def test_replaced(self, content: Path, tmp_path: Path) -> None:
        """An existing file is replaced by a new one with its permissions; who has the old one open keeps it."""
        target = tmp_path / "out"
        target.write_text("old")
        target.chmod(0o604)
        with target.open() as old:
            assert respool("get", content, "-o", target).code == 0
            assert old.read() == "old"
        assert target.read_bytes() == CONTENT
        assert stat.S_IMODE(target.stat().st_mode) == 0o604

    def test_no_descriptor_to_spare(self, tmp_path: Path) -> None:
        """What is opened to make the new file last takes the place of what was open: no more is needed than while reading."""
        with ExitStack() as stack:
            sink = stack.enter_context(output(str(tmp_path / "out")))
            sink.write(memoryview(b"new"))
            with descriptors_left(0):
                stack.close()
        assert (tmp_path / "out").read_bytes() == b"new"

    def test_folder_that_can_not_be_opened(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An error in that names the file, which is in place by then."""
        with pytest.raises(OSError, match="Too many open files") as caught, output(str(tmp_path / "out")):
            monkeypatch.setattr(os, "open", no_more)
        assert caught.value.filename == str(tmp_path / "out")
        assert names(tmp_path) == ["out"]

    def test_link(self, content: Path, tmp_path: Path) -> None:
        """A symbolic link stays one; what it points to is replaced."""
        (tmp_path / "real").write_text("old")
        (tmp_path / "link").symlink_to("real")
        assert respool("get", content, "-o", tmp_path / "link").code == 0
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real").read_bytes() == CONTENT

    def test_device(self, content: Path) -> None:
        """A device is written to, not replaced."""
        assert respool("get", content, "-o", "/dev/null").code == 0
        assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)

    def test_named_pipe(self, content: Path, tmp_path: Path) -> None:
        """A named pipe is written to."""
        os.mkfifo(tmp_path / "pipe")
        with running("get", content, "-o", tmp_path / "pipe") as process:
            assert (tmp_path / "pipe").read_bytes() == CONTENT
            assert ended(process).code == 0

    def test_directory(self, content: Path, tmp_path: Path) -> None:
        """A directory can't be written to."""
        code, _, err = respool("get", content, "-o", tmp_path)
        assert (code, one_line(err)) == (1, f"{tmp_path}: Is a directory")

    def test_no_such_directory(self, content: Path, tmp_path: Path) -> None:
        """A directory that isn't there is told before anything is read."""
        code, _, err = respool("get", content, "-o", tmp_path / "none" / "out")
        assert (code, one_line(err)) == (1, f"{tmp_path}/none/out: No such file or directory")
