"""Short stories of one object. Each is played with the true package and ends well; with a broken one it does
not.

Without `from __future__ import annotations`: classes inside functions have to find each other by annotation.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from objects_kit import Kit, journal

from totempole.errors import CannotCarryError, ObjectBrokenError, ObjectClassError, ObjectVersionError

Scenario = Callable[[Kit], None]


def hosts_of(kit: Kit, machine: Any, position: int, time_us: int, **versions: int) -> int:
    for host, version in versions.items():
        machine.apply(kit.records.encode(kit.records.Knows(host, version)), position, time_us)
        position += 1
    return position


def banks(kit: Kit) -> tuple[type, type, type]:
    """Three versions of a class. The second one changes the state, the third one only adds a command."""

    class Bank1:
        object_name = "Bank"
        object_version = 1
        accounts: dict[str, int]

        def __init__(self) -> None:
            self.accounts = {"ann": 10}

        @kit.command
        def pay(self, who: str, amount: int) -> int:
            self.accounts[who] = self.accounts.get(who, 0) + amount
            return self.accounts[who]

    class Bank2:
        object_name = "Bank"
        object_version = 2
        cents: dict[str, int]

        def __init__(self) -> None:
            self.cents = {}

        @kit.command
        def pay(self, who: str, amount: float) -> float:
            self.cents[who] = self.cents.get(who, 0) + round(100 * amount)
            return self.cents[who] / 100

        @kit.migration(1)
        @staticmethod
        def from_1(old: Bank1) -> Any:
            new = Bank2()
            for who in list(old.accounts):
                new.cents[who] = old.accounts.pop(who) * 100
            return new

    class Bank3(Bank2):
        object_version = 3
        object_runs_from = 2

        @kit.command(since=3)
        def close(self, who: str) -> None:
            del self.cents[who]

        @kit.migration(1)
        @staticmethod
        def from_1(old: Bank1) -> Any:
            new = Bank3()
            new.cents = {who: 100 * amount for who, amount in old.accounts.items()}
            return new

    return Bank1, Bank2, Bank3


# Versions


def an_upgrade_waits_for_all_hosts(kit: Kit) -> None:
    first, second, _ = banks(kit)
    old, new = kit.Machine(first), kit.Machine(second)
    opening = old.opening()
    upgrade = kit.records.encode(kit.records.Upgrade(2))
    for machine in (old, new):
        machine.apply(opening, 0, 0)
        assert machine.version == 1
        hosts_of(kit, machine, 1, 0, old=1, new=2)
        assert machine.upgrade_due() == 0
        machine.apply(upgrade, 3, 0)
        assert machine.version == 1, "an upgrade that a host does not know"
        assert "old" in str(machine.take_events()[-1])
        machine.apply(kit.calls(machine, "a", ("pay", "ann", 5)), 4, 0)
        assert machine.outcome_of("a", 1).value == kit.Codec(int).encode(15)
    new = kit.again(new, second)
    hosts_of(kit, new, 5, 0, old=0)
    assert new.upgrade_due() == 2, "the hosts are in the snapshot, and the one that closed is gone"
    new.apply(upgrade, 6, 0)
    assert (new.version, new.state.cents) == (2, {"ann": 1500})
    new.apply(upgrade, 7, 0)
    assert new.version == 2


def a_host_is_forgotten_after_an_hour(kit: Kit) -> None:
    _, second, _ = banks(kit)
    machine = kit.Machine(second)
    first = banks(kit)[0]
    machine.apply(kit.Machine(first).opening(), 0, 0)
    hosts_of(kit, machine, 1, 1_000_000, crashed=1)
    hosts_of(kit, machine, 2, 3_601_000_000, alive=2)
    assert machine.upgrade_due() == 0
    hosts_of(kit, machine, 3, 3_601_000_001, alive=2)
    assert machine.upgrade_due() == 2
    machine.apply(kit.records.encode(kit.records.Upgrade(2)), 4, 3_601_000_001)
    assert machine.version == 2


def an_old_program_stops_at_a_new_version(kit: Kit) -> None:
    first, second, _ = banks(kit)
    old = kit.Machine(first)
    new = kit.Machine(second)
    for machine in (old, new):
        machine.apply(kit.Machine(first).opening(), 0, 0)
    upgrade = kit.records.encode(kit.records.Upgrade(2, True))
    new.apply(upgrade, 1, 0)
    for _ in range(2):
        with pytest.raises(ObjectVersionError, match=r"version 2 from position 1 on.* has version 1"):
            old.apply(upgrade, 1, 0)
    with pytest.raises(ObjectVersionError):
        old.apply(kit.calls(new, "a", ("pay", "ann", 1.0)), 2, 0)
    assert old.state.accounts == {"ann": 10}
    with pytest.raises(ObjectVersionError, match="version 2"):
        kit.Machine.restore(first, new.snapshot())
    later = kit.Machine(first)
    with pytest.raises(ObjectVersionError, match="use a newer program"):
        later.apply(kit.Machine(second).opening(), 0, 0)


def a_call_of_another_version_is_not_applied(kit: Kit) -> None:
    first, second, _ = banks(kit)
    machine = kit.Machine(second)
    machine.apply(kit.Machine(first).opening(), 0, 0)
    early = kit.calls(kit.opened(second), "a", ("pay", "ann", 2.0), version=2)
    assert machine.apply(early, 1, 0)[0].kind == kit.Kind.WRONG_VERSION
    late = kit.calls(machine, "a", ("pay", "ann", 1), first=2)
    machine.apply(kit.records.encode(kit.records.Upgrade(2, True)), 2, 0)
    assert machine.apply(late, 3, 0)[0].kind == kit.Kind.WRONG_VERSION
    assert machine.apply(early, 4, 0)[0].kind == kit.Kind.WRONG_VERSION, "its caller has been told so"
    assert machine.state.cents == {"ann": 1000}


def a_new_command_waits_for_its_version(kit: Kit) -> None:
    _, second, third = banks(kit)
    machine = kit.Machine(third)
    machine.apply(kit.Machine(second).opening(), 0, 0)
    assert machine.version == 2
    machine.apply(kit.calls(machine, "a", ("pay", "ann", 1.0)), 1, 0)
    close = kit.calls(machine, "a", ("close", "ann"), first=2)
    assert machine.apply(close, 2, 0)[0].kind == kit.Kind.UNKNOWN_COMMAND
    machine.apply(kit.records.encode(kit.records.Upgrade(3, True)), 3, 0)
    assert machine.version == 3
    assert machine.apply(kit.calls(machine, "a", ("close", "ann"), first=3), 4, 0)[0].kind == kit.Kind.DONE
    in_flight = kit.calls(machine, "a", ("pay", "bob", 1.0), first=4, version=2)
    assert machine.apply(in_flight, 5, 0)[0].kind == kit.Kind.DONE, "version 3 runs calls of version 2"
    assert machine.state.cents == {"bob": 100}


def a_migration_that_fails_changes_nothing(kit: Kit) -> None:
    first, _, _ = banks(kit)

    class Bad:
        object_name = "Bank"
        object_version = 2
        accounts: dict[str, int]

        @kit.command
        def pay(self, who: str) -> None: ...

        @kit.migration(1)
        @staticmethod
        def from_1(old: first) -> Any:  # type: ignore[valid-type]
            old.accounts.clear()  # type: ignore[attr-defined]
            raise ValueError("half way")

    machine = kit.Machine(Bad)
    machine.apply(kit.Machine(first).opening(), 0, 0)
    hosts_of(kit, machine, 1, 0, one=2)
    machine.apply(kit.records.encode(kit.records.Upgrade(2)), 2, 0)
    assert "half way" in str(machine.take_events()[-1])
    assert machine.version == 1
    assert machine.state.accounts == {"ann": 10}
    assert machine.upgrade_due() == 0, "it would fail again"
    assert kit.again(machine, Bad).upgrade_due() == 0


# Names


def two_classes_under_one_name(kit: Kit) -> None:
    one, other = journal(kit), banks(kit)[0]
    first, second = kit.Machine(one), kit.Machine(other)
    openings = first.opening(), second.opening()
    first.apply(openings[0], 0, 0)
    assert first.apply(openings[1], 1, 0) == []
    assert "Bank" in str(first.take_events()[-1])
    with pytest.raises(ObjectClassError, match=r"a Journal \(version 1\).*as a Bank"):
        second.apply(openings[0], 0, 0)
    with pytest.raises(ObjectClassError):
        second.apply(openings[1], 1, 0)
    with pytest.raises(ObjectClassError):
        kit.Machine.restore(other, first.snapshot())


# The table


def a_client_born_in_the_future_is_refused(kit: Kit) -> None:
    """It would outlive every watermark."""
    machine = kit.opened(journal(kit))
    outcomes = machine.apply(kit.calls(machine, "a", ("add", 1), born=9), 5, 0)
    assert [each.kind for each in outcomes] == [kit.Kind.TOO_OLD]
    assert machine.state.total == 0
    assert machine.apply(kit.calls(machine, "a", ("add", 1), born=6), 6, 0)[0].kind == kit.Kind.DONE


def a_client_that_never_acknowledges(kit: Kit) -> None:
    """Its oldest outcomes go, and its floor rises: nothing of it is applied again."""
    machine = kit.opened(journal(kit, client_bytes_max=4_096))
    payloads = [kit.calls(machine, "a", ("add", 1), first=number) for number in range(1, 101)]
    for position, payload in enumerate(payloads, 1):
        assert machine.apply(payload, position, 0)[0].kind == kit.Kind.DONE
    assert machine.state.total == 100
    client = machine.table.clients["a"]
    assert client.bytes <= 4_096
    assert 0 < len(client.outcomes) < 40
    again = [machine.apply(payload, 200 + at, 0)[0] for at, payload in enumerate(payloads)]
    assert machine.state.total == 100
    assert [each.kind for each in again[:60]] == [kit.Kind.TOO_OLD] * 60
    assert again[-1].position == 100
    assert machine.table.bytes == sum(each.bytes for each in machine.table.clients.values())


def outcomes_of_all_clients_are_bounded(kit: Kit) -> None:
    machine = kit.opened(journal(kit, clients_max=1_000, table_bytes_max=20_000))
    payloads = {}
    for at in range(1, 200):
        payloads[at] = kit.calls(machine, f"c{at}", ("add", 1), ("add", 1), born=at)
        machine.apply(payloads[at], at, 0)
        assert machine.table.bytes <= 20_000
    assert 10 < len(machine.table) < 60
    assert machine.state.total == 2 * 199
    for at, payload in payloads.items():
        machine.apply(payload, 200 + at, 0)
    assert machine.state.total == 2 * 199, "a forgotten client is refused"
    other = kit.again(machine, type(machine.state))
    assert other.table.bytes == machine.table.bytes


def a_number_from_nowhere(kit: Kit) -> None:
    """Floors and numbers of a stranger cost no time."""
    machine = kit.opened(journal(kit))
    machine.apply(kit.calls(machine, "a", ("add", 1), ("add", 2)), 1, 0)
    machine.apply(kit.calls(machine, "a", ("add", 4), first=2**62, acknowledged=2**61), 2, 0)
    assert machine.state.total == 7
    assert machine.outcome_of("a", 2) is None
    assert machine.is_settled("a", 2, 0)
    assert machine.apply(kit.calls(machine, "a", ("add", 8), first=-3), 3, 0)[0].kind == kit.Kind.TOO_OLD
    fresh = kit.calls(machine, "b", ("add", 16), first=5, acknowledged=5, born=3)
    assert machine.apply(fresh, 4, 0)[0].kind == kit.Kind.TOO_OLD, "acknowledged before it was seen"
    assert machine.state.total == 7


def records_that_come_again_are_passed_over(kit: Kit) -> None:
    machine = kit.opened(journal(kit))
    payload = kit.calls(machine, "a", ("add", 1))
    assert len(machine.apply(payload, 3, 0)) == 1
    assert machine.apply(payload, 3, 0) == []
    assert machine.apply(payload, 2, 0) == []
    assert machine.applied == 4


# What a command may do


def what_depends_on_the_process_breaks_the_machine(kit: Kit) -> None:
    class Deep:
        depth: int = 0
        count: int = 0

        def _dig(self) -> None:
            self.depth += 1
            self._dig()

        @kit.command
        def dig(self) -> None:
            self._dig()

        @kit.command
        def add(self) -> int:
            self.count += 1
            return self.count

        @kit.command
        def no_memory(self) -> None:
            raise MemoryError

        @kit.command
        def leave(self) -> None:
            sys.exit(3)

    machine = kit.opened(Deep)
    machine.apply(kit.calls(machine, "a", ("add",), ("leave",)), 1, 0)
    assert machine.outcome_of("a", 2).text == "SystemExit: 3"
    before = machine.snapshot()
    payload = kit.calls(machine, "a", ("add",), ("dig",), ("add",), first=3)
    with pytest.raises(ObjectBrokenError, match="RecursionError") as caught:
        machine.apply(payload, 2, 0)
    with pytest.raises(ObjectBrokenError):
        machine.apply(payload, 3, 0)
    with pytest.raises(ObjectBrokenError):
        machine.snapshot()
    assert caught.value.token == 2 * 65_536 + 1
    machine = kit.Machine.restore(Deep, before)
    machine.skip(caught.value.token)
    kinds = [each.kind for each in machine.apply(payload, 2, 0)]
    assert kinds == [kit.Kind.DONE, kit.Kind.RAISED, kit.Kind.DONE]
    assert (machine.state.count, machine.state.depth) == (3, 0)
    with pytest.raises(ObjectBrokenError, match="MemoryError") as caught:
        machine.apply(kit.calls(machine, "a", ("no_memory",), first=9), 3, 0)
    assert caught.value.token is None


def dicts_keep_their_order_and_sets_have_none(kit: Kit) -> None:
    @dataclass
    class Bag:
        names: set[str]
        numbers: Any
        by_name: dict[str, int]
        anything: Any

        def __init__(self) -> None:
            self.names, self.numbers, self.by_name, self.anything = set(), set(), {}, {}

        @kit.command
        def put(self, name: str, number: int) -> None:
            self.names.add(name)
            self.numbers.add(number)
            self.by_name[name] = number
            self.anything[name] = (number, {number})

        @kit.command
        def first(self) -> str:
            return next(iter(self.by_name))

        @kit.command
        def all(self) -> set[int]:
            return self.numbers

    one, other, third = kit.opened(Bag), kit.opened(Bag), kit.opened(Bag)
    for machine, order in ((one, (8, 0, 16)), (other, (8, 0, 16)), (third, (16, 8, 0))):
        machine.apply(kit.calls(machine, "a", *[("put", str(each), each) for each in order]), 1, 0)
    other.state.numbers = {16, 0, 8}
    assert list(other.state.numbers) != list(one.state.numbers)
    assert one.digest() == other.digest()
    assert one.digest() != third.digest(), "the order of a dict can be seen by commands"
    again = kit.again(one, Bag)
    question = kit.calls(one, "a", ("first",), ("all",), first=4)
    assert again.apply(question, 2, 0) == one.apply(question, 2, 0) == other.apply(question, 2, 0)
    assert one.outcome_of("a", 4).value == kit.Codec(str).encode("8")
    assert again.state.anything == one.state.anything
    assert one.digest() == again.digest() == other.digest()


# Digests


def hosts_that_differ_are_found(kit: Kit) -> None:
    cls = journal(kit, digest_every=4)
    one, other = kit.opened(cls), kit.opened(cls)
    position = 1
    for number in range(1, 13):
        payload = kit.calls(one, "a", ("add", number), first=number)
        for machine in (one, other):
            machine.apply(payload, position, 0)
        position += 1
        if number == 6:
            other.state.entries.append(("a stray bit", 0, 0))
        for machine, name in ((one, "one"), (other, "other")):
            digest = machine.take_digest(name)
            if digest is not None:
                for each in (one, other):
                    each.apply(kit.records.encode(digest), position, 0)
                position += 1
    found = [event for event in one.take_events() if hasattr(event, "agreed_position")]
    assert len(found) == 1, "a host is reported once"
    assert found[0][:4] == ("other", "state", 4, 4)
    assert found[0].commands == 8
    assert "agreed at position 4" in str(found[0])
    found = [event for event in other.take_events() if hasattr(event, "agreed_position")]
    assert found[0].host == "one"


def outcomes_that_differ_are_found(kit: Kit) -> None:
    cls = journal(kit, digest_every=2)
    one, other = kit.opened(cls), kit.opened(cls)
    other.state.total = 5
    for at in (1, 2):
        payload = kit.calls(one, "a", ("add", 1), first=at)
        one.apply(payload, at, 0)
        other.apply(payload, at, 0)
        other.state.total = at
    one, other = kit.again(one, cls), kit.again(other, cls)
    assert one.state.total == other.state.total
    assert one.checkpoint.outcomes != other.checkpoint.outcomes
    last = kit.records.Checkpoint(2, 2, other.checkpoint.outcomes, b"")
    digest = kit.records.Digest("other", (last,))
    one.apply(kit.records.encode(digest), 3, 0)
    assert one.take_events()[-1].what == "outcomes"
    payload = kit.calls(one, "a", ("add", 1), ("add", 1), first=3)
    one.apply(payload, 4, 0)
    other.apply(payload, 4, 0)
    assert one.checkpoint.outcomes != other.checkpoint.outcomes, "the chain remembers"


def an_exact_state_or_none(kit: Kit) -> None:
    """A host that goes on from a snapshot must go on as the others: 0 is not 0.0."""

    class Scale:
        weight: float

        def __init__(self) -> None:
            self.weight = 0.0

        @kit.command
        def put(self, weight: float) -> str:
            self.weight = round(weight)
            return f"{self.weight}"

    machine = kit.opened(Scale)
    machine.apply(kit.calls(machine, "a", ("put", 2.5)), 1, 0)
    with pytest.raises(CannotCarryError, match="'weight': an int would come back as a float"):
        machine.snapshot()
    with pytest.raises(CannotCarryError, match="'weight': an int would come back as a float"):
        list(machine.pieces())
    machine.apply(kit.calls(machine, "a", ("put", 3.5), first=2), 2, 0)
    assert machine.outcome_of("a", 2).value == kit.Codec(str).encode("4")


SCENARIOS: tuple[tuple[Scenario, tuple[str, ...]], ...] = (
    (
        an_upgrade_waits_for_all_hosts,
        ("an upgrade that hosts do not know", "hosts are not in the snapshot"),
    ),
    (a_host_is_forgotten_after_an_hour, ("a host that crashed is never forgotten",)),
    (an_old_program_stops_at_a_new_version, ("an old program guesses",)),
    (a_call_of_another_version_is_not_applied, ("versions of calls are ignored",)),
    (a_new_command_waits_for_its_version, ("a new command before its version",)),
    (a_migration_that_fails_changes_nothing, ("a migration works on the state itself",)),
    (two_classes_under_one_name, ("any class opens any object",)),
    (a_client_born_in_the_future_is_refused, ("a client may be born in the future",)),
    (
        a_client_that_never_acknowledges,
        ("outcomes of a client without bound", "the floor stays when outcomes go"),
    ),
    (outcomes_of_all_clients_are_bounded, ("outcomes of all clients without bound",)),
    (a_number_from_nowhere, ("a new client's floor is ignored",)),
    (records_that_come_again_are_passed_over, ("a position is applied again",)),
    (what_depends_on_the_process_breaks_the_machine, ("no stack is an outcome",)),
    (dicts_keep_their_order_and_sets_have_none, ("sets as they come", "dicts are sorted")),
    (hosts_that_differ_are_found, ("states are not compared",)),
    (outcomes_that_differ_are_found, ("the chain is not in the snapshot", "outcomes are not compared")),
    (
        an_exact_state_or_none,
        (
            "a snapshot that is not compared",
            "pieces that are not compared",
        ),
    ),
)
"""With the names of mutants that each gives away."""
