"""`Config`: the settings of a session, and where they come from.

This module owns names, defaults, checking and the environment.  What a setting does is
the business of whoever reads it.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal

from respool.buffers import HostAllocator, PageAlignedAllocator
from respool.curl.origin import redact, split_proxy
from respool.io.plan import checked_int

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Allocator = Literal["auto", "host", "page"]

_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
_SIZE: Final = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)[ ]?([A-Za-z]{0,3})\Z")
_COUNT: Final = re.compile(r"[0-9]{1,30}\Z")
#: Seconds: 31 years.
_FOREVER: Final = 1e9
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})


class _Unset:
    """The default of every argument: None is a value of its own for some of them."""

    def __repr__(self) -> str:
        return "..."


_UNSET: Final[Any] = _Unset()


def parse_size(what: str, value: object, *, least: int = 1) -> int:
    """Return a number of bytes given as an int or as text like ``"4MiB"``, ``"1.5 GB"`` or ``"4096"``.

    Parameters
    ----------
    what : str
        The setting's name, for messages.
    value : int or str
        kB, MB, GB and TB are powers of 1000, KiB, MiB, GiB and TiB powers of 1024, in any case.
    least : int
        The smallest that makes sense.

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
            raise ValueError(f'{what} must be a size like 4194304 or "4MiB", not {value!r}')
        exact = Fraction(match[1]) * factor
        if exact.denominator != 1:
            raise ValueError(f"{what}={value!r} is no whole number of bytes")
        number = int(exact)
    else:
        number = checked_int(what, value)
    if number < least:
        raise ValueError(f"{what} must be {least} or more, not {value!r}")
    return _possible(what, number)


def _possible(what: str, number: int) -> int:
    if number > sys.maxsize:
        raise ValueError(f"{what} must be at most {sys.maxsize}, not {number}")
    return number


def _count(what: str, value: object) -> int:
    if isinstance(value, str):
        if _COUNT.match(value.strip()) is None:
            raise ValueError(f"{what} must be a whole number, not {value!r}")
        value = int(value)
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
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} must be seconds or None, not {value!r}")
    if math.isnan(value) or value < 0:
        raise ValueError(f"{what} must be 0 or more seconds, not {value!r}")
    # Clocks and system calls overflow at different places beyond it.
    return None if value >= _FOREVER else float(value)


def _seconds(what: str, value: object) -> float | None:
    if isinstance(value, str):
        if value.strip().lower() == "none":
            return None
        try:
            value = float(value)
        except ValueError:
            raise ValueError(f"{what} must be a number of seconds, not {value!r}") from None
    return parse_seconds(what, value)


def _connect_seconds(what: str, value: object) -> float:
    seconds = _seconds(what, value)
    if not seconds:
        raise ValueError(f"{what} must be more than 0 and less than {_FOREVER:g} seconds, not {value!r}")
    return seconds


def _size(what: str, value: object) -> int:
    return parse_size(what, value)


def _optional_size(what: str, value: object) -> int | None:
    if value is None or (isinstance(value, str) and value.strip().lower() == "none"):
        return None
    return parse_size(what, value)


def _speed(what: str, value: object) -> int | None:
    if value is None or (isinstance(value, str) and value.strip().lower() == "none"):
        return None
    # 0 says the same as None, as in libcurl.
    return parse_size(what, value, least=0) or None


def _flag(what: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE | _FALSE:
        return value.strip().lower() in _TRUE
    raise (ValueError if isinstance(value, str) else TypeError)(
        f"{what} must be true or false, not {value!r}"
    )


def _allocator(what: str, value: object) -> Allocator:
    if value in ("auto", "host", "page"):
        return value
    raise ValueError(f'{what} must be "auto", "host" or "page", not {value!r}')


def _ca_bundle(what: str, value: Any) -> str | None:  # noqa: ANN401 - whatever was given
    if value is None:
        return None
    path: Any = value.__fspath__() if hasattr(value, "__fspath__") else value
    if not isinstance(path, str):
        raise TypeError(f"{what} must be a path, not {value!r}")
    if not path:
        raise ValueError(f"{what} must be a path, not {value!r}")
    return path


def _proxy(what: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a URL, not {type(value).__name__}")
    try:
        split_proxy(value)
    except ValueError as error:  # its text shows no secret
        raise ValueError(f"{what}: {error}") from None
    return value


def new_allocator(kind: Allocator) -> HostAllocator | PageAlignedAllocator:
    """Return where pooled buffers come from."""
    return HostAllocator() if kind == "host" else PageAlignedAllocator()


#: Each setting with the check that turns what was given into its value, and its default.
_SETTINGS: Final[Mapping[str, tuple[Callable[[str, object], object], object]]] = {
    "task_size": (_size, 4 << 20),
    "concurrency": (_count, 16),
    "per_origin": (_count, 8),
    "buffer_size": (_size, 4 << 20),
    "max_bytes": (_optional_size, None),
    "connect_timeout": (_connect_seconds, 10.0),
    "timeout": (_seconds, None),
    "low_speed": (_speed, 1024),
    "allocator": (_allocator, "auto"),
    "allow_full_response": (_flag, False),
    "allow_downgrade": (_flag, False),
    "ca_bundle": (_ca_bundle, None),
    "proxy": (_proxy, None),
}


@dataclass(frozen=True, init=False, repr=False)
class Config:
    """The settings of a `Session`.

    Each is taken from the argument, else from the environment variable ``RESPOOL_`` with
    the setting's name in capitals (``RESPOOL_TASK_SIZE=8MiB``), else it's the default.
    The environment is read when the object is made, not later.

    Parameters
    ----------
    task_size : int or str
        Most bytes fetched by one request; longer reads are cut into several.  4 MiB.
    concurrency : int
        Most requests and local reads under way at once, over all files of a session.  16.
    per_origin : int
        Most requests under way at once to one origin (scheme, host and port).  8.
    buffer_size : int or str
        Bytes in each pooled buffer.  4 MiB.
    max_bytes : int or str, optional
        Most bytes of pooled buffers in existence, each counted with what it's rounded up to
        (whole pages, or 16 bytes for plain memory); None, the default, is 64 buffers.
    connect_timeout : float
        Seconds for making one connection, name look-up and TLS included.  10.
    timeout : float, optional
        Seconds for one read in all, where the call doesn't say; None, the default, sets no
        limit but `low_speed`.
    low_speed : int or str, optional
        Bytes a second: a transfer that stays below them for 60 seconds is given up.  1024;
        None or 0 lets it hang for ever.
    allocator : {"auto", "host", "page"}
        Where pooled buffers come from: page-aligned memory ("page", and "auto") or plain.
    allow_full_response : bool
        Take a range out of an answer that holds the whole object, from a server that ignores
        ranges; each read then downloads the object from its beginning.  False.
    allow_downgrade : bool
        Follow redirects from https to http.  False.
    ca_bundle : str or path, optional
        File of the certificates to trust instead of the default ones.
    proxy : str, optional
        URL of the proxy for http and https; "" goes direct, None leaves it to
        ``http_proxy`` and ``https_proxy`` in the environment.

    Raises
    ------
    TypeError, ValueError
        A value that makes no sense; the text names the argument or the variable.

    Notes
    -----
    Immutable, hashable, and safe to share between threads and sessions.  A proxy's
    password isn't shown by repr.

    Examples
    --------
    >>> Config(task_size="1MiB").task_size
    1048576
    """

    __module__ = "respool.io"

    task_size: int
    concurrency: int
    per_origin: int
    buffer_size: int
    max_bytes: int | None
    connect_timeout: float
    timeout: float | None
    low_speed: int | None
    allocator: Allocator
    allow_full_response: bool
    allow_downgrade: bool
    ca_bundle: str | None
    proxy: str | None

    def __init__(
        self,
        *,
        task_size: int | str = _UNSET,
        concurrency: int = _UNSET,
        per_origin: int = _UNSET,
        buffer_size: int | str = _UNSET,
        max_bytes: int | str | None = _UNSET,
        connect_timeout: float = _UNSET,
        timeout: float | None = _UNSET,
        low_speed: int | str | None = _UNSET,
        allocator: Allocator = _UNSET,
        allow_full_response: bool = _UNSET,
        allow_downgrade: bool = _UNSET,
        ca_bundle: str | os.PathLike[str] | None = _UNSET,
        proxy: str | None = _UNSET,
    ) -> None:
        given = locals()
        names: dict[str, str] = {}
        for name, (check, default) in _SETTINGS.items():
            what, value = name, given[name]
            if value is _UNSET:
                variable = f"RESPOOL_{name.upper()}"
                text = os.environ.get(variable)
                # An empty variable is taken as not set, as by most programs; but an empty
                # proxy says something.
                if text is None or (not text and name != "proxy"):
                    value = default
                else:
                    what, value = variable, text
            names[name] = what
            object.__setattr__(self, name, check(what, value))
        self._remember(names)
        self._check_budget()

    def _remember(self, names: Mapping[str, str]) -> None:
        """Keep what each setting was called by whoever gave it; that's no field, as it's no part of the value."""
        self.__dict__["_names"] = names

    def _told(self, setting: str) -> str:
        """Return a setting's name and value for an error's text; the name is the variable's where it came from one."""
        return f"{self.__dict__['_names'][setting]}={getattr(self, setting)}"

    def _check_budget(self) -> None:
        """Refuse a budget in which there's no room for a buffer, as the pool would."""
        charged = self._charged
        if self.budget < charged:
            takes = "" if charged == self.buffer_size else f" takes: {charged} bytes"
            raise ValueError(f"{self._told('max_bytes')} is less than {self._told('buffer_size')}{takes}")

    @property
    def _charged(self) -> int:
        """What one buffer counts for in the budget."""
        alignment = new_allocator(self.allocator).alignment
        return -(-self.buffer_size // alignment) * alignment

    @property
    def budget(self) -> int:
        """Most bytes of pooled buffers in existence: `max_bytes`, or room for 64 buffers."""
        return 64 * self._charged if self.max_bytes is None else self.max_bytes

    def replace(self, **changes: Any) -> Config:  # noqa: ANN401 - whatever the constructor takes
        """Return a copy with some settings changed, as given by keyword.

        Raises
        ------
        TypeError, ValueError
            As the constructor does.
        """
        changed = dataclasses.replace(self, **changes)
        changed._remember({**self.__dict__["_names"], **{name: name for name in changes}})  # noqa: SLF001 - its own
        return changed

    def __repr__(self) -> str:
        shown = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if self.proxy:
            shown["proxy"] = redact(self.proxy)
        return f"Config({', '.join(f'{name}={value!r}' for name, value in shown.items())})"
