"""The options of reading, checked before anything is asked of a replica. Kafka's names where they mean the
same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from totempole.client.appending import check_log_name
from totempole.errors import ConfigurationError, SessionError
from totempole.log.selection import LogSelection
from totempole.spark_table.access import OPTIONS as ACCESS_OPTIONS
from totempole.spark_table.access import STAGED, Access

COLUMNS = ("position", "time", "origin", "log", "message", "colour", "key", "payload")

OF_STREAMS = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "hold")
OF_BATCHES = ("endingOffsets",)
OPTIONS = (
    *ACCESS_OPTIONS,
    "subscribe",
    "columns",
    "startingOffsets",
    "failOnDataLoss",
    "minPartitions",
    *OF_BATCHES,
    *OF_STREAMS,
)

Offset = int | Literal["earliest", "latest"]
POSITION_MAX = 2**63 - 1


@dataclass(frozen=True)
class ReadOptions:
    access: Access
    selection: LogSelection
    columns: tuple[str, ...]
    starting: Offset | None
    """None: not given. A batch begins with the earliest, a stream with the latest."""
    ending: int | None
    """Of a batch. None: with the latest."""
    fails_on_data_loss: bool
    partitions_min: int
    """0: as the size says."""
    rows_max: int
    """Of a stream's batch. 0: no bound."""
    bytes_max: int
    """Likewise."""
    hold: str
    """The name of a hold that a stream moves; empty: none."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        check_known(options, OPTIONS)
        access = Access.of(options)
        access.check_replicas()
        starting = _offset(options, "startingOffsets", ("earliest", "latest"))
        ending = _offset(options, "endingOffsets", ("latest",))
        hold = options.get("hold", "")
        if hold:
            _check_hold(hold, access)
        return cls(
            access,
            _selection(options),
            _columns(options),
            starting,
            ending if isinstance(ending, int) else None,
            _flag(options, "failOnDataLoss", True),
            _count(options, "minPartitions"),
            _count(options, "maxOffsetsPerTrigger"),
            _count(options, "maxBytesPerTrigger"),
            hold,
        )

    @property
    def has_limit(self) -> bool:
        return bool(self.rows_max or self.bytes_max)


def check_known(options: Mapping[str, str], known: Iterable[str]) -> None:
    """ConfigurationError for an option that there is not, with the name that was meant, perhaps."""
    names = {name.lower(): name for name in known}
    for given in options:
        if given.lower() not in names:
            close = get_close_matches(given.lower(), names, 1)
            meant = f"did you mean {names[close[0]]}? " if close else ""
            raise ConfigurationError(
                f"option {given} is not known: {meant}The options are {', '.join(sorted(names.values()))}"
            )


def check_batch(options: Mapping[str, str]) -> None:
    for name in OF_STREAMS:
        if name in options:
            raise ConfigurationError(f"option {name} is for streams: use readStream, or leave it out")
    if options.get("startingOffsets", "").strip().lower() == "latest":
        raise ConfigurationError(
            "option startingOffsets = latest: a batch has nothing to read there; give earliest or a position"
        )


def check_stream(options: Mapping[str, str]) -> None:
    for name in OF_BATCHES:
        if name in options:
            raise ConfigurationError(
                f"option {name} is for batches: a stream has no end; use read, or trigger(availableNow=True)"
            )


def _offset(options: Mapping[str, str], name: str, words: tuple[str, ...]) -> Offset | None:
    text = options.get(name, "").strip().lower()
    if not text:
        return None
    if text in words:
        return "earliest" if text == "earliest" else "latest"
    if not (text.isascii() and text.isdecimal()) or int(text) > POSITION_MAX:
        raise ConfigurationError(f"option {name} = {text}: give {', '.join(words)} or a position from 0")
    return int(text)


def _count(options: Mapping[str, str], name: str) -> int:
    text = options.get(name, "").strip()
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text) <= POSITION_MAX:
        raise ConfigurationError(f"option {name} = {text}: give a whole number from 1")
    return int(text)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"option {name} = {text}: give true or false")
    return text == "true"


def _words(options: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple([word for word in map(str.strip, options.get(name, "").split(",")) if word])


def _selection(options: Mapping[str, str]) -> LogSelection:
    """Without `subscribe`: all logs but those that rows wait in."""
    logs = _words(options, "subscribe")
    if not logs:
        if "subscribe" in options:
            raise ConfigurationError("option subscribe is empty: give names of logs, or leave it out for all")
        return LogSelection(without=STAGED)
    for log in logs:
        try:
            check_log_name(log)
        except SessionError as error:
            raise ConfigurationError(f"option subscribe: {error}") from None
    return LogSelection(tuple(dict.fromkeys(logs)))


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    columns = _words(options, "columns")
    if not columns:
        if "columns" in options:
            raise ConfigurationError(f"option columns is empty: give some of {', '.join(COLUMNS)}")
        return COLUMNS
    for column in columns:
        if column not in COLUMNS:
            raise ConfigurationError(f"option columns: {column} is none of {', '.join(COLUMNS)}")
        if columns.count(column) > 1:
            raise ConfigurationError(f"option columns: {column} is there twice")
    return columns


def _check_hold(hold: str, access: Access) -> None:
    try:
        check_log_name(hold)
    except SessionError as error:
        raise ConfigurationError(f"option hold: {error}") from None
    if not access.daemons:
        raise ConfigurationError(
            f"option hold = {hold}: a hold is set by a daemon; give the option daemons, "
            '"host:port,…" as the setting clients.listen of the nodes has it, or the path of a socket'
        )
