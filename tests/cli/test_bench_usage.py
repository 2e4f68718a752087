"""``respool bench`` before it measures: wrong usage, and where the results are to go."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from respool.cli.__main__ import main
from respool.cli.bench import _peers, handles, uncontended

from .commands import names, one_line, respool

ROOT = Path(__file__).resolve().parents[2]


class TestUsage:
    """What isn't there."""

    @pytest.mark.parametrize("name", ["read"])
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
            ("events", "--device", "-1"),
            ("events", "--device", "first"),
        ],
    )
    def test_wrong(self, arguments: tuple[str, ...]) -> None:
        """Anything else is wrong usage too."""
        code, out, err = respool("bench", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)


class TestHelp:
    """What is compared, and what is to be installed for it."""

    @pytest.fixture
    def told(self, capsys: pytest.CaptureFixture[str]) -> str:
        """The help, on one line, as a shell reads it."""
        assert main(["bench", "--help"]) == 0
        return " ".join(capsys.readouterr().out.replace("\\\n", " ").split())

    def test_names_all_that_is_compared(self, told: str) -> None:
        """Every package whose figures a bench has is named, under its bench."""
        pool, found, handles_part = told.partition("handles measures")
        assert found
        assert [name for name in _peers.PACKAGES if name not in pool.partition("pool measures")[2]] == []
        assert [name for name in handles.PACKAGES if name not in handles_part] == []

    def test_says_what_to_install(self, told: str) -> None:
        """One line installs all of it; the group `bench` of pyproject.toml is the same list, and so is the manual's."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
        wanted = {re.split(r"[>=]", text)[0] for text in project["dependency-groups"]["bench"]}
        manual = " ".join((ROOT / "docs" / "command-line.md").read_text("utf-8").split())
        for text in (told, manual):
            (line,) = re.findall(r"pip install ([^`]*connpool[^`]*urllib3)(?:`|$)", text)
            assert {word.strip("'") for word in line.split()} == wanted

    def test_commands(self, told: str) -> None:
        """So is what a bench runs."""
        assert "openssl" in told
        assert "matplotlib" in told


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
