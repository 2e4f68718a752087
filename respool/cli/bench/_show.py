"""How results are shown: as tables on the terminal, as JSON, as Markdown, as a drawing."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
from typing import TYPE_CHECKING, Any

from respool.cli.bench._machine import describe
from respool.cli.bench._peers import load
from respool.cli.progress import print_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from respool.cli.bench._measure import Claim, Result, Row, Spread

_ROW_COLUMNS = ("what", "time of one", "ratio min", "median", "max")
_CLAIM_COLUMNS = ("figure", "min", "median", "max", "target", "met")


def show(result: Result) -> None:
    """Print a result."""
    print_table(f"{result.title}, in units of {result.unit}", _ROW_COLUMNS, [*_rows(result)])
    print_table("Held to its targets", _CLAIM_COLUMNS, [_claim(claim) for claim in result.claims])


def write(results: Sequence[Result], path: Path) -> None:
    """Write results as JSON to `path`, and as Markdown beside it, with the suffix ``.md``."""
    data = {"results": [_as_dict(result) for result in results]}
    path.write_text(json.dumps(data, indent=2) + "\n", "utf-8")
    path.with_suffix(".md").write_text("\n".join(_markdown(result) for result in results), "utf-8")


def check_writable(path: Path) -> None:
    """Fail at once where nothing could be written; make the folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def check_plotting() -> None:
    """Fail at once where nothing could be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("--plot needs matplotlib: pip install matplotlib", name="matplotlib")


def plot(results: Sequence[Result], directory: Path) -> None:
    """Draw each result's ratios as bars, into ``<directory>/<bench>.svg``."""
    figure_class = load("matplotlib.figure").Figure
    directory.mkdir(parents=True, exist_ok=True)
    colours = {"floor": "0.7", "respool": "tab:blue", "peer": "tab:orange"}
    for result in results:
        rows = list(reversed(result.rows))
        figure = figure_class(figsize=(9, 1.2 + 0.32 * len(rows)), layout="constrained")
        axes = figure.subplots()
        medians = [row.ratio.median for row in rows]
        errors = [
            [median - row.ratio.low for median, row in zip(medians, rows, strict=True)],
            [row.ratio.high - median for median, row in zip(medians, rows, strict=True)],
        ]
        bars = axes.barh(
            [row.name for row in rows], medians, xerr=errors, color=[colours[row.role] for row in rows]
        )
        axes.bar_label(bars, labels=[f" {median:.3g}" for median in medians])
        axes.set_xscale("log")
        axes.set_xlim(right=2 * max(row.ratio.high for row in rows))
        axes.margins(y=0.02)
        axes.set_xlabel(f"cost in units of {result.unit} (median; bars: min to max), logarithmic")
        axes.set_title(result.title)
        figure.savefig(directory / f"{result.bench}.svg")


def _rows(result: Result) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (row.name, _time(row.seconds.median), *_spread(row.ratio)) for row in result.rows
    ]
    rows += [(missing.name, "n.a.", "n.a.", "n.a.", "n.a.") for missing in result.missing]
    return rows


def _claim(claim: Claim) -> tuple[str, ...]:
    bound = "at most" if claim.at_most else "at least"
    return (
        f"{claim.text} ({claim.unit})",
        *_spread(claim.figure),
        f"{bound} {claim.target:g}",
        "yes" if claim.met else "NO",
    )


def _spread(spread: Spread) -> tuple[str, str, str]:
    return _number(spread.low), _number(spread.median), _number(spread.high)


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"  # noqa: PLR2004 - three digits


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{_number(seconds * factor)} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _command(result: Result) -> str:
    return f"respool bench {result.bench}"


def _as_dict(result: Result) -> dict[str, Any]:
    return {
        "bench": result.bench,
        "command": _command(result),
        "machine": describe(result.packages),
        "unit": result.unit,
        "rows": [_row_as_dict(row) for row in result.rows],
        "claims": [
            {
                "text": claim.text,
                "unit": claim.unit,
                **_spread_as_dict(claim.figure),
                "target": claim.target,
                "at_most": claim.at_most,
                "met": claim.met,
            }
            for claim in result.claims
        ],
        "missing": {missing.name: missing.why for missing in result.missing},
    }


def _row_as_dict(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "role": row.role,
        "seconds": _spread_as_dict(row.seconds),
        "ratio": _spread_as_dict(row.ratio),
    }


def _spread_as_dict(spread: Spread) -> dict[str, Any]:
    return {"min": spread.low, "median": spread.median, "max": spread.high, "repeats": list(spread.values)}


def _markdown(result: Result) -> str:
    repeats = len(result.rows[0].ratio.values)
    machine = describe(result.packages)
    lines = [
        # With the interpreter's version, as there are pages for several.
        f"# {result.title}, {machine['python']}",
        "",
        result.what,
        "",
        f"Written by `{_command(result)}`; {repeats} repeats, ratios within a repeat.",
        "",
        *_table(("", *_ROW_COLUMNS[1:]), _rows(result)),
        "",
        "## Held to its targets",
        "",
        *_table(("", *_CLAIM_COLUMNS[1:]), [_claim(claim) for claim in result.claims]),
        "",
        "A target is met by the median.",
        "",
        "## Where",
        "",
        *_table(("", ""), machine.items()),
        "",
    ]
    if result.missing:
        lines += ["## Not measured", "", *(f"- {gap.name}: {gap.why}" for gap in result.missing), ""]
    return "\n".join(lines)


def _table(columns: Sequence[str], rows: Any) -> list[str]:  # noqa: ANN401 - any rows of texts
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    ruler = f"| --- |{' ---: |' * (len(columns) - 1)}"
    return [line(columns), ruler, *(line(row) for row in rows)]
