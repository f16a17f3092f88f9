"""Plain classes that histories are judged by, and the drawings that histories are written as.

A drawing has a line for each client. A call is in brackets, from the column in which it began to the column
in which it ended; `>` instead of the bracket: it never ended. `read=1` has the result 1; without `=` the
result is None.

    A: [write 1      ]
    B:    [read=1] [read=1]
    C:  [write 2 >
"""

from __future__ import annotations

import re
from typing import Any

from totempole.checkers.class_model import ClassModel, Raised
from totempole.checkers.linearizability import Call


class Refused(Exception):
    pass


class Register:
    def __init__(self) -> None:
        self.value = 0

    def read(self) -> int:
        return self.value

    def write(self, value: int) -> None:
        self.value = value

    def cas(self, old: int, new: int) -> bool:
        if self.value != old:
            return False
        self.value = new
        return True

    def add(self, count: int) -> int:
        self.value += count
        return self.value


class Store:
    def __init__(self) -> None:
        self.entries: dict[str, int] = {}

    def put(self, key: str, value: int) -> None:
        self.entries[key] = value

    def get(self, key: str) -> int | None:
        return self.entries.get(key)

    def delete(self, key: str) -> bool:
        return self.entries.pop(key, None) is not None

    def add(self, key: str, count: int) -> int:
        self.entries[key] = self.entries.get(key, 0) + count
        return self.entries[key]


class Lock:
    def __init__(self) -> None:
        self.holder: str | None = None

    def acquire(self, who: str) -> bool:
        if self.holder is not None:
            return False
        self.holder = who
        return True

    def release(self, who: str) -> None:
        if self.holder != who:
            raise Refused("not the holder")
        self.holder = None

    def owner(self) -> str | None:
        return self.holder


class Queue:
    def __init__(self) -> None:
        self.items: list[int] = []

    def put(self, item: int) -> None:
        self.items.append(item)

    def take(self) -> int | None:
        return self.items.pop(0) if self.items else None

    def size(self) -> int:
        return len(self.items)


READS = {"read", "get", "owner", "size"}
WITHOUT_EFFECT = {"cas": False, "delete": False, "acquire": False, "take": None}
"""With this result the call has changed nothing."""


def is_read(call: Call) -> bool:
    if call.operation in READS or isinstance(call.result, Raised):
        return True
    return call.operation in WITHOUT_EFFECT and call.result is WITHOUT_EFFECT[call.operation]


MODELS = {
    "register": ClassModel(Register, is_read=is_read),
    "store": ClassModel(Store, key=lambda call: call.arguments[0], is_read=is_read),
    "whole store": ClassModel(Store, is_read=is_read),
    "lock": ClassModel(Lock, is_read=is_read),
    "queue": ClassModel(Queue, is_read=is_read),
}
"""With all that can make a search short."""
CLASSES: dict[str, type] = {
    "register": Register,
    "store": Store,
    "whole store": Store,
    "lock": Lock,
    "queue": Queue,
}

CALL = re.compile(r"\[(?P<text>[^\]>]*)(?P<end>[\]>])")


def drawn(drawing: str) -> list[Call]:
    calls = []
    for line in filter(str.strip, drawing.splitlines()):
        client = line.split(":")[0].strip()
        for match in CALL.finditer(line):
            text, _, result = match["text"].strip().partition("=")
            operation, *words = text.split()
            ended = match.end() if match["end"] == "]" else None
            arguments = tuple(map(_value, words))
            calls.append(Call(client, operation, arguments, match.start(), ended, _value(result.strip())))
    return calls


def _value(word: str) -> Any:
    if word == "refused":
        return Raised("Refused", "not the holder")
    named = {"": None, "none": None, "yes": True, "no": False}
    return named[word] if word in named else int(word) if word.lstrip("-").isdigit() else word
