"""The bytes of one packet of each kind, exactly. A change here is a change of the format: raise its version.

TOTEM_REWRITE_GOLDEN=1 writes the file anew; review the difference.
"""

import os
from pathlib import Path

import pytest

from strategies import SAMPLES
from totempole.srp.formats import ring_codec
from totempole.types import RingKind

GOLDEN = Path(__file__).parent / "golden" / "packets.hex"
CODEC = ring_codec(0xC1C2C3C4C5C6C7C8, RingKind.ACCELERATED)


def read_golden() -> dict[str, bytes]:
    lines = GOLDEN.read_text().splitlines()
    return {name: bytes.fromhex(digits) for name, digits in (line.split() for line in lines)}


@pytest.fixture(scope="module")
def golden() -> dict[str, bytes]:
    if os.environ.get("TOTEM_REWRITE_GOLDEN") == "1":
        GOLDEN.write_text("".join(f"{name} {CODEC.encode(SAMPLES[name]).hex()}\n" for name in SAMPLES))
    return read_golden()


def test_every_kind_of_packet_has_golden_bytes(golden):
    assert list(golden) == list(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_golden_bytes(name, golden):
    assert CODEC.encode(SAMPLES[name]).hex() == golden[name].hex()
    assert CODEC.decode(golden[name]) == SAMPLES[name]
