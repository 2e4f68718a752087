"""What users say a handle is for, and which key that is: a URL or an `Origin`.

Owns `Target` and the quick way from a plain URL to its origin.  Pure: nothing here knows pycurl.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, TypeAlias

from respool._keys import All

from .origin import Origin, split

Target: TypeAlias = str | Origin

# Most URLs are plain ASCII without a user or a fragment.  Theirs is read once for each origin.
_PLAIN: Final = re.compile(r"(https?://[a-z0-9.:-]+)([/?][!-\"$-~]*)?\Z")


@lru_cache(maxsize=1024)
def _plain_origin(prefix: str) -> Origin:
    return Origin.of(prefix)


def read_target(target: Target) -> tuple[Origin, str | None]:
    """Return the key, and the URL to set where the target is one."""
    if isinstance(target, Origin):
        target.secrets()  # raises for one that has lost them, before anybody waits for it
        return target, None
    plain = _PLAIN.match(target) if isinstance(target, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if plain is not None:
        origin = _plain_origin(plain[1])
        tail = plain[2] or "/"
        return origin, f"{origin.url}{tail}" if tail[0] == "/" else f"{origin.url}/{tail}"
    parts = split(target)
    return Origin.of(parts), parts.url


def read_key(key: Target | All) -> Origin | All:
    return key if isinstance(key, All) else read_target(key)[0]
