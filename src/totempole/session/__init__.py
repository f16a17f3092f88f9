"""The language between a program and its daemon: frames on a stream socket, which `codec` reads and writes.

A frame is length u32, kind u8, body; all big-endian.

    program to daemon
    HELLO    JSON: version, name                       the first frame; WELCOME or REFUSED answers it
    JOIN     request u32, policy u8, flags u8, name u8, name, info
                                                       DONE or REFUSED answers; a VIEW may come before DONE
    LEAVE    request u32, name                         DONE or REFUSED
    SEND     service u8, flags u8, names u16, names, batch
    STATE    joiner, place, last u8, name u8, name, content
    GROUPS   request u32                               TABLE or REFUSED; one at a time
    NETWORKS request u32, watch u8                     NETWORK_TABLE; with watch 1, a NETWORK for each change
    LARGE    request u32, kind u8, total u64           DONE grants it; then PARTs, together a SEND's body
    PART     bytes
    APPEND   request u32, flags u8, name u8, keys u32, name, fence, keys, batch
                                                       PLACED follows, or FENCED, REFUSED or LOST; before that
                                                       ACCEPTED, unless it comes soon; with flag 1
                                                       (WANTS_DURABLE) ACCEPTED, and DURABLE if it comes
                                                       first; with flag 2 (HAS_FENCE) there is a fence
    FIND     request u32, run                          PLACED or FENCED; or UNKNOWN, and if it is held one of
                                                       them later
    HOLD     request u32, position i64, reader         as APPEND; position -1 gives it up
    FOLLOW   request u32, name                         FOLLOWING or REFUSED; a log once on a connection
    UNFOLLOW name                                      no answer
    BARRIER  request u32                               PASSED or REFUSED, at last
    FREED    u64                                       of the memory that it shares with the daemon (`shared`)
    BYE      -                                         ENDED answers

    daemon to program
    WELCOME  JSON: version, process, cluster_id, credit, limits
    REFUSED  request u32, text                         request 0: the session; the daemon closes it;
                                                       2**32 - 1: and will do so again (FOR_GOOD)
    DONE     request u32
    CREDIT   u64                                       see `cost_of`
    MESSAGES sender, number u64, count u32, service u8, place, names u16, names, batch
    VIEW     kind u8, place, name u8, changed u8, members u32, together u32; name, changed, members, together;
             then nothing, or of each member length u16, info
    SAFE     sender, number u64, count u32, place, names
    STATE_ASKED, STATE_BEGINS   process, place, name   (no donor: processor 0)
    STATE_CHUNK  donor, place, last u8, name u8, name, content
    GAP      messages u64, bytes u64, name             of the group, not passed on (shed)
    TABLE    request u32, JSON: groups and their members, with their info if they have given any
    NETWORK_TABLE  request u32, JSON: name, state and fault of each network of a redundant ring
    NETWORK  JSON: name, before, state, why, key       in the total order, behind the table
    ACCEPTED request u32, run, position u64            it is ordered at that position or later
    DURABLE  request u32, run
    PLACED   request u32, run, position u64, count u32, repeats u32; each index u32, position u64
    FENCED   request u32, run, mark u64, position i64  its fence has kept it out: it takes no position
    LOST     request u32, run, why                     run 0, 0, 0 (NO_RUN): the log is closed, and has taken
                                                       nothing; else it may be in the log
    UNKNOWN  request u32, run, held u8
    FOLLOWING  request u32, log u64, place u64, position u64
                                                       runs of the log from this place on follow as RUNS
    RUNS     place u64, position u64, name u8, name, MessagePack: runs as a log service gives them
                                                       name empty: the log's own, for all that is followed
    FOLLOW_ENDED  why u8                               of all logs that are followed on this connection
    PASSED   request u32, place u64                    behind all RUNS of runs before this place
    ENDED    reason                                    the session is over; nothing follows
    LARGE    request 0, kind, total                    then PARTs: the body of a frame too long for one
    SHARED   kind u8, start u32, length u32, total u64 the body of a frame lies in the memory that is shared

A run (of records, in the durable log) is origin u32, life u64, number u64; keys are packed as messages are. A
fence is number u64, low u64, high u64, name u8, name.
A process is processor u32, incarnation u64, number u32; a place is ring u64 u32, seq u64, configuration
u64 u32, index u32. A body has at most FRAME_BYTES_MAX, most kinds less: a length is refused before anything
is kept for it. What is left of the PARTs of a LARGE never comes when the session ends meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from struct import Struct
from types import MappingProxyType
from typing import NamedTuple

from totempole.groups.events import BecameSafe, GroupMessages, GroupView, StateAsked, StateBegins, StateChunk
from totempole.groups.packing import INFO_BYTES_MAX
from totempole.types import Fence, OrderKey, Payload, Place, ProcessId, Service

VERSION = 5
"""Of the conversation. Who speaks another one is refused."""

FRAME_BYTES_MAX = 1024 * 1024
"""A body, at most."""

LARGE_BYTES_MAX = 2**31
"""The parts of one LARGE together, as far as a program believes its daemon."""

SHARED_BYTES = 4 * 1024 * 1024
"""Of the memory that a program shares with its daemon: what a rotation of the token brings, and more."""

SEND_OVERHEAD = 256
"""What the daemon needs to remember a SEND or a STATE, beside its bytes."""

HELLO_BYTES_MAX = 4_096
NAME_BYTES_MAX = 255
KEY_BYTES_MAX = 255
"""A record's key."""
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
    APPEND = 11
    FIND = 12
    HOLD = 13
    FOLLOW = 14
    UNFOLLOW = 15
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
    ACCEPTED = 31
    DURABLE = 32
    PLACED = 33
    LOST = 34
    UNKNOWN = 35
    FOLLOWING = 36
    RUNS = 37
    FOLLOW_ENDED = 38
    PASSED = 39
    BARRIER = 40
    FENCED = 41
    SHARED = 42
    FREED = 43


class FollowEnd(IntEnum):
    """Why a daemon pushes no more runs."""

    TOO_SLOW = 1
    """The program has left too much unread. It reads the log, and follows anew."""
    CLOSED = 2
    """The node has no log open. FOLLOWING comes again when it has."""
    JUMPED = 3
    """The replica was far behind, and has begun anew at a later place. FOLLOWING comes next."""


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
    info: bytes = b""


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


RunName = tuple[int, int, int]
"""Of a run of records in the durable log: origin, life, number."""
NO_RUN: RunName = (0, 0, 0)


class Append(NamedTuple):
    """Records for a log, a batch as `groups.pack` makes it. `keys`: one for each, packed in the same way; or
    nothing."""

    request: int
    log: str
    batch: Payload
    keys: Payload = b""
    wants_durable: bool = False
    """Tell when the records are on the disk of the daemon's host."""
    fence: Fence | None = None


class FindRun(NamedTuple):
    request: int
    run: RunName


class HoldLog(NamedTuple):
    request: int
    reader: str
    position: int


class FollowLog(NamedTuple):
    """Give me the runs of this log as they become green."""

    request: int
    log: str


class Unfollow(NamedTuple):
    log: str


class AskBarrier(NamedTuple):
    request: int


class Bye(NamedTuple):
    pass


class Large(NamedTuple):
    request: int
    kind: Kind
    total: int


class Part(NamedTuple):
    content: Payload


class Freed(NamedTuple):
    """The program has copied so much out of the shared memory since the start, with what was passed over."""

    total: int


class Shared(NamedTuple):
    """In place of a frame whose body lies in the shared memory."""

    kind: int
    start: int
    length: int
    total: int
    """What may be said with FREED when it was copied out."""


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
    append_bytes_max: int
    """The body of an APPEND. 0: this node keeps no log."""


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


class Groups(dict[str, tuple[ProcessId, ...]]):
    """Groups and their members. `info`: what members have said of themselves, where they have."""

    def __init__(
        self,
        groups: Mapping[str, tuple[ProcessId, ...]],
        info: Mapping[str, Mapping[ProcessId, bytes]] = MappingProxyType({}),
    ) -> None:
        super().__init__(groups)
        self.info = info


class GroupTable(NamedTuple):
    request: int
    groups: Mapping[str, tuple[ProcessId, ...]]
    info: Mapping[str, Mapping[ProcessId, bytes]] = MappingProxyType({})


class EncodedTable(NamedTuple):
    """A GroupTable whose groups are packed already (`pack_table`), for many who ask at once."""

    request: int
    groups: bytes


class NetworkStatus(NamedTuple):
    """A network of a redundant ring, as all members have agreed."""

    name: str
    """As the settings call it, or its number."""
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


class RunAccepted(NamedTuple):
    request: int
    run: RunName
    position: int
    """The run will be at this position or later."""


class RunDurable(NamedTuple):
    request: int
    run: RunName


class RunPlaced(NamedTuple):
    request: int
    run: RunName
    position: int
    """Of its first record that has taken one."""
    count: int  # type: ignore[assignment]
    """So many have."""
    repeats: tuple[tuple[int, int], ...]
    """Records whose key was there before: (index, position of the first)."""


class RunFenced(NamedTuple):
    """The fence of the run has kept it out: none of its records takes a position."""

    request: int
    run: RunName
    mark: int
    """That was in force."""
    position: int
    """Of the first record of the run that had set it; -1: none had."""


class RunLost(NamedTuple):
    request: int
    run: RunName
    why: str


class RunUnknown(NamedTuple):
    request: int
    run: RunName
    is_held: bool
    """It is there and not ordered yet: RunPlaced or RunFenced follows."""


class Following(NamedTuple):
    """Green runs of the log are pushed from this place on. What is before is read from a log service."""

    request: int
    log_id: int
    """The log's own name; 0: it is not founded yet."""
    place: int
    position: int


class LogRuns(NamedTuple):
    """Runs that have just become green, in their order. There are none when the program is only told how far
    the order is."""

    log: str
    """Empty: they are the log's own, or there are none. It counts for all logs that are followed."""
    runs: Payload
    """An array of `log_frames.OrderedRun`, encoded."""
    place: int
    """All runs of the log before this place were given."""
    position: int
    """Likewise its records."""


class FollowEnded(NamedTuple):
    why: FollowEnd


class BarrierPassed(NamedTuple):
    """Every run that was green anywhere when the barrier was asked for is before this place. Those of logs
    that are followed on this connection were pushed before this frame."""

    request: int
    place: int


class Ended(NamedTuple):
    reason: str


ClientFrame = (
    Hello
    | Join
    | Leave
    | Send
    | State
    | AskGroups
    | AskNetworks
    | Append
    | FindRun
    | HoldLog
    | FollowLog
    | Unfollow
    | AskBarrier
    | Bye
    | Large
    | Part
    | Freed
)
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
    | RunAccepted
    | RunDurable
    | RunPlaced
    | RunFenced
    | RunLost
    | RunUnknown
    | Following
    | LogRuns
    | FollowEnded
    | BarrierPassed
    | Ended
    | Large
    | Part
    | Shared
)
Frame = ClientFrame | DaemonFrame

CLIENT_KINDS: Mapping[int, int] = {
    Kind.HELLO: HELLO_BYTES_MAX,
    Kind.JOIN: 7 + NAME_BYTES_MAX + INFO_BYTES_MAX,
    Kind.LEAVE: 4 + NAME_BYTES_MAX,
    Kind.SEND: FRAME_BYTES_MAX,
    Kind.STATE: FRAME_BYTES_MAX,
    Kind.GROUPS: 4,
    Kind.NETWORKS: 5,
    Kind.APPEND: FRAME_BYTES_MAX,
    Kind.FIND: 24,
    Kind.HOLD: 12 + NAME_BYTES_MAX,
    Kind.FOLLOW: 4 + NAME_BYTES_MAX,
    Kind.UNFOLLOW: NAME_BYTES_MAX,
    Kind.BARRIER: 4,
    Kind.BYE: 0,
    Kind.LARGE: 13,
    Kind.PART: FRAME_BYTES_MAX,
    Kind.FREED: 8,
}
"""What a program may send, and the longest body of each."""

DAEMON_KINDS: Mapping[int, int] = {
    **{kind: FRAME_BYTES_MAX for kind in Kind if kind not in CLIENT_KINDS},
    Kind.LARGE: 13,
    Kind.PART: FRAME_BYTES_MAX,
    Kind.SHARED: 17,
}
"""What a daemon may send."""


def cost_of(body_bytes: int) -> int:
    """What a SEND or a STATE with such a body takes from the credit."""
    return body_bytes + SEND_OVERHEAD


def kind_name(kind: int) -> str:
    return Kind(kind).name if kind in set(Kind) else f"kind {kind}"
