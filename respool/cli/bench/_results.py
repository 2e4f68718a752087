"""What results are: figures with their spread, the sections of a result, and the targets that figures are held to.

Each kind of section knows its table and its JSON; how they're put on a terminal or a page is in
`_show`, how they're drawn in `_plot`.
"""

from __future__ import annotations

import dataclasses
import statistics
from typing import TYPE_CHECKING, Any, Literal

from respool.cli.bench._text import amount_text, spread_texts, time_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Role = Literal["floor", "respool", "peer"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Missing:
    """Something to compare with that isn't here, and why."""

    name: str
    why: str


@dataclasses.dataclass(frozen=True)
class Spread:
    """The figures of several repeats."""

    values: tuple[float, ...]

    @property
    def low(self) -> float:
        """The smallest."""
        return min(self.values)

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)

    @property
    def high(self) -> float:
        """The largest."""
        return max(self.values)

    def over(self, other: Spread) -> Spread:
        """Divide, repeat by repeat."""
        return Spread(tuple(a / b for a, b in zip(self.values, other.values, strict=True)))

    def texts(self) -> tuple[str, str, str]:
        """Give least, middle and largest for a table."""
        return spread_texts(self.low, self.median, self.high)

    def as_dict(self) -> dict[str, Any]:
        """Give all of it for JSON."""
        return {"min": self.low, "median": self.median, "max": self.high, "repeats": list(self.values)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A figure with what it should be."""

    text: str
    unit: str
    figure: Spread
    target: float
    at_most: bool  # else at least

    @property
    def met(self) -> bool:
        """Whether the median keeps the target."""
        return self.figure.median <= self.target if self.at_most else self.figure.median >= self.target

    def cells(self) -> tuple[str, ...]:
        """Give its row of the table of claims."""
        bound = "at most" if self.at_most else "at least"
        return (
            f"{self.text} ({self.unit})",
            *self.figure.texts(),
            f"{bound} {self.target:,.10g}",
            "yes" if self.met else "NO",
        )

    def as_dict(self) -> dict[str, Any]:
        """Give all of it for JSON."""
        return {
            "text": self.text,
            "unit": self.unit,
            **self.figure.as_dict(),
            "target": self.target,
            "at_most": self.at_most,
            "met": self.met,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One contender's figures."""

    name: str
    role: Role
    seconds: Spread  # of one operation
    ratio: Spread  # to the unit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bars:
    """Contenders side by side, as ratios to one of them: of what they cost, or of how fast they are."""

    title: str
    unit: str
    rows: Sequence[Row]
    of_speed: bool = False  # more is better

    columns = ("what", "time of one", "ratio min", "median", "max")
    lists_missing = True

    @property
    def heading(self) -> str:
        """What stands over the table."""
        return f"{self.title}, in units of {self.unit}" + (" (more is faster)" if self.of_speed else "")

    def cells(self) -> list[tuple[str, ...]]:
        """Give the table."""
        return [(row.name, time_text(row.seconds.median), *row.ratio.texts()) for row in self.rows]

    def as_dict(self) -> dict[str, Any]:
        """Give all of it for JSON."""
        rows = [
            {
                "name": row.name,
                "role": row.role,
                "seconds": row.seconds.as_dict(),
                "ratio": row.ratio.as_dict(),
            }
            for row in self.rows
        ]
        return {"title": self.title, "unit": self.unit, "of_speed": self.of_speed, "rows": rows}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """What the threads of one contender got: one figure for each repeat, or a tuple of one for each thread."""

    name: str
    role: Role
    totals: Sequence[tuple[int, ...]]
    median_wait: Spread  # seconds
    slow_wait: Spread  # the 99th percentile
    longest_wait: Spread
    passed: Spread  # the most newcomers that were served ahead of one who waited

    @property
    def unevenness(self) -> Spread:
        """The most that a thread got, over the least."""
        return Spread(tuple(max(each) / max(1, min(each)) for each in self.totals))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sharing:
    """How evenly contenders serve those who wait."""

    title: str
    rows: Sequence[Share]

    columns = (
        "what",
        "most / least of a thread: min",
        "median",
        "max",
        "wait: median",
        "99 %",
        "longest",
        "newcomers ahead of one who waited: median",
        "max",
    )
    lists_missing = True

    @property
    def heading(self) -> str:
        """What stands over the table."""
        return self.title

    def cells(self) -> list[tuple[str, ...]]:
        """Give the table."""
        return [
            (
                row.name,
                *row.unevenness.texts(),
                time_text(row.median_wait.median),
                time_text(row.slow_wait.median),
                time_text(row.longest_wait.high),
                f"{row.passed.median:.0f}",
                f"{row.passed.high:.0f}",
            )
            for row in self.rows
        ]

    def as_dict(self) -> dict[str, Any]:
        """Give all of it for JSON."""
        rows = [
            {
                "name": row.name,
                "role": row.role,
                "totals": [list(each) for each in row.totals],
                "unevenness": row.unevenness.as_dict(),
                "median_wait": row.median_wait.as_dict(),
                "slow_wait": row.slow_wait.as_dict(),
                "longest_wait": row.longest_wait.as_dict(),
                "passed": row.passed.as_dict(),
            }
            for row in self.rows
        ]
        return {"title": self.title, "rows": rows}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """One operation's cost at several sizes, the smallest first."""

    name: str
    role: Role
    seconds: dict[int, Spread]  # of one operation, by size

    def ratio(self, size: int) -> Spread:
        """Give the cost at `size` over that at the smallest."""
        return self.seconds[size].over(self.seconds[min(self.seconds)])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curves:
    """How costs grow with the number of something."""

    title: str
    over: str  # what there are more and more of
    lines: Sequence[Line]

    columns = ("what", "number", "time of one", "ratio to the smallest: min", "median", "max")
    lists_missing = False

    @property
    def heading(self) -> str:
        """What stands over the table."""
        return self.title

    def cells(self) -> list[tuple[str, ...]]:
        """Give the table."""
        return [
            (line.name, f"{size:,}", time_text(seconds.median), *line.ratio(size).texts())
            for line in self.lines
            for size, seconds in line.seconds.items()
        ]

    def as_dict(self) -> dict[str, Any]:
        """Give all of it for JSON."""
        lines = [
            {
                "name": line.name,
                "role": line.role,
                "points": [
                    {"size": size, "seconds": seconds.as_dict(), "ratio": line.ratio(size).as_dict()}
                    for size, seconds in line.seconds.items()
                ],
            }
            for line in self.lines
        ]
        return {"title": self.title, "over": self.over, "lines": lines}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Amounts:
    """Amounts of memory, in bytes (or blocks, where the name says so)."""

    title: str
    amounts: dict[str, Spread]

    columns = ("what", "min", "median", "max")
    lists_missing = False

    @property
    def heading(self) -> str:
        """What stands over the table."""
        return self.title

    def cells(self) -> list[tuple[str, ...]]:
        """Give the table."""
        return [
            (name, *(amount_text(value) for value in (amount.low, amount.median, amount.high)))
            for name, amount in self.amounts.items()
        ]

    def as_dict(self) -> dict[str, Any]:
        """Give all of it for JSON."""
        amounts = {name: amount.as_dict() for name, amount in self.amounts.items()}
        return {"title": self.title, "amounts": amounts}


Section = Bars | Sharing | Curves | Amounts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What a bench, or one part of it, found."""

    name: str  # by which `respool bench` knows it
    title: str
    what: str  # in a sentence or two, for a reader who doesn't know
    repeats: int
    sections: Sequence[Section]
    claims: Sequence[Claim]
    missing: Sequence[Missing]
    packages: Sequence[str]  # whose versions matter
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])  # of where it was measured
    quick: bool = False  # measured too shortly to say much

    @property
    def slug(self) -> str:
        """The name for files."""
        return self.name.replace(":", "-")

    @property
    def command(self) -> str:
        """What measures it again."""
        return f"respool bench {self.name}" + (" --quick" if self.quick else "")
