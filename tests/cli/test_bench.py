"""``respool bench``: how it measures, what it writes, and what it says when it can't."""

from __future__ import annotations

import functools
import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from respool.cli.__main__ import main
from respool.cli.bench import _measure, _peers, _show, handles, pool
from respool.cli.bench._measure import Claim, Contender, Missing, Result, Row, Spread, measure

from .commands import respool

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
        seconds = measure([contender("fast", fast), contender("slow", slow)], repeats=4, rounds=3)
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
        measure(contenders, repeats=1, rounds=3, tick=lambda: rounds.append(len(order)))
        assert len(rounds) == 3
        # The last round's three, the first being the third of the rotation.
        assert "".join(order).endswith("cab")

    def test_best_round_of_a_repeat(self, clock: list[float]) -> None:
        """A round that something interrupted doesn't count; a slow repeat stays visible."""
        work = Clocked(clock, 1.0)
        ticks = iter(range(100))

        def tick() -> None:
            work.seconds = {0: 9.0, 1: 1.0, 2: 5.0, 3: 5.0, 4: 5.0}.get(next(ticks), 1.0)

        seconds = measure([contender("one", work)], repeats=3, rounds=2, tick=tick)
        assert seconds["one"].values == (1.0, 1.0, 5.0)
        assert (seconds["one"].low, seconds["one"].median, seconds["one"].high) == (1.0, 1.0, 5.0)

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
            repeats=3,
            rounds=3,
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


def result(**changes: Any) -> Result:
    """Give a small result."""
    figure = Spread((1.0, 2.0, 40.0))
    fields: dict[str, Any] = {
        "bench": "pool",
        "title": "Some title",
        "what": "What it is.",
        "unit": "a | b",
        "rows": [
            Row(name="[bold]one|two", role="respool", seconds=Spread((1e-7, 2e-6, 3e-3)), ratio=figure),
            Row(
                name="other", role="peer", seconds=Spread((1.0, 2.0, 3.0)), ratio=Spread((0.5, 100.0, 2000.0))
            ),
        ],
        "claims": [
            Claim(text="good", unit="times", figure=figure, target=1, at_most=False),
            Claim(text="bad", unit="ms", figure=figure, target=1, at_most=True),
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

    def test_json(self, tmp_path: Path) -> None:
        """JSON has all repeats, the command, the machine and the versions."""
        _show.write([result()], tmp_path / "out.json")
        (told,) = json.loads((tmp_path / "out.json").read_text())["results"]
        assert told["command"] == "respool bench pool"
        assert told["rows"][0]["ratio"] == {
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

    def test_markdown(self, tmp_path: Path) -> None:
        """Markdown has the same beside it, one title, and tables that bars in names don't break."""
        _show.write([result()], tmp_path / "out.json")
        text = (tmp_path / "out.md").read_text()
        assert text.startswith("# Some title, CPython ")
        assert text.count("\n# ") == 0
        assert "`respool bench pool`; 3 repeats" in text
        tables = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
        assert {line.count("|") for line in tables} == {6, 7, 3}
        assert r"[bold]one\|two" in text

    def test_plot(self, tmp_path: Path) -> None:
        """A drawing has a bar for each row."""
        _show.check_plotting()
        _show.plot([result()], tmp_path / "deep" / "plots")
        drawn = (tmp_path / "deep" / "plots" / "pool.svg").read_text()
        assert "<svg" in drawn

    def test_no_matplotlib(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Without matplotlib, --plot is one line and 1, before anything is measured."""
        monkeypatch.setattr(_show.importlib.util, "find_spec", lambda _: None)
        monkeypatch.setattr(pool, "run", lambda _: pytest.fail("measured"))
        assert main(["bench", "pool", "--plot", str(tmp_path)]) == 1
        assert capsys.readouterr().err == "respool: --plot needs matplotlib: pip install matplotlib\n"


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure just enough to see that everything can be measured."""
    quick = functools.partial(measure, repeats=2, rounds=1)
    for module in (pool, handles):
        monkeypatch.setattr(module, "measure", quick)
        monkeypatch.setattr(module, "REPEATS", 2)
        monkeypatch.setattr(module, "ROUNDS", 1)
    monkeypatch.setattr(pool, "_IMPORT_ROUNDS", 1)
    monkeypatch.setattr(_measure, "_BATCH_SECONDS", 1e-4)


@pytest.mark.usefixtures("quickly")
class TestBenches:
    """The benches themselves, in short."""

    def test_pool(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Floors, respool and peers are measured in one unit, and held to the targets."""
        assert main(["bench", "pool", "--json", str(tmp_path / "pool.json")]) == 0
        (told,) = json.loads((tmp_path / "pool.json").read_text())["results"]
        ratios = {row["name"]: row["ratio"]["median"] for row in told["rows"]}
        assert ratios[pool.UNIT] == 1
        assert all(ratio > 0 for ratio in ratios.values())
        roles = [row["role"] for row in told["rows"]]
        assert roles.count("floor") == 5
        assert roles.count("respool") == 9
        assert roles.count("peer") + len(told["missing"]) == 8
        targets = {claim["text"]: claim["target"] for claim in told["claims"]}
        assert targets["bound acquire+release"] == 4.5
        assert targets["acquire+release, str key"] == 5
        assert targets["with pool.lease(key)"] == 7
        assert targets["acquire+release, str key, validate hook"] == 14
        assert targets["import respool, above the interpreter's start"] == 30
        told_of = capsys.readouterr().out
        assert "An uncontended acquire and release, in units of queue.SimpleQueue put+get" in told_of

    def test_handles(self, tmp_path: Path) -> None:
        """Pooled and fresh handles are measured against one TLS server."""
        assert main(["bench", "handles", "--json", str(tmp_path / "handles.json")]) == 0
        (told,) = json.loads((tmp_path / "handles.json").read_text())["results"]
        (claim,) = [claim for claim in told["claims"] if "fresh" in claim["text"]]
        assert claim["target"] == 10
        assert claim["median"] > 1

    def test_steps(self) -> None:
        """The progress bar's end is the end."""
        ticks: list[None] = []
        pool.run(lambda: ticks.append(None))
        assert len(ticks) == pool.steps()
        ticks.clear()
        handles.run(lambda: ticks.append(None))
        assert len(ticks) == handles.steps()

    def test_missing_peers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Peers that aren't installed, or have changed, are gaps with their reason."""
        for name in ("urllib3", "psycopg", "connpool", "cuttlepool", "sqlalchemy.pool", "redis"):
            monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setattr(_peers, "_generic_connection_pool", lambda: 1 / 0)
        found = _peers.peers()
        assert [one.name for one in found if isinstance(one, Contender)] == ["queue.LifoQueue get+put"]
        gaps = {one.name: one.why for one in found if isinstance(one, Missing)}
        assert gaps["generic-connection-pool"] == "ZeroDivisionError: division by zero"
        assert len(gaps) == 7
        assert "urllib3" in gaps["urllib3 connection queue"]


class TestUsage:
    """What isn't there."""

    @pytest.mark.parametrize("name", ["events", "buffers", "read"])
    def test_later(self, name: str) -> None:
        """A bench that is to come is wrong usage, and the line says that it's to come."""
        code, out, err = respool("bench", name)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "later version" in err

    @pytest.mark.parametrize("arguments", [("nonsense",), (), ("pool", "--busy"), ("pool", "--device", "0")])
    def test_wrong(self, arguments: tuple[str, ...]) -> None:
        """Anything else is wrong usage too."""
        code, out, err = respool("bench", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)

    def test_unwritable(self, tmp_path: Path) -> None:
        """A file that can't be written is told before minutes of measuring."""
        (tmp_path / "file").touch()
        code, out, err = respool("bench", "pool", "--json", tmp_path / "file" / "x.json")
        assert (code, out, err.count("\n")) == (1, "", 1)
