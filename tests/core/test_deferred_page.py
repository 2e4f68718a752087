"""The Python code in docs/deferred.md runs as it stands there."""

from __future__ import annotations

import gc
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "deferred.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_the_page_runs() -> None:
    """The blocks of the page, one after the other, do what their assertions say."""
    text = PAGE.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "__main__"}
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) > 4
    for block in blocks:
        code = "\n" * text.count("\n", 0, block.start(1)) + block.group(1)
        exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102 - the project's own page
    names.clear()
    gc.collect()  # what an example leaks or forgets to close is a warning, which is an error
