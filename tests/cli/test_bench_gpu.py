"""The benches of events and pinned memory, in the shortest form, over the fake driver: each measures what it says it does."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from respool.cli.bench import _native, _ways, pinning, single, standstill, threads
from respool.cli.bench._measure import FULL
from respool.cli.bench._native import NativeError, native

from .commands import environment, one_line, respool

if TYPE_CHECKING:
    from pathlib import Path

#: Where the fake driver has a compiler that isn't found under a name for C++, there are no C++ rows.
CPP = set(_ways.CPP) if _native._commands(_native._SOURCE) else set()


@pytest.fixture
def told(fake_library: Path, tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the part that a test is parametrised by has written."""
    path = tmp_path / "out.json"
    settings = environment(LD_LIBRARY_PATH=str(fake_library.parent))
    ended = respool("bench", request.param, "--quick", "--json", path, env=settings)
    assert ended.code == 0, ended.err
    assert "Measured in haste" in ended.out
    (found,) = json.loads(path.read_text())["results"]
    assert found["bench"] == request.param
    assert found["machine"]["gpu"]
    return found  # type: ignore[no-any-return]


def part(name: str) -> pytest.MarkDecorator:
    """Let the fixture `told` run this part."""
    return pytest.mark.parametrize("told", [name], indirect=True)


def names(section: dict[str, Any]) -> set[str]:
    """The rows' names of a section of bars, each with a figure for each repeat."""
    assert all(len(row["ratio"]["repeats"]) == 2 and row["ratio"]["min"] > 0 for row in section["rows"])
    return {row["name"] for row in section["rows"]}


def targets(told: dict[str, Any]) -> list[float]:
    """The targets of all claims."""
    return [claim["target"] for claim in told["claims"]]


EVERYWHERE = {
    _ways.CREATE,
    _ways.BOUND,
    _ways.KEYED,
    "with CudaEventPool, bound: lease()",
    _ways.WITH,
}


def core(told: dict[str, Any]) -> set[str]:
    """The row of cuda.core, where it's there."""
    return set() if _ways.CORE in told["missing"] else {_ways.CORE}


@part("events:single")
def test_single(told: dict[str, Any]) -> None:
    """One thread: created, pooled and C++ rows stand side by side, used and not used, and are held to the targets."""
    bare, recorded = told["sections"]
    expected = EVERYWHERE | CPP | core(told)
    assert names(bare) == expected | {
        single.BATCH,
        single.BATCH_CREATED,
        "collections.deque pop+append",
    }
    assert names(recorded) == expected | {"one event kept: cuEventRecord + cuEventSynchronize"}
    assert targets(told) == ([1.7, 3.0, 2.5, 1.3] if core(told) else [1.7, 2.5, 1.3])


@part("events:threads")
def test_threads(told: dict[str, Any]) -> None:
    """Several threads: a curve over 1 to 16, and tables for 8 and 16, used and not used."""
    expected = EVERYWHERE | CPP | core(told)
    sections = told["sections"]
    assert len(sections) == 6
    for curves in (sections[0], sections[3]):
        assert {line["name"] for line in curves["lines"]} == expected
        for line in curves["lines"]:
            assert [point["size"] for point in line["points"]] == list(threads.THREADS)
    for bars in (*sections[1:3], *sections[4:]):
        assert names(bars) == expected
    assert targets(told) == [10.0, 10.0, 1.8, 1.8]


@part("events:live")
def test_live(told: dict[str, Any]) -> None:
    """While others exist: each way has a figure for each number of them."""
    (curves,) = told["sections"]
    assert {line["name"] for line in curves["lines"]} == {_ways.CREATE, _ways.BOUND, _ways.WITH} | CPP
    for line in curves["lines"]:
        assert [point["size"] for point in line["points"]] == [1, 50]
    assert targets(told) == [1.5, 1.5]


@part("buffers:pinning")
def test_pinning(told: dict[str, Any]) -> None:
    """Each size has the pools, the driver's ways and what else is installed, and is held to the targets."""
    assert len(told["sections"]) == 3
    for section in told["sections"]:
        rows = names(section)
        assert rows >= {pinning.UNIT, pinning.PINNED, pinning.ALLOCATE, pinning.REGISTER}
        assert len(rows) + len(told["missing"]) == 11
    assert targets(told) == [1_000, 1_000, 20_000, 20_000]


@part("buffers:standstill")
def test_standstill(told: dict[str, Any]) -> None:
    """Whoever frees waits until the stream goes on, on the fake as on a GPU; that's no matter of time: it can't return before."""
    (bars,) = told["sections"]
    rows = {row["name"]: row["ratio"] for row in bars["rows"]}
    assert len(names(bars)) == 8
    assert rows[standstill.FREE]["min"] >= 1
    assert rows[standstill.UNREGISTER]["min"] >= 1
    assert len(told["claims"]) == 6


def test_no_driver(tmp_path: Path) -> None:
    """Without a driver it's one line and 1, and nothing is written."""
    pytest.importorskip("cuda.bindings", reason="needs cuda.bindings")
    (tmp_path / "libcuda.so.1").write_text("no library")
    path = tmp_path / "out.json"
    ended = respool("bench", "buffers", "--json", path, env=environment(LD_LIBRARY_PATH=str(tmp_path)))
    assert (ended.code, ended.out) == (1, "")
    assert "driver" in one_line(ended.err)
    assert not path.exists()


def test_no_such_device(fake_library: Path) -> None:
    """A GPU that isn't there is one line that says how many are."""
    settings = environment(LD_LIBRARY_PATH=str(fake_library.parent))
    ended = respool("bench", "events:single", "--device", "99", "--quick", env=settings)
    assert ended.code == 1
    assert "no GPU 99: there are" in one_line(ended.err)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing compiles C++ the reason says so."""
    monkeypatch.setattr(_native, "_commands", lambda _: [])
    with pytest.raises(NativeError, match=r"no C\+\+ compiler"), native(0):
        pytest.fail("there is one")


def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is what the compiler says first."""
    failing = [sys.executable, "-c", "import sys; sys.exit('no such header')"]
    monkeypatch.setattr(_native, "_commands", lambda _: [failing])
    with pytest.raises(NativeError, match="no such header"), native(0):
        pytest.fail("it's compiled")


def test_repeats() -> None:
    """In earnest each figure has five repeats at least."""
    assert min(FULL.repeats, FULL.runs) >= 5
