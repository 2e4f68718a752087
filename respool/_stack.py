"""The stack of an acquire, taken cheaply and put into words only when somebody wants to read it."""

from __future__ import annotations

import sys
from typing import Final

__all__ = ["capture", "render"]

_DEEPEST: Final = 24
_OWN: Final = __file__.rpartition("/")[0]

Frames = tuple[tuple[str, int, str], ...]


def capture() -> Frames:
    """Take the caller's stack, innermost frame first, without the frames of the pool itself."""
    frames: list[tuple[str, int, str]] = []
    frame = sys._getframe(1)
    while frame is not None and len(frames) < _DEEPEST:
        code = frame.f_code
        if frames or code.co_filename.rpartition("/")[0] != _OWN:
            frames.append((code.co_filename, frame.f_lineno or 0, code.co_name))
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return tuple(frames)


def render(frames: Frames) -> str:
    """Put a stack into the words of a traceback, outermost frame first."""
    import linecache

    lines: list[str] = []
    for filename, number, name in reversed(frames):
        lines.append(f'  File "{filename}", line {number}, in {name}')
        source = linecache.getline(filename, number).strip()
        if source:
            lines.append(f"    {source}")
    return "\n".join(lines)
