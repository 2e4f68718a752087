"""``respool bench``: measurements side by side with what one would use instead."""

from __future__ import annotations

from respool.cli.bench._command import NAMES, add_arguments, run

__all__ = ["NAMES", "add_arguments", "run"]
