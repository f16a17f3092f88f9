"""The language between a program and its daemon: frames on a stream socket, which `codec` reads and writes.

A frame is length u32, kind u8, body; all big-endian.

    program to daemon
    HELLO    JSON: version, name                       the first frame; WELCOME or REFUSED answers it
    JOIN     request u32, policy u8, flags u8, name    DONE or REFUSED answers; a VIEW may come before DONE
    LEAVE    request u32, name                         DONE or REFUSED
    SEND     service u8, flags u8, names u16, names, batch
    STATE    joiner, place, last u8, name u8, name, content
    GROUPS   request u32                               TABLE or REFUSED; one at a time
    NETWORKS request u32, watch u8                     NETWORK_TABLE; with watch 1, a NETWORK for each change
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
    NETWORK_TABLE  request u32, JSON: name, state and fault of each network of a redundant ring
    NETWORK  JSON: name, before, state, why, key       in the total order, behind the table
    ENDED    reason                                    the session is over; nothing follows
    LARGE    request 0, kind, total                    then PARTs: the body of a frame too long for one

A process is processor u32, incarnation u64, number u32; a place is ring u64 u32, seq u64, configuration
u64 u32, index u32. A body has at most FRAME_BYTES_MAX, most kinds less: a length is refused before anything
is kept for it. What is left of the PARTs of a LARGE never comes when the session ends meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from totempole.groups.events import BecameSafe, GroupMessages, GroupView, StateAsked, StateBegins, StateChunk
from totempole.types import OrderKey, Payload, Place, ProcessId, Service

VERSION = 2
"""Of the conversation. Who speaks another one is refused."""

FRAME_BYTES_MAX = 1024 * 1024
"""A body, at most."""

LARGE_BYTES_MAX = 2**31
"""The parts of one LARGE together, as far as a program believes its daemon."""

SEND_OVERHEAD = 256
"""What the daemon needs to remember a SEND or a STATE, beside its bytes."""

HELLO_BYTES_MAX = 4_096
NAME_BYTES_MAX = 255
TEXT_BYTES_MAX = 4_096

HEAD = Struct(">IB")


class Kind(IntEnum):
    HELLO = 1
    JOIN = 2
    LEAVE = 3
    SEND = 4
    STATE = 5
    GROUPS = 6
    BYE = 7
    LARGE = 8
    PART = 9
    NETWORKS = 10
    WELCOME = 16
    REFUSED = 17
    DONE = 18
    CREDIT = 19
    MESSAGES = 20
    VIEW = 21
    SAFE = 22
    STATE_ASKED = 23
    STATE_BEGINS = 24
    STATE_CHUNK = 25
    GAP = 26
    TABLE = 27
    ENDED = 28
    NETWORK_TABLE = 29
    NETWORK = 30


class Policy(IntEnum):
    """What becomes of a program whose queue at the daemon is full. It asks for one with each join."""

    DISCONNECT = 1
    BLOCK = 2
    """Its own sends wait while the queue is over half full. The bound still disconnects."""
    SHED = 3
    """Messages of the group are left out, and a Gap tells how many."""


# The frames. What the group layer tells its processes travels as that layer's own events.


class Hello(NamedTuple):
    name: str = ""
    """For logs and lists: what the program calls itself."""
    version: int = VERSION


class Join(NamedTuple):
    request: int
    group: str
    policy: Policy = Policy.DISCONNECT
    donor: bool = False
    wants_state: bool = False


class Leave(NamedTuple):
    request: int
    group: str


class Send(NamedTuple):
    """A batch as `groups.pack` makes it."""

    groups: tuple[str, ...]
    batch: Payload
    service: Service = Service.AGREED
    notice: bool = False
    """Tell the receivers when it has become safe."""


class State(NamedTuple):
    """The answer to StateAsked, in pieces."""

    group: str
    joiner: ProcessId
    place: Place
    last: bool
    content: Payload


class AskGroups(NamedTuple):
    request: int


class AskNetworks(NamedTuple):
    request: int
    watch: bool = False
    """Tell changes too, from now on."""


class Bye(NamedTuple):
    pass


class Large(NamedTuple):
    request: int
    kind: Kind
    total: int


class Part(NamedTuple):
    content: Payload


class Limits(NamedTuple):
    """What the daemon takes. A program that keeps to them is never refused for what it could have known."""

    send_bytes_max: int
    """The body of a SEND or a STATE. Larger messages go as LARGE."""
    batch_bytes: int
    """What a SEND best carries: so much fits a ring packet without being cut."""
    message_bytes_max: int
    group_name_bytes_max: int
    groups_per_message_max: int
    groups_per_process_max: int


class Welcome(NamedTuple):
    process: ProcessId
    cluster_id: int
    credit: int
    """As the first CREDIT would say it."""
    limits: Limits
    version: int = VERSION


FOR_GOOD = 2**32 - 1
"""In place of a request: the session is over, and one that comes back as it is will be refused again."""


class Refused(NamedTuple):
    """An answer to a request; or, with request 0 or FOR_GOOD, the end of the session."""

    request: int
    text: str


class Done(NamedTuple):
    request: int


class Credit(NamedTuple):
    """The SENDs and STATEs since the start may have cost this much altogether (`cost_of`)."""

    total: int


class Gap(NamedTuple):
    group: str
    messages: int
    bytes: int


class GroupTable(NamedTuple):
    request: int
    groups: Mapping[str, tuple[ProcessId, ...]]


class EncodedTable(NamedTuple):
    """A GroupTable whose groups are packed already (`pack_table`), for many who ask at once."""

    request: int
    groups: bytes


class NetworkStatus(NamedTuple):
    """A network of a redundant ring, as all members have agreed."""

    name: str
    state: str
    """in_service, sick, faulty, drained or probation."""
    why: str
    """What is wrong, in words; empty if nothing is."""


class NetworkTable(NamedTuple):
    request: int
    networks: tuple[NetworkStatus, ...]
    """None: the ring is on one network."""


class NetworkNews(NamedTuple):
    """A network's state has changed, or what is known of its fault."""

    name: str
    before: str
    state: str
    why: str
    key: OrderKey


class Ended(NamedTuple):
    reason: str


ClientFrame = Hello | Join | Leave | Send | State | AskGroups | AskNetworks | Bye | Large | Part
DaemonFrame = (
    Welcome
    | Refused
    | Done
    | Credit
    | GroupMessages
    | GroupView
    | BecameSafe
    | StateAsked
    | StateBegins
    | StateChunk
    | Gap
    | GroupTable
    | EncodedTable
    | NetworkTable
    | NetworkNews
    | Ended
    | Large
    | Part
)
Frame = ClientFrame | DaemonFrame

CLIENT_KINDS: Mapping[int, int] = {
    Kind.HELLO: HELLO_BYTES_MAX,
    Kind.JOIN: 6 + NAME_BYTES_MAX,
    Kind.LEAVE: 4 + NAME_BYTES_MAX,
    Kind.SEND: FRAME_BYTES_MAX,
    Kind.STATE: FRAME_BYTES_MAX,
    Kind.GROUPS: 4,
    Kind.NETWORKS: 5,
    Kind.BYE: 0,
    Kind.LARGE: 13,
    Kind.PART: FRAME_BYTES_MAX,
}
"""What a program may send, and the longest body of each."""

DAEMON_KINDS: Mapping[int, int] = {
    **{kind: FRAME_BYTES_MAX for kind in Kind if kind >= Kind.WELCOME},
    Kind.LARGE: 13,
    Kind.PART: FRAME_BYTES_MAX,
}
"""What a daemon may send."""


def cost_of(body_bytes: int) -> int:
    """What a SEND or a STATE with such a body takes from the credit."""
    return body_bytes + SEND_OVERHEAD


def kind_name(kind: int) -> str:
    return Kind(kind).name if kind in set(Kind) else f"kind {kind}"
