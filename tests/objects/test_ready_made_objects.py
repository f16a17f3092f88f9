"""The ready-made objects, without a cluster: as plain classes, and as what is written of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from totempole.errors import ObjectError
from totempole.objects import ordered
from totempole.objects.commands import ObjectType, Refused
from totempole.objects.containers import Counter, Queue, ReplicatedDict, Work
from totempole.objects.locks import Election, Fence, Lease, Lock
from totempole.objects.state import StateCodec


def at(position: int, time: float = 0.0) -> Any:
    return ordered.at(position=position, time=time)


# Dict and counter


def test_a_dict() -> None:
    entries = ReplicatedDict()
    entries.set("a", [1, {"b": (2, 3)}])
    assert entries.get("a") == [1, {"b": (2, 3)}]
    assert entries.get("c") is None
    assert entries.set_default("a", 5) == [1, {"b": (2, 3)}]
    assert entries.set_default("c", 5) == 5
    assert not entries.compare_and_set("c", 6, 7)
    assert entries.compare_and_set("c", 5, 7)
    assert entries.compare_and_set("new", None, 1)
    entries.update({"x": 1, "y": 2})
    assert entries.keys() == ["a", "c", "new", "x", "y"]
    assert entries.pop("x") == 1
    assert entries.pop("x", "gone") == "gone"
    assert entries.has("y")
    assert entries.size() == 4
    assert entries.items()["c"] == 7
    entries.clear()
    assert entries.items() == {}


def test_a_counter() -> None:
    counter = Counter()
    assert counter.add() == 1
    assert counter.add(-3) == -2
    assert counter.add(2**70) == 2**70 - 2
    assert counter.get() == 2**70 - 2


# Queue


def test_items_are_taken_in_their_order_and_once() -> None:
    queue = Queue()
    with at(1):
        first = queue.put("a")
    with at(2):
        second = queue.put("b")
    with at(3):
        work = queue.take()
    assert work == Work(first, 3 * 65_536, "a")
    with at(4):
        other = queue.take()
    assert other is not None
    assert other.item == second
    with at(5):
        assert queue.take() is None
        queue.done(first, work.token)
        with pytest.raises(Refused, match="no longer yours"):
            queue.done(first, work.token)
    assert queue.size() == 1


def test_what_is_not_done_in_time_is_taken_again_first() -> None:
    queue = Queue()
    with at(1):
        first = queue.put("a")
    with at(2):
        queue.put("b")
    with at(3, time=10.0):
        work = queue.take(5.0)
    assert work is not None
    with at(4, time=14.999):
        queue.keep(first, work.token, 2.0)
    with at(5, time=16.9):
        assert queue.waiting_items() == 1
        again = queue.take()
        assert again is not None
        assert again.value == "b"
    with at(6, time=17.0):
        later = queue.take()
        assert later is not None
        assert (later.item, later.value) == (first, "a")
        assert later.token > work.token
        for use in (queue.done, queue.give_back, queue.keep):
            with pytest.raises(Refused):
                use(first, work.token)
        queue.give_back(first, later.token)
        assert queue.waiting_items() == 1


@given(st.lists(st.tuples(st.sampled_from("ptdgk"), st.integers(0, 30)), max_size=60))
def test_a_queue_never_loses_nor_doubles_an_item(steps: list[tuple[str, int]]) -> None:
    queue = Queue()
    now = 0.0
    held: list[Work] = []
    put: set[int] = set()
    done: set[int] = set()
    for position, (step, wait) in enumerate(steps, start=1):
        now += wait
        with at(position, now):
            if step == "p":
                put.add(queue.put(position))
            elif step == "t":
                work = queue.take(20.0)
                assert work is not None or not queue.waiting
                if work is not None:
                    held.append(work)
            elif held:
                work = held.pop(0)
                try:
                    if step == "d":
                        queue.done(work.item, work.token)
                        done.add(work.item)
                    elif step == "g":
                        queue.give_back(work.item, work.token)
                    else:
                        queue.keep(work.item, work.token, 20.0)
                        held.append(work)
                except Refused:
                    pass
        assert set(queue.waiting) | set(queue.taken) == set(queue.values) == put - done
        assert not set(queue.waiting) & set(queue.taken)
        assert len(queue.waiting) == len(set(queue.waiting))


def test_ends_of_what_was_done_do_not_pile_up() -> None:
    queue = Queue()
    for position in range(1, 1000):
        with at(position):
            queue.put(None)
            work = queue.take(1e6)
            assert work is not None
            queue.done(work.item, work.token)
    assert len(queue.ends) < 40


# Locks


def test_a_lock_has_one_holder_whose_token_ascends() -> None:
    locks = Lock()
    with at(1, time=100.0):
        token = locks.acquire("printer", "ann", 10.0)
    with at(2, time=105.0):
        with pytest.raises(Refused, match=r"printer is held by ann for another 5\.000 s"):
            locks.acquire("printer", "bob", 10.0)
        assert locks.acquire("printer", "ann", 1.0) == token
        assert locks.acquire("scanner", "bob", 10.0) > token
    with at(3, time=110.0):
        other = locks.acquire("printer", "bob", 10.0)
        assert other > token
        for use in (locks.renew, locks.release):
            with pytest.raises(Refused, match="no longer yours"):
                use("printer", token)
        locks.renew("printer", other, 100.0)
        assert locks.holder("printer") == Lease("bob", other, 210_000_000)
        locks.release("printer", other)
        assert locks.holder("printer") is None


def test_a_lease_that_is_over_cannot_be_renewed() -> None:
    locks = Lock()
    with at(1):
        token = locks.acquire("printer", "ann", 10.0)
    with at(2, time=10.0), pytest.raises(Refused):
        locks.renew("printer", token)
    with at(3, time=10.0):
        assert locks.acquire("printer", "ann") > token, "somebody may have had it in between"


def test_a_fence_refuses_who_comes_late() -> None:
    fence = Fence()
    fence.check(5)
    fence.check(5)
    fence.check(9)
    with pytest.raises(ObjectError, match="token 5 is too old"):
        fence.check(5)


def test_an_election() -> None:
    election = Election()
    with at(1):
        first = election.campaign("a", 10.0)
        assert first.owner == "a"
    with at(2, time=5.0):
        assert election.campaign("b").owner == "a"
        assert election.campaign("a", 10.0).token == first.token
    with at(3, time=15.0):
        second = election.campaign("b")
        assert second.owner == "b"
        assert second.token > first.token
        election.resign("a")
        assert election.current() == second
        election.resign("b")
        assert election.current() is None


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 1e10])
def test_a_lease_has_a_time(seconds: float) -> None:
    queue = Queue()
    with at(1):
        queue.put(1)
        with pytest.raises(Refused, match="give a time above 0"):
            queue.take(seconds)
        with pytest.raises(Refused, match="give a time above 0"):
            Lock().acquire("a", "b", seconds)
        with pytest.raises(Refused, match="give a time above 0"):
            Election().campaign("a", seconds)
    assert queue.waiting_items() == 1, "it has refused before it changed anything"


# As objects


@pytest.mark.parametrize("cls", [ReplicatedDict, Counter, Queue, Lock, Election])
def test_they_can_be_objects(cls: type[Any]) -> None:
    assert ObjectType.of(cls).commands
    state = cls()
    with at(3, time=1.0):
        if cls is Queue:
            state.put({1, 2})
            state.put(b"x")
            state.take()
        elif cls is Lock:
            state.acquire("a", "b")
        elif cls is Election:
            state.campaign("a")
        elif cls is Counter:
            state.add(2**80)
        else:
            state.set("a", (1, {2}))
    codec = StateCodec(cls)
    assert vars(codec.copy(state)) == vars(state)
    assert codec.encode_exact(state) == codec.encode(state)
