"""A lab: hosts on one or several switches, built in one go and removed whatever happens."""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
import threading
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Literal

from totempole.lab import commands, namespaces, queues
from totempole.lab.commands import LabError
from totempole.lab.counters import Counters, read_ports
from totempole.lab.faults import Fault
from totempole.lab.filter import Filter, Stage, cut_rules, loss_rule, mark_rule, partition_rules, port
from totempole.lab.hosts import Host, address6_lines, bridge, device, interface_lines, medium, port_line
from totempole.lab.queues import Shape

HOSTS_MAX = 200
NETWORKS_MAX = 7
MTU_MIN, MTU_MAX = 68, 65_535
IPV6_MTU_MIN = 1280
GSO_SEGMENTS_MAX = 65_535
"""The kernel's default for a veth."""
WIRE = "wire"
"""The ends of a cable between two switches: wire0 and wire1."""
NO_IP_FILTERS = "for file in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e $file ] || echo 0 >$file; done"
"""A switch forwards frames. A bridge may otherwise pass each of them through the filters for IP, too."""
ENDED_BY_SIGTERM = 128 + signal.SIGTERM

Direction = Literal["to", "from", "both"]


class Lab:
    """`hosts` are numbered from 1, and faults name hosts by number.

    Each of `networks` is a switch of its own, and each host has an interface on each. They are counted from
    0. A fault is one of a single network, the first unless it names another.
    """

    def __init__(
        self, name: str, hosts: int, mtu: int | Sequence[int] = 1500, ipv6: bool = True, networks: int = 1
    ) -> None:
        """`mtu`: of all networks, or of each."""
        if not re.fullmatch(r"[a-z0-9_]{1,20}", name):
            raise LabError(f"name is {name!r}: give up to 20 small letters, digits and underscores")
        if not 1 <= hosts <= HOSTS_MAX:
            raise LabError(f"hosts is {hosts}: give a number between 1 and {HOSTS_MAX}")
        if not 1 <= networks <= NETWORKS_MAX:
            raise LabError(f"networks is {networks}: give a number between 1 and {NETWORKS_MAX}")
        prefix = f"tp-{os.getpid()}-{name}"
        self.switch = f"{prefix}-sw"
        """The namespace of all switches."""
        self.networks = networks
        self.hosts = {
            number: Host(f"{prefix}-{number}", number, ipv6, networks) for number in range(1, hosts + 1)
        }
        sizes = [mtu] * networks if isinstance(mtu, int) else list(mtu)
        if len(sizes) != networks:
            raise LabError(f"mtu is {mtu}: give one, or one for each of {networks} networks")
        self._mtu = [_checked_mtu(size) for size in sizes]
        self._filter = Filter(self.switch)
        self._cuts: list[Fault] = []
        self._partitions: dict[int, Fault] = {}
        self._busy: set[str] = set()
        self._sigterm = _SigtermUnwinds()

    def __enter__(self) -> Lab:
        self.clean_leftovers()
        if set(self._names) & set(namespaces.existing()):
            raise LabError(
                f"a lab {self.switch.removesuffix('-sw')} is open in this process: choose another name"
            )
        self._sigterm.start()
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends what runs on the hosts and removes them. May be called again."""
        try:
            for host in self.hosts.values():
                host.end_programs()
        finally:
            namespaces.remove(self._names)
            self._sigterm.stop()

    @staticmethod
    def clean_leftovers() -> None:
        """Removes what labs of killed processes left behind."""
        namespaces.remove(namespaces.orphans())

    @property
    def _names(self) -> list[str]:
        return [self.switch, *(host.namespace for host in self.hosts.values())]

    def _build(self) -> None:
        cables = [self._cable(host, network) for host in self.hosts.values() for network in self._places]
        commands.ip([*(f"netns add {name}" for name in self._names), *cables])
        commands.run(commands.inside(self.switch, ["sh", "-c", NO_IP_FILTERS]))
        commands.ip([line for network in self._places for line in self._switch_lines(network)], self.switch)
        for host in self.hosts.values():
            lines = [line for network in self._places for line in interface_lines(host, network)]
            commands.ip(["link set lo up", *lines], host.namespace)

    @property
    def _places(self) -> range:
        return range(self.networks)

    def _cable(self, host: Host, network: int) -> str:
        mtu = self._mtu[network]
        return (
            f"link add {device(network)} netns {host.namespace} mtu {mtu} type veth "
            f"peer name {port(host.number, network)} netns {self.switch} mtu {mtu}"
        )

    def _switch_lines(self, network: int) -> list[str]:
        # No spanning tree, no learning which port wants which group: a port forwards from its first frame on.
        name = bridge(network)
        return [
            f"link add {name} type bridge forward_delay 0 stp_state 0 mcast_snooping 0",
            f"link set {name} addrgenmode none up",
            *(port_line(port(number, network), network) for number in self.hosts),
        ]

    # Faults of the network

    def loss(self, host: int, percent: float, frm: int | None = None, network: int = 0) -> Fault:
        """Drops a share of what goes to the host, from everybody or from one."""
        self._check(host, *([] if frm is None else [frm]), network=network)
        rule = loss_rule(frm, host, percent, network)
        return self._filter.add(f"loss of {percent} % to {host}", Stage.LOSS, [rule])

    def cut(self, frm: int, to: int, only: str = "", network: int = 0) -> Fault:
        """One way: nothing from one host reaches the other.

        `only`: nothing of that protocol, like udp; or `multicast`, as on a switch that forgets its groups; or
        `large`, datagrams of more than LARGE_BYTES, as on a path that drops them silently (bursts are larger:
        see `holes`). Without it ARP is cut too. The other way of the link then dies when the hosts forget
        each other's hardware address, half a minute later.
        """
        return self._cut(f"cut {frm}-{to}", [frm], [to], only, network)

    def mute(self, host: int, only: str = "", network: int = 0) -> Fault:
        """Nothing from the host reaches anyone."""
        return self._cut(f"mute {host}", [host], self._others(host), only, network)

    def deafen(self, host: int, only: str = "", network: int = 0) -> Fault:
        """Nothing reaches the host."""
        return self._cut(f"deafen {host}", self._others(host), [host], only, network)

    def sever(self, only: str = "", network: int = 0) -> Fault:
        """Nothing on the network reaches anyone."""
        return self._cut(f"sever {network}", self.hosts, self.hosts, only, network)

    def _cut(
        self, name: str, senders: Collection[int], receivers: Collection[int], only: str, network: int
    ) -> Fault:
        self._check(*senders, *receivers, network=network)
        fault = self._filter.add(name, Stage.CUT, cut_rules(senders, receivers, only, network))
        self._cuts.append(fault)
        return fault

    def _others(self, host: int) -> list[int]:
        return [number for number in self.hosts if number != host]

    def partition(self, groups: Sequence[Sequence[int]], network: int = 0) -> Fault:
        """Only hosts of the same group hear each other; one in no group is alone. Replaces the last one."""
        named = [number for group in groups for number in group]
        self._check(*named, network=network)
        if len(set(named)) < len(named):
            raise LabError(f"partition {groups}: a host is in two groups")
        alone = [[number] for number in self.hosts if number not in named]
        rules = partition_rules([*(group for group in groups if group), *alone], network)
        fault = self._filter.add(f"partition {groups}", Stage.CUT, rules)
        if network in self._partitions:
            self._partitions[network].undo()
        self._partitions[network] = fault
        return fault

    def heal(self) -> None:
        """Ends every partition and cut, on all networks. Loss, queues, sizes and interfaces stay."""
        for fault in (*self._cuts, *self._partitions.values()):
            fault.undo()
        self._cuts.clear()
        self._partitions.clear()

    def reorder(self, host: int, percent: float = 10, slow_rate: str = "50mbit", network: int = 0) -> Fault:
        """Sends a share of the frames to the host through a slow lane, where the others overtake them.

        What comes faster than the slow lane drains waits there, up to a thousand frames; then it is lost.
        """
        self._check(host, network=network)
        end = port(host, network)
        lanes = self._queue(self.switch, end, queues.two_lanes(end, slow_rate), queues.remove(end))
        try:
            mark = self._filter.add("mark", Stage.MARK, [mark_rule(host, percent, queues.SLOW_LANE, network)])
        except LabError:
            lanes.undo()
            raise
        return _all(f"reorder to {host}", [mark, lanes])

    # Speeds and sizes

    def shape(
        self,
        rate: str = "100mbit",
        hosts: Iterable[int] | None = None,
        direction: Direction = "both",
        queue_bytes: int = 1_000_000,
        overhead_bytes: int = 0,
        network: int = 0,
    ) -> Fault:
        """Each host's cable gets this speed, each way of it on its own: a switched, full-duplex LAN.

        `from`: a token bucket where the host sends. The program's send buffer fills up behind it, and nothing
        is lost. `to`: one where the switch sends to the host; what overflows `queue_bytes` there is lost.
        """
        numbers = list(self.hosts if hosts is None else hosts)
        self._check(*numbers, network=network)
        sends = Shape(rate, queues.SENDER_QUEUE_BYTES, overhead_bytes)
        receives = Shape(rate, queue_bytes, overhead_bytes)
        own = device(network)
        ends = [(self.hosts[number].namespace, own, sends) for number in numbers if direction != "to"]
        ends += [(self.switch, port(number, network), receives) for number in numbers if direction != "from"]
        done: list[Fault] = []
        try:
            for namespace, end, shape in ends:
                done.append(self._queue(namespace, end, [shape.add(end)], queues.remove(end)))
        except LabError:
            _all("", done).undo()
            raise
        return _all(f"{rate} {direction} {numbers}", done)

    def shared_medium(
        self,
        rate: str = "100mbit",
        queue_bytes: int = 1_000_000,
        overhead_bytes: int = 0,
        network: int = 0,
    ) -> Fault:
        """One medium for all, as the Ethernet of the papers: each frame of each host passes one token bucket.

        Where all multicast to all, a switched LAN carries more than its rate, for nobody hears himself; this
        one never does. Without collisions. Senders are not slowed down by it: shape them `from`, too, or what
        overflows `queue_bytes` is lost.
        """
        self._check(network=network)
        ends = [port(number, network) for number in self.hosts]
        name = medium(network)
        self._claim(self.switch, name)
        shape = Shape(rate, queue_bytes, overhead_bytes)
        try:
            commands.ip([f"link add {name} type ifb", f"link set {name} up"], self.switch)
            detours = [line for end in ends for line in queues.detour(end, name)]
            commands.tc([shape.add(name), *detours], self.switch)
        except LabError:
            with suppress(LabError):
                self._end_medium(name, ends)
            raise
        return Fault(f"one medium of {rate}", lambda: self._end_medium(name, ends))

    def _end_medium(self, name: str, ends: list[str]) -> None:
        self._busy.discard(f"{self.switch} {name}")
        for end in ends:
            commands.tc([queues.end_detour(end)], self.switch)
        commands.ip([f"link del {name}"], self.switch)

    def holes(self, on: bool = True, hosts: Iterable[int] | None = None) -> None:
        """Cuts bursts into segments where they leave a host, so that single segments can be lost.

        Between veths an offloaded burst otherwise stays one frame all the way, and is lost or kept as one.
        """
        segments = 1 if on else GSO_SEGMENTS_MAX
        for number in self.hosts if hosts is None else hosts:
            self._check(number)
            lines = [f"link set {device(network)} gso_max_segs {segments}" for network in self._places]
            commands.ip(lines, self.hosts[number].namespace)

    def mtu(self, host: int, mtu: int, network: int = 0) -> Fault:
        """The host's cable takes frames of this size only, both ways: larger ones to it are dropped.

        Bursts to it are cut into segments first. Otherwise a veth hands them over whole, unmeasured. Below
        1280 the kernel takes the IPv6 address away; it is back when this is undone.
        """
        self._check(host, network=network)
        self._set_mtu(host, network, _checked_mtu(mtu), 1)
        return Fault(
            f"mtu {mtu} at {host}",
            lambda: self._set_mtu(host, network, self._mtu[network], GSO_SEGMENTS_MAX),
        )

    def _set_mtu(self, host: int, network: int, mtu: int, segments: int) -> None:
        lines = [f"link set {device(network)} mtu {mtu}"]
        if mtu >= IPV6_MTU_MIN:
            lines += address6_lines(self.hosts[host], network)
        commands.ip(lines, self.hosts[host].namespace)
        # The switch's end keeps its size: it would drop large frames, too, but count none.
        commands.ip([f"link set {port(host, network)} gso_max_segs {segments}"], self.switch)

    # Interfaces and cables

    def interface_down(self, host: int, network: int = 0) -> Fault:
        """`ip link set DEVICE down` on the host."""
        self._check(host, network=network)
        commands.ip([f"link set {device(network)} down"], self.hosts[host].namespace)
        lines = interface_lines(self.hosts[host], network)
        return Fault(f"interface down at {host}", lambda: commands.ip(lines, self.hosts[host].namespace))

    def interface_gone(self, host: int, network: int = 0) -> Fault:
        """The host's interface is taken out. Undone, it is a new one of the same name and address."""
        self._check(host, network=network)
        own, end = device(network), port(host, network)
        taken = {
            f"{self.hosts[host].namespace} {own}",
            f"{self.switch} {end}",
            f"{self.switch} {medium(network)}",
        }
        if taken & self._busy:
            raise LabError(f"{own} of host {host} has a queue: undo its shape, reorder or medium first")
        commands.ip([f"link del {own}"], self.hosts[host].namespace)
        return Fault(f"interface gone at {host}", lambda: self._put_in(self.hosts[host], network))

    def _put_in(self, host: Host, network: int) -> None:
        commands.ip([self._cable(host, network)])
        commands.ip([port_line(port(host.number, network), network)], self.switch)
        commands.ip(interface_lines(host, network), host.namespace)

    def unplug(self, host: int, network: int = 0) -> Fault:
        """The host's interface is up and has no carrier."""
        self._check(host, network=network)
        end = port(host, network)
        commands.ip([f"link set {end} down"], self.switch)
        return Fault(f"unplugged at {host}", lambda: commands.ip([f"link set {end} up"], self.switch))

    def wire(self, one: int, other: int) -> Fault:
        """A cable between two switches, as somebody may plug in by mistake."""
        self._check(network=one)
        self._check(network=other)
        if one == other:
            raise LabError(f"a cable from network {one} to itself would be a loop: name two networks")
        ends = f"{WIRE}{one}{other}", f"{WIRE}{other}{one}"
        lines = [f"link add {ends[0]} type veth peer name {ends[1]}"]
        lines += [port_line(end, network) for end, network in zip(ends, (one, other), strict=True)]
        commands.ip(lines, self.switch)
        return Fault(
            f"networks {one} and {other} wired together",
            lambda: commands.ip([f"link del {ends[0]}"], self.switch),
        )

    def counters(self, network: int = 0) -> Counters:
        """What was lost, cut and marked on all networks, and the ports of one."""
        counts = self._filter.counts()
        return Counters(
            lost=counts.get("lost", 0),
            cut=counts.get("cut", 0),
            marked=counts.get("marked", 0),
            ports=read_ports(self.switch, {port(number, network): number for number in self.hosts}),
        )

    def _queue(self, namespace: str, end: str, add: list[str], remove: str) -> Fault:
        self._claim(namespace, end)

        def undo() -> None:
            self._busy.discard(f"{namespace} {end}")
            commands.tc([remove], namespace)

        try:
            commands.tc(add, namespace)
        except LabError:
            self._busy.discard(f"{namespace} {end}")
            raise
        return Fault(f"queue at {end}", undo)

    def _claim(self, namespace: str, end: str) -> None:
        """A device has one queue: shaping and reordering the same way of a cable exclude each other."""
        if f"{namespace} {end}" in self._busy:
            raise LabError(f"{end} of {namespace} has a queue already: undo its shape or reorder first")
        self._busy.add(f"{namespace} {end}")

    def _check(self, *numbers: int, network: int = 0) -> None:
        if network not in self._places:
            raise LabError(f"no network {network}: this lab has 0 to {self.networks - 1}")
        for number in numbers:
            if number not in self.hosts:
                raise LabError(f"no host {number}: this lab has 1 to {len(self.hosts)}")


def _checked_mtu(mtu: int) -> int:
    if not MTU_MIN <= mtu <= MTU_MAX:
        raise LabError(f"mtu is {mtu}: give a number between {MTU_MIN} and {MTU_MAX}")
    return mtu


def _all(name: str, faults: Sequence[Fault]) -> Fault:
    def undo() -> None:
        for fault in faults:
            fault.undo()

    return Fault(name, undo)


class _SigtermUnwinds:
    """While a lab is open, SIGTERM leaves by way of `with` blocks, unless the program handles it itself."""

    def __init__(self) -> None:
        self._installed = False

    def start(self) -> None:
        ours = threading.current_thread() is threading.main_thread()
        if ours and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _leave)
            self._installed = True

    def stop(self) -> None:
        if self._installed:
            self._installed = False
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(ENDED_BY_SIGTERM)


@functools.cache
def missing() -> str:
    """Why a lab cannot be had here, for skips and for messages; empty when it can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces need Linux"
    if os.geteuid():
        return "network namespaces need root"
    for name, package in commands.TOOLS.items():
        if commands.find_tool(name) is None:
            return f"no program {name!r}: install the package {package}"
    try:
        with Lab("probe", hosts=2) as lab:
            lab.loss(1, percent=1)
    except LabError as error:
        return f"this machine grants no network namespaces: {error}"
    return ""
