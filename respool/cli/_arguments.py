"""What arguments of the command line may be: text in, a value or a line that says what's allowed out.

This module owns the kinds that several commands share or that anybody would expect.  The
parser puts the option's name before each line.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PORT = re.compile(r"[0-9]{1,5}")
_LAST_PORT = 65535


def port(text: str) -> int:
    """Read the number of a TCP port, or 0."""
    if _PORT.fullmatch(text) is None or int(text) > _LAST_PORT:
        raise argparse.ArgumentTypeError(
            f"must be a whole number from 0 to {_LAST_PORT} (0 takes a free port), not {text!r}"
        )
    return int(text)


def size(text: str) -> int:
    """Read a number of bytes, at least 1, with or without a unit."""
    from respool.io._settings import parse_size

    try:
        return parse_size("--size", text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("--size").lstrip(" =")) from None


def some(what: str) -> Callable[[str], str]:
    """Return a reader of text that may be anything but empty.

    What is empty is mostly a shell's variable that isn't set, and would mean the working
    folder, or every address of the machine.
    """

    def read(text: str) -> str:
        if not text:
            raise argparse.ArgumentTypeError(f"must be {what}, not {text!r}")
        return text

    return read
