"""The bytes that commands are given to read: a little more than two blocks."""

from __future__ import annotations

import hashlib

SIZE = 9_000_001
CONTENT = hashlib.shake_128(b"respool").digest(SIZE)
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
