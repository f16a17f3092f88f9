"""What programs wrote down of their calls (totempole.lab.object_program), and its judges.

Each object's class is its own sequential model. Fencing tokens and the numbers of items depend on the place
in the order, which a history does not tell: there a model takes what the caller was told, asks that it is
higher than all before, and holds everybody to it from then on.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from totempole.lab.object_program import LEASE_S, OBJECTS, REFUSED, as_recorded, plain, read_lines
from totempole.log.reader import LogReader
from totempole.objects import Counter, Lease, Lock, Queue, ReplicatedDict, ordered, records
from totempole.objects.commands import Refused
from totempole.objects.hosting import log_name
from totempole.objects.machine import ObjectMachine
from totempole.testing import Call, ClassModel, Raised

SAYS_NO = Raised(REFUSED, "")
READS = frozenset({"get", "owner", "size"})
WITHOUT_EFFECT = {"compare_and_set": False, "take": None, "pop": None}
"""With this result the call has changed nothing."""

_told: ContextVar[Any] = ContextVar("told")
"""What the caller of this call was told; None: nothing."""


class LockModel(Lock):
    """The token of a lease whose owner was never told is 0, until the owner is told."""

    def __init__(self) -> None:
        super().__init__()
        self.highest = 0

    def acquire(self, name: str, owner: str, seconds: float = LEASE_S) -> int:
        told = _told.get() or 0
        before = self.leases.get(name)
        if before is not None and before.owner == owner and not before.token:
            self._check(told)
            self.leases[name] = Lease(owner, told, before.until_us)
            return told
        with ordered.at(position=told // ordered.CALLS_PER_POSITION, index=told % ordered.CALLS_PER_POSITION):
            token: int = _quietly(lambda: Lock.acquire(self, name, owner, seconds))
        if before is None:
            self._check(told)
        return token

    def release(self, name: str, token: int) -> None:
        with ordered.at():
            _quietly(lambda: Lock.release(self, name, token))

    def owner(self, name: str) -> str | None:
        lease = self.leases.get(name)
        return None if lease is None else lease.owner

    def _check(self, token: int) -> None:
        if token:
            assert token > self.highest, f"token {token} comes after {self.highest}"
            self.highest = token


class QueueModel:
    """Items have the numbers 1, 2, 3 in the model; `told` are those that callers know."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.calls = 0
        self.told: dict[int, int] = {}
        self.tokens: dict[int, tuple[int, int]] = {}
        """Of items that are taken: as the caller was told, and in the model."""

    def put(self, value: str) -> int:
        item = self._call(lambda: self.queue.put(value))
        self.told[item] = _told.get() or 0
        return self.told[item]

    def take(self) -> list[Any] | None:
        work = self._call(lambda: self.queue.take(LEASE_S))
        if work is None:
            return None
        item, token, _ = _told.get() or (0, 0, None)
        self.told[work.item] = self.told[work.item] or item
        self.tokens[work.item] = token, work.token
        return [self.told[work.item], token, work.value]

    def done(self, item: int, token: int) -> None:
        for own, (told, own_token) in self.tokens.items():
            if (self.told[own], told) == (item, token):
                self._call(partial(self.queue.done, own, own_token))
                del self.tokens[own]
                return
        raise Refused

    def size(self) -> int:
        return self.queue.size()

    def _call(self, command: Callable[[], Any]) -> Any:
        self.calls += 1
        with ordered.at(position=self.calls):
            return _quietly(command)


def _quietly(command: Callable[[], Any]) -> Any:
    """A refusal without its text, which has times in it."""
    try:
        return command()
    except Refused:
        raise Refused from None


@contextmanager
def _telling(call: Call) -> Iterator[None]:
    mark = _told.set(None if isinstance(call.result, Raised) else call.result)
    try:
        yield
    finally:
        _told.reset(mark)


def _is_read(call: Call) -> bool:
    if call.operation in READS or call.result == SAYS_NO:
        return True
    return call.operation in WITHOUT_EFFECT and call.result is WITHOUT_EFFECT[call.operation]


def _key(call: Call) -> Any:
    return call.arguments[0]


MODELS = {
    "dict": ClassModel(ReplicatedDict, key=_key, is_read=_is_read),
    "lock": ClassModel(LockModel, key=_key, is_read=_is_read, around=_telling),
    "queue": ClassModel(QueueModel, is_read=_is_read, around=_telling),
    "counter": ClassModel(Counter, is_read=_is_read),
}


def read_histories(directory: Path) -> dict[str, list[Call]]:
    """Of each object: the calls of all programs."""
    found: dict[str, list[Call]] = {name: [] for name in MODELS}
    for path in sorted(directory.glob("*.calls")):
        calls: dict[int, tuple[str, Call]] = {}
        for kind, number, *rest in read_lines(path):
            if kind == "begin":
                began, name, operation, arguments = rest
                calls[number] = name, Call(path.stem, operation, tuple(arguments), began)
            elif kind == "drop":
                del calls[number]
            elif kind != "receipt":
                name, call = calls[number]
                assert call.ended is None, f"{path.name}: call {number} has ended twice"
                calls[number] = name, _ended(call, kind, *rest)
        for name, call in calls.values():
            found[name].append(call)
    return found


def _ended(call: Call, kind: str, ended: float, result: Any, position: int | None = None) -> Call:
    if kind == "raised":
        assert result == REFUSED, f"{call} has raised {result}"
        result = SAYS_NO
    return replace(call, ended=ended, result=result)


def with_places(histories: dict[str, list[Call]], log: Path) -> dict[str, list[Call]]:
    """Calls with their places in the order as hints, as far as the log of a replica tells: they make the
    search short, and are not believed."""
    places = {name: _places(name, log) for name in histories}
    return {
        name: [replace(call, hint=places[name].get(_name_of(call))) for call in calls]
        for name, calls in histories.items()
    }


_CallName = tuple[str, tuple[Any, ...], str]


def _name_of(call: Call) -> _CallName:
    return call.operation, call.arguments, "?" if call.is_pending else repr(call.result)


def _places(name: str, log: Path) -> dict[_CallName, float]:
    """Of those who have called the same and were told the same, only the first has changed something."""
    machine: ObjectMachine[Any] = ObjectMachine(OBJECTS[name])
    found: dict[_CallName, float] = {}
    for record in LogReader(log).records():
        if record.log != log_name(name):
            continue
        content = records.decode(record.payload)
        outcomes = machine.apply(record.payload, record.position, record.time_us)
        for index, outcome in enumerate(outcomes):
            assert isinstance(content, records.Calls), "only they have outcomes"
            method = content.calls[index].method
            command = machine.object_type.command_of(method)
            arguments = as_recorded(method, tuple(command.decode(content.calls[index].arguments)))
            place = record.position + index / ordered.CALLS_PER_POSITION
            if outcome.position == record.position:  # otherwise it was applied before
                told = SAYS_NO if outcome.kind else plain(command.result.decode(outcome.value))
                for result in ("?", repr(told)):
                    found.setdefault((method, arguments, result), place)
    return found


# Exactly once, and tokens


def check_counts(histories: dict[str, list[Call]], counter: int, queue: Iterable[str]) -> None:
    """What is left in the end is what was called: each call once, and one that nobody knows of at most
    once."""
    adds = [call for call in histories["counter"] if call.operation == "add"]
    sums = [call.result for call in adds if not call.is_pending]
    assert len(set(sums)) == len(sums), "two calls were told the same sum"
    assert len(sums) <= counter <= len(adds), f"{len(sums)} of {len(adds)} calls ended, the sum is {counter}"
    puts = {call.arguments[0]: call for call in histories["queue"] if call.operation == "put"}
    takes = [call for call in histories["queue"] if call.operation == "take" and call.result is not None]
    lost = [call for call in histories["queue"] if call.operation != "put" and call.is_pending]
    left, taken = Tally(queue), Tally(call.result[2] for call in takes)
    assert set(left) | set(taken) <= set(puts), "the queue has what nobody put there"
    assert max([*left.values(), *taken.values()], default=1) == 1, (
        "an item is there twice, or was taken twice"
    )
    missing = [value for value, call in puts.items() if not call.is_pending and value not in taken | left]
    assert len(missing) <= len(lost), f"items are gone: {missing}"


def check_tokens(histories: dict[str, list[Call]]) -> None:
    """Numbers grow over the whole order: of two calls one after the other, the second has the higher one."""
    told = [
        (call, call.result if call.operation == "put" else call.result[1])
        for call in histories["queue"]
        if call.operation in ("put", "take") and call.result is not None
    ]
    assert len({token for _, token in told}) == len(told), "two calls have the same token"
    by_end = sorted(told, key=lambda each: each[0].ended or 0.0)
    by_begin = sorted(told, key=lambda each: each[0].began)
    highest, ended = 0, 0
    for call, token in by_begin:
        while ended < len(by_end) and (by_end[ended][0].ended or 0.0) < call.began:
            highest = max(highest, by_end[ended][1])
            ended += 1
        assert token > highest, f"{call} was told {token}, after {highest}"
