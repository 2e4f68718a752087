"""How results are shown: as tables on the terminal, as JSON, as Markdown.  `_plot` draws them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from respool.cli._output import check_output, output
from respool.cli._standard import tell
from respool.cli.bench._machine import describe
from respool.cli.progress import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from respool.cli.bench._results import Result, Section

_HASTE = (
    "Measured in haste, to see that it can be measured: the figures mean nothing, and are held to nothing."
)
_CLAIM_COLUMNS = ("figure", "min", "median", "max", "target", "met")


def show(result: Result) -> None:
    """Print a result."""
    tables = [
        table(section.columns, _cells(section, result), title=section.heading) for section in result.sections
    ]
    if result.quick:
        tables.append(_HASTE)
    elif result.claims:
        rows = [claim.cells() for claim in result.claims]
        tables.append(table(_CLAIM_COLUMNS, rows, title="Held to its targets"))
    if result.missing:
        rows = [(gap.name, gap.why) for gap in result.missing]
        tables.append(table(("what", "why"), rows, title="Not measured"))
    tell("\n\n".join(tables) + "\n")


def page_of(path: Path) -> Path:
    """Return where the Markdown goes: beside the JSON, with the suffix ``.md``."""
    return path.with_suffix(".md")


def write(results: Sequence[Result], path: Path, drawings: Mapping[str, Path] | None = None) -> None:
    """Write results as JSON to `path`, and as Markdown beside it.

    `drawings` are the files that show results, by the result's name; the Markdown shows them.
    """
    data = {"results": [_as_dict(result) for result in results]}
    _write_text(path, json.dumps(data, indent=2) + "\n")
    pages: list[str] = []
    for result in results:
        drawing = (drawings or {}).get(result.name)
        picture = None if drawing is None else os.path.relpath(drawing, path.parent)
        pages.append(_markdown(result, picture))
    _write_text(page_of(path), "\n".join(pages))


def check_writable(path: Path) -> None:
    """Fail at once where `write` would fail; nothing is made, and no folder either."""
    check_output(str(path))
    check_output(str(page_of(path)))


def _write_text(path: Path, text: str) -> None:
    with output(str(path)) as sink:
        sink.write(memoryview(text.encode()))


def _cells(section: Section, result: Result) -> list[tuple[str, ...]]:
    rows = section.cells()
    if section.lists_missing:
        absent = ("n.a.",) * (len(section.columns) - 1)
        rows += [(missing.name, *absent) for missing in result.missing]
    return rows


def _as_dict(result: Result) -> dict[str, Any]:
    unjudged = {"met": None} if result.quick else {}
    return {
        "bench": result.name,
        "command": result.command,
        "quick": result.quick,
        "machine": {**describe(result.packages), **result.facts},
        "sections": [section.as_dict() for section in result.sections],
        "claims": [{**claim.as_dict(), **unjudged} for claim in result.claims],
        "missing": {missing.name: missing.why for missing in result.missing},
    }


def _markdown(result: Result, picture: str | None) -> str:
    machine = {**describe(result.packages), **result.facts}
    lines = [
        # With the interpreter's version, as there are pages for several.
        f"# {result.title}, {machine['python']}",
        "",
        result.what,
        "",
        f"Written by `{result.command}`; {result.repeats} repeats, ratios within a repeat.",
        "",
    ]
    if result.quick:
        lines += [_HASTE, ""]
    if picture is not None:
        lines += [f"![The figures below, drawn]({picture})", ""]
    for section in result.sections:
        lines += [f"## {section.heading}", ""]
        lines += [*_table(("", *section.columns[1:]), _cells(section, result)), ""]
    if result.claims and not result.quick:
        lines += ["## Held to its targets", ""]
        lines += _table(("", *_CLAIM_COLUMNS[1:]), [claim.cells() for claim in result.claims])
        lines += ["", "A target is met by the median.", ""]
    lines += ["## Where", "", *_table(("", ""), machine.items()), ""]
    if result.missing:
        lines += ["## Not measured", "", *(f"- {gap.name}: {gap.why}" for gap in result.missing), ""]
    return "\n".join(lines)


def _table(columns: Sequence[str], rows: Any) -> list[str]:  # noqa: ANN401 - any rows of texts
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    ruler = f"| --- |{' ---: |' * (len(columns) - 1)}"
    return [line(columns), ruler, *(line(row) for row in rows)]
