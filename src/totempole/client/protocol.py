"""The program's side of its daemon, without I/O: bytes in, events out; requests in, bytes out.

Both sessions, the asyncio one and the blocking one, are thin bridges over this object. It lives as long as
the session: when the daemon goes away and comes back it begins a new conversation, as a new process, joins
the groups again and tells the program with `Reconnected`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from totempole import session
from totempole.client.events import (
    EVENT_WEIGHT,
    Gap,
    Inbox,
    Messages,
    NetworkChanged,
    Reconnected,
    Safe,
    Stream,
    View,
)
from totempole.client.sending import CLOSED, Sending, Target, check_name
from totempole.errors import CodecError, SessionError
from totempole.groups.events import BecameSafe, GroupMessages, GroupView, StateAsked, StateBegins, StateChunk
from totempole.groups.packing import INFO_BYTES_MAX, NAME_BYTES_MOST, Batch, pack
from totempole.session import (
    DAEMON_KINDS,
    FOR_GOOD,
    LARGE_BYTES_MAX,
    AskGroups,
    AskNetworks,
    BarrierPassed,
    Bye,
    Credit,
    Done,
    Ended,
    FollowEnded,
    Following,
    Freed,
    Groups,
    GroupTable,
    Hello,
    Join,
    Kind,
    Leave,
    LogRuns,
    NetworkNews,
    NetworkTable,
    Policy,
    Refused,
    RunAccepted,
    RunDurable,
    RunFenced,
    RunLost,
    RunPlaced,
    RunUnknown,
    Send,
    Welcome,
)
from totempole.session.codec import FrameReader, SharedReader, cut, decode, encode
from totempole.types import Payload, Place, ProcessId

if TYPE_CHECKING:
    from totempole.client.appending import Appending
    from totempole.client.feeding import Feeds

MIB = 1024 * 1024
RECEIVED_BYTES_MAX = 4 * MIB
"""Events that the program has not taken yet. When there are more, the session reads no further, and the
daemon's policy for the group applies."""

WAITING_BYTES_MAX = 64 * MIB
"""The same while the program itself waits for the daemon: its answer comes behind events. A program that
multicasts while it takes no events gets this far."""

STATE_BYTES_MAX = 1024 * MIB
"""A group's state, and what waits for it, at a program that joins."""

Chunks = bytes | bytearray | memoryview | Iterable[bytes] | AsyncIterable[bytes]
StateProvider = Callable[[], Chunks | Awaitable[Chunks]]
"""Gives the group's state as of this very moment: in one piece, or in chunks that no longer change. It is
called between two events of the iteration, when the program has worked off all that came before."""

Listener = Callable[[SessionError | None, Any], None]

NO_BARRIER = "no majority of the log's replicas has answered the barrier"

PolicyName = Literal["disconnect", "block", "shed"]
POLICIES: Mapping[str, Policy] = {policy.name.lower(): policy for policy in Policy}


class Phase(Enum):
    CONNECTING = "connecting"
    """HELLO is on its way, or there is no connection."""
    OPEN = "open"
    CLOSING = "closing"
    """BYE was said."""
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Joining:
    """How the program wants to be in a group."""

    group: str
    policy: Policy
    provider: StateProvider | None
    want_state: bool
    info: bytes = b""


class Asked(NamedTuple):
    """An open request. `group` for those that concern one."""

    kind: Literal["join", "rejoin", "leave", "groups", "networks", "watch", "large"]
    group: str = ""


_UNASKED = ("rejoin", "watch")
"""What the program does not wait for."""


class Answer(NamedTuple):
    request: int
    error: SessionError | None = None
    value: Any = None


def policy_of(name: str) -> Policy:
    policy = POLICIES.get(name)
    if policy is None:
        raise SessionError(f"policy = {name!r}: give {', '.join(POLICIES)}")
    return policy


def info_of(info: bytes) -> bytes:
    """What a program says of itself to the other members of a group, checked."""
    if not isinstance(info, bytes):
        raise TypeError(f"info is bytes, not {type(info).__name__}: encode it first")
    if len(info) > INFO_BYTES_MAX:
        raise SessionError(f"info of {len(info)} bytes: give at most {INFO_BYTES_MAX}")
    return info


class Protocol:
    def __init__(self, name: str = "", *, state_bytes_max: int = STATE_BYTES_MAX) -> None:
        self.name = name
        self.inbox = Inbox(state_bytes_max, lambda text: self.warn(text))
        self.sending = Sending(self._unreturned)
        self.phase = Phase.CONNECTING
        self.welcome: Welcome | None = None
        self.farewell: str | None = None
        """Why the daemon has ended the session, as it says itself."""
        self.refused_for_good = False
        """Whether it would end the next session in the same way."""
        self.answers: list[Answer] = []
        """For the session, which empties it."""
        self.joinings: dict[str, Joining] = {}
        self._reader = FrameReader()
        self._shared: SharedReader | None = None
        self._requests: dict[int, Asked] = {}
        self._request_last = 0
        self._lost: tuple[ProcessId, dict[str, Place | None], int, str] | None = None
        """Between two connections: who the program was, what it had seen, what may be lost, and why."""
        self._gifts: set[StateAsked] = set()
        self._appending: Appending | None = None
        self._feeds: Feeds | None = None
        self._listeners: dict[int, Listener] = {}
        self.warn: Callable[[str], None] = logging.getLogger("totempole.client").warning
        """Tells the program's operators."""
        self.draw_token: Callable[[], str] = partial(secrets.token_hex, 16)
        """A name that nobody else has."""
        self.has_others = False
        """Whether there are other daemons to go to."""

    # The connection

    def connect(self, shared: SharedReader | None = None) -> None:
        """There is a connection: says hello. `shared`: memory that is offered to the daemon."""
        self._reader = FrameReader(DAEMON_KINDS, LARGE_BYTES_MAX, shared)
        self._shared = shared
        self.phase, self.farewell, self.refused_for_good = Phase.CONNECTING, None, False
        self.sending.out = [encode(Hello(self.name))]

    def lost(self, reason: str) -> None:
        """The connection is gone, and there may be another one later."""
        self.phase = Phase.CONNECTING
        self._forget_reader()
        self._gifts.clear()
        unacknowledged = self.sending.lost(reason)
        seen = self.inbox.cut()
        if self._lost is not None:
            self._add_loss(unacknowledged)
        elif self.welcome is not None:
            self._lost = (self.welcome.process, seen, unacknowledged, reason)
        self._answer_lost(reason)
        if self._appending is not None:
            self._appending.lost(reason)
        if self._feeds is not None:
            self._feeds.lost()

    def _forget_reader(self) -> None:
        """With what came of the next frame, and with the memory that was shared."""
        self._reader, self._shared = FrameReader(), None

    def _add_loss(self, unacknowledged: int) -> None:
        assert self._lost is not None
        before, seen, count, reason = self._lost
        self._lost = (before, seen, count + unacknowledged, reason)

    def _answer_lost(self, reason: str) -> None:
        """Joins are asked again, what was left is left; the rest fails."""
        requests, self._requests = self._requests, {}
        for request, asked in requests.items():
            if asked.kind == "join":
                self._requests[request] = asked
            elif asked.kind == "leave":
                self.answers.append(Answer(request))
            elif asked.kind not in _UNASKED:
                self.answers.append(Answer(request, SessionError(reason)))

    def end(self, error: SessionError | None) -> None:
        """The session is over."""
        if self.phase is Phase.OVER:
            return
        self.phase = Phase.OVER
        self._forget_reader()
        self.sending.lost(str(error) if error else CLOSED)
        self._gifts.clear()
        self.joinings.clear()
        self.inbox.end(error)
        for request in self._requests:
            self.answers.append(Answer(request, error or SessionError("the session is closed")))
        self._requests.clear()
        if self._appending is not None:
            self._appending.end(error or SessionError("the session is closed"))
        if self._feeds is not None:
            self._feeds.end(error)

    @property
    def process(self) -> ProcessId:
        if self.welcome is None:
            raise SessionError("the session is not open: use it inside `with`")
        return self.welcome.process

    # Requests

    def join(self, joining: Joining) -> int:
        if joining.group in self.joinings:
            raise SessionError(f"group {joining.group!r} is joined already, by this session")
        limits = self.sending.limits
        check_name(joining.group, limits.group_name_bytes_max if limits else NAME_BYTES_MOST)
        self.joinings[joining.group] = joining
        has_state = joining.want_state or joining.provider is not None
        self.inbox.add(joining.group, has_state=has_state)
        return self._ask_join("join", joining, self._new_request())

    def _ask_join(self, kind: Literal["join", "rejoin"], joining: Joining, request: int) -> int:
        self._requests[request] = Asked(kind, joining.group)
        if self.phase is Phase.OPEN:
            donor = joining.provider is not None
            self.sending.request(
                Join(request, joining.group, joining.policy, donor, joining.want_state, joining.info)
            )
        return request

    def leave(self, group: str, error: SessionError | None = None) -> int | None:
        """Leaves it: with an error when it is the session that gives up. None: nothing to wait for."""
        if self.joinings.pop(group, None) is None:
            return None  # it was given up before
        self.inbox.remove(group, error)
        self.sending.left()
        self._gifts = {asked for asked in self._gifts if asked.group != group}
        for request, asked in list(self._requests.items()):
            if asked.group == group and asked.kind != "leave":
                del self._requests[request]
        if self.phase is not Phase.OPEN:
            return None
        request = self._new_request()
        self._requests[request] = Asked("leave", group)
        self.sending.request(Leave(request, group))
        return request

    def _unreturned(self, groups: tuple[str, ...]) -> str:
        """Why messages to these groups do not come back to the program for certain; empty if they do."""
        joinings = [self.joinings[group] for group in groups if group in self.joinings]
        if any(joining.policy is not Policy.SHED for joining in joinings):
            return ""
        return _SHED if joinings else _NO_MEMBER

    def ask_groups(self) -> int:
        request = self._new_request()
        self._requests[request] = Asked("groups")
        self.sending.request(AskGroups(request))
        return request

    def ask_networks(self) -> int:
        request = self._new_request()
        self._requests[request] = Asked("networks")
        self.sending.request(AskNetworks(request))
        return request

    def open_events(self, networks: bool) -> Stream:
        """The session's own stream; with `networks`, changes of networks are in it from now on."""
        stream = self.inbox.open_whole()
        if networks and not self.inbox.networks_wanted:
            self.inbox.networks_wanted = True
            self._watch_networks()
        return stream

    def _watch_networks(self) -> None:
        if self.phase is Phase.OPEN:
            request = self._new_request()
            self._requests[request] = Asked("watch")
            self.sending.request(AskNetworks(request, watch=True))

    def ask_large(self, to: Target, payload: bytes) -> tuple[int, list[tuple[Payload, ...]]]:
        """Asks for leave to send a large message; its parts, for when that is given."""
        request = self._new_request()
        self._requests[request] = Asked("large")
        self.sending.close_batch()
        send = Send(to.groups, pack((payload,)), to.service, to.notice)
        head, *parts = cut(send, request, largest=0)
        self.sending.out += head
        return request, parts

    @property
    def appending(self) -> Appending:
        """What the program appends to the durable log. Only a program that does so loads this part."""
        if self._appending is None:
            from totempole.client.appending import Appending

            self._appending = Appending(self.sending.request, self._new_request, self._told)
            self._appending.can_move = self.has_others
            if self.phase is Phase.OPEN and self.sending.limits is not None:
                self._appending.opened(self.sending.limits.append_bytes_max)
        return self._appending

    @property
    def feeds(self) -> Feeds:
        """What the program follows of the durable log, and its barriers. Only a program that does so loads
        this part."""
        if self._feeds is None:
            from totempole.client.feeding import Feeds

            self._feeds = Feeds(self.sending.request, self._new_request, self._told)
            self._feeds.can_move = self.has_others
            if self.phase is Phase.OPEN and self.sending.limits is not None:
                self._feeds.opened(self.sending.limits.append_bytes_max > 0)
        return self._feeds

    def listen(self, ticket: int, listener: Listener) -> None:
        """The answer to this ticket is for a part above the session, which only notes it."""
        self._listeners[ticket] = listener

    def unlisten(self, ticket: int) -> None:
        """Nobody waits for the answer any more."""
        self._listeners.pop(ticket, None)
        if self._appending is not None:
            self._appending.give_up(ticket, "nobody waits for it")

    def _told(self, ticket: int, error: SessionError | None, value: Any) -> None:
        listener = self._listeners.pop(ticket, None)
        if listener is not None:
            listener(error, value)
        else:
            self.answers.append(Answer(ticket, error, value))

    @property
    def wants_move(self) -> bool:
        """Whether another daemon should be gone to: this one cannot do what the program has asked for."""
        return any(part is not None and part.wants_move for part in (self._appending, self._feeds))

    def pump(self) -> None:
        """Records that wait are to be sent now."""
        if self._appending is not None:
            self._appending.pump()
        if self._feeds is not None:
            self._feeds.pump()

    def bye(self) -> None:
        """Nothing more is taken from the program or told to it. The daemon still gets all before this."""
        self.phase = Phase.CLOSING
        self.joinings.clear()
        self.sending.give_up(CLOSED)
        self.inbox.end(None)
        if self._feeds is not None:
            self._feeds.end(None)
        self.sending.request(Bye())

    def _new_request(self) -> int:
        self._request_last = self._request_last % (FOR_GOOD - 1) + 1
        return self._request_last

    def is_in(self, group: str, stream: Stream | None) -> bool:
        """Whether the stream is that of the program's present membership of the group."""
        membership = self.inbox.memberships.get(group)
        return membership is not None and membership.own is stream

    @property
    def asking(self) -> bool:
        parts = (self._appending, self._feeds)
        return bool(self._requests) or any(part is not None and part.is_asking for part in parts)

    # State for joiners

    def gift(self, asked: StateAsked) -> StateProvider | None:
        """Whom to ask for the state that a joiner wants; None if it is not wanted any more."""
        joining = self.joinings.get(asked.group)
        if joining is None or joining.provider is None or self.phase is not Phase.OPEN:
            return None
        self._gifts.add(asked)
        return joining.provider

    def is_wanted(self, asked: StateAsked) -> bool:
        return asked in self._gifts

    def give(self, asked: StateAsked, content: Payload, last: bool) -> bool:
        """Takes a piece of the state, if there is credit for it."""
        group, joiner, place = asked
        if not self.sending.offer_state(session.State(group, joiner, place, last, content)):
            return False
        if last:
            self._gifts.discard(asked)
        return True

    # What the daemon says

    def room(self) -> memoryview:
        """Where to read what comes from the daemon."""
        return self._reader.room()

    def received(self, count: int) -> None:
        """So many bytes were read into `room`. SessionError when that is not the daemon's language."""
        reader = self._reader
        reader.filled(count)
        try:
            while found := reader.take():
                for kind, body in found:
                    frame = decode(kind, body)
                    if kind == Kind.MESSAGES:
                        self._messages(frame)
                    else:
                        self._take(frame)
        except CodecError as error:
            raise SessionError(f"the daemon sends what this version cannot read: {error}") from None
        if self._shared is not None and (freed := self._shared.news()) is not None:
            self.sending.out.append(encode(Freed(freed)))
        for group in self.inbox.overfull():
            self.leave(group, SessionError(f"group {group!r}: {_OVERFULL}"))

    def _messages(self, event: GroupMessages) -> None:
        sender, number, count, groups, body, service, place = event
        batch = Batch(body)
        if sender == self.process:
            self.sending.delivered(number + count - 1, place, self.inbox.view_of(groups))
        self.inbox.spread(
            Messages(sender, batch, groups, service, place, number), EVENT_WEIGHT + batch.weight
        )

    def _take(self, frame: Any) -> None:
        inbox = self.inbox
        match frame:
            case Credit(total):
                self.sending.credited(total)
            case GroupView(group, kind, members, together, place, changed, info):
                told = {member: each for member, each in zip(members, info, strict=False) if each}
                view = View(kind.value, group, members, together, place, changed, MappingProxyType(told))
                self._view(view)
            case BecameSafe(sender, number, count, groups, place):
                if sender == self.process:
                    self.sending.became_safe(number + count - 1)
                inbox.spread(Safe(sender, number, count, groups, place), EVENT_WEIGHT)
            case StateAsked():
                inbox.tell(frame.group, frame)
            case StateBegins(group, donor, place):
                inbox.state_begins(group, donor, place)
            case StateChunk(group, donor, content, last, _):
                inbox.state_chunk(group, donor, content, last)
            case session.Gap(group, count, size):
                inbox.tell(group, Gap(group, count, size))
            case Done(request):
                self._answered(Answer(request))
            case Following() | LogRuns() | FollowEnded() | BarrierPassed():
                self.feeds.take(frame)
            case RunLost(request, _, why) if self._feeds is not None and self._feeds.refused(
                request, why, is_closed=True
            ):
                pass
            case RunAccepted() | RunDurable() | RunPlaced() | RunFenced() | RunLost() | RunUnknown():
                self.appending.take(frame)
            case NetworkNews(name, before, state, why, key):
                inbox.network_changed(NetworkChanged(name, state, before, why, Place(key, 0)))
            case NetworkTable():
                self._network_table(frame)
            case GroupTable(request, groups, info):
                self._answered(Answer(request, value=Groups(groups, info)))
            case Refused(request, text):
                self._refused(request, text)
            case Welcome():
                self._welcomed(frame)
            case Ended(reason):
                self.farewell = reason
            case _:
                raise CodecError("frame unexpected", f"{type(frame).__name__} from a daemon")

    def _network_table(self, table: NetworkTable) -> None:
        asked = self._requests.get(table.request)
        if asked is not None and asked.kind == "watch":
            for name, state, why in table.networks:
                self.inbox.network_changed(NetworkChanged(name, state, None, why, None))
        self._answered(Answer(table.request, value=table.networks))

    def _view(self, view: View) -> None:
        if not self.inbox.knows(view, self.process):
            return
        if view.kind == "regular" and self._gifts:
            self._gifts = {
                asked for asked in self._gifts if asked.group != view.group or asked.joiner in view.members
            }
        self.inbox.tell(view.group, view)
        if self._requests:
            self._joined(view.group)

    def _joined(self, group: str) -> None:
        for request, asked in self._requests.items():
            if asked == ("join", group):
                del self._requests[request]
                self.answers.append(Answer(request))
                return

    def _welcomed(self, welcome: Welcome) -> None:
        if self.phase is not Phase.CONNECTING:
            raise CodecError("frame unexpected", "WELCOME out of place")
        if welcome.version != session.VERSION:
            raise CodecError("version", f"it speaks version {welcome.version}, this is {session.VERSION}")
        self.welcome = welcome
        self.phase = Phase.OPEN
        self.sending.opened(welcome.credit, welcome.limits)
        if self._lost is not None:
            before, seen, unacknowledged, reason = self._lost
            self._lost = None
            places = MappingProxyType(seen)
            self.inbox.reconnected(Reconnected(welcome.process, before, unacknowledged, reason, places))
        self._join_again()
        if self.inbox.networks_wanted:
            self._watch_networks()
        if self._appending is not None:
            self._appending.opened(welcome.limits.append_bytes_max)
        if self._feeds is not None:
            self._feeds.opened(welcome.limits.append_bytes_max > 0)

    def _join_again(self) -> None:
        asked = {item.group: request for request, item in self._requests.items() if item.kind == "join"}
        for group, joining in self.joinings.items():
            if group in asked:
                self._ask_join("join", joining, asked[group])
            else:
                self._ask_join("rejoin", joining, self._new_request())

    def _answered(self, answer: Answer) -> None:
        asked = self._requests.get(answer.request)
        if asked is None or (asked.kind == "join" and answer.error is None):
            return  # a join is done when its view comes
        del self._requests[answer.request]
        if asked.kind not in _UNASKED:
            self.answers.append(answer)

    def _refused(self, request: int, text: str) -> None:
        if request in (0, FOR_GOOD):
            self.farewell, self.refused_for_good = text, request == FOR_GOOD
            return
        parts = (self._appending, self._feeds)
        if any(part is not None and part.refused(request, text) for part in parts):
            return
        asked = self._requests.get(request)
        error = SessionError(text)
        if asked is not None and asked.kind in ("join", "rejoin"):
            del self.joinings[asked.group]
            self.inbox.remove(asked.group, error)
            self.sending.left()
        self._answered(Answer(request, error))


_NO_MEMBER = "the message does not come back: this program is in none of the groups that it was sent to"
_SHED = 'the message may not come back: this program is in its group with policy="shed"; choose another one'
_OVERFULL = (
    "its state, with the messages that waited for it, was more than state_bytes_max allows, so the group was "
    "left; allow for more, or have the members give less"
)
