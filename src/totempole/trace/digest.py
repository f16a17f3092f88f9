"""A trace as one number: two runs are the same run exactly when their digests are equal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from totempole.trace.schema import SCHEMA_VERSION, Row

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


def trace_digest(rows: Iterable[Row]) -> str:
    """SHA-256 over one JSON array per row, in the order given. Nothing in it depends on PYTHONHASHSEED."""
    digest = hashlib.sha256(f"totempole trace {SCHEMA_VERSION}\n".encode())
    for row in rows:
        digest.update(_encode(row).encode())
        digest.update(b"\n")
    return digest.hexdigest()
