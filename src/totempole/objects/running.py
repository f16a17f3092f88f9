"""One command, run on the state: whatever the method does, it becomes an outcome that is the same everywhere.

The exceptions are what depends on the process and not on the order: no memory, no stack, an interruption by
the keyboard, a SQLite database whose disk fails. They are raised as `Interrupted`.
"""

from __future__ import annotations

import re
from typing import Any

from totempole.errors import CannotCarryError
from totempole.objects.codec import write
from totempole.objects.commands import Command, Refused
from totempole.objects.ordered import Moment
from totempole.objects.records import Call, Kind

DONE, REFUSED, RAISED = Kind.DONE, Kind.REFUSED, Kind.RAISED

TEXT_BYTES_MAX = 4_096
"""Of an exception, or a refusal."""

OUT_OF_STACK = b"RecursionError: it ran out of stack"

PROCESS_ERRORS = (MemoryError, RecursionError, KeyboardInterrupt)

SQLITE_PROCESS_ERRORS = frozenset((5, 6, 7, 8, 10, 11, 13, 14, 22, 26))
"""SQLite's codes for busy, locked, no memory, read-only, I/O error, corrupt, full, cannot open, no large
files, and no database (`sqlite3.SQLITE_BUSY` and so on)."""

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{4,}")


class Interrupted(BaseException):
    """The command was left in the middle, at a place that no other host can know."""

    def __init__(self, token: int, cause: BaseException) -> None:
        super().__init__(token)
        self.token = token
        self.cause = cause


def run(
    command: Command, state: Any, call: Call, moment: Moment, result_bytes_max: int
) -> tuple[Kind, bytes]:
    try:
        arguments = command.decode_quickly(call.arguments)
    except Exception:
        try:
            arguments = command.decode(call.arguments)
        except CannotCarryError as error:
            return Kind.WRONG_ARGUMENTS, f"{command.name}: {error}".encode()
    try:
        result = command.call(state, *arguments)
    except Refused as error:
        return REFUSED, _text(error)
    except PROCESS_ERRORS as error:
        raise Interrupted(moment.token, error) from error
    except BaseException as error:
        if _is_of_process(error):
            raise Interrupted(moment.token, error) from error
        return RAISED, _named(error)
    if type(result) in command.quick_results:
        try:
            value = write(result)
        except OverflowError:
            value = command.result.encode(result)
        except UnicodeEncodeError as error:
            return RAISED, _named(error)
    else:
        try:
            value = command.result.encode_checked(result)
        except PROCESS_ERRORS as error:
            raise Interrupted(moment.token, error) from error
        except BaseException as error:
            return RAISED, f"{type(error).__name__}: the result of {command.name}: ".encode() + _text(error)
    if len(value) > result_bytes_max:
        return RAISED, f"CannotCarryError: the result has {len(value)} bytes, of {result_bytes_max}".encode()
    return DONE, value


def _is_of_process(error: BaseException) -> bool:
    """Without an import of sqlite3, which few need."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in SQLITE_PROCESS_ERRORS


def part(kind: Kind, value: bytes) -> bytes:
    """What goes into the chain of outcomes of a call that is not done. Of an exception only its name: the
    text may be another in another version of Python."""
    shown = value.partition(b":")[0] if kind is RAISED else value if kind is REFUSED else b""
    return b"\xc1%d" % kind + shown + b"\xc1"


def _named(error: BaseException) -> bytes:
    text = _text(error)
    name = type(error).__name__.encode()
    return name + b": " + text if text else name


def _text(error: BaseException) -> bytes:
    """Without addresses in memory, which are others in every process."""
    try:
        text = str(error)
    except PROCESS_ERRORS:
        raise
    except BaseException:
        text = "its text cannot be read"
    shown = _ADDRESS.sub("0x…", text[:TEXT_BYTES_MAX])
    return shown.encode("utf-8", "backslashreplace")[:TEXT_BYTES_MAX]
