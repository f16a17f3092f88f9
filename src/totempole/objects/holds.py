"""What an object needs of the log: where a host begins to read, and the hold that keeps the rest from being
trimmed.

`object:NAME@PROCESSOR` keeps the log from the older of the two snapshots that the node's log service keeps:
if the newest cannot be read, the other and the log behind it still give the whole object. It is 0 until there
are two, so that nothing of an object is trimmed that is in no snapshot. It never moves to a position that
no durable snapshot has.
"""

from __future__ import annotations

from collections.abc import Mapping

from totempole.log.snapshots import StoredHead, hash_of
from totempole.objects.snapshot_transfer import SnapshotError

HOLD_PREFIX = "object:"
NAME_BYTES_MAX = 80
"""Of an object's name in that of its hold, which has at most 100."""
CUT_BYTES = 50


class ObjectTrimmedError(SnapshotError):
    """The log of an object was trimmed, and no snapshot can be had."""


def hold_name(object_name: str, processor: int) -> str:
    """A name that would be too long for a hold is cut, and told from others by its hash."""
    if len(object_name.encode()) > NAME_BYTES_MAX:
        cut = object_name.encode()[:CUT_BYTES].decode(errors="ignore")
        object_name = f"{cut}…{hash_of(object_name)}"
    return f"{HOLD_PREFIX}{object_name}@{processor}"


def hold_position(kept: tuple[int, ...]) -> int | None:
    """The hold that these snapshots at a service allow; None: it stays where it is."""
    return sorted(kept)[-2] if len(kept) >= 2 else None


def holds_of(object_name: str, holds: Mapping[str, int]) -> dict[int, int]:
    """The holds of an object, by processor."""
    found = {}
    for name, position in holds.items():
        processor = name.rpartition("@")[2]
        if processor.isdecimal() and name == hold_name(object_name, int(processor)):
            found[int(processor)] = position
    return found


def starting_point(object_name: str, first: int, holds: Mapping[str, int], head: StoredHead | None) -> int:
    """The position from which a host reads the log. `first`: the earliest position that is kept; `holds`:
    all holds of the log, as the replica has them (`ReplicaStatus`).

    Without a snapshot it is the earliest, if nothing of the object was trimmed: no host has moved its hold.
    Raises ObjectTrimmedError.
    """
    if head is not None:
        if head.position < first:
            raise ObjectTrimmedError(
                f"object {object_name!r}: its snapshot is of position {head.position}, and the log begins "
                f"with position {first}: records between them are trimmed. Read from another replica: name "
                "the log services of others with replicas="
            )
        return head.position
    moved = {who: position for who, position in holds_of(object_name, holds).items() if position > 0}
    if first > 0 and moved:
        names = ", ".join(f"node {who} (from position {position} on)" for who, position in moved.items())
        raise ObjectTrimmedError(
            f"object {object_name!r}: the log begins with position {first}, what was before it is in "
            f"snapshots only, and no log service that was asked has one: {names} should. Name the log "
            "services of other replicas with replicas="
        )
    return first
