"""What the log of an object holds. No I/O.

A record is a mark, the number of this format, and one tagged struct. What has no mark is not ours and is
passed over by every host alike. A record with the mark and with a newer format is different: other hosts may
understand it, so a program that does not must stop, and must not guess.

The first record that every host takes is an `Opened`: it names the class, the version that the object begins
with and the limits that all hosts keep to.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from totempole.errors import CodecError, ObjectVersionError

FORMAT = 1
"""A new kind of record, or a new field, needs the next one: old programs would pass over what others take."""

MARK = b"\xc1o"
"""No msgpack begins with 0xc1, and no text has it."""

HEAD = MARK + bytes([FORMAT])

CALLS_MAX = 65_536
"""Calls in one record: `ordered.token()` counts them in 16 bits."""

CLIENT_CHARACTERS_MAX = 64
METHOD_CHARACTERS_MAX = 255


class _Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class Call(msgspec.Struct, frozen=True, array_like=True, gc=False):
    number: int
    """Of its client, from 1. A call that is sent again has the same one."""
    method: str
    arguments: bytes
    """As `ObjectType.encode_call` makes them."""


class Limits(msgspec.Struct, frozen=True, array_like=True):
    """What every host must do alike. It stands in the first record: another program cannot have other
    limits."""

    clients_max: int = 10_000
    """Clients whose outcomes are kept."""
    table_bytes_max: int = 64 << 20
    """Of outcomes, of all clients together."""
    client_bytes_max: int = 16 << 20
    """Of one client's outcomes that it has not acknowledged."""
    result_bytes_max: int = 4 << 20
    hosts_max: int = 1_000
    """Programs whose announcements are kept."""
    host_forget_us: int = 3_600_000_000
    """A host that has announced nothing for so long does not hold up an upgrade."""
    digest_every: int = 4_096
    """Commands between two checkpoints. Of a large state the digest is taken less often (`digests`)."""


class Opened(_Record, frozen=True, tag=1):
    """The first one counts. Each host writes one if it finds none."""

    name: str
    """Of the class."""
    version: int
    limits: Limits


class Calls(_Record, frozen=True, tag=2):
    """Calls of one client, in the order in which they are applied."""

    client: str
    """Made up once by a host, and kept: its numbers belong to it. `ordered.caller()` in a command."""
    born: int
    """A position that the client knew to be green before its first call. It never changes."""
    acknowledged: int
    """The outcomes of all numbers up to this one are settled: they need not be kept, and never come again."""
    version: int
    """Of the class that the arguments were encoded for."""
    calls: tuple[Call, ...]


class Knows(_Record, frozen=True, tag=3):
    """A host announces the highest version that its class knows, when it opens the object and every so often
    (`Limits.host_forget_us`)."""

    host: str
    version: int
    """0: it closes the object."""


class Upgrade(_Record, frozen=True, tag=4):
    """From here on the object is at this version, if all known hosts know it."""

    version: int
    is_forced: bool = False
    """By an operator: hosts that do not know it stop."""


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """What a host held when it had applied so many commands."""

    commands: int
    position: int
    """Of the record that ended with that command."""
    outcomes: bytes
    """A chain over all outcomes."""
    state: bytes
    """Empty: it was not taken at this count."""
    state_bytes: int = 0
    """How large the state was, if it was taken."""


class Digest(_Record, frozen=True, tag=5):
    """The last checkpoints of a host. The others compare them with their own."""

    host: str
    checkpoints: tuple[Checkpoint, ...]


Record = Opened | Calls | Knows | Upgrade | Digest


class Kind(IntEnum):
    DONE = 0
    REFUSED = 1
    """The method raised `Refused`."""
    RAISED = 2
    """It raised another exception, or its result cannot be carried."""
    TOO_OLD = 3
    """Not applied now. It may have been applied before, and its outcome is no longer known."""
    UNKNOWN_COMMAND = 4
    WRONG_VERSION = 5
    """Its arguments are those of a version that is not in force. Not applied: encode it again, with a new
    number."""
    WRONG_ARGUMENTS = 6


class Outcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    client: str
    number: int
    position: int
    """Of the record in which it was applied. That of the first one, if it came again."""
    kind: Kind
    value: bytes
    """DONE: the encoded result. Otherwise a text in UTF-8."""

    @property
    def text(self) -> str:
        return self.value.decode("utf-8", "replace")


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


def encode(record: Record) -> bytes:
    return HEAD + _encoder.encode(record)


def decode(payload: bytes) -> Record:
    """Raises CodecError if it is no record of an object: it is passed over. Raises ObjectVersionError if it
    is one of a newer format."""
    if not payload.startswith(HEAD):
        if payload.startswith(MARK) and len(payload) > len(MARK) and payload[len(MARK)] > FORMAT:
            raise ObjectVersionError(
                f"the log has a record of format {payload[len(MARK)]}, and this program knows {FORMAT}:"
                " use a newer program"
            )
        raise CodecError("no record of an object")
    try:
        record: Record = _decoder.decode(memoryview(payload)[len(HEAD) :])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise CodecError("object record malformed") from None
    if not _is_sound(record):
        raise CodecError("object record malformed", "numbers that no record can have")
    return record


def _is_sound(record: Record) -> bool:
    """Numbers of a stranger are bounded before anything counts with them."""
    if isinstance(record, Calls):
        return (
            0 < len(record.client) <= CLIENT_CHARACTERS_MAX
            and 0 <= record.born <= POSITION_MAX
            and 0 <= record.acknowledged <= POSITION_MAX
            and 0 < len(record.calls) <= CALLS_MAX
        )
    if isinstance(record, Opened):
        return record.version > 0 and all(limit > 0 for limit in msgspec.structs.astuple(record.limits))
    if isinstance(record, Knows):
        return 0 < len(record.host) <= CLIENT_CHARACTERS_MAX and record.version >= 0
    if isinstance(record, Digest):
        return 0 < len(record.host) <= CLIENT_CHARACTERS_MAX
    return True


POSITION_MAX = 2**63 - 1
