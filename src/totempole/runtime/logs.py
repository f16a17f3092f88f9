"""Structured logs over the standard library's: an event has a name and fields; text for eyes, or JSON lines.

    2026-01-02T03:04:05.678Z info    ring installed ring=8@1 members=1,2,3
    {"at": "2026-01-02T03:04:05.678Z", "level": "info", "event": "ring installed", "ring": "8@1", ...}

A warning or an error that repeats itself, but for the numbers in it, is written once and then counted: after
1, 2, 4 … seconds, at last once a minute, a line gives the latest one and how often it came again. What is
remembered for that is bounded.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

from totempole.structured_log import FIELDS, event, field_text, fields_of, is_list, name_of

__all__ = [
    "EventHandler",
    "JsonFormatter",
    "TextFormatter",
    "event",
    "field_text",
    "start_logging",
    "stop_logging",
]

ROOT = "totempole"

INTERVAL_S, INTERVAL_MAX_S = 1.0, 60.0
"""How long a repeated warning is counted before it is written again: at first, and at last."""
DISTINCT_MAX = 64
"""Different warnings that are counted at a time; the rest are counted together."""
LEFT_OUT = "warnings left out"

_COLUMNS = frozenset({"at", "level", "event", "trouble"})


# Lines


class TextFormatter(logging.Formatter):
    """One line for eyes: when, how serious, what, and name=value for each field."""

    def format(self, record: logging.LogRecord) -> str:
        words = [f"{_when(record)} {record.levelname.lower():7} {_plain_line(name_of(record))}"]
        words += [f"{name}={field_text(value)}" for name, value in fields_of(record).items()]
        if record.exc_info:
            words.append(f"trouble={field_text(self.formatException(record.exc_info))}")
        return " ".join(words)


class JsonFormatter(logging.Formatter):
    """A JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        data = {"at": _when(record), "level": record.levelname.lower(), "event": name_of(record)}
        # A field never hides a column: it gives way.
        data |= {
            f"{name}_" if name in _COLUMNS else name: _data(value)
            for name, value in fields_of(record).items()
        }
        if record.exc_info:
            data["trouble"] = self.formatException(record.exc_info)
        return json.dumps(data, ensure_ascii=False)


FORMATTERS: Mapping[str, type[logging.Formatter]] = {"text": TextFormatter, "json": JsonFormatter}


def _when(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S") + f".{at.microsecond // 1000:03}Z"


def _plain_line(text: str) -> str:
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)


def _data(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, Mapping):
        return {str(name): _data(item) for name, item in value.items()}
    if is_list(value):
        return [_data(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


# Repetition


@dataclass(slots=True)
class _Known:
    """A warning that has been written, and how often it has come since."""

    latest: logging.LogRecord
    ends_s: float
    interval_s: float = INTERVAL_S
    count: int = 0


class Repetition:
    """Decides which warnings are written. Takes the time, reads no clock; at most DISTINCT_MAX are known.

    A warning that comes again is counted for an interval, then written with its count; the next interval is
    twice as long, up to INTERVAL_MAX_S. One that has not come for an interval is forgotten.
    """

    def __init__(self) -> None:
        self._known: dict[object, _Known] = {}
        self._ends_s = float("inf")
        """When the first interval ends."""

    def admit(self, record: logging.LogRecord, now_s: float) -> bool:
        """Whether to write it now; else it is counted."""
        key = _gist(record)
        known = self._known.get(key)
        if known is not None:
            known.latest = record
            known.count += 1
            return False
        if len(self._known) < DISTINCT_MAX:
            self._know(key, record, now_s)
            return True
        if LEFT_OUT not in self._known:
            self._know(LEFT_OUT, _line(ROOT, logging.WARNING, LEFT_OUT, {}), now_s)
        self._known[LEFT_OUT].count += 1
        return False

    def _know(self, key: object, record: logging.LogRecord, now_s: float) -> None:
        self._known[key] = _Known(record, now_s + INTERVAL_S)
        self._ends_s = min(self._ends_s, now_s + INTERVAL_S)

    @property
    def has_counted(self) -> bool:
        """Whether a line is still to come."""
        return any(known.count for known in self._known.values())

    @property
    def ends_s(self) -> float:
        """When `due` may have something to write."""
        return self._ends_s

    def due(self, now_s: float) -> list[logging.LogRecord]:
        """A line for each warning that came again, and whose interval is over."""
        if now_s < self._ends_s:
            return []
        lines = []
        for key, known in list(self._known.items()):
            if known.ends_s > now_s:
                continue
            if not known.count:
                del self._known[key]
                continue
            lines.append(_counted(known.latest, known.count))
            known.count = 0
            known.interval_s = min(2 * known.interval_s, INTERVAL_MAX_S)
            known.ends_s = now_s + known.interval_s
        self._ends_s = min((known.ends_s for known in self._known.values()), default=float("inf"))
        return lines


def _gist(record: logging.LogRecord) -> object:
    """What makes two warnings the same: all but their numbers, which are seldom twice the same."""
    said = [(name, _words(value)) for name, value in fields_of(record).items()]
    return record.name, record.levelno, name_of(record), tuple(said)


def _words(value: Any) -> object:
    if isinstance(value, Mapping):
        return tuple((str(name), _words(item)) for name, item in value.items())
    return None if isinstance(value, (int, float)) else str(value)


def _counted(record: logging.LogRecord, count: int) -> logging.LogRecord:
    text = name_of(record)
    fields = {**fields_of(record), "count" if text == LEFT_OUT else "repeated": count}
    return _line(record.name, record.levelno, text, fields)


def _line(name: str, level: int, text: str, fields: dict[str, Any]) -> logging.LogRecord:
    values = {"name": name, "levelno": level, "levelname": logging.getLevelName(level), "msg": text}
    return logging.makeLogRecord({**values, FIELDS: fields})


class EventHandler(logging.StreamHandler[TextIO]):
    """Writes events to a stream, repeated warnings more and more seldom. For any thread.

    A timer thread writes the counts of a burst that nothing follows; there is at most one.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._repetition = Repetition()
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self._write_due()
        if record.levelno < logging.WARNING or self._repetition.admit(record, self._clock()):
            super().emit(record)
        else:
            self._set_timer()

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
            if self._repetition.has_counted:
                self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is None:
            wait_s = max(0.0, self._repetition.ends_s - self._clock())
            self._timer = threading.Timer(wait_s, self._alarm)
            self._timer.daemon = True
            self._timer.start()

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
