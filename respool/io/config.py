"""`Config`: the settings of a session, and where they come from.

This module owns names, defaults and the environment.  What values a setting may have is
`_settings`' business, what it does that of whoever reads it.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from respool.buffers import HostAllocator, PageAlignedAllocator
from respool.curl.origin import redact
from respool.io import _settings as checks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from respool.io._settings import Allocator


class _Unset:
    """The default of every argument: None is a value of its own for some of them."""

    def __repr__(self) -> str:
        return "..."


_UNSET: Final[Any] = _Unset()


def new_allocator(kind: Allocator) -> HostAllocator | PageAlignedAllocator:
    """Return where pooled buffers come from."""
    return HostAllocator() if kind == "host" else PageAlignedAllocator()


class _Setting(NamedTuple):
    """A setting: what checks its value, its default, and what reads it from a variable where a text as such won't do."""

    check: Callable[[str, object], object]
    default: object
    read: Callable[[str, str], object] | None = None


_SETTINGS: Final[Mapping[str, _Setting]] = {
    "task_size": _Setting(checks.size, 4 << 20),
    "concurrency": _Setting(checks.count, 16, checks.whole_number),
    "per_origin": _Setting(checks.count, 8, checks.whole_number),
    "buffer_size": _Setting(checks.size, 4 << 20),
    "max_bytes": _Setting(checks.optional_size, None, checks.text_or_none),
    "connect_timeout": _Setting(checks.connect_seconds, 10.0, checks.connect_time),
    "timeout": _Setting(checks.read_seconds, None, checks.read_time),
    "low_speed": _Setting(checks.speed, 1024, checks.text_or_none),
    "allocator": _Setting(checks.allocator, "auto"),
    "allow_full_response": _Setting(checks.flag, False, checks.yes_or_no),  # noqa: FBT003 - its default
    "allow_downgrade": _Setting(checks.flag, False, checks.yes_or_no),  # noqa: FBT003 - its default
    "ca_bundle": _Setting(checks.ca_bundle, None),
    "proxy": _Setting(checks.proxy, None),
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
        Seconds for one read in all, more than 0, where the call doesn't say; None, the
        default, sets no limit but `low_speed`.
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
        File of the certificates to trust instead of the default ones; it must be there.
    proxy : str, optional
        URL of the proxy for http and https; "" goes direct, None leaves it to
        ``http_proxy`` and ``https_proxy`` in the environment.

    Raises
    ------
    TypeError, ValueError
        A value that makes no sense; the text names the argument or the variable.  Text
        stands for a number of bytes; other numbers, truth values (true or false, yes or no,
        on or off, 1 or 0, in any case) and ``none`` for None are given as text in the
        environment only.

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
        for name, setting in _SETTINGS.items():
            what, value = name, given[name]
            if value is _UNSET:
                variable = f"RESPOOL_{name.upper()}"
                text = os.environ.get(variable)
                # An empty variable is taken as not set, as by most programs; but an empty
                # proxy says something.
                if text is None or (not text and name != "proxy"):
                    value = setting.default
                else:
                    what, value = variable, text if setting.read is None else setting.read(variable, text)
            names[name] = what
            object.__setattr__(self, name, setting.check(what, value))
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
