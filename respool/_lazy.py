"""Packages whose names are imported when they're first used.

The package `respool` itself does it by its own means: before it nothing is to be loaded, this module included.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["lazy"]


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make a package's ``__getattr__`` and ``__dir__`` (PEP 562).

    Parameters
    ----------
    package
        Its name.
    homes
        By public name, the module of the package that has it.
    """
    names = vars(sys.modules[package])

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{package}.{homes[name]}"), name)
        names[name] = value
        return value

    def names_there() -> list[str]:
        return sorted({*names, *names["__all__"]})

    return get, names_there
