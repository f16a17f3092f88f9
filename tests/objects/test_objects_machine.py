"""What becomes of a call, whatever the method does and whoever has written the record."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from totempole.errors import CodecError, ObjectBrokenError, ObjectError, ObjectVersionError
from totempole.objects import ordered, records
from totempole.objects.commands import Refused, command
from totempole.objects.digests import NO_CHAIN, STATE_BYTES_PER_COMMAND, Digests
from totempole.objects.machine import ObjectMachine, RecordIgnored, StateNotCarried
from totempole.objects.records import (
    CALLS_MAX,
    HEAD,
    MARK,
    Call,
    Calls,
    Checkpoint,
    Digest,
    Kind,
    Knows,
    Limits,
    Opened,
    Outcome,
    Upgrade,
)


class Odd(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class Everything:
    object_limits = Limits(result_bytes_max=1_000, digest_every=1_000)
    shared: list[int]

    def __init__(self) -> None:
        self.shared = [1]

    @command
    def give(self) -> list[int]:
        return self.shared

    @command
    def big(self) -> int:
        return 2**100

    @command
    def wrong(self) -> int:
        return "no number"  # type: ignore[return-value]

    @command
    def unknown(self):  # type: ignore[no-untyped-def]
        return object()

    @command
    def too_large(self) -> bytes:
        return bytes(1_000)

    @command
    def surrogate(self) -> str:
        return "\ud800"

    @command
    def refuse(self, text: str) -> None:
        raise Refused(text)

    @command
    def divide(self, by: int) -> float:
        self.shared.append(by)
        return 1 / by

    @command
    def show(self) -> None:
        raise ValueError(f"{object()} of {self}")

    @command
    def odd(self) -> None:
        raise Odd

    @command
    def interrupt(self) -> None:
        raise KeyboardInterrupt

    @command
    def by_name(self, first: int, *, second: int = 2, third: int = 3) -> tuple[int, int, int]:
        return first, second, third

    @command
    def where(self) -> tuple[int, int, int, str, int, float]:
        moment = (ordered.position(), ordered.token(), ordered.time_us(), ordered.caller(), ordered.version())
        return (*moment, ordered.time())


def opened(cls: type = Everything) -> ObjectMachine[Any]:
    machine = ObjectMachine(cls)
    opening = machine.opening()
    assert opening is not None
    machine.apply(opening, 0, 1_000)
    assert machine.opening() is None
    machine.take_events()
    return machine


def one(machine: ObjectMachine[Any], method: str, *args: Any, **kwargs: Any) -> Outcome:
    number = machine.commands + 1
    call = machine.object_type.encode_call(method, args, kwargs, number=number)
    record = Calls("me", 0, number - 1, machine.version, (call,))
    return machine.apply(records.encode(record), machine.applied, 2_000)[0]


def result(machine: ObjectMachine[Any], method: str, *args: Any, **kwargs: Any) -> Any:
    return machine.object_type.decode_result(method, one(machine, method, *args, **kwargs))


def test_results() -> None:
    machine = opened()
    given = result(machine, "give")
    given.append(2)
    assert machine.state.shared == [1], "a caller has a copy"
    assert result(machine, "big") == 2**100
    assert result(machine, "by_name", 1, third=5) == (1, 2, 5)
    assert result(machine, "where") == (4, 4 * 65_536, 2_000, "me", 1, 0.002)


@pytest.mark.parametrize(
    ("method", "args", "kind", "text"),
    [
        ("wrong", (), Kind.RAISED, "CannotCarryError: the result of wrong: Expected `int`, got `str`"),
        (
            "unknown",
            (),
            Kind.RAISED,
            "CannotCarryError: the result of unknown: an object without an annotation",
        ),
        ("too_large", (), Kind.RAISED, "CannotCarryError: the result has 1003 bytes, of 1000"),
        ("surrogate", (), Kind.RAISED, "UnicodeEncodeError"),
        ("refuse", ("not enough",), Kind.REFUSED, "not enough"),
        ("refuse", ("x" * 10_000,), Kind.REFUSED, "x" * 4_096),
        ("divide", (0,), Kind.RAISED, "ZeroDivisionError: division by zero"),
        ("show", (), Kind.RAISED, "ValueError: <object object at 0x…> of <"),
        ("odd", (), Kind.RAISED, "Odd: its text cannot be read"),
    ],
)
def test_whatever_a_method_does_is_an_outcome(method: str, args: Any, kind: Kind, text: str) -> None:
    machine, other = opened(), opened()
    outcome = one(machine, method, *args)
    assert outcome.kind is kind
    assert outcome.text.startswith(text)
    assert len(outcome.value) <= 4_096
    assert one(other, method, *args) == outcome
    assert result(machine, "by_name", 1) == (1, 2, 3), "it goes on"


def test_what_a_method_had_changed_before_it_raised_stays() -> None:
    """The same at every host, restored ones included."""
    machine = opened()
    one(machine, "divide", 0)
    assert machine.state.shared == [1, 0]
    assert ObjectMachine.restore(Everything, machine.snapshot()).state.shared == [1, 0]


def test_an_interruption_by_the_keyboard() -> None:
    machine = opened()
    with pytest.raises(KeyboardInterrupt):
        one(machine, "interrupt")
    with pytest.raises(ObjectBrokenError, match="KeyboardInterrupt"):
        one(machine, "give")


# Records of strangers


def raw(machine: ObjectMachine[Any], *calls: Call, client: str = "me", version: int = 1) -> list[Outcome]:
    return machine.apply(records.encode(Calls(client, 0, 0, version, calls)), machine.applied, 0)


def test_calls_that_no_caller_would_send() -> None:
    machine = opened()
    deep = b"\x91" * 900 + b"\x90"
    kinds = [
        each.kind
        for each in raw(
            machine,
            Call(1, "missing", b"\x90"),
            Call(2, "give", b"\x91\x01"),
            Call(3, "give", b""),
            Call(4, "give", b"\xc1\xc1"),
            Call(5, "divide", b"\x91\xa1x"),
            Call(6, "divide", deep),
            Call(7, "__init__", b"\x90"),
            Call(8, "by_name", b"\x91\x01"),
            Call(9, "x" * 10_000, b"\x90"),
            Call(10, "give", b"\x90"),
        )
    ]
    unknown, wrong = Kind.UNKNOWN_COMMAND, Kind.WRONG_ARGUMENTS
    assert kinds == [unknown, wrong, wrong, wrong, wrong, wrong, unknown, wrong, unknown, Kind.DONE]
    assert machine.state.shared == [1]
    assert all(len(each.value) < 1_000 for each in machine.table.clients["me"].outcomes.values())


@pytest.mark.parametrize(
    "record",
    [
        Calls("", 0, 0, 1, (Call(1, "give", b"\x90"),)),
        Calls("x" * 65, 0, 0, 1, (Call(1, "give", b"\x90"),)),
        Calls("a", -1, 0, 1, (Call(1, "give", b"\x90"),)),
        Calls("a", 2**63, 0, 1, (Call(1, "give", b"\x90"),)),
        Calls("a", 0, -1, 1, (Call(1, "give", b"\x90"),)),
        Calls("a", 0, 0, 1, ()),
        Calls("a", 0, 0, 1, (Call(1, "give", b"\x90"),) * (CALLS_MAX + 1)),
        Opened("Everything", 0, Limits()),
        Opened("Everything", 1, Limits(clients_max=0)),
        Knows("", 1),
        Knows("a", -1),
        Digest("", ()),
    ],
)
def test_records_with_numbers_that_cannot_be(record: records.Record) -> None:
    machine = opened()
    before = machine.digest()
    assert machine.apply(records.encode(record), 1, 0) == []
    assert isinstance(machine.take_events()[0], RecordIgnored)
    assert machine.applied == 2
    assert ObjectMachine.restore(Everything, machine.snapshot()).digest() != before, (
        "the position is part of it"
    )
    assert machine.commands == 0


@given(st.binary(max_size=60))
def test_any_record_is_taken_or_passed_over(content: bytes) -> None:
    machine = opened()
    for payload in (content, HEAD + content):
        if payload.startswith(MARK) and len(payload) > 2 and payload[2] > 1:
            continue
        position = machine.applied
        machine.apply(payload, position, 0)
        assert machine.applied == position + 1


def test_a_record_of_a_newer_format_stops_the_machine() -> None:
    machine = opened()
    for _ in range(2):
        with pytest.raises(ObjectVersionError, match="format 2, and this program knows 1"):
            machine.apply(MARK + b"\x02whatever", 1, 0)
    for old in (MARK, MARK + b"\x00", b""):
        with pytest.raises(CodecError):
            records.decode(old)


def test_nothing_is_taken_before_the_class_is_named() -> None:
    machine = ObjectMachine(Everything)
    early: list[records.Record] = [
        Calls("a", 0, 0, 1, (Call(1, "give", b"\x90"),)),
        Knows("a", 2),
        Upgrade(2, True),
        Digest("a", ()),
    ]
    for position, record in enumerate(early):
        assert machine.apply(records.encode(record), position, 0) == []
    assert [type(event) for event in machine.take_events()] == [RecordIgnored] * 4
    assert machine.version == 0
    machine.apply(records.encode(Opened("Everything", 1, Limits(clients_max=5))), 4, 0)
    assert machine.version == 1
    assert machine.limits.clients_max == 5, "limits stand in the order, not in the class"
    machine.apply(records.encode(Opened("Everything", 1, Limits(clients_max=6))), 5, 0)
    assert machine.limits.clients_max == 5


def test_the_bytes_of_records() -> None:
    """Other programs have written these: they must be read for ever."""
    golden = {
        Opened("Bank", 2, Limits()): (
            "c16f019401a442616e6b0297cd2710ce04000000ce01000000ce00400000cd03e8ced693a400cd1000"
        ),
        Calls("me", 3, 1, 2, (Call(2, "pay", b"\x91\x05"),)): "c16f019602a26d65030102919302a3706179c4029105",
        Knows("me", 2): "c16f019303a26d6502",
        Upgrade(2): "c16f01930402c2",
        Digest("me", (Checkpoint(4, 9, b"o", b"s", 7),)): "c16f019305a26d6591950409c4016fc4017307",
    }
    for record, shown in golden.items():
        content = records.encode(record)
        assert content.hex() == shown
        assert records.decode(content) == record


def test_events_that_nobody_takes_are_bounded() -> None:
    machine = opened()
    for position in range(1, 3_000):
        machine.apply(b"", position, 0)
    assert len(machine.take_events()) == 1_024
    assert machine.take_events() == []


# Checkpoints


class Large:
    object_limits = Limits(digest_every=10)

    def __init__(self) -> None:
        self.content = bytes(100 * STATE_BYTES_PER_COMMAND)

    @command
    def go(self, fail: bool = False) -> None:
        if fail:
            raise KeyError(hash("a text that depends on the process"))


def test_a_large_state_is_digested_less_often() -> None:
    machine = opened(Large)
    taken = []
    for _ in range(240):
        one(machine, "go")
        last = machine.checkpoint
        if last is not None and last.commands == machine.commands:
            taken.append((last.commands, bool(last.state)))
    assert [commands for commands, _ in taken] == list(range(10, 241, 10))
    assert [commands for commands, is_state in taken if is_state] == [10, 110, 210]


def test_the_text_of_an_exception_is_not_compared() -> None:
    one_machine, other = opened(Large), opened(Large)
    one(one_machine, "go", True)
    one(other, "go", True)
    assert one_machine._digests.chain == other._digests.chain
    third = opened(Large)
    one(third, "go")
    assert one_machine._digests.chain != third._digests.chain


def test_digests_of_strangers_and_of_oneself() -> None:
    machine = opened(Large)
    for _ in range(25):
        one(machine, "go")
    own = machine.take_digest("me")
    assert own is not None
    assert [each.commands for each in own.checkpoints] == [10, 20]
    assert machine.take_digest("me") is None
    odd = Digest("odd", (Checkpoint(-1, -1, b"", b""), Checkpoint(2**63, 0, b"x" * 100, b"")))
    for record in (own, odd):
        machine.apply(records.encode(record), machine.applied, 0)
    assert machine.take_events() == []
    wrong = Digest("wrong", (msgspec.structs.replace(own.checkpoints[1], outcomes=b"else"),))
    machine.apply(records.encode(wrong), machine.applied, 0)
    event = machine.take_events()[0]
    assert str(event).endswith("it is not known that they ever agreed; totem log diff finds the command")


def test_what_one_host_has_said_need_not_be_said_again() -> None:
    machine, other = opened(Large), opened(Large)
    for _ in range(10):
        one(machine, "go")
        one(other, "go")
    digest = machine.take_digest("me")
    assert digest is not None
    other.apply(records.encode(digest), other.applied, 0)
    assert other.take_digest("other") is None


def test_a_very_large_state_is_digested_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("totempole.objects.digests.INLINE_BYTES_MAX", 1_000)
    machine, other = opened(Large), opened(Large)
    due = []
    for _ in range(230):
        for each in (machine, other):
            one(each, "go")
        if machine.is_state_digest_due:
            due.append(machine.commands)
    assert due == [110, 210], "the first one was taken inline: nobody knew how large it is"
    for each in (machine, other):
        each.take_digest("nothing to say yet")
    before = machine.snapshot().encode()
    other.state.content += b"a stray bit"
    for each in (machine, other):
        each.put_state_digest(210, *each.digest_state())
        each.put_state_digest(77, b"no checkpoint", 1)
    assert machine.snapshot().encode() == before, "what one host has taken aside is in no snapshot"
    digest = other.take_digest("other")
    assert digest is not None
    restored = ObjectMachine.restore(Large, machine.snapshot())
    for each in (machine, other, restored):
        each.apply(records.encode(digest), each.applied, 0)
    event = machine.take_events()[-1]
    # Their outcomes were the same at 200. Of their states nothing is known from before 210.
    assert str(event).startswith(
        "this host and other have different state at position 210 (210 commands); it is not known"
    )
    assert str(event).endswith("; totem log diff finds the command")
    assert restored.take_events() == []
    assert restored._digests.rows() == machine._digests.rows()
    assert machine._digests.rows().state_due == 210 + len(other.state.content) // STATE_BYTES_PER_COMMAND


def test_states_agree_only_where_both_were_digested() -> None:
    """The first difference is between the two places that are told."""
    here = Digests(every=100)
    here.put(100, 100, b"one", 3)
    here.put(200, 200)  # a large state is digested less often
    here.put(300, 300, b"three", 5)
    first, second, third = (Checkpoint(count, count, NO_CHAIN, b"") for count in (100, 200, 300))
    replace = msgspec.structs.replace
    assert here.compare(Digest("other", (replace(first, state=b"one"), second))) is None
    found = here.compare(Digest("other", (second, replace(third, state=b"else"))))
    assert found is not None
    assert (found.what, found.agreed_position, found.position) == ("state", 100, 300)
    found = here.compare(Digest("another", (second, replace(third, outcomes=b"else"))))
    assert found is not None
    assert (found.what, found.agreed_position, found.position) == ("outcomes", 200, 300)


class DigestRaises:
    object_limits = Limits(digest_every=1)

    @command
    def go(self) -> None: ...

    def snapshot(self) -> bytes:
        return b""

    @classmethod
    def restore(cls, content: bytes) -> DigestRaises:
        return cls()

    def digest(self) -> bytes:
        raise OSError("no disk")


def test_a_digest_that_raises_stops_nothing() -> None:
    machine = opened(DigestRaises)
    assert one(machine, "go").kind is Kind.DONE
    event = machine.take_events()[0]
    assert isinstance(event, StateNotCarried)
    assert "DigestRaises.digest() raised OSError: no disk" in event.why


def test_hosts_are_bounded() -> None:
    machine = opened()
    for number in range(1_500):
        machine.apply(records.encode(Knows(f"h{number}", 1)), machine.applied, 0)
    assert len(machine.hosts.rows()) == 1_000
    machine.apply(records.encode(Knows("wild", 2**60)), machine.applied, 10**15)
    assert machine.hosts.common(machine.time_us) == 2**60
    assert machine.upgrade_due() == 0, "nobody here knows that version"
    machine.apply(records.encode(Knows("wild", 0)), machine.applied, 10**15)
    machine.apply(records.encode(Upgrade(5)), machine.applied, 10**15)
    assert "no host" in str(machine.take_events()[-1])


def test_a_copy_goes_its_own_way() -> None:
    machine = opened()
    copied = machine.copy()
    one(copied, "divide", 2)
    assert machine.state.shared == [1]
    assert copied.state.shared == [1, 2]
    assert copied.applied == machine.applied + 1


class ReadsTheOrder:
    def __init__(self) -> None:
        self.time = ordered.time()

    @command
    def go(self) -> None: ...


def test_a_new_state_has_no_place_in_the_order() -> None:
    with pytest.raises(ObjectError, match="outside a command"):
        ObjectMachine(ReadsTheOrder)
