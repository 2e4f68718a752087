"""What values a setting may have, given as such or as the text of an environment variable.

This module owns checking one value: each check takes the setting's name, for the error's
text, and a value.  Which setting has which check, and what settings must be together, is
`respool.io.config`'s.
"""

from __future__ import annotations

import errno
import math
import os
import re
import stat
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Literal

from respool.curl.origin import split_proxy
from respool.io.plan import checked_int

Allocator = Literal["auto", "host", "page"]

_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
_UNITS_TOLD: Final = "units are kB, MB, GB and TB, of 1000, and KiB, MiB, GiB and TiB, of 1024"
_SIZES_TOLD: Final = f'a size like 4194304 or "4MiB" ({_UNITS_TOLD})'
_SIZE: Final = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)[ ]?([A-Za-z]{0,3})\Z")
_COUNT: Final = re.compile(r"[0-9]{1,30}\Z")
#: Seconds: 31 years.
_FOREVER: Final = 1e9
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})


def parse_size(what: str, value: object, *, least: int = 1, others: str = "") -> int:
    """Return a number of bytes given as an int or as text like ``"4MiB"``, ``"1.5 GB"`` or ``"4096"``.

    Parameters
    ----------
    what : str
        The setting's name, for messages.
    value : int or str
        kB, MB, GB and TB are powers of 1000, KiB, MiB, GiB and TiB powers of 1024, in any case.
    least : int
        The smallest that makes sense.
    others : str
        What else the caller lets pass, for messages: ``", or None"``.

    Raises
    ------
    TypeError
        It's neither an int nor text.
    ValueError
        It's no such text, no whole number of bytes, or too small.
    """
    if isinstance(value, str):
        match = _SIZE.match(value.strip())
        factor = None if match is None else _UNITS.get(match[2].lower())
        if match is None or factor is None:
            raise ValueError(f"{what} must be {_SIZES_TOLD}{others}, not {value!r}")
        exact = Fraction(match[1]) * factor
        if exact.denominator != 1:
            raise ValueError(f"{what}={value!r} is no whole number of bytes")
        number = int(exact)
    else:
        try:
            number = checked_int(what, value)
        except TypeError:
            raise TypeError(f"{what} must be {_SIZES_TOLD}{others}, not {value!r}") from None
    if number < least:
        raise ValueError(f"{what} must be {least} or more{others}, not {value!r}")
    return _possible(what, number)


def _possible(what: str, number: int) -> int:
    if number > sys.maxsize:
        raise ValueError(f"{what} must be at most {sys.maxsize}, not {number}")
    return number


def whole_number(what: str, text: str) -> int:
    """Return the whole number that a text is."""
    if _COUNT.match(text.strip()) is None:
        raise ValueError(f"{what} must be a whole number, 1 or more, not {text!r}")
    return int(text)


def count(what: str, value: object) -> int:
    """Check a number of things, at least one."""
    number = checked_int(what, value)
    if number < 1:
        raise ValueError(f"{what} must be 1 or more, not {value!r}")
    return _possible(what, number)


def parse_seconds(what: str, value: object) -> float | None:
    """Return a time in seconds ≥ 0; None, and what sets no limit as it's 31 years or more, come back as None.

    Raises
    ------
    TypeError
        It's no number, or a bool.
    ValueError
        It's negative or NaN.
    """
    return _seconds(what, value, "seconds, 0 or more, or None")


def _seconds(what: str, value: object, rule: str) -> float | None:
    """Do the same with the caller's own rule in the errors, which goes further."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} must be {rule}, not {value!r}")
    if math.isnan(value) or value < 0:
        raise ValueError(f"{what} must be {rule}, not {value!r}")
    # Clocks and system calls overflow at different places beyond it.
    return None if value >= _FOREVER else float(value)


_READING: Final = "seconds, more than 0, or None for no limit"
_CONNECTING: Final = f"seconds, more than 0 and less than {_FOREVER:g}"


def read_time(what: str, text: str) -> float | None:
    """Return the number of seconds that a text is; None for ``none``."""
    return None if _is_none(text) else _number(what, text, _READING)


def read_seconds(what: str, value: object) -> float | None:
    """Check the time that every read has; 0 would be no time for any."""
    seconds = _seconds(what, value, _READING)
    if seconds == 0:
        raise ValueError(f"{what} must be {_READING}, not {value!r}")
    return seconds


def connect_time(what: str, text: str) -> float:
    """Return the number of seconds that a text is."""
    return _number(what, text, _CONNECTING)


def connect_seconds(what: str, value: object) -> float:
    """Check the time for making a connection: libcurl knows none without an end."""
    seconds = _seconds(what, value, _CONNECTING)
    if not seconds:
        raise ValueError(f"{what} must be {_CONNECTING}, not {value!r}")
    return seconds


def _number(what: str, text: str, rule: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{what} must be {rule}, not {text!r}") from None


def _is_none(text: str) -> bool:
    return text.strip().lower() == "none"


def text_or_none(what: str, text: str) -> str | None:
    """Return a text as it is; None for ``none``."""
    del what
    return None if _is_none(text) else text


def size(what: str, value: object) -> int:
    """Check a number of bytes, at least one."""
    return parse_size(what, value)


def optional_size(what: str, value: object) -> int | None:
    """Check a number of bytes, or None."""
    return None if value is None else parse_size(what, value, others=", or None")


def speed(what: str, value: object) -> int | None:
    """Check a number of bytes a second, or None."""
    if value is None:
        return None
    # 0 says the same as None, as in libcurl.
    return parse_size(what, value, least=0, others=", or None") or None


def yes_or_no(what: str, text: str) -> bool:
    """Return the truth value that a text is."""
    if text.strip().lower() not in _TRUE | _FALSE:
        raise ValueError(f"{what} must be true or false (or yes or no, on or off, 1 or 0), not {text!r}")
    return text.strip().lower() in _TRUE


def flag(what: str, value: object) -> bool:
    """Check a truth value; what merely counts as one isn't."""
    if not isinstance(value, bool):
        raise TypeError(f"{what} must be True or False, not {value!r}")
    return value


def allocator(what: str, value: object) -> Allocator:
    """Check the name of an allocator."""
    if value in ("auto", "host", "page"):
        return value
    raise ValueError(f'{what} must be "auto", "host" or "page", not {value!r}')


def ca_bundle(what: str, value: Any) -> str | None:  # noqa: ANN401 - whatever was given
    """Check the path of a file of certificates: that it's there and may be read, not what is in it."""
    if value is None:
        return None
    path: Any = value.__fspath__() if hasattr(value, "__fspath__") else value
    if not isinstance(path, str):
        raise TypeError(f"{what} must be a path, or None, not {value!r}")
    if not path or "\0" in path:
        raise ValueError(f"{what} must be a path, or None, not {value!r}")
    try:
        is_folder = stat.S_ISDIR(Path(path).stat().st_mode)
    except OSError as error:
        raise ValueError(f"{what}: {error.strerror}: {path!r}") from None
    if is_folder:
        raise ValueError(f"{what} must be a file of certificates, not a folder: {path!r}")
    # Not opened, as it may be a pipe, which can be read only once.
    if not os.access(path, os.R_OK):
        raise ValueError(f"{what}: {os.strerror(errno.EACCES)}: {path!r}")
    return path


def proxy(what: str, value: object) -> str | None:
    """Check a proxy's URL; texts of errors show no secret."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f'{what} must be a URL, "" or None, not {type(value).__name__}')
    try:
        split_proxy(value)
    except ValueError as error:  # its text shows no secret
        raise ValueError(f"{what}: {error}") from None
    return value
