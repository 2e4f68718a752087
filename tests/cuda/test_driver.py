"""What the driver module makes of the driver's answers."""

from __future__ import annotations

import pickle
import sys
import types
from typing import TYPE_CHECKING

import pytest

from respool.cuda import CudaError, CudaUnavailableError, NoContextError, WrongContextError, _driver
from tests.helpers.cuda_driver import run_with_fake
from tests.helpers.forks import in_child
from tests.helpers.threads import Threads

if TYPE_CHECKING:
    from pathlib import Path

    from respool.cuda._driver import Driver
    from tests.helpers.cuda_driver import FakeCuda

LOAD = """
from respool.cuda import _driver, CudaError, CudaUnavailableError
for _ in range(2):
    try:
        _driver.load()
        print("loaded")
    except (CudaError, CudaUnavailableError) as error:
        print(type(error).__name__, type(error.__cause__).__name__, error)
"""


def twice(path: Path, program: str = LOAD, **settings: object) -> str:
    """What a program that loads the driver twice says: the same both times."""
    ended = run_with_fake(path, program, **settings)
    assert ended.code == 0, ended.errors
    first, second = ended.printed.splitlines()
    assert first == second
    return first


def test_no_driver(fake_library: Path, tmp_path: Path) -> None:
    """C54: without a driver the package can be imported; its use says so each time, with what was found as the cause."""
    (tmp_path / "libcuda.so.1").write_text("no library")
    told = twice(tmp_path / "libcuda.so.1")
    assert told.startswith(
        ("CudaUnavailableError DynamicLibNotFoundError", "CudaUnavailableError RuntimeError")
    )
    assert "no CUDA driver" in told


def test_no_bindings(fake_library: Path) -> None:
    """C55: without the bindings the error names the extra that brings them."""
    missing = "import sys; sys.modules['cuda'] = sys.modules['cuda.bindings'] = None\n" + LOAD
    told = twice(fake_library, missing)
    assert told.startswith("CudaUnavailableError ModuleNotFoundError")
    assert "respool[cuda]" in told


def test_no_gpu(fake_library: Path) -> None:
    """C54: a driver without a GPU is told apart from none."""
    told = twice(fake_library, devices=0)
    assert told.startswith("CudaUnavailableError CudaError there is no GPU")


def test_a_driver_that_does_not_fit(fake_library: Path) -> None:
    """C54: a driver that can't be initialised, or is older than the ids of contexts, says why."""
    assert "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)" in twice(fake_library, init=803)
    assert "11.4" in twice(fake_library, version=11040)


def test_a_driver_without_a_function(fake_library: Path) -> None:
    """C56: a function that the driver doesn't have is told by name."""
    call = "from respool.cuda import _driver\n" + LOAD.replace(
        "_driver.load()", "_driver.load().create_event(2)"
    )
    told = twice(fake_library, call, without="cuEventCreate")
    assert told.startswith("CudaUnavailableError")
    assert "has no cuEventCreate" in told


@pytest.mark.parametrize("version", ["12.8.0", "12.9.0", "12.9.0.post1", "11.8.7"])
def test_bindings_that_are_refused(fake_library: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """C17: bindings that hold the interpreter lock during calls, or are older, are refused by their version."""
    module = types.ModuleType("cuda.bindings")
    module.__version__ = version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda.bindings", module)
    monkeypatch.setattr(sys.modules["cuda"], "bindings", module)
    with pytest.raises(CudaUnavailableError, match=version):
        _driver._bindings()


def test_the_lock_is_released_during_calls(fake: FakeCuda, driver: Driver, context_id: int) -> None:
    """C17: while a call of the driver blocks, other threads run Python; this one opens what it waits for."""
    event = driver.create_event(2)
    with Threads() as threads, fake.latch("cuEventDestroy") as latch:
        task = threads.start(lambda: driver.destroy_event(event))
        latch.wait_inside()
        latch.open()
        task.result()


def test_classes_of_errors(fake: FakeCuda, driver: Driver) -> None:
    """C54: no context, things of different contexts, and the rest have errors of their own, which can be pickled."""
    with pytest.raises(NoContextError) as none:
        driver.context_id()
    assert (none.value.code, none.value.name, none.value.call) == (
        201,
        "CUDA_ERROR_INVALID_CONTEXT",
        "cuCtxGetId",
    )
    assert str(pickle.loads(pickle.dumps(none.value))) == str(none.value)  # noqa: S301 - made in this line
    assert isinstance(driver.failed(400, "cuEventRecord"), WrongContextError)
    assert "destroyed" in str(driver.failed(709, "cuEventQuery"))


def test_a_code_that_the_bindings_do_not_know(fake: FakeCuda, driver: Driver, context_id: int) -> None:
    """An unknown code, which the bindings raise as ValueError or KeyError, is a CudaError with that code."""
    fake.fail("cuEventCreate", 4242)
    with pytest.raises(CudaError) as unknown:
        driver.create_event(2)
    assert (unknown.value.code, unknown.value.call) == (4242, "cuEventCreate")
    assert isinstance(unknown.value.__cause__, ValueError | KeyError)
    with pytest.raises(TypeError):
        driver.create_event("2")  # type: ignore[arg-type]


def test_a_sticky_error_is_told_once(fake: FakeCuda, driver: Driver, context_id: int) -> None:
    """C62: after a sticky error acquires fail fast without a call, saying since when; others hear of it once."""
    driver.current_context()
    told: list[int] = []
    stop = driver.broken.listen(told.append)
    fake.break_context(context_id, 719)
    with pytest.raises(CudaError) as first:
        driver.context_id()
    calls = fake.calls("cuEventCreate")
    with pytest.raises(CudaError) as again:
        driver.create_event(2, context_id)
    assert fake.calls("cuEventCreate") == calls
    assert first.value.code == again.value.code == 719
    assert f"context {context_id} has failed so since" in str(again.value)
    assert str(first.value).split("; ")[1] == str(again.value).split("; ")[1]
    assert told == [context_id]
    stop()
    driver.checked("reset", driver.api.cuDevicePrimaryCtxReset, 0)
    driver.retain_primary(0)
    event = driver.create_event(2, driver.current_context()[1])
    driver.destroy_event(event)


def test_a_fork_after_cuda_was_used(fake: FakeCuda, driver: Driver) -> None:
    """C49: in the child, loading is CudaError 3 with a hint to use spawn, and no call is made."""

    def child() -> tuple[int, str, int]:
        try:
            _driver.load()
        except CudaError as error:
            return error.code, str(error), fake.count("fork_calls")
        return 0, "", 0

    code, told, calls = in_child(child)
    assert (code, calls) == (3, 0)
    assert "spawn" in told


def test_a_fork_by_a_user_of_cuda_who_is_not_us(fake_library: Path) -> None:
    """C49: where somebody else had initialised CUDA before the fork, the child gets the same error."""
    program = (
        "import os\nimport cuda.bindings.driver as d\nd.cuInit(0)\n"
        "child = os.fork()\nif child: os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    told = twice(
        fake_library,
        program
        + LOAD.replace("    except", "    except").rstrip()
        + "\nimport sys; sys.stdout.flush(); os._exit(0)\n",
    )
    assert told.startswith("CudaError")
    assert "spawn" in told


def test_a_fork_before_cuda_was_used(fake_library: Path) -> None:
    """C50: a child of a process that hasn't used CUDA works."""
    program = "import os\nimport respool.cuda\nchild = os.fork()\nif child: os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    told = twice(fake_library, program + LOAD + "import sys; sys.stdout.flush(); os._exit(0)\n")
    assert told == "loaded"


def test_relaxed_mode_ends_with_an_error_too(fake: FakeCuda, driver: Driver) -> None:
    """C45: the capture mode of before comes back, also when an exception passes."""
    api = driver.api
    with pytest.raises(KeyError), driver.relaxed():
        raise KeyError
    code, before = api.cuThreadExchangeStreamCaptureMode(api.CUstreamCaptureMode(0))
    assert (int(code), int(before)) == (0, 0)
