"""``respool bench``: measurements side by side with what one would use instead."""

from __future__ import annotations

from respool.cli.bench._command import PARTS, add_arguments, run

__all__ = ["PARTS", "add_arguments", "run"]
