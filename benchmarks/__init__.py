"""Comparisons that take more than a command of the package: run from a checkout, not installed with it."""
