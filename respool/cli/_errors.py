"""Errors of the commands themselves.

This module owns the class that marks an error whose text says all there is to say.
"""

from __future__ import annotations


class CommandError(Exception):
    """A command failed for a reason that its text tells in full: shown as it is."""
