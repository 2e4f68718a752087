"""One scenario with one pool, in this process: ``python -m benchmarks.torture.child POOL SCENARIO``.

Prints one line of JSON.  A watchdog ends the process when the scenario makes no step for a while: a hang.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
import warnings

from benchmarks.torture import adapters
from benchmarks.torture.bench import Bench, BrokenError, describe
from benchmarks.torture.scenario import load

#: Seconds without a step that count as a hang; longer than any wait that a scenario gives up on by itself.
STILL = 20.0

#: Whatever a scenario leaves lives until the interpreter exits, as a module's pool would.
_kept: list[object] = []


class _Watchdog(threading.Thread):
    """Tells of a hang, and ends the process."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.at = "the beginning"
        self._moved = threading.Event()
        self._over = False

    def step(self, what: str) -> None:
        self.at = what
        self._moved.set()

    def end(self) -> None:
        self._over = True
        self._moved.set()

    def run(self) -> None:
        while self._moved.wait(STILL):
            self._moved.clear()
            if self._over:
                return
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        traceback.print_stack(frame)
        _say("fail", f"hung: {self.at}")
        os._exit(0)


def _say(verdict: str, detail: str) -> None:
    os.write(1, json.dumps({"verdict": verdict, "detail": detail}).encode() + b"\n")


def main() -> None:
    """Run what the command line names."""
    pool, name = sys.argv[1:]
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # ignored where a shell started it in the background
    warnings.simplefilter("ignore")  # leaks and unclosed pools are what scenarios make
    watchdog = _Watchdog()
    bench = Bench(adapters.load(pool), watchdog.step)
    watchdog.start()
    try:
        detail, verdict = load()[name].run(bench), "pass"
    except BrokenError as error:
        detail, verdict = str(error), "fail"
    except BaseException as error:  # noqa: BLE001 - a bug of the table or of an adapter, told as such
        traceback.print_exc()
        detail, verdict = describe(error), "error"
    watchdog.end()
    _say(verdict, detail)
    _kept.append(bench)
    if name != "exit_in_use" or verdict != "pass":
        os._exit(0)  # threads that hang, or that would run on, aren't what is asked here


if __name__ == "__main__":
    main()
