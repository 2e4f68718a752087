"""Report what `from respool import ResourcePool` costs above the interpreter's start, and what it loads.

Each sample is a fresh interpreter that times the import statement itself, so its own start is not in it.
The median should be 30 ms or less; `--limit` makes one above it an error.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import sys

PROBE = """
import sys, time
before = set(sys.modules)
start = time.perf_counter()
from respool import ResourcePool
print((time.perf_counter() - start) * 1e3, len(set(sys.modules) - before))
"""


def sample() -> tuple[float, int]:
    """Import the package in a fresh interpreter; return the milliseconds and how many modules came in."""
    done = subprocess.run([sys.executable, "-c", PROBE], check=True, capture_output=True, text=True)
    milliseconds, modules = done.stdout.split()
    return float(milliseconds), int(modules)


def main() -> int:
    """Print min / median / max; return 1 when the median is above the limit asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--limit", type=float, default=None, metavar="MS")
    arguments = parser.parse_args()
    sample()  # the first one writes bytecode and warms the disk cache
    samples = [sample() for _ in range(arguments.repeats)]
    times = [milliseconds for milliseconds, _ in samples]
    median = statistics.median(times)
    print(
        f"from respool import ResourcePool: {min(times):.1f} / {median:.1f} / {max(times):.1f} ms (min / median / max "
        f"of {len(times)}), "
        f"{samples[0][1]} modules, {platform.python_implementation()} {platform.python_version()}"
    )
    return 1 if arguments.limit is not None and median > arguments.limit else 0


if __name__ == "__main__":
    sys.exit(main())
