"""The command line, ``respool``: reading, demonstrating, serving and measuring."""

from __future__ import annotations
