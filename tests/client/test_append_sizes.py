"""What a program appends at once fits what carries it."""

from __future__ import annotations

from totempole.client.appending import HEAD_BYTES, RUN_BYTES
from totempole.srp.config import RingConfig

MESSAGE_HEAD_BYTES = 1_024
"""More than what a message of the log and a packet of the groups have beside the records."""


def test_a_run_fits_into_one_packet_of_the_ring() -> None:
    assert RingConfig().packet_bytes_max >= RUN_BYTES + HEAD_BYTES + MESSAGE_HEAD_BYTES
