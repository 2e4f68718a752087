"""Which pools there are, each loaded only when asked for: what isn't installed is missing from the table, and said so."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from benchmarks.torture.peer import Peer

#: Name on the command line: module and class.
ADAPTERS = {
    "respool": ("peers_own", "Respool"),
    "sqlalchemy": ("peers_sql", "SqlAlchemy"),
    "psycopg_pool": ("peers_sql", "Psycopg"),
    "generic-connection-pool": ("peers_generic", "GenericConnectionPool"),
    "connpool": ("peers_generic", "Connpool"),
    "urllib3": ("peers_http", "Urllib3"),
    "redis": ("peers_http", "Redis"),
    "lifoqueue": ("peers_own", "HomeMade"),
}


def load(name: str) -> type[Peer]:
    """Import an adapter.

    Raises
    ------
    ImportError
        Its pool isn't installed.
    """
    module, kind = ADAPTERS[name]
    return cast("type[Peer]", getattr(importlib.import_module(f"benchmarks.torture.{module}"), kind))
