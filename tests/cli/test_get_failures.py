"""``respool get`` when something is in the way: signals, servers, disks, and wrong usage."""

from __future__ import annotations

import argparse
import re
import resource
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from respool.cli.__main__ import main
from respool.cli._main import _parser
from respool.cli.get import parse_range

from .commands import command, ended, environment, names, one_line, respool, running, serving
from .content import CONTENT
from .pausing import pausing


def commands() -> dict[str, argparse.ArgumentParser]:
    """Give each command's parser."""
    (found,) = (action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(found.choices)


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

    def test_setting_that_does_not_fit_another(self, content: Path) -> None:
        """So is one that makes no sense together with another one."""
        code, out, err = respool("get", content, env=environment(RESPOOL_MAX_BYTES="1000"))
        assert (code, out) == (1, "")
        assert one_line(err) == "RESPOOL_MAX_BYTES=1000 is less than buffer_size=4194304"

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

    def test_no_memory(self, content: Path) -> None:
        """Buffers for which there's no memory are told once, by the variable's name."""
        code, out, err = respool("get", content, env=environment(RESPOOL_BUFFER_SIZE="1000000TB"))
        assert (code, out) == (1, "")
        assert re.fullmatch(
            r"RESPOOL_BUFFER_SIZE=1000000000000000000: can't allocate a buffer of 1000000000000000000 bytes "
            r"\(budget max_bytes=[0-9]+, 0 in existence\)",
            one_line(err),
        )

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
        ("arguments", "rest"),
        [
            (("demo", "5"), "5"),
            (("get", "a", "b", "c"), "b c"),
            (("get", "x", "-q"), "-q"),
            (("bench", "pool", "--busy"), "--busy"),
        ],
    )
    def test_what_is_too_much(
        self, arguments: tuple[str, ...], rest: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Arguments too many are told with the help of the command that doesn't take them."""
        assert main(arguments) == 2
        told = f"unrecognized arguments: {rest} (see `respool {arguments[0]} --help`)"
        assert one_line(capsys.readouterr().err) == told

    def test_every_value_says_what_is_allowed(self, capsys: pytest.CaptureFixture[str]) -> None:
        """A bad value of any argument of any command is told with the argument's name and what may be there."""
        tried = []
        for name, parser in commands().items():
            for action in parser._actions:
                if action.nargs == 0 or isinstance(action, argparse._SubParsersAction):
                    continue
                label = "/".join(action.option_strings) or str(action.metavar)
                # What can't be read, as far as there is such a thing; an empty text never can.
                given = [f"{action.option_strings[0]}="] if action.option_strings else [""]
                others = [] if action.option_strings else ["x"]
                if action.option_strings == ["-o"]:
                    given = ["-o", ""]
                with pytest.raises(SystemExit) as caught:
                    parser.parse_args([*given, *others])
                told = one_line(capsys.readouterr().err)
                assert caught.value.code == 2
                assert re.match(
                    rf"argument {re.escape(label)}: (must be .*, not|there is no bench) ''", told
                ), told
                tried.append((name, label))
        assert len(tried) == 12

    @pytest.mark.parametrize(
        "arguments",
        [("--help",), ("get", "--help"), ("serve", "--help"), ("bench", "--help"), ("demo", "--help")],
    )
    def test_help(self, arguments: tuple[str, ...]) -> None:
        """--help explains, on stdout, with 0, also without any extra installed."""
        code, out, err = respool(*arguments)
        assert (code, err) == (0, "")
        assert out.startswith("usage: respool")

    def test_help_tells_of_settings(self) -> None:
        """What has no option of its own is found in the help of `get`: settings come from the environment."""
        out = " ".join(respool("get", "--help").out.split())
        assert "RESPOOL_TIMEOUT=3" in out
        assert re.search("RESPOOL_ALLOW_FULL_RESPONSE=true .* downloads the file from its beginning", out)

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
