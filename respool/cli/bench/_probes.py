"""Measuring in a process of its own: what needs one that nothing else has been through, or that may have to be killed.

A probe is a module that prints one JSON object of figures by name.
"""

from __future__ import annotations

import json
import subprocess
import sys


class ProbeError(Exception):
    """A probe gave no figures; says why in a line."""


def ask(module: str, *arguments: object, patience: float | None = None) -> dict[str, float]:
    """Run a probe to its end, and give its figures.

    Parameters
    ----------
    module : str
        Run as ``python -m``.
    *arguments
        The module's, as text.
    patience : float, optional
        Seconds after which it's killed.

    Raises
    ------
    ProbeError
        It failed, or took longer.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=patience)  # noqa: S603 - this very interpreter
    except subprocess.TimeoutExpired:
        raise ProbeError(f"not done after {patience:g} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise ProbeError(lines[-1])
    found: dict[str, float] = json.loads(done.stdout)
    return found
