"""The outbox: order kept, packets within their limit, one service each, and bytes that return to zero."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from totempole.errors import ConfigurationError
from totempole.groups import Batch, Outbox
from totempole.groups.packing import LENGTH_BYTES, MESSAGES_MAX, OVERHEAD_MAX
from totempole.types import Service

PACKET = 100
LARGEST = PACKET - OVERHEAD_MAX
BYTES_MAX = 400

runs = st.lists(
    st.tuples(st.lists(st.binary(max_size=LARGEST), max_size=12), st.sampled_from(Service)), max_size=12
)


def taken(outbox: Outbox) -> list[tuple[list[bytes], Service]]:
    found = []
    while outbox:
        body, service = outbox.take()
        assert len(body) <= PACKET
        found.append((list(Batch(body)), service))
    return found


@given(runs)
def test_order_is_kept_across_services_and_packets_fit(
    added: list[tuple[list[bytes], Service]],
) -> None:
    outbox = Outbox(PACKET, BYTES_MAX)
    for messages, service in added:
        outbox.add(messages, service)
    packets = taken(outbox)
    assert [(message, service) for messages, service in packets for message in messages] == [
        (message, service) for messages, service in added for message in messages
    ]
    assert all(messages for messages, _ in packets)
    assert outbox.bytes == 0


@given(runs)
def test_a_packet_takes_what_fits(added: list[tuple[list[bytes], Service]]) -> None:
    """Two neighbours of one service that would have fitted in one packet were put in one."""
    outbox = Outbox(PACKET, BYTES_MAX)
    for messages, service in added:
        outbox.add(messages, service)
    packets = taken(outbox)
    for (first, service), (second, following) in pairwise(packets):
        together = sum(len(message) + LENGTH_BYTES for message in [*first, second[0]])
        assert service is not following or OVERHEAD_MAX - LENGTH_BYTES + together > PACKET


class OutboxLife(RuleBasedStateMachine):
    """Adding and taking in turns, against a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox(PACKET, BYTES_MAX)
        self.waiting: list[tuple[bytes, Service]] = []

    @rule(messages=st.lists(st.binary(max_size=LARGEST), max_size=20), service=st.sampled_from(Service))
    def add(self, messages: list[bytes], service: Service) -> None:
        if self.outbox.accepts:
            self.outbox.add(messages, service)
            self.waiting += [(message, service) for message in messages]

    @precondition(lambda self: self.waiting)
    @rule()
    def take(self) -> None:
        body, service = self.outbox.take()
        found = [(message, service) for message in Batch(body)]
        assert found == self.waiting[: len(found)]
        assert len(body) <= PACKET
        del self.waiting[: len(found)]

    @invariant()
    def bytes_are_what_waits(self) -> None:
        assert self.outbox.bytes == sum(len(message) + LENGTH_BYTES for message, _ in self.waiting)
        assert self.outbox.accepts == (self.outbox.bytes < BYTES_MAX)
        assert bool(self.outbox) == bool(self.waiting)


TestOutboxLife = OutboxLife.TestCase


def test_the_largest_message_fits_and_the_next_is_refused() -> None:
    outbox = Outbox(PACKET, BYTES_MAX)
    assert outbox.message_bytes_max == LARGEST
    outbox.add([b"x" * LARGEST], Service.AGREED)
    assert len(outbox.take().body) == PACKET
    with pytest.raises(ConfigurationError, match=f"a message of {LARGEST + 1} bytes.*cut it up"):
        outbox.add([b"", b"x" * (LARGEST + 1)], Service.AGREED)
    assert not outbox
    assert outbox.bytes == 0


@given(runs, st.integers(OVERHEAD_MAX, PACKET))
def test_packets_may_become_smaller_and_a_larger_message_goes_alone(
    added: list[tuple[list[bytes], Service]], packet_bytes: int
) -> None:
    outbox = Outbox(PACKET, BYTES_MAX)
    for payloads, service in added:
        outbox.add(payloads, service)
    outbox.packet_bytes = packet_bytes
    found = taken(outbox)
    for messages, _ in found:
        size = sum(len(message) + LENGTH_BYTES for message in messages)
        assert len(messages) == 1 or size <= packet_bytes - OVERHEAD_MAX + LENGTH_BYTES
    assert [message for messages, _ in found for message in messages] == [
        payload for payloads, _ in added for payload in payloads
    ]
    assert outbox.bytes == 0


def test_nothing_is_nothing() -> None:
    outbox = Outbox(PACKET, BYTES_MAX)
    outbox.add([], Service.AGREED)
    assert not outbox


def test_empty_messages_are_bounded_too() -> None:
    outbox = Outbox(60_000, BYTES_MAX)
    outbox.add([b""] * (MESSAGES_MAX + 5), Service.AGREED)
    assert not outbox.accepts
    counts = []
    while outbox:
        counts.append(len(Batch(outbox.take().body)))
    assert max(counts) <= MESSAGES_MAX
    assert sum(counts) == MESSAGES_MAX + 5


def test_what_the_caller_does_with_its_list_afterwards_is_its_own_affair() -> None:
    outbox = Outbox(PACKET, BYTES_MAX)
    messages = [b"one", b"two"]
    outbox.add(messages, Service.AGREED)
    messages.clear()
    messages.append(b"three")
    assert taken(outbox) == [([b"one", b"two"], Service.AGREED)]
    assert outbox.bytes == 0
