"""Frames between a program and its daemon, on a stream socket: length u32, kind u8, body; all big-endian.

    program to daemon
    HELLO    JSON: version, name                       the first frame; WELCOME or REFUSED answers it
    JOIN     request u32, policy u8, flags u8, name    DONE or REFUSED answers; a VIEW may come before DONE
    LEAVE    request u32, name                         DONE or REFUSED
    SEND     service u8, flags u8, names u16, names, batch
    STATE    joiner, place, last u8, name u8, name, content
    GROUPS   request u32                               TABLE or REFUSED; one at a time
    LARGE    request u32, kind u8, total u64           DONE grants it; then PARTs, together a SEND's body
    PART     bytes
    BYE      -                                         ENDED answers

    daemon to program
    WELCOME  JSON: version, process, cluster_id, credit, limits
    REFUSED  request u32, text                         request 0: the session; the daemon closes it;
                                                       2**32 - 1: and will do so again (FOR_GOOD)
    DONE     request u32
    CREDIT   u64                                       see `cost_of`
    MESSAGES sender, number u64, count u32, service u8, place, names u16, names, batch
    VIEW     kind u8, place, name u8, changed u8, members u32, together u32; name, changed, members, together
    SAFE     sender, number u64, count u32, place, names
    STATE_ASKED, STATE_BEGINS   process, place, name   (no donor: processor 0)
    STATE_CHUNK  donor, place, last u8, name u8, name, content
    GAP      messages u64, bytes u64, name             of the group, not passed on (shed)
    TABLE    request u32, JSON: groups and their members
    ENDED    reason                                    the session is over; nothing follows
    LARGE    request 0, kind, total                    then PARTs: the body of a frame too long for one

A process is processor u32, incarnation u64, number u32; a place is ring u64 u32, seq u64, configuration
u64 u32, index u32. A body has at most FRAME_BYTES_MAX, most kinds less: a length is refused before anything
is kept for it. What is left of the PARTs of a LARGE never comes when the session ends meanwhile.
"""

from __future__ import annotations

from totempole.client.frame_decoding import (
    decode,
)
from totempole.client.frame_encoding import (
    body_of,
    cut,
    encode,
    pack_table,
)
from totempole.client.frame_reading import (
    Assembly,
    FrameReader,
)
from totempole.client.frame_types import (
    CLIENT_KINDS,
    DAEMON_KINDS,
    FOR_GOOD,
    FRAME_BYTES_MAX,
    HEAD,
    HELLO_BYTES_MAX,
    LARGE_BYTES_MAX,
    NAME_BYTES_MAX,
    SEND_OVERHEAD,
    TEXT_BYTES_MAX,
    VERSION,
    AskGroups,
    Bye,
    ClientFrame,
    Credit,
    DaemonFrame,
    Done,
    EncodedTable,
    Ended,
    Frame,
    Gap,
    GroupTable,
    Hello,
    Join,
    Kind,
    Large,
    Leave,
    Limits,
    Part,
    Policy,
    Refused,
    Send,
    State,
    Welcome,
    cost_of,
)

__all__ = [
    "CLIENT_KINDS",
    "DAEMON_KINDS",
    "FOR_GOOD",
    "FRAME_BYTES_MAX",
    "HEAD",
    "HELLO_BYTES_MAX",
    "LARGE_BYTES_MAX",
    "NAME_BYTES_MAX",
    "SEND_OVERHEAD",
    "TEXT_BYTES_MAX",
    "VERSION",
    "AskGroups",
    "Assembly",
    "Bye",
    "ClientFrame",
    "Credit",
    "DaemonFrame",
    "Done",
    "EncodedTable",
    "Ended",
    "Frame",
    "FrameReader",
    "Gap",
    "GroupTable",
    "Hello",
    "Join",
    "Kind",
    "Large",
    "Leave",
    "Limits",
    "Part",
    "Policy",
    "Refused",
    "Send",
    "State",
    "Welcome",
    "body_of",
    "cost_of",
    "cut",
    "decode",
    "encode",
    "pack_table",
]
