"""A node's sockets: one for the token, one or two for data, read and written without losing order.

Data is sent from the socket that takes unicast data, so that whoever receives it learns where to answer; what
comes by multicast needs a socket of its own. What the kernel refuses is counted by the name of its error, and
counts as lost on the way.

If its ring has no other network, a send waits while the send buffer is full, in order: nothing is dropped
here. If it has others, a network that stands still must not hold them up: a send waits for a few milliseconds
and is dropped, and those after it do not wait at all until one gets through. Such a network sends by its own
interface, even where another one has a route too.
"""

from __future__ import annotations

import ctypes
import errno
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from struct import pack, unpack
from typing import NamedTuple

from totempole.core.effects import Channel
from totempole.errors import NetworkAbsentError, NetworkError
from totempole.runtime import offload as offloading
from totempole.runtime.config import NetworkConfig
from totempole.runtime.interface import (
    DATAGRAM_MAX,
    NOWHERE,
    Condition,
    Interface,
    condition,
    family_of,
    find_interface,
    path_segment_bytes,
    segment_bytes,
)
from totempole.runtime.offload import REFUSALS, SEGMENTS_MAX, Offload, segment_option
from totempole.segment import Burst
from totempole.segment.header import KIND_PLACE, NameKind
from totempole.types import Payload

READ_BYTES = 65_535
_ANCILLARY_BYTES = 64
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_MEMINFO = 32, 33, 55
_MEMINFO_BYTES, _MEMINFO_DROPS = 36, 8
_IP_MULTICAST_ALL, _IPV6_MULTICAST_ALL = 49, 29
_IP_UNICAST_IF, _IPV6_UNICAST_IF = 50, 76
_SO_ATTACH_FILTER = 26
_UDP_HEADER_BYTES = 8
_HELLOS_AND_THE_LIKE = (
    (0x30, 0, 0, _UDP_HEADER_BYTES + KIND_PLACE),  # load the byte that says what a segment's name means
    (0x15, 0, 1, int(NameKind.OTHER)),  # equal: go on; else: skip one
    (0x06, 0, 0, 0xFFFF_FFFF),  # take all of it
    (0x06, 0, 0, 0),  # take nothing
)
"""For the kernel's packet filter: code, jump if true, jump if false, value."""

SEND_WAIT_US = 1_000_000
"""How long one attempt at a full send buffer lasts; then it is counted and tried again."""
BRIEF_WAIT_US = 8_000
"""The same if there are other networks: as long as 100 Mbit/s take for a burst, and then it is dropped."""

Address = tuple[str, int]


class Read(NamedTuple):
    """What one system call gave: datagrams back to back, `segment_bytes` each (0: a single one)."""

    data: bytes
    segment_bytes: int
    source: Address


class Sockets:
    """Opened on construction unless told otherwise. Whoever closes them may `open` them again: counters go
    on."""

    def __init__(
        self,
        config: NetworkConfig,
        others: Sequence[NetworkConfig] = (),
        *,
        open_now: bool = True,
    ) -> None:
        """`others`: further networks under the same ring."""
        self.family = family_of(config.address)
        self.interface: Interface = NOWHERE
        self.own: Address = (str(ip_address(config.address)), config.port)
        self.group: Address = (config.group, config.port)
        self.asked_buffer_bytes = config.receive_buffer_bytes
        self.offload = Offload()
        self.refused: Counter[str] = Counter()
        """What the kernel refused to send, by the name of its error."""
        self.waits = 0
        """How often a full send buffer lasted for SEND_WAIT_US, or BRIEF_WAIT_US."""
        self.giving_up = False
        """Set by another thread, to have a send that waits give up."""
        self.on_path_refusal: Callable[[int], None] = lambda _: None
        """Told of the datagram size that a path takes when it refused a larger one."""
        self.is_open = False
        self._config = config
        self._alone = not others
        self._others = others
        self._open: list[socket.socket] = []
        self._overflowed = 0
        self._stalled: set[socket.socket] = set()
        self.multicast: socket.socket | None = None
        self.strays: list[socket.socket] = []
        """What other networks send to their groups, should it come on this one."""
        if open_now:
            self.open()
        else:
            self._stand_in()

    def open(self) -> None:
        """Raises NetworkAbsentError if this host does not have the address, or another NetworkError."""
        config = self._config
        self.interface = find_interface(config.address)
        self.offload = Offload(send=config.offload == "auto", receive=config.offload == "auto")
        if config.offload != "auto":
            self.offload.reason = "switched off"
        try:
            self.data = self._bound(self.own)
            self.token = self._bound((config.address, config.port + 1))
            self.multicast = (
                self._joined_or_explained(self.group) if config.transport == "multicast" else None
            )
            self.strays = [self._stray(group) for group in self._strange_groups()]
            self.is_open = True
        except BaseException:
            self.close()
            raise
        self.receive_buffer_bytes = min(map(self._buffer_bytes, self.data_sockets))

    def _stand_in(self) -> None:
        """What can be said of sockets that have not been opened yet."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
            self._set_buffers(closed)
            self.receive_buffer_bytes = self._buffer_bytes(closed)
        self.data = self.token = closed

    @property
    def data_sockets(self) -> list[socket.socket]:
        return [self.data] if self.multicast is None else [self.multicast, self.data]

    @property
    def all(self) -> list[socket.socket]:
        return [*self.data_sockets, *self.strays, self.token]

    @property
    def segment_bytes(self) -> int:
        """The largest datagram that leaves the interface in one piece, or what is set by hand. Raises OSError
        if there is no such interface."""
        return self._config.segment_bytes or segment_bytes(self.interface, self.family)

    def close(self) -> None:
        if self.is_open:
            self._overflowed = self.overflowed()
        self.is_open = False
        for sock in self._open:
            sock.close()
        self._open.clear()
        self.strays = []
        self._stalled.clear()

    # Opening

    def _bound(self, address: Address, shared: bool = False) -> socket.socket:
        sock = socket.socket(self.family, socket.SOCK_DGRAM)
        self._open.append(sock)
        sock.setblocking(True)  # whatever the program's default is
        self._set_buffers(sock)
        wait_us = SEND_WAIT_US if self._alone else BRIEF_WAIT_US
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, pack("@ll", *divmod(wait_us, 1_000_000)))
        offloading.enable_receive(sock, self.offload)
        offloading.probe_send(sock, self.offload)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._keep_to_interface(sock)
            sock.bind(address)
        except OSError as error:
            raise _kind(error)(
                f"[network] address = {address[0]}, UDP port {address[1]}: {error.strerror}; "
                f"{_way_out(error, address)}"
            ) from error
        return sock

    def _keep_to_interface(self, sock: socket.socket) -> None:
        """One of several networks sends by its own interface: the kernel would take any that has a route.

        Of IPv4 what comes in by another interface is taken all the same. Hosts answer for all their addresses
        on every interface: on networks that are wired together a neighbour may have learned the other one.
        """
        if self._alone or self.interface.loopback:
            return
        number = pack("!I", self.interface.number)
        if self.family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_IP, _IP_UNICAST_IF, number)
            return
        try:
            name = self.interface.name.encode()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name + b"\0")
        except PermissionError:  # before Linux 5.7 not everyone may; then routes must be as usual
            sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_UNICAST_IF, number)

    def _set_buffers(self, sock: socket.socket) -> None:
        wanted = (
            (_SO_RCVBUFFORCE, socket.SO_RCVBUF, self._config.receive_buffer_bytes),
            (_SO_SNDBUFFORCE, socket.SO_SNDBUF, self._config.send_buffer_bytes),
        )
        for force, ask, size in wanted:
            try:
                sock.setsockopt(socket.SOL_SOCKET, force, size)
            except PermissionError:  # without CAP_NET_ADMIN the sysctl is the limit
                sock.setsockopt(socket.SOL_SOCKET, ask, size)

    @staticmethod
    def _buffer_bytes(sock: socket.socket) -> int:
        """The kernel doubles what it is asked for, and counts its own book-keeping against it."""
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2

    def _joined_or_explained(self, group: Address) -> socket.socket:
        try:
            return self._joined(group)
        except OSError as error:
            raise _kind(error)(
                f"[network] multicast_group = {group[0]}: {self.interface.name} cannot join it "
                f'({error.strerror}); choose another group, or transport = "mesh"'
            ) from error

    def _joined(self, group: Address) -> socket.socket:
        config, index, loop = self._config, self.interface.number, self.interface.loopback
        # Two networks may have one group: each socket hears what comes in by its own interface only.
        sock = self._bound(group, shared=loop or not self._alone)
        packed = ip_address(group[0]).packed
        if self.family == socket.AF_INET6:
            level = socket.IPPROTO_IPV6
            self._hear_own_group_only(sock, level, _IPV6_MULTICAST_ALL)
            sock.setsockopt(level, socket.IPV6_JOIN_GROUP, packed + pack("@I", index))
            self.data.setsockopt(level, socket.IPV6_MULTICAST_IF, index)
            self.data.setsockopt(level, socket.IPV6_MULTICAST_HOPS, config.multicast_hops)
            self.data.setsockopt(level, socket.IPV6_MULTICAST_LOOP, loop)
        else:
            level = socket.IPPROTO_IP
            own = ip_address(config.address).packed
            self._hear_own_group_only(sock, level, _IP_MULTICAST_ALL)
            sock.setsockopt(level, socket.IP_ADD_MEMBERSHIP, packed + own + pack("@i", index))
            self.data.setsockopt(level, socket.IP_MULTICAST_IF, packed + own + pack("@i", index))
            self.data.setsockopt(level, socket.IP_MULTICAST_TTL, config.multicast_hops)
            self.data.setsockopt(level, socket.IP_MULTICAST_LOOP, loop)
        return sock

    def _strange_groups(self) -> list[Address]:
        """Those of the ring's other networks. On loopback all networks are one."""
        if self.interface.loopback:
            return []
        groups = [
            (other.group, other.port)
            for other in self._others
            if other.transport == "multicast" and family_of(other.address) == self.family
        ]
        return [group for group in dict.fromkeys(groups) if group != self.group or self.multicast is None]

    def _stray(self, group: Address) -> socket.socket:
        """Networks with groups of their own would never notice that they are wired together. So each joins
        the groups of the others too. The kernel drops messages there, and leaves hellos and the like."""
        sock = self._joined_or_explained(group)
        program = b"".join(pack("@HBBI", *line) for line in _HELLOS_AND_THE_LIKE)
        room = ctypes.create_string_buffer(program)
        place = ctypes.addressof(room)
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pack("@HP", len(_HELLOS_AND_THE_LIKE), place))
        return sock

    def _hear_own_group_only(self, sock: socket.socket, level: int, option: int) -> None:
        """By default a socket gets what comes for its group by whichever interface anybody has joined on."""
        try:
            sock.setsockopt(level, option, 0)
        except OSError:  # IPv6, before Linux 4.20: of no importance if there is one network
            if not self._alone:
                raise

    # Reading

    @staticmethod
    def read(sock: socket.socket) -> Read | None:
        """What is there, or None."""
        try:
            data, ancillary, _, source = sock.recvmsg(READ_BYTES, _ANCILLARY_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except ConnectionError:
            return None  # an ICMP answer to an earlier send: nobody was there
        return Read(data, offloading.received_segment_bytes(ancillary) if ancillary else 0, source[:2])

    def overflowed(self) -> int:
        """Datagrams that found a receive buffer full."""
        if self.is_open:
            with suppress(OSError):  # closed while another thread asks
                return self._overflowed + sum(map(_drops, [*self.data_sockets, self.token]))
        return self._overflowed

    # Sending

    def send(self, channel: Channel, bursts: tuple[Burst, ...], address: Address) -> None:
        sock = self.token if channel else self.data
        for burst in bursts:
            if len(burst.data) <= burst.segment_bytes:
                self._send_datagram(sock, burst.data, address)
            else:
                self._send_burst(sock, burst, address)

    def _send_burst(self, sock: socket.socket, burst: Burst, address: Address) -> None:
        data, size = burst
        step = size * min(SEGMENTS_MAX, DATAGRAM_MAX[self.family] // size)
        view = memoryview(data)
        for start in range(0, len(data), step):
            self._send_chunk(sock, view[start : start + step], size, address)

    def _send_chunk(self, sock: socket.socket, chunk: memoryview, size: int, address: Address) -> None:
        if self.offload.send:
            try:
                self._wait_to_send(sock, chunk, segment_option(size), address)
                return
            except (OSError, OverflowError) as error:
                if getattr(error, "errno", None) not in REFUSALS or self._is_gone:
                    self._refuse(error)
                    return
                self._note_refused_burst(size, address, error)
        for start in range(0, len(chunk), size):
            self._send_datagram(sock, chunk[start : start + size], address)

    def _note_refused_burst(self, size: int, address: Address, error: Exception) -> None:
        """Either the datagrams are too long for the path, or the device does not cut bursts."""
        fits = self._path_segment_bytes(address)
        if fits < size:
            self.on_path_refusal(fits)
        else:
            self.offload.refuse_send(f"UDP_SEGMENT to {address[0]}: {getattr(error, 'strerror', None)}")

    @property
    def _is_gone(self) -> bool:
        """Of one of several networks: its address is no more, and that is why it is refused."""
        return not self._alone and condition(self.interface, self._config.address) is Condition.GONE

    def _path_segment_bytes(self, address: Address) -> int:
        least = self._config.segment_bytes or DATAGRAM_MAX[self.family]
        with suppress(OSError):  # no interface, or no route any more: it takes nothing, whatever its length
            least = self.segment_bytes
            if not ip_address(address[0]).is_multicast:
                least = min(least, path_segment_bytes(self.family, address))
        return least

    def _send_datagram(self, sock: socket.socket, datagram: Payload, address: Address) -> None:
        try:
            self._wait_to_send(sock, datagram, [], address)
        except (OSError, OverflowError) as error:  # the latter: a port that there is not
            self._refuse(error)

    def _wait_to_send(
        self, sock: socket.socket, data: Payload, ancillary: list[tuple[int, int, bytes]], address: Address
    ) -> None:
        flags = socket.MSG_DONTWAIT if sock in self._stalled else 0
        while True:
            try:
                sock.sendmsg((data,), ancillary, flags, address)
                break
            except BlockingIOError:
                self.waits += not flags
                if self.giving_up or not self._alone:
                    self._stalled.add(sock)
                    raise
        if flags:
            self._stalled.discard(sock)

    def _refuse(self, error: OSError | OverflowError) -> None:
        number = getattr(error, "errno", None) or errno.EINVAL
        self.refused[errno.errorcode.get(number, str(number))] += 1


def _drops(sock: socket.socket) -> int:
    memory = sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO_BYTES)
    drops: int = unpack("@9I", memory)[_MEMINFO_DROPS]
    return drops


def _kind(error: OSError) -> type[NetworkError]:
    """Whether it may pass: an IPv6 address, for example, is of no use until it is known to be unique."""
    return NetworkAbsentError if error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV) else NetworkError


def _way_out(error: OSError, address: Address) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"another program, or another node, has it: `ss -lunp sport = :{address[1]}` names it"
    if error.errno == errno.EADDRNOTAVAIL:
        return "no interface of this host has it; `ip address` lists those that there are"
    return "choose another address or port"
