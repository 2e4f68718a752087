"""``python -m respool``: the same as ``python -m respool.cli``.

It's run by name, not imported, as the core knows nothing of what stands on it.
"""

from __future__ import annotations

if __name__ == "__main__":
    import runpy

    runpy.run_module("respool.cli", run_name="__main__", alter_sys=True)
