"""A lab: hosts on a switch, built in one go and removed whatever happens."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Literal

from totempole.lab import commands, namespaces, queues
from totempole.lab.commands import LabError
from totempole.lab.counters import Counters, read_ports
from totempole.lab.faults import Fault
from totempole.lab.filter import Filter, Stage, cut_rule, loss_rule, mark_rule, partition_rules, port
from totempole.lab.queues import Shape

HOSTS_MAX = 200
MTU_MIN, MTU_MAX = 68, 65_535
IPV6_MTU_MIN = 1280
GSO_SEGMENTS_MAX = 65_535
"""The kernel's default for a veth."""
MULTICAST = "239.0.0.0/8"
DEVICE = "eth0"
"""A host's end of its cable."""
BRIDGE = "br0"
MEDIUM = "medium"
NO_IP_FILTERS = "for file in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e $file ] || echo 0 >$file; done"
"""A switch forwards frames. A bridge may otherwise pass each of them through the filters for IP, too."""
ENDED_BY_SIGTERM = 128 + signal.SIGTERM

Direction = Literal["to", "from", "both"]


class Host:
    """One namespace: its addresses, and programs that run there."""

    def __init__(self, namespace: str, number: int, ipv6: bool) -> None:
        self.namespace = namespace
        self.number = number
        self.address = f"10.77.0.{number}"
        self.address6 = f"fd77::{number:x}" if ipv6 else ""
        self.device = DEVICE
        self._programs: list[subprocess.Popen[Any]] = []

    def popen(self, argv: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.Popen[Any]:
        """Starts a program here; `options` are those of subprocess.Popen. Its `pid` is the program's own."""
        program = subprocess.Popen(self._inside(argv), **options)
        self._programs = [other for other in self._programs if other.poll() is None]
        self._programs.append(program)
        return program

    def run(self, argv: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end; CalledProcessError when it fails, unless `check=False`."""
        chosen: dict[str, Any] = {"check": True, "capture_output": True, "text": True, **options}
        return subprocess.run(self._inside(argv), **chosen)

    def end_programs(self) -> None:
        for program in self._programs:
            if program.poll() is None:
                program.kill()
            program.wait()
        self._programs.clear()

    def _inside(self, argv: Sequence[str | os.PathLike[str]]) -> list[str]:
        return commands.inside(self.namespace, [os.fspath(word) for word in argv])

    def __repr__(self) -> str:
        return f"Host({self.number}, {self.namespace!r})"


class Lab:
    """`hosts` are numbered from 1, and faults name hosts by number."""

    def __init__(self, name: str, hosts: int, mtu: int = 1500, ipv6: bool = True) -> None:
        if not re.fullmatch(r"[a-z0-9_]{1,20}", name):
            raise LabError(f"name is {name!r}: give up to 20 small letters, digits and underscores")
        if not 1 <= hosts <= HOSTS_MAX:
            raise LabError(f"hosts is {hosts}: give a number between 1 and {HOSTS_MAX}")
        prefix = f"tp-{os.getpid()}-{name}"
        self.switch = f"{prefix}-sw"
        self.hosts = {number: Host(f"{prefix}-{number}", number, ipv6) for number in range(1, hosts + 1)}
        self._mtu = _checked_mtu(mtu)
        self._filter = Filter(self.switch)
        self._cuts: list[Fault] = []
        self._partition: Fault | None = None
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
        cables = (
            f"link add {DEVICE} netns {host.namespace} mtu {self._mtu} type veth "
            f"peer name {port(number)} netns {self.switch} mtu {self._mtu}"
            for number, host in self.hosts.items()
        )
        commands.ip([*(f"netns add {name}" for name in self._names), *cables])
        commands.run(commands.inside(self.switch, ["sh", "-c", NO_IP_FILTERS]))
        commands.ip(self._switch_lines(), self.switch)
        for host in self.hosts.values():
            commands.ip(_host_lines(host), host.namespace)

    def _switch_lines(self) -> list[str]:
        # No spanning tree, no learning which port wants which group: a port forwards from its first frame on.
        return [
            f"link add {BRIDGE} type bridge forward_delay 0 stp_state 0 mcast_snooping 0",
            f"link set {BRIDGE} addrgenmode none up",
            *(f"link set {port(number)} addrgenmode none master {BRIDGE} up" for number in self.hosts),
        ]

    # Faults of the network

    def loss(self, host: int, percent: float, frm: int | None = None) -> Fault:
        """Drops a share of what goes to the host, from everybody or from one."""
        self._check(host, *([] if frm is None else [frm]))
        rule = loss_rule(frm, host, percent)
        return self._filter.add(f"loss of {percent} % to {host}", Stage.LOSS, [rule])

    def cut(self, frm: int, to: int, only: str = "") -> Fault:
        """One way: nothing from one host reaches the other.

        `only`: nothing of that protocol, like udp. Without it ARP is cut too. The other way of the link then
        dies when the hosts forget each other's hardware address, half a minute later.
        """
        self._check(frm, to)
        fault = self._filter.add(f"cut {frm}-{to}", Stage.CUT, [cut_rule([frm], [to], only)])
        self._cuts.append(fault)
        return fault

    def partition(self, groups: Sequence[Sequence[int]]) -> Fault:
        """Only hosts of the same group hear each other; one in no group is alone. Replaces the last one."""
        named = [number for group in groups for number in group]
        self._check(*named)
        if len(set(named)) < len(named):
            raise LabError(f"partition {groups}: a host is in two groups")
        alone = [[number] for number in self.hosts if number not in named]
        rules = partition_rules([*(group for group in groups if group), *alone])
        fault = self._filter.add(f"partition {groups}", Stage.CUT, rules)
        if self._partition is not None:
            self._partition.undo()
        self._partition = fault
        return fault

    def heal(self) -> None:
        """Ends every partition and cut. Loss, queues and sizes stay."""
        for fault in (*self._cuts, *([] if self._partition is None else [self._partition])):
            fault.undo()
        self._cuts.clear()
        self._partition = None

    def reorder(self, host: int, percent: float = 10, slow_rate: str = "50mbit") -> Fault:
        """Sends a share of the frames to the host through a slow lane, where the others overtake them.

        What comes faster than the slow lane drains waits there, up to a thousand frames; then it is lost.
        """
        self._check(host)
        device = port(host)
        lanes = self._queue(self.switch, device, queues.two_lanes(device, slow_rate), queues.remove(device))
        try:
            mark = self._filter.add("mark", Stage.MARK, [mark_rule(host, percent, queues.SLOW_LANE)])
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
    ) -> Fault:
        """Each host's cable gets this speed, each way of it on its own: a switched, full-duplex LAN.

        `from`: a token bucket where the host sends. The program's send buffer fills up behind it, and nothing
        is lost. `to`: one where the switch sends to the host; what overflows `queue_bytes` there is lost.
        """
        numbers = list(self.hosts if hosts is None else hosts)
        self._check(*numbers)
        sends = Shape(rate, queues.SENDER_QUEUE_BYTES, overhead_bytes)
        receives = Shape(rate, queue_bytes, overhead_bytes)
        ends = [(self.hosts[number].namespace, DEVICE, sends) for number in numbers if direction != "to"]
        ends += [(self.switch, port(number), receives) for number in numbers if direction != "from"]
        done: list[Fault] = []
        try:
            for namespace, device, shape in ends:
                done.append(self._queue(namespace, device, [shape.add(device)], queues.remove(device)))
        except LabError:
            _all("", done).undo()
            raise
        return _all(f"{rate} {direction} {numbers}", done)

    def shared_medium(
        self, rate: str = "100mbit", queue_bytes: int = 1_000_000, overhead_bytes: int = 0
    ) -> Fault:
        """One medium for all, as the Ethernet of the papers: each frame of each host passes one token bucket.

        Where all multicast to all, a switched LAN carries more than its rate, for nobody hears himself; this
        one never does. Without collisions. Senders are not slowed down by it: shape them `from`, too, or what
        overflows `queue_bytes` is lost.
        """
        devices = [port(number) for number in self.hosts]
        self._claim(self.switch, MEDIUM)
        shape = Shape(rate, queue_bytes, overhead_bytes)
        try:
            commands.ip([f"link add {MEDIUM} type ifb", f"link set {MEDIUM} up"], self.switch)
            detours = [line for device in devices for line in queues.detour(device, MEDIUM)]
            commands.tc([shape.add(MEDIUM), *detours], self.switch)
        except LabError:
            with suppress(LabError):
                self._end_medium(devices)
            raise
        return Fault(f"one medium of {rate}", lambda: self._end_medium(devices))

    def _end_medium(self, devices: list[str]) -> None:
        self._busy.discard(f"{self.switch} {MEDIUM}")
        for device in devices:
            commands.tc([queues.end_detour(device)], self.switch)
        commands.ip([f"link del {MEDIUM}"], self.switch)

    def holes(self, on: bool = True, hosts: Iterable[int] | None = None) -> None:
        """Cuts bursts into segments where they leave a host, so that single segments can be lost.

        Between veths an offloaded burst otherwise stays one frame all the way, and is lost or kept as one.
        """
        segments = 1 if on else GSO_SEGMENTS_MAX
        for number in self.hosts if hosts is None else hosts:
            self._check(number)
            commands.ip([f"link set {DEVICE} gso_max_segs {segments}"], self.hosts[number].namespace)

    def mtu(self, host: int, mtu: int) -> Fault:
        """The host's cable takes frames of this size only, both ways: larger ones to it are dropped.

        Bursts to it are cut into segments first. Otherwise a veth hands them over whole, unmeasured. Below
        1280 the kernel takes the IPv6 address away; it is back when this is undone.
        """
        self._check(host)
        self._set_mtu(host, _checked_mtu(mtu), 1)
        return Fault(f"mtu {mtu} at {host}", lambda: self._set_mtu(host, self._mtu, GSO_SEGMENTS_MAX))

    def _set_mtu(self, host: int, mtu: int, segments: int) -> None:
        lines = [f"link set {DEVICE} mtu {mtu}"]
        if mtu >= IPV6_MTU_MIN:
            lines += _address6_lines(self.hosts[host])
        commands.ip(lines, self.hosts[host].namespace)
        # The switch's end keeps its size: it would drop large frames, too, but count none.
        commands.ip([f"link set {port(host)} gso_max_segs {segments}"], self.switch)

    def counters(self) -> Counters:
        counts = self._filter.counts()
        return Counters(
            lost=counts.get("lost", 0),
            cut=counts.get("cut", 0),
            marked=counts.get("marked", 0),
            ports=read_ports(self.switch, {port(number): number for number in self.hosts}),
        )

    def _queue(self, namespace: str, device: str, add: list[str], remove: str) -> Fault:
        self._claim(namespace, device)

        def undo() -> None:
            self._busy.discard(f"{namespace} {device}")
            commands.tc([remove], namespace)

        try:
            commands.tc(add, namespace)
        except LabError:
            self._busy.discard(f"{namespace} {device}")
            raise
        return Fault(f"queue at {device}", undo)

    def _claim(self, namespace: str, device: str) -> None:
        """A device has one queue: shaping and reordering the same way of a cable exclude each other."""
        if f"{namespace} {device}" in self._busy:
            raise LabError(f"{device} of {namespace} has a queue already: undo its shape or reorder first")
        self._busy.add(f"{namespace} {device}")

    def _check(self, *numbers: int) -> None:
        for number in numbers:
            if number not in self.hosts:
                raise LabError(f"no host {number}: this lab has 1 to {len(self.hosts)}")


def _host_lines(host: Host) -> list[str]:
    return [
        "link set lo up",
        f"link set {DEVICE} up",
        f"addr add {host.address}/24 brd + dev {DEVICE}",
        f"route add {MULTICAST} dev {DEVICE}",
        *_address6_lines(host),
    ]


def _address6_lines(host: Host) -> list[str]:
    # Duplicate address detection would keep the address unusable for a second or two.
    return [f"addr replace {host.address6}/64 dev {DEVICE} nodad"] if host.address6 else []


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
