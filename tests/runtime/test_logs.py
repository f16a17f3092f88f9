"""Logs: the two formats, what is quoted, and warnings that repeat themselves."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from totempole.runtime import logs
from totempole.runtime.logs import DISTINCT_MAX, EventHandler, TextFormatter, event
from totempole.structured_log import field_text
from totempole.types import RingId


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    logs.stop_logging()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def logger(stream: io.StringIO, clock: Clock) -> Iterator[logging.Logger]:
    handler = EventHandler(stream, clock)
    handler.setFormatter(TextFormatter())
    logger = logging.Logger("totempole.test")
    logger.addHandler(handler)
    yield logger
    handler.close()


def lines(stream: io.StringIO) -> list[str]:
    """Without the times."""
    return [line.split(" ", 1)[1] for line in stream.getvalue().splitlines()]


def test_a_line_for_eyes(stream: io.StringIO) -> None:
    logger = logs.start_logging("info", "text", stream)
    event(logger, logging.INFO, "ring installed", ring=RingId(8, 1), members=(1, 2, 3))
    event(logger, logging.WARNING, "unsealed")
    first, second = stream.getvalue().splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info    ring installed ring=8@1 members=1,2,3", first
    )
    assert second.endswith("Z warning unsealed")


def test_a_line_of_json(stream: io.StringIO) -> None:
    logger = logs.start_logging("info", "json", stream)
    event(logger, logging.INFO, "ring installed", ring=RingId(8, 1), members=(1, 2), place=Path("/x"), of={1})
    data = json.loads(stream.getvalue())
    assert data.pop("at").endswith("Z")
    assert data == {
        "level": "info",
        "event": "ring installed",
        "ring": "8@1",
        "members": [1, 2],
        "place": "/x",
        "of": [1],
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("word", "word"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ("line\nforged info", '"line\\nforged info"'),
        ("\x1b[31m", '"\\u001b[31m"'),
        (True, "yes"),
        (1.50, "1.5"),
        ((), "none"),
        ({3, 1, 2}, "1,2,3"),
        ({"a": 1, "b": 2}, "a:1,b:2"),
        (None, "None"),
    ],
)
def test_values_are_one_word(value: Any, text: str) -> None:
    assert field_text(value) == text


def test_what_is_below_the_level_is_not_logged(stream: io.StringIO) -> None:
    logger = logs.start_logging("warning", "text", stream)
    event(logger, logging.INFO, "ring installed")
    assert stream.getvalue() == ""


def test_a_field_cannot_pass_for_a_column(stream: io.StringIO) -> None:
    logger = logs.start_logging("info", "json", stream)
    event(logger, logging.INFO, "forged", level="error", at="never", event="other")
    data = json.loads(stream.getvalue())
    assert (data["level"], data["event"], data["level_"], data["at_"]) == ("info", "forged", "error", "never")


@pytest.mark.parametrize("style", ["text", "json"])
def test_an_exception_stays_in_its_line(style: str, stream: io.StringIO) -> None:
    logger = logs.start_logging("info", style, stream)
    try:
        raise ValueError("no\ngood")
    except ValueError:
        logger.exception("the snapshot failed")
    assert stream.getvalue().count("\n") == 1
    assert "ValueError: no" in stream.getvalue()


def test_setting_up_again_replaces(stream: io.StringIO) -> None:
    logger = logs.start_logging("info", "text", io.StringIO())
    logger = logs.start_logging("info", "text", stream)
    event(logger, logging.INFO, "once")
    assert len(lines(stream)) == 1


def test_a_repeated_warning_is_counted(stream: io.StringIO, clock: Clock, logger: logging.Logger) -> None:
    for _ in range(1000):
        event(logger, logging.WARNING, "packet dropped", reason="cluster")
    event(logger, logging.WARNING, "packet dropped", reason="version")
    assert lines(stream) == [
        "warning packet dropped reason=cluster",
        "warning packet dropped reason=version",
    ]
    clock.now_s += 1
    event(logger, logging.WARNING, "packet dropped", reason="cluster")
    assert lines(stream)[2:] == ["warning packet dropped reason=cluster repeated=999"]
    clock.now_s += 2
    event(logger, logging.INFO, "ring installed")
    assert lines(stream)[3:] == [
        "warning packet dropped reason=cluster repeated=1",
        "info    ring installed",
    ]
    clock.now_s += 4
    event(logger, logging.INFO, "ring installed")
    assert lines(stream)[5:] == ["info    ring installed"]


def test_a_warning_without_end_is_written_more_and_more_seldom(
    stream: io.StringIO, clock: Clock, logger: logging.Logger
) -> None:
    """After 1, 2, 4 … seconds, at last once a minute, and no occurrence is lost."""
    written: list[float] = []
    seen = 0
    for tick in range(4 * 300):
        clock.now_s = tick / 4
        event(logger, logging.WARNING, "packets dropped", reasons={"seal": tick})
        if len(lines(stream)) > seen:
            seen = len(lines(stream))
            written.append(clock.now_s)
    assert written == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]
    logger.handlers[0].close()
    told = [int(line.rpartition("repeated=")[2]) for line in lines(stream) if "repeated" in line]
    assert 1 + sum(told) == 4 * 300


def test_numbers_do_not_make_a_warning_another(
    stream: io.StringIO, clock: Clock, logger: logging.Logger
) -> None:
    for late_ms in (60, 70, 80):
        event(logger, logging.WARNING, "event loop lag", ms=late_ms)
        event(logger, logging.WARNING, "packets dropped", reasons={"seal": late_ms})
    clock.now_s += 1
    event(logger, logging.INFO, "quiet")
    assert lines(stream) == [
        "warning event loop lag ms=60",
        "warning packets dropped reasons=seal:60",
        "warning event loop lag ms=80 repeated=2",
        "warning packets dropped reasons=seal:80 repeated=2",
        "info    quiet",
    ]


def test_news_is_never_held_back(stream: io.StringIO, logger: logging.Logger) -> None:
    for _ in range(3):
        event(logger, logging.INFO, "ring installed")
    assert len(lines(stream)) == 3


def test_after_a_silence_a_warning_is_written_at_once(
    stream: io.StringIO, clock: Clock, logger: logging.Logger
) -> None:
    event(logger, logging.WARNING, "late", by_ms=60)
    clock.now_s += 5
    event(logger, logging.WARNING, "late", by_ms=60)
    assert lines(stream) == ["warning late by_ms=60"] * 2


def test_what_is_remembered_has_a_maximum(stream: io.StringIO, clock: Clock, logger: logging.Logger) -> None:
    for number in range(DISTINCT_MAX + 10):
        event(logger, logging.WARNING, "forged", source=f"10.0.0.{number}")
    assert len(lines(stream)) == DISTINCT_MAX
    clock.now_s += 1
    event(logger, logging.INFO, "quiet")
    assert lines(stream)[DISTINCT_MAX:] == ["warning warnings left out count=10", "info    quiet"]


def test_closing_writes_what_was_counted(stream: io.StringIO, logger: logging.Logger) -> None:
    for _ in range(5):
        event(logger, logging.WARNING, "late")
    logger.handlers[0].close()
    assert lines(stream) == ["warning late", "warning late repeated=4"]


def test_a_burst_that_nothing_follows_is_told_by_the_timer(
    stream: io.StringIO, clock: Clock, logger: logging.Logger
) -> None:
    for _ in range(3):
        event(logger, logging.WARNING, "late")
    handler = logger.handlers[0]
    assert isinstance(handler, EventHandler)
    clock.now_s += 1
    handler._alarm()
    assert lines(stream) == ["warning late", "warning late repeated=2"]


def test_a_standard_formatter_shows_name_and_fields() -> None:
    """The logger of a program that embeds a node has a formatter of its own."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
    logger = logging.Logger("kv")
    logger.addHandler(handler)
    event(logger, logging.INFO, "regular configuration", ring=RingId(8, 1), members=(1, 2, 3))
    assert stream.getvalue() == "INFO kv regular configuration ring=8@1 members=1,2,3\n"
