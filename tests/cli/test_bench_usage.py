"""``respool bench`` before it measures: wrong usage, and where the results are to go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from respool.cli.__main__ import main
from respool.cli.bench import uncontended

from .commands import names, one_line, respool

if TYPE_CHECKING:
    from pathlib import Path


class TestUsage:
    """What isn't there."""

    @pytest.mark.parametrize("name", ["events", "buffers", "read"])
    def test_later(self, name: str) -> None:
        """A bench that is to come is wrong usage, and the line says that it's to come."""
        code, out, err = respool("bench", name)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "later version" in err

    @pytest.mark.parametrize(
        "arguments",
        [
            ("nonsense",),
            (),
            ("pool:nonsense",),
            ("handles:handles",),
            ("pool", "--busy"),
            ("pool", "--device", "0"),
        ],
    )
    def test_wrong(self, arguments: tuple[str, ...]) -> None:
        """Anything else is wrong usage too."""
        code, out, err = respool("bench", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)


class TestWhereResultsGo:
    """What --json and --plot name is looked at before minutes of measuring, and nothing is made there but the results."""

    @pytest.fixture(autouse=True)
    def _nothing_is_measured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(uncontended, "run", lambda *_: pytest.fail("measured"))

    @pytest.mark.parametrize(
        ("where", "reason"),
        [
            ("none/x.json", "No such file or directory"),
            ("file/x.json", "Not a directory"),
            ("folder", "Is a directory"),
            ("blocked.json", None),
        ],
    )
    def test_file(
        self, tmp_path: Path, where: str, reason: str | None, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A file that can't be written is one line with its name, as for `respool get -o`, and so is the page beside it."""
        (tmp_path / "file").touch()
        (tmp_path / "folder").mkdir()
        (tmp_path / "blocked.md").mkdir()
        before = names(tmp_path)
        assert main(["bench", "pool:uncontended", "--json", str(tmp_path / where)]) == 1
        told = capsys.readouterr()
        expected = f"{where}: {reason}" if reason else "blocked.md: Is a directory"
        assert (told.out, one_line(told.err)) == ("", f"{tmp_path}/{expected}")
        assert names(tmp_path) == before

    @pytest.mark.parametrize(
        ("where", "reason"), [("none", "No such file or directory"), ("file", "Not a directory")]
    )
    def test_folder(
        self, tmp_path: Path, where: str, reason: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A folder for the drawings that isn't there, or is none, is one line with its name."""
        (tmp_path / "file").touch()
        assert main(["bench", "pool:uncontended", "--plot", str(tmp_path / where)]) == 1
        told = capsys.readouterr()
        assert (told.out, one_line(told.err)) == ("", f"{tmp_path / where}: {reason}")
        assert names(tmp_path) == ["file"]

    @pytest.mark.parametrize("option", ["--json=/proc/x.json", "--plot=/proc"])
    def test_folder_in_which_nothing_can_be_made(
        self, option: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """It's tried, not asked for permission: that is no promise."""
        assert main(["bench", "pool:uncontended", option]) == 1
        assert one_line(capsys.readouterr().err).startswith(f"{option[7:]}: ")

    def test_file_of_the_page(self, capsys: pytest.CaptureFixture[str]) -> None:
        """A name that the page would have is wrong usage: one of the two would be lost."""
        assert main(["bench", "pool:uncontended", "--json", "x.md"]) == 2
        assert ".md" in one_line(capsys.readouterr().err)
