"""What ``respool get`` says, word for word where a word too many or a wrong one would mislead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from respool.cli._report import Report
from respool.cli.get import meant

from .commands import one_line, respool
from .content import CONTENT, DIGEST, SIZE

if TYPE_CHECKING:
    from pathlib import Path


def first_line(nbytes: int, seconds: float, capsys: pytest.CaptureFixture[str]) -> str:
    """Give what a report begins with."""
    Report(source="x", nbytes=nbytes, seconds=seconds, digest=None, verified=None, pools={}).show(
        as_json=False
    )
    return capsys.readouterr().out.splitlines()[0]


class TestErrors:
    """Errors of the command itself are words, without the name of a class in front."""

    def test_range(self, source: str) -> None:
        """A range beyond the end."""
        code, out, err = respool("get", source, "--range", f"{SIZE}-")
        assert (code, out) == (1, "")
        assert one_line(err) == f"the object has {SIZE} bytes, so none at {SIZE}"

    def test_range_of_one_byte(self, tmp_path: Path) -> None:
        """One byte is not several."""
        (tmp_path / "x").write_bytes(b"x")
        assert (
            one_line(respool("get", tmp_path / "x", "--range", "5-").err)
            == "the object has 1 byte, so none at 5"
        )

    def test_digest(self, content: Path) -> None:
        """A wrong digest."""
        code, out, err = respool("get", content, "--verify", f"sha256:{'0' * 64}")
        assert (code, out) == (1, "")
        assert one_line(err).startswith(
            f"{content}: the sha256 of what was read is {DIGEST[7:]}, and should be 0"
        )


class TestForgottenScheme:
    """An address without ``http://`` in front is taken for a path, as it may be one."""

    @pytest.mark.parametrize(
        ("source", "address"),
        [
            ("127.0.0.1:8000/x", "http://127.0.0.1:8000/x"),
            ("127.0.0.1/x", "http://127.0.0.1/x"),
            ("localhost:8000", "http://localhost:8000"),
            ("localhost/x", "http://localhost/x"),
            ("[::1]:8000/x", "http://[::1]:8000/x"),
            ("machine:8000/x?y=1", "http://machine:8000/x?y=1"),
            ("example.org/a/b.bin", "https://example.org/a/b.bin"),
            ("example.org:443/x", "https://example.org:443/x"),
            ("example.org:80/x", "http://example.org:80/x"),
            ("data.bin", None),
            ("folder/data.bin", None),
            ("./a.b/c", None),
            ("../a:80/c", None),
            ("/a.b/c", None),
            ("a:b/c", None),
            ("a.b:99999999/c", None),
            ("2026-01-01T10:30:00.log", None),
            ("ftp://a.b/c", None),
            ("", None),
            ("file:/a/b.bin", "file:///a/b.bin"),
            ("FILE:/a", "file:///a"),
            ("file:a/b", None),
            ("http:/host/x", "http://host/x"),
            ("https:/host:1/x?y", "https://host:1/x?y"),
            ("HTTPS:/host/x", "https://host/x"),
            ("http:host/x", None),
            ("http:/", None),
        ],
    )
    def test_what_is_meant(self, source: str, address: str | None) -> None:
        """What looks like a host is; what doesn't isn't."""
        assert meant(source) == address

    def test_asked(self, tmp_path: Path) -> None:
        """Where there's no such file, it asks whether the URL was meant, and shows no secret."""
        code, out, err = respool("get", "127.0.0.1:8000/x?sig=5ecret", cwd=tmp_path)
        assert (code, out) == (1, "")
        assert re.fullmatch(
            r"no such file here; did you mean http://127\.0\.0\.1:8000/x\?sig=[^5]*\?", one_line(err)
        )

    def test_asked_where_a_slash_is_missing(self, tmp_path: Path) -> None:
        """So it does where the scheme lacks slashes: a file URL with one is a URL by its RFC, and a path here."""
        code, out, err = respool("get", "file:/a/b", cwd=tmp_path)
        assert (code, out, one_line(err)) == (1, "", "no such file here; did you mean file:///a/b?")
        code, out, err = respool("get", "http:/user:5ecret@host/x", cwd=tmp_path)
        assert (code, out) == (1, "")
        assert re.fullmatch(r"no such file here; did you mean http://[^5]*host/x\?", one_line(err))
        (tmp_path / "file:").mkdir()
        code, out, err = respool("get", "file:/b", cwd=tmp_path)
        assert (code, out, one_line(err)) == (1, "", f"{tmp_path}/file:/b: No such file or directory")

    def test_there_is_such_a_folder(self, tmp_path: Path) -> None:
        """Where the folder is there, the path was meant."""
        (tmp_path / "a.b").mkdir()
        code, out, err = respool("get", "a.b/x", cwd=tmp_path)
        assert (code, out, one_line(err)) == (1, "", f"{tmp_path}/a.b/x: No such file or directory")

    def test_there_is_such_a_file(self, tmp_path: Path) -> None:
        """A file whose name looks like an address is read."""
        (tmp_path / "localhost:80").write_bytes(CONTENT)
        assert respool("get", "localhost:80", cwd=tmp_path).code == 0

    def test_the_output_is_not_the_source(self, content: Path, tmp_path: Path) -> None:
        """A missing folder for the output is told as that."""
        code, out, err = respool("get", content, "-o", "a.b/x", cwd=tmp_path)
        assert (code, out, one_line(err)) == (1, "", "a.b/x: No such file or directory")


class TestThroughput:
    """How much and how fast, in units that fit."""

    @pytest.mark.parametrize(
        ("nbytes", "seconds", "told"),
        [
            (0, 0.5, "0 bytes in 0.500 s: 0 bytes/s"),
            (1, 0.5, "1 byte in 0.500 s: 2 bytes/s"),
            (10, 0.078, "10 bytes in 0.078 s: 128 bytes/s"),
            (1023, 1.0, "1,023 bytes in 1.000 s: 1,023 bytes/s"),
            (1024, 1.0, "1,024 bytes in 1.000 s: 1.0 KiB/s"),
            (51200, 0.5, "51,200 bytes in 0.500 s: 100.0 KiB/s"),
            (1 << 20, 1.0, "1,048,576 bytes (1.0 MiB) in 1.000 s: 1.0 MiB/s"),
            (5 << 30, 1.0, "5,368,709,120 bytes (5,120.0 MiB) in 1.000 s: 5,120.0 MiB/s"),
            (5, 0.0, "5 bytes in 0.000 s"),
        ],
    )
    def test_first_line(
        self, nbytes: int, seconds: float, told: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Nothing that was fast or slow is told as 0.0."""
        assert first_line(nbytes, seconds, capsys) == told
