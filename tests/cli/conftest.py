"""Fixtures of the command line's tests: the same bytes as a file and as a URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .client import CONTENT as SERVED
from .commands import serving
from .content import CONTENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the content."""
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


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with files to serve, and a file beside it."""
    (tmp_path / "root").mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "root" / "file.bin").write_bytes(SERVED)
    (tmp_path / "root" / "empty").touch()
    return tmp_path / "root"
