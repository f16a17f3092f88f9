"""What log-reading.md says: the programs are programs, verbs, settings and calls are there."""

from __future__ import annotations

import re
from pathlib import Path

import totempole
from totempole.cli.log import VERBS
from totempole.cli.log_rescue import FLAG
from totempole.client import blocking_feed
from totempole.client.feeding import BYTES_MAX
from totempole.client.log_records import LogBatch, Record
from totempole.daemon.config import ClientsConfig
from totempole.daemon.connection import FOLLOWS_MAX
from totempole.runtime.log_child import NICE
from totempole.runtime.log_config import LogSection
from totempole.session.log_frames import log_socket_of
from totempole.settings import settings_of

PAGE = (Path(__file__).parents[2] / "docs/log-reading.md").read_text(encoding="utf-8")


def rows(title: str) -> list[str]:
    """The first cells of the tables below a title."""
    text = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]


def test_the_programs_are_programs() -> None:
    for text in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        compile(text, "log-reading.md", "exec")
        for name in re.findall(r"totempole\.(\w+)", text):
            assert hasattr(totempole, name)


def test_every_verb_is_told_of_once() -> None:
    told = re.findall(r"`(\w+)", " ".join(rows("`totem log`")))
    assert sorted(told) == sorted(verb.name for verb in VERBS)
    assert FLAG in PAGE


def test_feeds_are_as_they_are_told_of() -> None:
    text = PAGE.split("\n## Fresh: fed by the daemon\n")[1].split("\n## ")[0]
    for name in set(re.findall(r"`feed\.(\w+)", text)) - {"next"}:
        assert hasattr(totempole.Feed, name), name
        assert hasattr(blocking_feed.Feed, name), name
    assert f"follow {FOLLOWS_MAX} of them" in text
    assert BYTES_MAX == 16 * 1024 * 1024
    for name in set(re.findall(r"`(test_\w+\.py)`", text)):
        assert list(Path(__file__).parents[1].rglob(name)), name


def test_settings_fields_and_numbers_are_true() -> None:
    for row in rows("The log service"):
        names, place = re.findall(r"`(\w+…?)`", row), "[log]" if "[log]" in row else "[clients]"
        known = settings_of(LogSection if place == "[log]" else ClientsConfig)
        for name in names:
            assert name.endswith("…") or name in known, name
    for name in Record._fields:
        assert f"`{name}`" in PAGE
    assert {"positions", "payloads", "keys", "time_us", "run"} <= set(LogBatch.__slots__)
    assert f"`nice` {NICE}" in PAGE
    assert log_socket_of(Path("clients.sock")).name in PAGE
