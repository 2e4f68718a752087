"""What ``get`` and ``demo`` tell at the end: how much, how fast, and what the pools did.

This module owns the report's content, as text and as JSON.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from respool.cli._standard import tell
from respool.cli.progress import table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from respool.stats import PoolStats

_KIB = 1 << 10
_MIB = 1 << 20
#: What the table shows of `PoolStats`; JSON has all of it.
_SHOWN = ("size", "acquired", "created", "reused", "destroyed", "waits")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """The outcome of one reading."""

    source: str  # without secrets
    nbytes: int
    seconds: float
    digest: str | None  # "sha256:…" of what was read, where it was computed
    verified: bool | None  # whether that's what it should be; None where nobody said what it should be
    pools: Mapping[str, PoolStats]

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.nbytes / self.seconds if self.seconds > 0 else 0.0

    def show(self, *, as_json: bool, to_stderr: bool = False) -> None:
        """Print the report, to stdout unless that has the data."""
        if as_json:
            tell(json.dumps(self.as_dict(), indent=2), to_stderr=to_stderr)
            return
        lines = [
            f"{_bytes(self.nbytes)} in {self.seconds:.3f} s{_rate(self.rate) if self.seconds > 0 else ''}"
        ]
        if self.digest is not None:
            verdict = {None: "", True: "  (as it should be)", False: "  (NOT as it should be)"}[self.verified]
            lines.append(f"{self.digest}{verdict}")
        columns = ("pool", *_SHOWN, "cost", "waited s")
        rows = [
            (
                name,
                *(str(getattr(stats, field)) for field in _SHOWN),
                _cost(name, stats),
                f"{stats.wait_seconds:.3f}",
            )
            for name, stats in self.pools.items()
        ]
        lines += ["", table(columns, rows, to_stderr=to_stderr)]
        tell("\n".join(lines), to_stderr=to_stderr)

    def as_dict(self) -> dict[str, Any]:
        """Give the report as what `json` can write."""
        return {
            "source": self.source,
            "bytes": self.nbytes,
            "seconds": self.seconds,
            "bytes_per_second": self.rate,
            "digest": self.digest,
            "verified": self.verified,
            "pools": {name: _plain(stats) for name, stats in self.pools.items()},
        }


def _plain(stats: PoolStats) -> dict[str, Any]:
    values: dict[str, Any] = {field.name: getattr(stats, field.name) for field in dataclasses.fields(stats)}
    for name in ("destroyed_for", "hook_errors"):
        values[name] = dict(values[name])
    return values


def _bytes(count: int) -> str:
    if count == 1:
        return "1 byte"
    return f"{count:,} bytes ({count / _MIB:,.1f} MiB)" if count >= _MIB else f"{count:,} bytes"


def _rate(rate: float) -> str:
    """Tell bytes per second in the unit in which the number isn't next to nothing."""
    if rate >= _MIB:
        return f": {rate / _MIB:,.1f} MiB/s"
    return f": {rate / _KIB:,.1f} KiB/s" if rate >= _KIB else f": {rate:,.0f} bytes/s"


def _cost(name: str, stats: PoolStats) -> str:
    return f"{stats.cost / _MIB:,.1f} MiB" if name == "buffers" else str(stats.cost)
