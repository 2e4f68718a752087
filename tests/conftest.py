"""Settings of the whole test session: which skips CI accepts, and where the tested package came from."""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import respool
from respool._version import __version__

if TYPE_CHECKING:
    from tests.helpers.cuda_driver import FakeCuda

#: Reasons for which a test may be skipped in CI, each with why it cannot run there.
ALLOWED_SKIPS: tuple[tuple[str, str], ...] = (
    (r"needs (C?Python|Python) 3\.1[23]", "the same tests run on that version in another step of CI"),
    (r"needs the packages of the group docs", "the session `docs` of noxfile.py runs it"),
    (r"needs the packages of the group types", "the session `types` of noxfile.py runs it"),
    (
        r"needs the interpreter lock: \S",
        "all Pythons of CI but the one of the session `free_threaded` have it",
    ),
    (
        r"needs a real GPU",
        "scripts/gpu runs it where there is one; the other tests of CUDA run on the fake driver",
    ),
    (r"needs cuda\.bindings", "they're in the group test, for each system that has them"),
)

_skips: dict[str, str] = {}


def _strict() -> bool:
    """Whether this session must run everything: CI sets RESPOOL_CI=1."""
    return os.environ.get("RESPOOL_CI") == "1"


def _allowed(reason: str) -> bool:
    return any(re.search(pattern, reason) for pattern, _why in ALLOWED_SKIPS)


def _note(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not _allowed(reason):
        _skips[report.nodeid] = reason


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember each test that was skipped for a reason not allowed in CI."""
    _note(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Remember each module that was skipped as a whole."""
    _note(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI, a test skipped for want of something fails the session."""
    if _strict() and _skips and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which skips made the session fail."""
    if _strict() and _skips:
        terminalreporter.section("skipped, but must run here (RESPOOL_CI=1)", red=True)
        for nodeid, reason in sorted(_skips.items()):
            terminalreporter.write_line(f"{nodeid}: {reason}")


def _locked() -> bool:
    """Whether the interpreter lets one thread run at a time."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def pytest_report_header() -> list[str]:
    """Tell which copy of the package is tested, and whether without the interpreter lock."""
    lock = "" if _locked() else ", without the interpreter lock"
    return [f"respool {__version__} from {respool.__path__[0]}{lock}"]


@functools.cache
def _without_gpu(marked: str) -> str:
    """Why tests for a real GPU can't run in this session, or nothing; `marked` is the session's ``-m``."""
    if "gpu" not in marked or "not gpu" in marked:
        # The driver is looked for once in a process, and the other tests need the fake one.
        return "and a session of its own: pytest -m gpu"
    try:
        from respool.cuda import _driver

        _driver.load()
    except respool.PoolError as error:
        return str(error)
    return ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what is marked as impossible without a GPU, or without the interpreter lock, where there is none."""
    if item.get_closest_marker("gpu") is not None:
        why = _without_gpu(str(item.config.getoption("markexpr")))
        if why:
            pytest.skip(f"needs a real GPU, {why}" if why.startswith("and") else f"needs a real GPU: {why}")
    if _locked():
        return
    for marker in item.iter_markers("needs_gil"):
        pytest.skip(f"needs the interpreter lock: {marker.kwargs['reason']}")


def pytest_configure() -> None:
    """Make signals work, and refuse to test anything but what is asked for.

    With RESPOOL_EXPECT_INSTALLED=1 that is an installed copy, with RESPOOL_EXPECT_FREE_THREADED=1 an interpreter without
    its lock.
    """
    # nohup and a shell's background ignore these, which each program that a test sends a signal would inherit.
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    if os.environ.get("RESPOOL_EXPECT_FREE_THREADED") == "1" and _locked():
        raise pytest.UsageError("this interpreter should run without its lock, but it has one")
    if os.environ.get("RESPOOL_EXPECT_INSTALLED") == "1":
        where = Path(respool.__path__[0]).resolve()
        if "site-packages" not in where.parts:
            raise pytest.UsageError(f"respool should come from an installed wheel, but it is {where}")


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake CUDA driver's file, built once for all processes of the run."""
    pytest.importorskip("cuda.bindings", reason="needs cuda.bindings")
    from tests.helpers import cuda_driver

    base = tmp_path_factory.getbasetemp()
    return cuda_driver.build(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture(scope="session")
def loaded_fake(fake_library: Path) -> FakeCuda:
    """The fake CUDA driver, loaded into this process; there can be one only."""
    from tests.helpers import cuda_driver

    return cuda_driver.FakeCuda(fake_library)
