"""Numbers of bytes: which are sizes at all, and in which size class each falls.

Pure arithmetic.  What is made of the classes is `respool.buffers._memory`'s affair.
"""

from __future__ import annotations

import operator
from typing import Final

_STEPS: Final = 3
"""Two to the power of this is how many classes there are from one power of two to the next."""


def check_size(what: str, value: int) -> int:
    """Check that a number of bytes is a positive int."""
    if isinstance(value, bool):
        raise TypeError(f"{what} must be an int, not {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        elsewhere = " (text is for sizes in respool.io.Config)" if isinstance(value, str) else ""
        raise TypeError(f"{what} must be an int, not {value!r}{elsewhere}") from None
    if number < 1:
        raise ValueError(f"{what} must be 1 or more, not {number}")
    return number


def aligned(nbytes: int, alignment: int) -> int:
    """Round up to a multiple of the alignment: the least that can be had."""
    return -(-nbytes // alignment) * alignment


def size_class(nbytes: int, alignment: int) -> int:
    """Round up to a size class: at most an eighth more than asked for, or less than one alignment more.

    Counted in units of the alignment, there are eight classes from one power of two to the next, and up to
    sixteen units every number is a class.
    """
    units = -(-nbytes // alignment)
    step = 1 << max(0, (units - 1).bit_length() - 1 - _STEPS)
    return -(-units // step) * step * alignment
