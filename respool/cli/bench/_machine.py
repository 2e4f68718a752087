"""Where a measurement was made: without it a figure means little."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from respool._version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable


def describe(packages: Iterable[str]) -> dict[str, str]:
    """Tell the machine, the interpreter and the versions of some packages, as text by name."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = {
        "cpu": _cpu(),
        "cores usable": str(cores),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}{_build()}",
        "respool": __version__,
    }
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _build() -> str:
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return "" if gil else " (free-threaded)"


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", errors="replace")
    except OSError:
        return platform.processor() or "unknown"
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.machine()
