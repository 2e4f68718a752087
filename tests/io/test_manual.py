"""The manual: none of the public names is left out of the reference, and the recipe for pooled buffers holds when reads fail."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import respool.io
from respool.buffers import BufferPool
from respool.io import HTTPStatusError
from tests.helpers import lies
from tests.helpers.gates import Gate
from tests.helpers.range_server import CONTENT, Exchange, honest
from tests.helpers.threads import Threads, wait_until
from tests.test_readme import blocks_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.io import Session
    from tests.helpers.range_server import RangeServer

API = Path(__file__).resolve().parents[2] / "docs" / "api"


@pytest.mark.parametrize("package", ["io", "curl", "buffers"])
def test_every_public_name_is_in_the_reference(package: str) -> None:
    """Each name that a package exports has its entry on the package's page."""
    page = (API / f"{package}.md").read_text("utf-8")
    entries = re.findall(r"^\.\. auto(?:class|exception|function|data):: ([\w.]+)$", page, re.MULTILINE)
    assert sorted(entries) == sorted(import_module(f"respool.{package}").__all__)


#: So that a block is one request of the fixture `session`.
SIZE = 60_000


@pytest.fixture
def recipe() -> Callable[..., None]:
    """The function `read_blocks` of the page about reading."""
    (block,) = [block for block in blocks_of("docs/reading.md") if "def read_blocks" in block]
    names: dict[str, Any] = {"respool": respool}
    exec(block.partition("with BufferPool(")[0], names)  # noqa: S102 - the project's own page
    found: Callable[..., None] = names["read_blocks"]
    return found


def test_recipe(recipe: Callable[..., None], serve: Callable[..., RangeServer], session: Session) -> None:
    """The blocks come in order and whole, the last one too, from no more buffers than are read ahead."""
    got = bytearray()
    with BufferPool(buffer_size=SIZE) as buffers, session.open(serve().url) as file:
        recipe(file, buffers, got.extend, ahead=3)
        assert got == CONTENT
        stats = buffers.stats()
        assert (stats.created, stats.leased, stats.pending) == (3, 0, 0)


def test_recipe_when_a_read_fails(
    recipe: Callable[..., None], serve: Callable[..., RangeServer], session: Session
) -> None:
    """The first block's error comes out at once; the buffers of those under way come back when these have ended."""
    gate, failing = Gate(), Gate()

    def script(exchange: Exchange) -> None:
        if exchange.wanted[0] == 0:
            failing.stop()
            lies.status("500 Internal Server Error", body=b"")(exchange)
        else:
            gate.stop()
            honest(exchange)

    used: list[object] = []
    server = serve(script)
    with (
        BufferPool(buffer_size=SIZE) as buffers,
        session.open(server.url, size=len(CONTENT)) as file,
        Threads() as threads,
    ):
        reader = threads.start(recipe, file, buffers, used.append)
        wait_until(lambda: (failing.inside, gate.inside) == (1, 3), "all that is read ahead is under way")
        failing.open()
        with pytest.raises(HTTPStatusError):
            reader.result()
        stats = buffers.stats()
        assert (used, stats.leased, stats.leaked) == ([], 0, 0)
        gate.open()
        buffers.close(timeout=30)
        assert buffers.stats().size == 0


def test_recipe_when_using_a_block_fails(
    recipe: Callable[..., None], serve: Callable[..., RangeServer], session: Session
) -> None:
    """So does what `use` raises, and nothing stays leased."""
    with BufferPool(buffer_size=SIZE) as buffers, session.open(serve().url) as file:
        with pytest.raises(ZeroDivisionError):
            recipe(file, buffers, lambda block: len(block) // 0)
        assert buffers.stats().leased == 0
        buffers.close(timeout=30)
        assert buffers.stats().size == 0
