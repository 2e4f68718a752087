"""The Python code in README and on some pages of the manual runs as it stands there."""

from __future__ import annotations

import gc
import logging
import os
import re
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from respool.cli.serve import FileServer

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks_of(page: str) -> list[str]:
    """The Python blocks of a page, each padded with empty lines so that a traceback names the page's line."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return ["\n" * text.count("\n", 0, found.start(1)) + found.group(1) for found in BLOCK.finditer(text)]


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A file served over HTTP: what `url` means on the pages; no proxy stands in between."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    (tmp_path / "object").write_bytes(os.urandom(300_000))
    with FileServer(tmp_path) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"{server.url}object"
        server.shutdown()
        thread.join()


def run_page(page: str, url: str) -> None:
    """Run the blocks of a page one after the other, as a reader would type them."""
    names: dict[str, object] = {"url": url, "__name__": "__main__"}
    for block in blocks_of(page):
        exec(compile(block, str(ROOT / page), "exec"), names)  # noqa: S102 - the project's own pages
    names.clear()
    gc.collect()  # whatever an example forgets to close shows as a ResourceWarning, which is an error


def test_readme_runs(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The code of README runs and prints what its comments say."""
    run_page("README.md", url)
    assert capsys.readouterr().out == "42\n1\n"


def test_tutorial_runs(url: str) -> None:
    """The code of the tutorial runs; its assertions hold."""
    run_page("docs/tutorial.md", url)


def test_reading_runs(url: str) -> None:
    """The code of the page about reading runs; its assertions hold."""
    run_page("docs/reading.md", url)


@pytest.mark.parametrize(
    ("page", "least", "most"),
    [("deferred", 5, None), ("handles", 4, 4), ("stock", 6, None), ("lifetimes", 3, 3), ("buffers", 7, None)],
)
def test_pages_run(url: str, page: str, least: int, most: int | None) -> None:
    """The code of these pages runs; its assertions hold, and none of it has gone from there."""
    count = len(blocks_of(f"docs/{page}.md"))
    assert count >= least
    assert most is None or count <= most
    run_page(f"docs/{page}.md", url)


def test_errors_runs(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page about errors does to the logger of the package can be done as it stands there."""
    monkeypatch.chdir(tmp_path)
    logger = logging.getLogger("respool")
    before = logger.handlers[:], logger.propagate, logger.level
    try:
        run_page("docs/errors.md", url)
        assert not logger.isEnabledFor(logging.WARNING)
        assert (tmp_path / "pools.log").exists()
    finally:
        for handler in set(logger.handlers) - set(before[0]):
            logger.removeHandler(handler)
            handler.close()
        logger.propagate = before[1]
        logger.setLevel(before[2])


def test_readme_example_is_short() -> None:
    """The first example can be taken in at a glance: a dozen lines."""
    lines = [line for line in blocks_of("README.md")[0].splitlines() if line.strip()]
    assert 10 <= len(lines) <= 12


@pytest.mark.parametrize(
    "command", re.findall(r"^\./(\S+)", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
)
def test_the_commands_of_readme_are_there(command: str) -> None:
    """Each command that README names is a script that can be run as it stands."""
    assert (ROOT / command).stat().st_mode & stat.S_IXUSR


@pytest.mark.parametrize(
    "page", sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]), ids=lambda page: page.name
)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page leads to a file that exists."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)", text)
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []
