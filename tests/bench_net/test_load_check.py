"""What `totem load` judges by: the stamp of a message, who misses what, percentiles."""

from __future__ import annotations

from random import Random

import pytest

from totempole.bench.load_check import STAMP_BYTES, Latencies, Received, Stamp, judge, read_stamp, stamped

RUN = b"run-1234"


@pytest.mark.parametrize("size", [STAMP_BYTES, STAMP_BYTES + 1, 1000, 70_000, 200_000])
def test_a_message_says_whose_it_is(size: int) -> None:
    message = stamped(RUN, 3, 17, 123_456, size)
    assert len(message) == size
    assert read_stamp(RUN, message) == Stamp(3, 17, 123_456)


def test_any_other_message_is_told_apart() -> None:
    message = stamped(RUN, 3, 17, 123_456, 100)
    assert read_stamp(b"run-0000", message) is None
    assert read_stamp(RUN, message[:-1]) is None
    assert read_stamp(RUN, b"short") is None
    for place in range(len(message)):
        spoilt = bytearray(message)
        spoilt[place] ^= 1
        assert read_stamp(RUN, bytes(spoilt)) is None


def received(*numbers: int) -> Received:
    found = Received()
    for number in numbers:
        found.note(number)
    return found


@pytest.mark.parametrize(
    ("numbers", "accepted", "wrong"),
    [
        ((0, 1, 2), 3, []),
        ((0, 1, 2), 2, []),  # the call for the third was cut short: it may come or not
        ((), 0, []),
        ((0, 1), 3, ["client 1 of client 2's 3 messages: 1 lost (2)"]),
        ((0, 4, 6), 8, ["client 1 of client 2's 8 messages: 5 lost (1..3, 5, 7)"]),
        ((1, 3, 5, 7), 8, ["client 1 of client 2's 8 messages: 4 lost (0, 2, 4, …)"]),
        ((0, 1, 1, 0), 2, ["client 1 of client 2's messages: 2 delivered more than once"]),
        ((1, 0), 2, ["client 1 of client 2's messages: 1 out of order"]),
        ((0, 5, 3, 1, 2, 4), 6, ["client 1 of client 2's messages: 4 out of order"]),
        (
            (0, 3, 2, 2),
            4,
            [
                "client 1 of client 2's 4 messages: 1 lost (1)",
                "client 1 of client 2's messages: 1 delivered more than once",
                "client 1 of client 2's messages: 1 out of order",
            ],
        ),
    ],
)
def test_losses_repetitions_and_disorder_are_named(
    numbers: tuple[int, ...], accepted: int, wrong: list[str]
) -> None:
    assert judge(1, 2, received(*numbers), accepted) == wrong


def test_percentiles_are_nearly_those_of_the_values() -> None:
    random = Random(5)
    values = sorted(int(random.expovariate(1 / 3000)) for _ in range(5000))
    parts = Latencies(), Latencies()
    for index, value in enumerate(values):
        parts[index % 2].note(value)
    whole = Latencies()
    for part in parts:
        whole.add(part)
    assert whole.total == 5000
    assert whole.percentile(100) == whole.longest_us == values[-1]
    for percent in (50, 90, 99):
        exact = values[len(values) * percent // 100 - 1]
        found = whole.percentile(percent)
        assert found is not None
        assert exact <= found <= exact * 1.02 + 1


def test_of_nothing_there_are_no_percentiles() -> None:
    assert Latencies().percentile(50) is None
