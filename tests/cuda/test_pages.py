"""The code on the manual's pages about CUDA runs as it stands there, on the fake driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.cuda_driver import run_with_fake
from tests.test_readme import blocks_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("page", "count"), [("cuda-events", 5), ("pinned", 3)])
def test_pages_run(fake_library: Path, page: str, count: int) -> None:
    """The code of the pages about CUDA runs; its assertions hold, and none of it has gone from there."""
    core = pytest.importorskip("cuda.core", reason="needs cuda.core")
    if not hasattr(core, "Device"):
        pytest.skip("needs a cuda.core whose names are not experimental")
    blocks = blocks_of(f"docs/{page}.md")
    assert len(blocks) == count
    ended = run_with_fake(fake_library, "\n".join(block.strip("\n") for block in blocks))
    assert (ended.code, ended.errors) == (0, "")
