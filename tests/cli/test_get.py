"""``respool get``, run as a user runs it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from respool.cli.__main__ import main
from respool.cli.get import parse_range

from .commands import command, ended, environment, respool, running, serving
from .pausing import pausing

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = 9_000_001
CONTENT = hashlib.shake_128(b"respool").digest(SIZE)
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of a little more than two blocks."""
    path = tmp_path_factory.mktemp("content") / "file.bin"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture(scope="module")
def url(content: Path) -> Iterator[str]:
    """Where the file is served."""
    with serving(content.parent) as (url, _):
        yield f"{url}file.bin"


@pytest.fixture(params=["path", "file", "http"])
def source(request: pytest.FixtureRequest, content: Path) -> str:
    """The same bytes by three names."""
    return {
        "path": lambda: str(content),
        "file": content.as_uri,
        "http": lambda: request.getfixturevalue("url"),
    }[request.param]()


def names(directory: Path) -> list[str]:
    """Give the names of what is in a directory."""
    return sorted(path.name for path in directory.iterdir())


def one_line(text: str) -> str:
    """Check that an error is one line of the usual form, and give it without the name in front."""
    assert re.fullmatch(r"respool: [^\n]+\n", text), text
    return text[9:-1]


class TestReading:
    """What is read, and where it goes."""

    def test_dropped(self, source: str) -> None:
        """Without -o the bytes are dropped: throughput and a table of the pools; nothing on a stderr that's no terminal."""
        code, out, err = respool("get", source)
        assert (code, err) == (0, "")
        assert re.search(r"^9,000,001 bytes \(8\.6 MiB\) in [0-9.]+ s: [0-9,.]+ MiB/s$", out, re.MULTILINE)
        assert re.search(r"^ ?pool +size +idle .* cost", out, re.MULTILINE)
        assert re.search(r"^ ?buffers ", out, re.MULTILINE)

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

    @pytest.mark.parametrize("size", [1000, 8 << 20, (8 << 20) + 1])
    def test_unknown_size(self, tmp_path: Path, size: int) -> None:
        """Where the server doesn't tell the size, all bytes come all the same, also when a block ends where they do."""
        with pausing(CONTENT[:size], tell_size=False) as server:
            code, _, err = respool("get", server.url, "-o", tmp_path / "out")
        assert (code, err) == (0, "")
        assert (tmp_path / "out").read_bytes() == CONTENT[:size]

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


class TestBrokenOff:
    """Ctrl-C, signals, servers and disks that fail in the middle."""

    @pytest.mark.parametrize(
        ("number", "code", "text"),
        [
            (signal.SIGINT, 130, "interrupted"),
            (signal.SIGTERM, 143, "ended by SIGTERM"),
            (signal.SIGHUP, 129, "ended by SIGHUP"),
        ],
    )
    @pytest.mark.parametrize("there", ["", "old"])
    def test_signal(self, tmp_path: Path, number: signal.Signals, code: int, text: str, there: str) -> None:
        """In the middle of a body: the exit code, one line, no partial file, and the old file as it was."""
        target = tmp_path / "out"
        if there:
            target.write_text(there)
        with (
            pausing(CONTENT, pause_at=5_000_000) as (url, server),
            running("get", url, "-o", target) as process,
        ):
            assert server.paused.wait(30)
            # The file is under way, under another name.
            assert [name for name in names(tmp_path) if name != "out"]
            process.send_signal(number)
            answer = ended(process)
        assert answer.code == code
        assert one_line(answer.err) == text
        assert answer.out == ""
        assert names(tmp_path) == (["out"] if there else [])
        if there:
            assert target.read_text() == there

    def test_server_goes_away(self, tmp_path: Path) -> None:
        """A server that's gone in the middle is one line that names the URL, and 1; no partial file."""
        with (
            pausing(CONTENT, pause_at=5_000_000) as (url, server),
            running("get", url, "-o", tmp_path / "out") as process,
        ):
            assert server.paused.wait(30)
            server.drop()
            code, out, err = ended(process)
        assert (code, out) == (1, "")
        assert url in one_line(err)
        assert names(tmp_path) == []

    def test_server_is_killed(self, content: Path, tmp_path: Path) -> None:
        """The same with a real server that's killed, while the reader is held up by a pipe nobody reads from."""
        with (
            serving(content.parent) as (url, server),
            running("get", f"{url}file.bin", "-o", "-", text=False, bufsize=0) as process,
        ):
            assert process.stdout is not None
            first = process.stdout.read(1)
            server.kill()
            server.wait()
            rest, err = process.communicate(timeout=30)
        # What had been read ahead by then may have been all of it.
        got = first + rest
        if process.returncode == 0:
            assert got == CONTENT
        else:
            assert process.returncode == 1
            one_line(err.decode())
            assert CONTENT.startswith(got)

    def test_disk_full(self, content: Path) -> None:
        """A full device is one line with its name, and 1."""
        code, out, err = respool("get", content, "-o", "/dev/full")
        assert (code, out, one_line(err)) == (1, "", "/dev/full: No space left on device")

    def test_file_too_large(self, source: str, tmp_path: Path) -> None:
        """A file that may not grow any more (RLIMIT_FSIZE): one line, and the partial file is gone."""
        code, out, err = respool(
            "get",
            source,
            "-o",
            tmp_path / "out",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5 << 20, 5 << 20)),
        )
        assert (code, out, one_line(err)) == (1, "", f"{tmp_path}/out: File too large")
        assert names(tmp_path) == []

    def test_report_to_full_device(self, content: Path) -> None:
        """A report that can't be written is one line, and 1."""
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                command("get", content),
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                env=environment(),
            )
        assert done.returncode == 1
        assert "No space left on device" in one_line(done.stderr)

    def test_nobody_reads(self, content: Path) -> None:
        """`respool get … -o - | head -c 1`: one line, and 1."""
        with running("get", content, "-o", "-", text=False, bufsize=0) as process:
            assert process.stdout is not None
            assert process.stdout.read(1) == CONTENT[:1]
            process.stdout.close()
            assert process.stderr is not None
            assert one_line(process.stderr.read().decode()) == "nobody reads the output any more"
            assert process.wait(30) == 1


class TestErrors:
    """One line on stderr, nothing on stdout, and 1."""

    def test_not_found(self, url: str) -> None:
        """A missing object is told with its URL and status."""
        code, out, err = respool("get", f"{url}.none")
        assert (code, out) == (1, "")
        assert "404" in one_line(err)
        assert f"{url}.none" in err

    def test_no_file(self, tmp_path: Path) -> None:
        """A missing file is told with its name."""
        code, out, err = respool("get", tmp_path / "none")
        assert (code, out) == (1, "")
        assert str(tmp_path / "none") in one_line(err)

    def test_directory(self, tmp_path: Path) -> None:
        """A directory isn't read."""
        code, out, err = respool("get", tmp_path)
        assert (code, out) == (1, "")
        assert "directory" in one_line(err)

    def test_nobody_listens(self) -> None:
        """A refused connection is told with its URL."""
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        code, out, err = respool("get", f"http://127.0.0.1:{port}/x")
        assert (code, out) == (1, "")
        assert f"127.0.0.1:{port}" in one_line(err)

    @pytest.mark.parametrize("source", ["ftp://host/x", "http://", "http:///x", "file://elsewhere/x"])
    def test_bad_url(self, source: str) -> None:
        """A URL that can't be read is told."""
        code, out, err = respool("get", source)
        assert (code, out) == (1, "")
        one_line(err)

    def test_bad_setting(self, content: Path) -> None:
        """A bad environment variable is told by its name."""
        code, out, err = respool("get", content, env=environment(RESPOOL_TASK_SIZE="much"))
        assert (code, out) == (1, "")
        assert "RESPOOL_TASK_SIZE" in one_line(err)

    def test_without_rich(self, content: Path, tmp_path: Path) -> None:
        """Without the packages of the extra `cli`, it says how to get them."""
        (tmp_path / "rich.py").write_text("raise ModuleNotFoundError('no rich', name='rich')")
        code, out, err = respool("get", content, env=environment(PYTHONPATH=str(tmp_path)))
        assert (code, out) == (1, "")
        assert one_line(err) == "this command needs the extra `cli`: pip install 'respool[cli]'"

    def test_without_pycurl(self, url: str, tmp_path: Path) -> None:
        """Without pycurl, a URL's error names the extra to install."""
        (tmp_path / "pycurl.py").write_text("raise ModuleNotFoundError('no pycurl', name='pycurl')")
        code, out, err = respool("get", url, env=environment(PYTHONPATH=str(tmp_path)))
        assert (code, out) == (1, "")
        assert re.search(r"respool\[(io|curl)\]", one_line(err))

    def test_unforeseen(
        self, content: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Whatever else goes wrong is one line too, with the kind of error."""
        monkeypatch.setattr("respool.cli._read.read", lambda *_, **__: 1 / 0)
        assert main(["get", str(content)]) == 1
        assert one_line(capsys.readouterr().err) == "ZeroDivisionError: division by zero"


class TestUsage:
    """One line on stderr, nothing on stdout, and 2."""

    @pytest.mark.parametrize(
        "arguments",
        [
            (),
            ("get",),
            ("nonsense",),
            ("get", "x", "--nonsense"),
            ("get", "x", "y"),
            *(
                ("get", "x", f"--range={bad}")
                for bad in ("", "-", "5-4", "a-b", "1", "-0", "1-2,4-5", "0x1-2", "1 - 2")
            ),
            *(
                ("get", "x", f"--verify={bad}")
                for bad in ("", "sha256:", "md5:" + "0" * 32, "sha256:" + "g" * 64)
            ),
        ],
    )
    def test_wrong(self, arguments: tuple[str, ...]) -> None:
        """What can't be meant is told without doing anything."""
        code, out, err = respool(*arguments)
        assert (code, out) == (2, "")
        assert "--help" in one_line(err)

    @pytest.mark.parametrize(
        "arguments",
        [("--help",), ("get", "--help"), ("serve", "--help"), ("bench", "--help"), ("demo", "--help")],
    )
    def test_help(self, arguments: tuple[str, ...]) -> None:
        """--help explains, on stdout, with 0, also without any extra installed."""
        code, out, err = respool(*arguments)
        assert (code, err) == (0, "")
        assert out.startswith("usage: respool")

    def test_version(self) -> None:
        """--version tells the package's."""
        import respool as package

        assert respool("--version") == (0, f"respool {package.__version__}\n", "")

    def test_ranges(self) -> None:
        """What --range means, for an object of 10 bytes."""
        meant = {"0-0": (0, 1), "2-": (2, 8), "-3": (7, 3), "-30": (0, 10), "9-9": (9, 1), "3-100": (3, 7)}
        assert {text: parse_range(text).of(10) for text in meant} == meant
        assert parse_range("3-5").of(None) == (3, 3)
        assert parse_range("3-").of(None) == (3, None)
