"""``respool demo`` where hooks fail and signal handlers use its pools: every byte is right all the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.helpers.threads import HANG_GUARD

from .commands import environment

ROOT = Path(__file__).parents[2]


def test_hooks_fail_and_signal_handlers_use_the_pools() -> None:
    """G3, G5, G6: with a fifth of all checks, resets and ends failing, in both pools, what is read is right, and every count adds up."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.cli.unruly_demo", "demo", "--size", "64MiB", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
        check=False,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    told, came = json.loads(done.stdout), json.loads(done.stderr)
    assert (told["bytes"], told["verified"]) == (64 << 20, True)
    troubles = ("reset raises", "validate raises", "validate says no", "destroy raises", "signal")
    assert min(came[kind] for kind in troubles) > 0
    for stats in told["pools"].values():
        assert stats["created"] + stats["reused"] == stats["acquired"]
        assert stats["created"] == stats["destroyed"] + stats["idle"]
        assert stats["size"] == stats["idle"]
        assert sum(stats["destroyed_for"].values()) == stats["destroyed"]
        assert stats["destroyed_for"]["invalid"] > 0
        assert min(stats["hook_errors"][hook] for hook in ("validate", "reset", "destroy")) > 0
        assert (stats["leased"], stats["leaked"], stats["waiters"], stats["quarantined"]) == (0, 0, 0, 0)
