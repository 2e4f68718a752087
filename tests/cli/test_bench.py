"""``respool bench``: how it measures, what it writes, and what it says when it can't."""

from __future__ import annotations

import functools
import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from respool.cli.__main__ import main
from respool.cli.bench import _measure, _plot, _show, uncontended
from respool.cli.bench._measure import Contender, Effort, measure
from respool.cli.bench._results import (
    Amounts,
    Bars,
    Claim,
    Curves,
    Line,
    Missing,
    Result,
    Row,
    Share,
    Sharing,
    Spread,
)

if TYPE_CHECKING:
    from pathlib import Path


class Clocked:
    """Work that takes a time of its own: it moves a clock that only it moves."""

    def __init__(self, clock: list[float], seconds: float) -> None:
        self.clock = clock
        self.seconds = seconds
        self.calls = 0

    def __call__(self) -> None:
        """Do it."""
        self.clock[0] += self.seconds
        self.calls += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock that measuring reads: it stands still unless work moves it."""
    now = [0.0]
    monkeypatch.setattr(_measure.timeit, "default_timer", lambda: now[0])
    monkeypatch.setattr(
        _measure.timeit, "Timer", functools.partial(_measure.timeit.Timer, timer=lambda: now[0])
    )
    return now


def contender(name: str, work: Clocked) -> Contender:
    """Give a contender that does this work."""
    return Contender(name=name, role="peer", statement="work()", names={"work": work})


class TestMeasure:
    """The loop and the figures."""

    def test_seconds_of_one(self, clock: list[float]) -> None:
        """A figure is the time of one operation; there's one for each repeat."""
        fast, slow = Clocked(clock, 1e-6), Clocked(clock, 2e-3)
        seconds = measure([contender("fast", fast), contender("slow", slow)], Effort(repeats=4, rounds=3))
        assert seconds["fast"].values == pytest.approx([1e-6] * 4)
        assert seconds["slow"].values == pytest.approx([2e-3] * 4)
        assert seconds["slow"].over(seconds["fast"]).values == pytest.approx([2000.0] * 4)

    def test_interleaved(self, clock: list[float]) -> None:
        """In each round each contender runs once, and nobody always follows the same one."""
        order: list[str] = []

        class Named(Clocked):
            def __call__(self) -> None:
                super().__call__()
                if not order or order[-1] != self.name:
                    order.append(self.name)

            name = ""

        contenders = []
        for name in "abc":
            work = Named(clock, 1.0)
            work.name = name
            contenders.append(contender(name, work))
        rounds: list[int] = []
        measure(contenders, Effort(repeats=1, rounds=3), tick=lambda: rounds.append(len(order)))
        assert len(rounds) == 3
        # The last round's three, the first being the third of the rotation.
        assert "".join(order).endswith("cab")

    def test_best_round_of_a_repeat(self, clock: list[float]) -> None:
        """A round that something interrupted doesn't count; a slow repeat stays visible."""
        work = Clocked(clock, 1.0)
        ticks = iter(range(100))

        def tick() -> None:
            work.seconds = {0: 9.0, 1: 1.0, 2: 5.0, 3: 5.0, 4: 5.0}.get(next(ticks), 1.0)

        seconds = measure([contender("one", work)], Effort(repeats=3, rounds=2), tick=tick)
        assert seconds["one"].values == (1.0, 1.0, 5.0)
        assert (seconds["one"].low, seconds["one"].median, seconds["one"].high) == (1.0, 1.0, 5.0)

    def test_several_operations_in_one(self, clock: list[float]) -> None:
        """A statement that does several operations counts for so many."""
        work = Clocked(clock, 64e-6)
        batch = Contender(name="batch", role="peer", statement="work()", names={"work": work}, per=64)
        assert measure([batch], Effort(repeats=2, rounds=2))["batch"].values == pytest.approx([1e-6] * 2)

    def test_equal_loops(self) -> None:
        """Statements are compiled into the loop itself, with their names as its locals."""
        source = contender("x", Clocked([0.0], 1.0)).timer().src  # type: ignore[attr-defined]
        assert re.search(r"work = _work\n +_t0 = _timer\(\)\n +for _i in _it:\n +work\(\)\n", source)

    def test_real_time(self) -> None:
        """With the real clock: more work takes longer."""
        ratio = measure(
            [
                Contender(name="one", role="peer", statement="sum(items)", names={"items": range(2000)}),
                Contender(name="ten", role="peer", statement="sum(items)", names={"items": range(20000)}),
            ],
            Effort(repeats=3, rounds=3),
        )
        assert ratio["ten"].over(ratio["one"]).median > 2

    def test_claims(self) -> None:
        """A target is met by the median, on the right side."""
        figure = Spread((1.0, 2.0, 9.0))
        met = {
            (target, at_most): Claim(text="", unit="", figure=figure, target=target, at_most=at_most).met
            for target in (1.5, 2.0, 2.5)
            for at_most in (True, False)
        }
        assert met == {
            (1.5, True): False,
            (1.5, False): True,
            (2.0, True): True,
            (2.0, False): True,
            (2.5, True): True,
            (2.5, False): False,
        }


FIGURE = Spread((1.0, 2.0, 40.0))

BARS = Bars(
    title="Side by side",
    unit="a | b",
    rows=[
        Row(name="[bold]one|two", role="respool", seconds=Spread((1e-7, 2e-6, 3e-3)), ratio=FIGURE),
        Row(name="other", role="peer", seconds=Spread((1.0, 2.0, 3.0)), ratio=Spread((0.5, 100.0, 2000.0))),
    ],
)

SHARING = Sharing(
    title="Who gets what",
    rows=[
        Share(
            name="even",
            role="respool",
            totals=[(5, 5), (5, 10)],
            median_wait=Spread((1e-6, 3e-6)),
            slow_wait=Spread((1e-3, 3e-3)),
            longest_wait=Spread((1.0, 5.0)),
            passed=Spread((0.0, 0.0)),
        ),
        Share(
            name="starving",
            role="peer",
            totals=[(7, 0), (8, 1)],
            median_wait=Spread((1e-6, 1e-6)),
            slow_wait=Spread((1e-6, 1e-6)),
            longest_wait=Spread((1e-6, 1e-6)),
            passed=Spread((230.0, 4500.0)),
        ),
    ],
)

CURVES = Curves(
    title="With keys",
    over="keys",
    lines=[
        Line(name="hit", role="respool", seconds={1: Spread((1e-6, 1e-6)), 1000: Spread((2e-6, 3e-6))}),
        Line(name="floor", role="floor", seconds={1: Spread((1e-9, 1e-9)), 1000: Spread((1e-9, 1e-9))}),
    ],
)

AMOUNTS = Amounts(title="Memory", amounts={"each": Spread((299.6, 300.0)), "all": Spread((1e6, 2e6))})


def result(**changes: Any) -> Result:
    """Give a small result."""
    fields: dict[str, Any] = {
        "name": "pool:some",
        "title": "Some title",
        "what": "What it is.",
        "repeats": 3,
        "sections": [BARS],
        "claims": [
            Claim(text="good", unit="times", figure=FIGURE, target=1, at_most=False),
            Claim(text="bad", unit="ms", figure=FIGURE, target=1, at_most=True),
        ],
        "missing": [Missing(name="absent", why="No module named 'absent'")],
        "packages": ["pytest", "no-such-package"],
    }
    return Result(**{**fields, **changes})


class TestShow:
    """Tables, JSON, Markdown and drawings of one result."""

    def test_tables(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Every figure is shown, targets beside it, what's missing as n.a.; nothing is taken for markup."""
        _show.show(result())
        out = capsys.readouterr().out
        assert re.search(r"\[bold\]one\|two +2\.00 µs +1\.00 +2\.00 +40\.0", out)
        assert re.search(r"other +2\.00 s +0\.50 +100 +2000", out)
        assert re.search(r"absent +n\.a\. +n\.a\.", out)
        assert re.search(r"good \(times\) +1\.00 +2\.00 +40\.0 +at least 1 +yes", out)
        assert re.search(r"bad \(ms\) +1\.00 +2\.00 +40\.0 +at most 1 +NO", out)

    def test_sharing(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Sharing shows the spread of totals, a thread that got nothing included, the waits, and who passed."""
        _show.show(result(sections=[SHARING]))
        out = capsys.readouterr().out
        assert re.search(r"even +1\.00 +1\.50 +2\.00 +2\.00 µs +2\.00 ms +5\.00 s +0 +0", out)
        assert re.search(r"starving +7\.00 +7\.50 +8\.00 .* 2365 +4500", out)

    def test_curves_and_amounts(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Curves show each size as a ratio to the smallest; amounts are told to the byte."""
        _show.show(result(sections=[CURVES, AMOUNTS]))
        out = capsys.readouterr().out
        assert re.search(r"hit +1,000 +2\.50 µs +2\.00 +2\.50 +3\.00", out)
        assert re.search(r"each +300 +300 +300", out)
        assert re.search(r"all +1,000,000 +1,500,000 +2,000,000", out)
        assert re.search(r"absent +No module named 'absent'", out)
        assert "n.a." not in out

    def test_speed(self, capsys: pytest.CaptureFixture[str]) -> None:
        """A table of speeds says so, lest a large figure be taken for a large cost."""
        _show.show(result(sections=[Bars(title="Fast", unit="x", rows=BARS.rows, of_speed=True)]))
        assert "Fast, in units of x (more is faster)" in capsys.readouterr().out

    def test_json(self, tmp_path: Path) -> None:
        """JSON has all repeats, the command, the machine and the versions."""
        _show.write([result()], tmp_path / "out.json")
        (told,) = json.loads((tmp_path / "out.json").read_text())["results"]
        assert told["command"] == "respool bench pool:some"
        assert told["sections"][0]["rows"][0]["ratio"] == {
            "min": 1.0,
            "median": 2.0,
            "max": 40.0,
            "repeats": [1.0, 2.0, 40.0],
        }
        assert [claim["met"] for claim in told["claims"]] == [True, False]
        assert told["missing"] == {"absent": "No module named 'absent'"}
        assert told["machine"]["pytest"] == pytest.__version__
        assert told["machine"]["no-such-package"] == "not installed"
        assert told["machine"]["python"].endswith(".".join(map(str, sys.version_info[:3])))
        assert told["machine"]["cpu"]

    def test_json_of_all(self, tmp_path: Path) -> None:
        """Each kind of section has its figures in the JSON, those of single threads too."""
        _show.write([result(sections=[SHARING, CURVES, AMOUNTS])], tmp_path / "out.json")
        (told,) = json.loads((tmp_path / "out.json").read_text())["results"]
        sharing, curves, amounts = told["sections"]
        assert sharing["rows"][1]["totals"] == [[7, 0], [8, 1]]
        assert sharing["rows"][1]["passed"]["repeats"] == [230.0, 4500.0]
        assert [point["size"] for point in curves["lines"][0]["points"]] == [1, 1000]
        assert curves["lines"][0]["points"][1]["ratio"]["repeats"] == pytest.approx([2.0, 3.0])
        assert amounts["amounts"]["each"]["median"] == pytest.approx(299.8)

    def test_markdown(self, tmp_path: Path) -> None:
        """Markdown has the same beside it, one title, and tables that bars in names don't break."""
        _show.write([result()], tmp_path / "out.json")
        text = (tmp_path / "out.md").read_text()
        assert text.startswith("# Some title, CPython ")
        assert text.count("\n# ") == 0
        assert "`respool bench pool:some`; 3 repeats" in text
        tables = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
        assert {line.count("|") for line in tables} == {6, 7, 3}
        assert r"[bold]one\|two" in text

    def test_haste(self, tmp_path: Path) -> None:
        """What was measured in haste says so, and the command says how."""
        _show.write([result(quick=True)], tmp_path / "out.json")
        text = (tmp_path / "out.md").read_text()
        assert "`respool bench pool:some --quick`" in text
        assert "the figures mean nothing" in text
        assert "target" not in text
        (told,) = json.loads((tmp_path / "out.json").read_text())["results"]
        assert told["quick"] is True
        assert [claim["met"] for claim in told["claims"]] == [None, None]

    def test_haste_on_the_terminal(self, capsys: pytest.CaptureFixture[str]) -> None:
        """It's said there as well, and held to no target."""
        _show.show(result(quick=True))
        out = capsys.readouterr().out
        assert "Measured in haste" in out
        assert "Held to its targets" not in out
        assert "good" not in out
        _show.show(result())
        assert "Measured in haste" not in capsys.readouterr().out

    def test_plot(self, tmp_path: Path) -> None:
        """A drawing shows each section and each contender in it; the page refers to it."""
        _plot.check_plotting()
        (tmp_path / "deep" / "plots").mkdir(parents=True)
        drawn = _plot.plot([result(sections=[BARS, SHARING, CURVES, AMOUNTS])], tmp_path / "deep" / "plots")
        path = tmp_path / "deep" / "plots" / f"pool-some-{sys.version_info[0]}.{sys.version_info[1]}.svg"
        assert drawn == {"pool:some": path}
        svg = path.read_text()
        assert "<svg" in svg
        for text in ("Side by side", "Who gets what", "With keys", "[bold]one|two", "starving", "hit"):
            assert f"<!-- {text} -->" in svg
        _show.write([result()], tmp_path / "out.json", drawn)
        assert f"](deep/plots/{path.name})" in (tmp_path / "out.md").read_text()

    def test_nothing_to_draw(self, tmp_path: Path) -> None:
        """A result of amounts alone has no drawing."""
        assert _plot.plot([result(sections=[AMOUNTS])], tmp_path) == {}

    def test_no_matplotlib(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Without matplotlib, --plot is one line and 1, before anything is measured."""
        monkeypatch.setattr(_plot.importlib.util, "find_spec", lambda _: None)
        monkeypatch.setattr(uncontended, "run", lambda *_: pytest.fail("measured"))
        assert main(["bench", "pool", "--plot", str(tmp_path)]) == 1
        assert capsys.readouterr().err == "respool: --plot needs matplotlib: pip install matplotlib\n"
