"""Structured log events over the standard library's: an event has a name and fields.

A node's own log has formatters for them (`runtime.logs`). Any other formatter shows name and fields as text.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

FIELDS = "totempole_fields"
"""The attribute of a record that has its fields."""


class EventText:
    """The message of a record: `regular configuration ring=8@1 members=1,2,3`."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        self.name = name
        self.fields = fields

    def __str__(self) -> str:
        return " ".join((self.name, *(f"{name}={field_text(value)}" for name, value in self.fields.items())))


def event(logger: logging.Logger, level: int, name: str, /, **fields: Any) -> None:
    """Logs what happened. Fields are small values: numbers, words, tuples of them."""
    if logger.isEnabledFor(level):
        logger.log(level, EventText(name, fields), extra={FIELDS: fields})


def name_of(record: logging.LogRecord) -> str:
    """Without its fields."""
    return record.msg.name if isinstance(record.msg, EventText) else record.getMessage()


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    return getattr(record, FIELDS, {})


def field_text(value: Any) -> str:
    """A value as one word: lists with commas, and quotes where a space or a control character would hurt."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (set, frozenset)):
        return field_text(sorted(value))
    if is_list(value):
        return ",".join(field_text(item) for item in value) if value else "none"
    if isinstance(value, Mapping):
        return ",".join(f"{name}:{field_text(item)}" for name, item in value.items()) if value else "none"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    clean = text.isprintable() and not any(mark in text for mark in ' "=')
    return text if clean and text else json.dumps(text, ensure_ascii=False)


def is_list(value: Any) -> bool:
    """A named tuple that has a text of its own, such as a ring's name, is that text and no list."""
    return isinstance(value, (list, tuple)) and type(value).__str__ is object.__str__
