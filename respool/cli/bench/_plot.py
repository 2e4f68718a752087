"""How results are drawn: one SVG for each result, a panel or two for each of its sections."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from respool.cli._output import check_folder
from respool.cli.bench._peers import load
from respool.cli.bench._results import Amounts, Bars, Curves, Sharing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from respool.cli.bench._results import Result, Section, Spread

_WIDTH = 13  # inches
_COLOURS = {"floor": "0.6", "respool": "tab:blue", "peer": "tab:orange"}


def check_plotting(directory: Path | None = None) -> None:
    """Fail at once where nothing could be drawn, or the drawings have no place to go."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("--plot needs matplotlib: pip install matplotlib", name="matplotlib")
    if directory is not None:
        check_folder(str(directory))


def plot(results: Sequence[Result], directory: Path) -> dict[str, Path]:
    """Draw each result into ``<directory>/<bench>-<Python's version>.svg``, in a folder that is there.

    Returns
    -------
    dict
        The files, by the results' names.
    """
    figure_class = load("matplotlib.figure").Figure
    version = ".".join(map(str, sys.version_info[:2]))
    drawn: dict[str, Path] = {}
    for result in results:
        sections = [section for section in result.sections if not isinstance(section, Amounts)]
        if not sections:
            continue
        heights = [_height(section) for section in sections]
        figure = figure_class(figsize=(_WIDTH, sum(heights)), layout="constrained")
        panels = figure.subfigures(len(sections), 1, height_ratios=heights, squeeze=False)
        for (panel,), section in zip(panels, sections, strict=True):
            _draw(panel, section)
        drawn[result.name] = directory / f"{result.slug}-{version}.svg"
        figure.savefig(drawn[result.name])
    return drawn


def _height(section: Section) -> float:
    """Inches."""
    return 4.5 if isinstance(section, Curves) else 1.2 + 0.32 * len(section.cells())


def _draw(panel: Any, section: Section) -> None:  # noqa: ANN401 - matplotlib's, as are all that follow
    if isinstance(section, Bars):
        _bars(panel, section)
    elif isinstance(section, Sharing):
        _sharing(panel, section)
    elif isinstance(section, Curves):
        _curves(panel, section)


def _bars(panel: Any, section: Bars) -> None:  # noqa: ANN401 - see above
    axes = panel.subplots()
    rows = list(reversed(section.rows))
    bars = axes.barh(
        [row.name for row in rows],
        [row.ratio.median for row in rows],
        xerr=_errors([row.ratio for row in rows]),
        color=[_COLOURS[row.role] for row in rows],
    )
    axes.bar_label(bars, labels=[f" {row.ratio.median:.3g}" for row in rows])
    axes.set_xscale("log")
    axes.set_xlim(right=2 * max(row.ratio.high for row in rows))
    axes.margins(y=0.02)
    what = "speed (more is faster)" if section.of_speed else "cost"
    axes.set_xlabel(f"{what} in units of {section.unit} (median; bars: min to max), logarithmic")
    axes.set_title(section.title)


def _sharing(panel: Any, section: Sharing) -> None:  # noqa: ANN401 - see above
    totals, waits, passed = panel.subplots(1, 3, sharey=True)
    panel.suptitle(section.title)
    rows = list(reversed(section.rows))
    places = range(len(rows))
    for place, row in enumerate(rows):
        colour = _COLOURS[row.role]
        for each in row.totals:
            mean = sum(each) / len(each)
            shares = [total / mean for total in each]
            totals.plot(shares, [place] * len(each), "o", color=colour, alpha=0.35, markersize=4)
        low, high = row.median_wait.median * 1e6, row.longest_wait.high * 1e6
        waits.plot([low, high], [place, place], color=colour)
        for mark, value in (("o", low), ("|", row.slow_wait.median * 1e6), (">", high)):
            waits.plot([value], [place], mark, color=colour)
    totals.set_yticks(list(places), [row.name for row in rows])
    totals.set_xlabel("a thread's share, over the mean")
    waits.set_xscale("log")
    waits.set_xlabel("a wait, µs: median, 99 %, longest")
    bars = passed.barh(
        list(places), [row.passed.high for row in rows], color=[_COLOURS[row.role] for row in rows]
    )
    passed.bar_label(bars, labels=[f" {row.passed.high:.0f}" for row in rows])
    passed.set_xscale("symlog")
    passed.set_xlim(left=0, right=4 * max(1.0, *(row.passed.high for row in rows)))
    passed.set_xlabel("times passed, at most")


def _curves(panel: Any, section: Curves) -> None:  # noqa: ANN401 - see above
    axes = panel.subplots()
    for line in section.lines:
        spreads = list(line.seconds.values())
        axes.errorbar(
            list(line.seconds),
            [spread.median * 1e6 for spread in spreads],
            yerr=[[error * 1e6 for error in side] for side in _errors(spreads)],
            marker="o",
            capsize=3,
            label=line.name,
            **({"color": _COLOURS["floor"]} if line.role == "floor" else {}),
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(f"{section.over}, logarithmic")
    # With room above and below: a flat line is to look flat.
    low, high = axes.get_ylim()
    axes.set_ylim(low / 2, high * 2)
    axes.set_ylabel("µs (median; bars: min to max), logarithmic")
    axes.set_title(section.title)
    axes.legend()
    axes.grid(visible=True, alpha=0.3)


def _errors(spreads: Sequence[Spread]) -> list[list[float]]:
    return [
        [spread.median - spread.low for spread in spreads],
        [spread.high - spread.median for spread in spreads],
    ]
