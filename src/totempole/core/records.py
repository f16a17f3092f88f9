"""Stable records as text, for storages that keep text: whole numbers and bytes."""

from __future__ import annotations

BYTES = "x"
"""Begins the text of bytes; hexadecimal digits follow."""


def record_text(value: int | bytes) -> str:
    return BYTES + value.hex() if isinstance(value, bytes) else str(int(value))


def record_value(text: str) -> int | bytes:
    """Raises ValueError if it is no record."""
    return bytes.fromhex(text.removeprefix(BYTES)) if text.startswith(BYTES) else int(text)
