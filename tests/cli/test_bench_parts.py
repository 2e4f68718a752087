"""The benches themselves, in the shortest form: every part measures what it says it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from respool.cli.__main__ import main
from respool.cli.bench import (
    PARTS,
    _peers,
    contended,
    fairness,
    growth,
    handles,
    memory,
    uncontended,
)
from respool.cli.bench._measure import FULL, QUICK
from respool.cli.bench._operations import HIT
from respool.cli.bench._peers import Pair
from respool.cli.bench._probes import ProbeError, ask
from respool.cli.bench._results import Missing, Result
from respool.cli.bench._waiters_probe import HANDOVER

from .commands import PROXIED, names

if TYPE_CHECKING:
    from pathlib import Path


class Ticks:
    """A progress bar that counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        """Count one step."""
        self.count += 1


def measured(part: Any) -> Result:
    """Run a part in haste; the progress bar's end must be the end."""
    ticks = Ticks()
    found: Result = part.run(QUICK, ticks)
    assert ticks.count == part.steps(QUICK)
    assert found.quick
    return found


def rows_of(section: Any) -> dict[str, Any]:
    """Give the rows of a section by name."""
    return {row.name: row for row in section.rows}


def targets_of(found: Result) -> dict[str, float]:
    """Give the targets of a result by what they are for."""
    return {claim.text: claim.target for claim in found.claims}


class TestUncontended:
    """One thread."""

    def test_measured(self) -> None:
        """Floors, respool and peers are measured in one unit, and held to the targets."""
        found = measured(uncontended)
        (bars,) = found.sections
        rows = rows_of(bars)
        assert rows[uncontended.UNIT].ratio.median == 1
        assert all(row.ratio.low > 0 for row in rows.values())
        roles = [row.role for row in rows.values()]
        assert roles.count("floor") == 7
        assert roles.count("respool") == 10
        assert roles.count("peer") + len(found.missing) == 8
        targets = targets_of(found)
        assert targets["bound acquire+release"] == 4.5
        assert targets["acquire+release, str key"] == 5
        assert targets["with pool.lease(key)"] == 7
        assert targets["acquire+release, str key, validate hook"] == 14
        assert targets["pool.lease_many(64).release(), for each"] == 2
        assert targets["from respool import ResourcePool, above the interpreter's start"] == 30

    def test_what_the_floors_do(self) -> None:
        """An empty lease is a new object each time, as a lease must be."""
        leases = uncontended._EmptyLeases()
        first, second = leases.lease("key"), leases.lease("key")
        assert first is not second
        with first as nothing:
            assert nothing is None


#: The peers that the figures of others are quoted from.
WAITING_PEERS = {
    "queue.LifoQueue get+put",
    "urllib3 connection queue",
    "psycopg_pool",
    "connpool",
    "SQLAlchemy QueuePool",
    "redis-py BlockingConnectionPool",
    "generic-connection-pool",
}


class TestContended:
    """Several threads."""

    def test_measured(self) -> None:
        """Each setting has respool beside all peers in units of LifoQueue, and is held to its targets."""
        found = measured(contended)
        *settings, waits = found.sections
        assert [section.title for section in settings] == [
            f"{threads} threads on 4 resources, {manner}"
            for manner in ("sustained", "in a burst", "working")
            for threads in (8, 4)
        ]
        gaps = {gap.name for gap in found.missing}
        for section in settings:
            rows = rows_of(section)
            assert section.of_speed
            assert rows[contended.UNIT].ratio.values == (1.0, 1.0)
            assert set(rows) | gaps >= WAITING_PEERS
            assert sum(row.role == "respool" for row in rows.values()) == 4
        targets = targets_of(found)
        assert targets["8 threads on 4 resources, sustained: pool.lease(key).release()"] == 10
        assert targets["4 threads on 4 resources, sustained: pool.lease(key).release()"] == 15
        assert targets["8 threads on 4 resources, sustained: pool.lease(key).release(), validate hook"] == 1
        assert targets["4 threads on 4 resources, working: pool.lease(key).release()"] == 0.8
        assert not any(claim.at_most for claim in found.claims)
        assert len(waits.cells()) == 4 * len(settings)


class TestFairness:
    """Who gets what."""

    def test_measured(self) -> None:
        """Everybody's totals and waits are told; nobody passes in respool."""
        found = measured(fairness)
        (sharing,) = found.sections
        rows = rows_of(sharing)
        assert set(rows) | {gap.name for gap in found.missing} >= WAITING_PEERS
        for row in rows.values():
            assert [len(totals) for totals in row.totals] == [8, 8]
            assert row.median_wait.low <= row.slow_wait.high <= row.longest_wait.high
        assert {claim.text.partition(":")[0]: claim.target for claim in found.claims} == {
            contended.LEASE: 0,
            contended.BOUND: 0,
            contended.VALIDATED: 0,
        }
        assert all(claim.met for claim in found.claims)


class TestGrowth:
    """Ever more of everything."""

    def test_measured(self) -> None:
        """Each curve has its sizes, and is held to the growth it may have, from the smallest to the largest."""
        found = measured(growth)
        assert not found.missing
        lines = {(section.over, line.name): line for section in found.sections for line in section.lines}
        assert {len(line.seconds) >= 2 for line in lines.values()} == {True}
        assert all(seconds.low > 0 for line in lines.values() for seconds in line.seconds.values())
        assert len(found.claims) == sum(line.role == "respool" for line in lines.values())
        targets = targets_of(found)
        assert targets[f"keys with an idle resource each: {HIT}, 500 against 1"] == 1.5
        waiting = "threads asleep in the queue for another key"
        assert targets[f"{waiting}: {HANDOVER}, 5 against 1"] == 2.32

    def test_full_sizes(self) -> None:
        """In earnest, the sizes are those that are promised."""
        assert growth._sizes(FULL, growth._KEYS) == [1, 10_000, 1_000_000]
        assert growth._sizes(FULL, growth._IDLE)[-1] == 100_000
        assert growth._sizes(FULL, growth._WAITERS)[-1] == 10_000
        assert growth._sizes(FULL, growth._EVICTING)[-1] == 100_000

    def test_too_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A number of waiters that the system can't have is a gap, and the rest is measured."""

        def refuse(module: str, size: int, *rest: object, patience: float) -> dict[str, float]:
            if size == 5:
                raise ProbeError("RuntimeError: can't start new thread")
            return ask(module, size, *rest, patience=patience)

        monkeypatch.setattr(growth, "ask", refuse)
        missing: list[Missing] = []
        curves = growth._with_waiters(QUICK, Ticks(), missing)
        assert missing == [Missing(name="5 waiters", why="RuntimeError: can't start new thread")]
        assert [set(line.seconds) for line in curves.lines] == [{1}] * 4
        assert growth._claims(curves) == []


class TestProbes:
    """What is measured in a process of its own."""

    def test_failure(self) -> None:
        """A probe that fails says why in a line."""
        with pytest.raises(ProbeError, match=r"^KeyError: 'nonsense'$"):
            ask(memory._memory_probe.__name__, "nonsense", 1)

    def test_patience(self) -> None:
        """One that doesn't end is killed."""
        with pytest.raises(ProbeError, match=r"^not done after 0.01 s$"):
            ask(memory._memory_probe.__name__, "one_use", 10**9, patience=0.01)


class TestMemory:
    """What stays."""

    def test_measured(self) -> None:
        """Bytes for each idle resource, and what keys leave that are gone, are held to their targets."""
        found = measured(memory)
        each, once = found.sections
        assert all(amount.low > 0 for amount in list(each.amounts.values())[:2])  # type: ignore[union-attr]
        assert len(once.cells()) == 2
        assert [(claim.target, claim.at_most) for claim in found.claims] == [
            (500, True),
            (500, True),
            (1 << 20, True),
        ]

    def test_notices(self) -> None:
        """A pool that keeps something of each key is found out, in a process of its own: in this one it may fit where others were."""
        code = """
            from respool import ResourcePool
            from respool.cli.bench import _memory_probe

            kept = []
            acquire = ResourcePool.acquire

            def keeping(pool, key):
                kept.append(b"k" * (4096 + key % 7))
                return acquire(pool, key)

            ResourcePool.acquire = keeping
            print(int(_memory_probe.one_use(2000)["resident"]), len(kept) - _memory_probe._WARM)
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True
        )
        resident, kept = map(int, done.stdout.split())
        assert resident > memory._NOTHING
        assert kept == 2000


class TestHandles:
    """Handles with connections."""

    def test_measured(self) -> None:
        """Pooled and fresh handles are measured against one TLS server."""
        (claim,) = [claim for claim in measured(handles).claims if "fresh" in claim.text]
        assert claim.target == 10
        assert claim.figure.median > 1

    def test_goes_to_its_own_server_directly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A proxy that the environment names is for other servers, whoever reads; it's as it was afterwards."""
        for name, proxy in PROXIED.items():
            monkeypatch.setenv(name, proxy)
        found = measured(handles)
        (bars,) = found.sections
        assert len(rows_of(bars)) + len(found.missing) >= 6
        assert {name: os.environ[name] for name in PROXIED} == PROXIED


class TestCommand:
    """Benches and parts by name."""

    def test_a_part(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A part is measured alone, once however often it's named; results, page and drawing are written."""
        path = tmp_path / "out.json"
        twice = ["pool:uncontended", "pool:uncontended"]
        assert main(["bench", *twice, "--quick", "--json", str(path), "--plot", str(tmp_path)]) == 0
        (told,) = json.loads(path.read_text())["results"]
        assert told["bench"] == "pool:uncontended"
        drawing = f"pool-uncontended-{sys.version_info[0]}.{sys.version_info[1]}.svg"
        assert (tmp_path / drawing).exists()
        assert f"]({drawing})" in path.with_suffix(".md").read_text()
        out = capsys.readouterr().out
        assert "in units of queue.SimpleQueue put+get" in out
        assert out.endswith(f"Written: {path}, {path.with_suffix('.md')}, {tmp_path / drawing}\n")
        assert names(tmp_path) == sorted(["out.json", "out.md", drawing])

    def test_all_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A bench's name stands for all its parts, in order."""
        ran: list[str] = []
        empty = Result(
            name="x", title="", what="", repeats=1, sections=[], claims=[], missing=[], packages=[]
        )

        class Part:
            def __init__(self, name: str) -> None:
                self.name = name

            def steps(self, effort: object) -> int:
                return 1

            def run(self, effort: object, tick: object) -> Result:
                ran.append(self.name)
                return empty

        for name in PARTS["pool"]:
            monkeypatch.setitem(sys.modules, f"respool.cli.bench.{name}", Part(name))
        assert main(["bench", "pool"]) == 0
        assert tuple(ran) == PARTS["pool"]


class TestPeers:
    """What is compared with."""

    def test_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Peers that aren't installed, or have changed, are gaps with their reason."""
        for name in ("urllib3", "psycopg", "connpool", "cuttlepool", "sqlalchemy.pool", "redis"):
            monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setattr(_peers, "_generic_connection_pool", lambda _: 1 / 0)
        found = _peers.peers()
        assert [one.name for one in found if isinstance(one, Pair)] == ["queue.LifoQueue get+put"]
        gaps = {one.name: one.why for one in found if isinstance(one, Missing)}
        assert gaps["generic-connection-pool"] == "ZeroDivisionError: division by zero"
        assert len(gaps) == 7
        assert "urllib3" in gaps["urllib3 connection queue"]
