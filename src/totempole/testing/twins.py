"""Does a class do the same in every process? Replicated objects must.

    def test_the_bank_is_the_same_everywhere() -> None:
        twins(Bank, [(Bank.deposit, "ann", 10), (Bank.transfer, "ann", "bob", 5)])

The commands are applied in two processes that differ in all that processes differ in: hash seed, clock, time
zone, random numbers, addresses. One of them is restored from its own snapshot every few commands. After each
command the outcomes and all attributes are compared. A method that reads the clock, draws random numbers of
its own, iterates a set or uses id() is found, if it shows in the state or in an outcome.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from totempole.errors import ObjectError
from totempole.objects.commands import ObjectType
from totempole.objects.records import Calls, Kind, Opened, encode

TWIN = os.path.join(os.path.dirname(__file__), "twin.py")
"""Run as a file: as a module of its package it would have to wait for the whole simulator."""
TIMEOUT_S = 60.0
RESTORE_EVERY = 7
HASH_SEEDS = ("1", "4242")
ZONES = ("Etc/GMT+12", "Etc/GMT-14")
"""26 hours apart: it is another day there."""
CLIENT = "twins"
SHOWN_MAX = 300
"""Characters of a value in a report."""


class TwinsDiffer(AssertionError):
    """The processes hold different states, or had different outcomes."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(str(difference))
        self.difference = difference


@dataclass(frozen=True, slots=True)
class Difference:
    class_name: str
    number: int
    """Of the command, from 1. 0: the new object differs before any command."""
    command: str
    attributes: dict[str, tuple[str, str]]
    """What each of the two holds, by the attribute's name."""
    outcomes: tuple[str, str] | None
    suspects: tuple[str, ...]
    """What the command has called whose answer is different in every process."""
    is_restored: bool
    """The second process was restored from its snapshot just before it was compared."""

    def __str__(self) -> str:
        when = f"after command {self.number}, {self.command}" if self.number else "before any command"
        lines = [f"{self.class_name} is not the same in two processes {when}:"]
        if self.outcomes is not None:
            lines.append(f"  outcome: {_short(self.outcomes[0])}  |  {_short(self.outcomes[1])}")
        for name, (one, other) in self.attributes.items():
            lines.append(f"  .{name}: {_around(one, other)}  |  {_around(other, one)}")
        if self.suspects:
            lines.append(f"  it has called {', '.join(self.suspects)}")
        elif self.is_restored:
            lines.append("  the second was restored from its snapshot: not all of the state is in it")
        else:
            lines.append("  does it iterate a set, or depend on hashes or addresses?")
        return "\n".join(lines)


def twins(
    cls: type[Any],
    commands: Iterable[Sequence[Any]],
    *,
    restore_every: int = RESTORE_EVERY,
    timeout: float = TIMEOUT_S,
) -> int:
    """How many commands were compared. Raises TwinsDiffer at the first that differs.

    A command is (method, argument, …); the method may be a `functools.partial` with keyword arguments.
    `restore_every`: 0 for never.
    """
    object_type = ObjectType.of(cls)
    opened = Opened(object_type.name, object_type.version, object_type.limits)
    payloads, shown = [encode(opened)], [""]
    for number, (method, *arguments) in enumerate(commands, 1):
        payloads.append(_payload(object_type, number, method, arguments))
        shown.append(_shown(method, arguments))
    task = _task(cls, payloads, restore_every)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(_run, task | {"twin": twin}, twin, timeout) for twin in (0, 1)]
        one, other = (run.result() for run in runs)
    difference = _compare(object_type, shown, one, other)
    if difference is not None:
        raise TwinsDiffer(difference)
    return len(payloads) - 1


def _payload(object_type: ObjectType[Any], number: int, method: Any, arguments: Sequence[Any]) -> bytes:
    inner, keywords = (method.func, method.keywords) if isinstance(method, partial) else (method, {})
    call = object_type.encode_call(inner, arguments, keywords, number=number)
    return encode(Calls(CLIENT, 0, 0, object_type.version, (call,)))


def _shown(method: Any, arguments: Sequence[Any]) -> str:
    inner: Callable[..., Any] = method.func if isinstance(method, partial) else method
    words = [_short(repr(each)) for each in arguments]
    words += [f"{name}={value!r}" for name, value in getattr(method, "keywords", {}).items()]
    return f"{getattr(inner, '__name__', inner)}({', '.join(words)})"


def _task(cls: type[Any], payloads: list[bytes], restore_every: int) -> dict[str, Any]:
    if "<locals>" in cls.__qualname__:
        raise ObjectError(
            f"{cls.__qualname__}: a class inside a function cannot be imported by another process"
        )
    try:
        file = os.path.abspath(inspect.getfile(cls))
    except (TypeError, OSError):
        raise ObjectError(f"{cls.__qualname__} is in no file: define it in a module") from None
    return {
        "module": cls.__module__,
        "file": file,
        "class": cls.__qualname__,
        "path": [os.path.abspath(entry) for entry in sys.path],
        "payloads": [b64encode(payload).decode() for payload in payloads],
        "time_us": time.time_ns() // 1_000,
        "restore_every": restore_every,
    }


def _run(task: dict[str, Any], twin: int, timeout: float) -> list[dict[str, Any]]:
    # The first is never restored: what a snapshot loses must show.
    task = task | {"restore_every": task["restore_every"] if twin else 0}
    environment = os.environ | {"PYTHONHASHSEED": HASH_SEEDS[twin], "TZ": ZONES[twin]}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        done = subprocess.run(
            [sys.executable, TWIN],
            input=json.dumps(task),
            capture_output=True,
            text=True,
            timeout=timeout,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ObjectError(f"{task['class']}: its commands have not ended within {timeout:g} s") from None
    if done.returncode:
        raise ObjectError(f"{task['class']}: a process that applies its commands has failed:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def _compare(
    object_type: ObjectType[Any], shown: list[str], one: list[dict[str, Any]], other: list[dict[str, Any]]
) -> Difference | None:
    holds: tuple[dict[str, str], dict[str, str]] = {}, {}
    for number, lines in enumerate(zip(one, other, strict=True)):
        for held, line in zip(holds, lines, strict=True):
            held.update(line["changed"])
            for name in line["gone"]:
                del held[name]
        names = [name for name in {**holds[0], **holds[1]} if holds[0].get(name) != holds[1].get(name)]
        mine, theirs = (line["outcomes"] for line in lines)
        if names or mine != theirs:
            return Difference(
                object_type.cls.__name__,
                number,
                shown[number],
                {name: (holds[0].get(name, "nothing"), holds[1].get(name, "nothing")) for name in names},
                None if mine == theirs else (_outcome(mine), _outcome(theirs)),
                tuple(sorted({*lines[0]["suspects"], *lines[1]["suspects"]})),
                bool(lines[1]["restored"]),
            )
    return None


def _outcome(outcomes: list[list[Any]]) -> str:
    shown = []
    for kind, value in outcomes:
        content = bytes.fromhex(value)
        text = content.hex() if kind == Kind.DONE else content.decode("utf-8", "replace")
        shown.append(f"{Kind(kind).name.lower()} {text}")
    return ", ".join(shown) or "nothing"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"


def _around(text: str, other: str) -> str:
    """Of a long text, the part from a little before the first difference on."""
    first = next((place for place, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), 0)
    start = max(0, first - SHOWN_MAX // 4)
    return ("…" if start else "") + _short(text[start:])
