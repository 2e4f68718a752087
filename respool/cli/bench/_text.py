"""How figures are written in tables: three digits, and times in the unit that suits them."""

from __future__ import annotations


def number(value: float) -> str:
    """Write with three digits."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"  # noqa: PLR2004 - three digits


def spread_texts(low: float, median: float, high: float) -> tuple[str, str, str]:
    """Write the figures of a spread."""
    return number(low), number(median), number(high)


def time_text(seconds: float) -> str:
    """Write a time."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{number(seconds * factor)} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def amount_text(value: float) -> str:
    """Write an amount of memory, to the byte."""
    return f"{value:,.0f}"
