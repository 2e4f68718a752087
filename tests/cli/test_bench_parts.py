"""The benches themselves, in the shortest form: every part measures what it says it does."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from respool.cli.__main__ import main
from respool.cli.bench import PARTS, _peers, handles, uncontended
from respool.cli.bench._measure import QUICK
from respool.cli.bench._peers import Pair
from respool.cli.bench._results import Missing, Result

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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
        assert targets["import respool, above the interpreter's start"] == 30

    def test_what_the_floors_do(self) -> None:
        """An empty lease is a new object each time, as a lease must be."""
        leases = uncontended._EmptyLeases()
        first, second = leases.lease("key"), leases.lease("key")
        assert first is not second
        with first as nothing:
            assert nothing is None


class TestHandles:
    """Handles with connections."""

    def test_measured(self) -> None:
        """Pooled and fresh handles are measured against one TLS server."""
        (claim,) = [claim for claim in measured(handles).claims if "fresh" in claim.text]
        assert claim.target == 10
        assert claim.figure.median > 1


class TestCommand:
    """Benches and parts by name."""

    def test_a_part(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A part is measured alone, once however often it's named; results, page and drawing are written."""
        path = tmp_path / "out.json"
        names = ["pool:uncontended", "pool:uncontended"]
        assert main(["bench", *names, "--quick", "--json", str(path), "--plot", str(tmp_path)]) == 0
        (told,) = json.loads(path.read_text())["results"]
        assert told["bench"] == "pool:uncontended"
        drawing = f"pool-uncontended-{sys.version_info[0]}.{sys.version_info[1]}.svg"
        assert (tmp_path / drawing).exists()
        assert f"]({drawing})" in path.with_suffix(".md").read_text()
        assert "in units of queue.SimpleQueue put+get" in capsys.readouterr().out

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
