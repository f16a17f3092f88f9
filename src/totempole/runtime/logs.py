"""Structured logs over the standard library's: an event has a name and fields; text for eyes, or JSON lines.

    2026-01-02T03:04:05.678Z info    ring installed ring=8@1 members=1,2,3
    {"at": "2026-01-02T03:04:05.678Z", "level": "info", "event": "ring installed", "ring": "8@1", ...}

A warning or an error that repeats itself, but for the numbers in it, is written once and then counted: once a
second a line gives the latest one and how often it came again. What is remembered for that is bounded.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

ROOT = "totempole"

INTERVAL_S = 1.0
"""How long a repeated warning is counted before it is written again."""
DISTINCT_MAX = 64
"""Different warnings written in an interval; the rest are counted together."""
LEFT_OUT = "warnings left out"

_FIELDS = "totempole_fields"
_COLUMNS = frozenset({"at", "level", "event", "trouble"})


def event(logger: logging.Logger, level: int, name: str, /, **fields: Any) -> None:
    """Logs what happened. Fields are small values: numbers, words, tuples of them."""
    if logger.isEnabledFor(level):
        logger.log(level, "%s", name, extra={_FIELDS: fields})


# Lines


class TextFormatter(logging.Formatter):
    """One line for eyes: when, how serious, what, and name=value for each field."""

    def format(self, record: logging.LogRecord) -> str:
        words = [f"{_when(record)} {record.levelname.lower():7} {_plain_line(record.getMessage())}"]
        words += [f"{name}={field_text(value)}" for name, value in _fields(record).items()]
        if record.exc_info:
            words.append(f"trouble={field_text(self.formatException(record.exc_info))}")
        return " ".join(words)


class JsonFormatter(logging.Formatter):
    """A JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        data = {"at": _when(record), "level": record.levelname.lower(), "event": record.getMessage()}
        # A field never hides a column: it gives way.
        data |= {
            f"{name}_" if name in _COLUMNS else name: _data(value) for name, value in _fields(record).items()
        }
        if record.exc_info:
            data["trouble"] = self.formatException(record.exc_info)
        return json.dumps(data, ensure_ascii=False)


FORMATTERS: Mapping[str, type[logging.Formatter]] = {"text": TextFormatter, "json": JsonFormatter}


def _when(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S") + f".{at.microsecond // 1000:03}Z"


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return getattr(record, _FIELDS, {})


def field_text(value: Any) -> str:
    """A value as one word: lists with commas, and quotes where a space or a control character would hurt."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (set, frozenset)):
        return field_text(sorted(value))
    if _is_list(value):
        return ",".join(field_text(item) for item in value) if value else "none"
    if isinstance(value, Mapping):
        return ",".join(f"{name}:{field_text(item)}" for name, item in value.items()) if value else "none"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    clean = text.isprintable() and not any(mark in text for mark in ' "=')
    return text if clean and text else json.dumps(text, ensure_ascii=False)


def _plain_line(text: str) -> str:
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)


def _data(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, Mapping):
        return {str(name): _data(item) for name, item in value.items()}
    if _is_list(value):
        return [_data(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def _is_list(value: Any) -> bool:
    """A named tuple that has a text of its own, such as a ring's name, is that text and no list."""
    return isinstance(value, (list, tuple)) and type(value).__str__ is object.__str__


# Repetition


class Repetition:
    """Decides which warnings are written. Takes the time, reads no clock; at most DISTINCT_MAX are known."""

    def __init__(self) -> None:
        self._counted: dict[object, tuple[logging.LogRecord, int]] = {}
        self._left_out = 0
        self._ends_s = 0.0

    def admit(self, record: logging.LogRecord) -> bool:
        """Whether to write it now; else it is counted."""
        key = _gist(record)
        known = self._counted.get(key)
        if known is not None:
            self._counted[key] = (record, known[1] + 1)
            return False
        if len(self._counted) >= DISTINCT_MAX:
            self._left_out += 1
            return False
        self._counted[key] = (record, 0)
        return True

    def due(self, now_s: float) -> list[logging.LogRecord]:
        """At the end of an interval: a line for each warning that came again meanwhile."""
        if now_s < self._ends_s:
            return []
        self._ends_s = now_s + INTERVAL_S
        lines = [_repeated(record, count) for record, count in self._counted.values() if count]
        if self._left_out:
            lines.append(_left_out(self._left_out))
        # What came again may go on: it stays known, so that it is written once a second and no more.
        self._counted = {key: (record, 0) for key, (record, count) in self._counted.items() if count}
        self._left_out = 0
        return lines


def _gist(record: logging.LogRecord) -> object:
    """What makes two warnings the same: all but their numbers, which are seldom twice the same."""
    said = [(name, _words(value)) for name, value in _fields(record).items()]
    return record.name, record.levelno, record.getMessage(), tuple(said)


def _words(value: Any) -> object:
    if isinstance(value, Mapping):
        return tuple((str(name), _words(item)) for name, item in value.items())
    return None if isinstance(value, (int, float)) else str(value)


def _repeated(record: logging.LogRecord, count: int) -> logging.LogRecord:
    return _line(record.name, record.levelno, record.getMessage(), {**_fields(record), "repeated": count})


def _left_out(count: int) -> logging.LogRecord:
    return _line(ROOT, logging.WARNING, LEFT_OUT, {"count": count})


def _line(name: str, level: int, text: str, fields: dict[str, Any]) -> logging.LogRecord:
    values = {"name": name, "levelno": level, "levelname": logging.getLevelName(level), "msg": text}
    return logging.makeLogRecord({**values, _FIELDS: fields})


class EventHandler(logging.StreamHandler[TextIO]):
    """Writes events to a stream, repeated warnings once an interval. For any thread.

    A timer thread writes the counts of a burst that nothing follows; there is at most one.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._repetition = Repetition()
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self._write_due()
        if record.levelno < logging.WARNING or self._repetition.admit(record):
            super().emit(record)
        elif self._timer is None:
            self._timer = threading.Timer(INTERVAL_S, self._alarm)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        """Writes what was counted so far."""
        with self._locked():
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._write_due(at_once=True)
        super().close()

    def _alarm(self) -> None:
        with self._locked():
            self._timer = None
            self._write_due()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def _write_due(self, at_once: bool = False) -> None:
        for line in self._repetition.due(float("inf") if at_once else self._clock()):
            super().emit(line)


def start_logging(level: str, style: str, stream: TextIO | None = None) -> logging.Logger:
    """The program's logger, writing to standard error. Calling it again replaces what was set up before."""
    logger = logging.getLogger(ROOT)
    stop_logging()
    handler = EventHandler(stream or sys.stderr)
    handler.setFormatter(FORMATTERS[style]())
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    return logger


def stop_logging() -> None:
    """Writes what is still counted, and leaves the logger as it was found."""
    logger = logging.getLogger(ROOT)
    for handler in [handler for handler in logger.handlers if isinstance(handler, EventHandler)]:
        logger.removeHandler(handler)
        handler.close()
    logger.propagate = True
    logger.setLevel(logging.NOTSET)
