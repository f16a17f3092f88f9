"""A raw UDP pump between the hosts of a lab: how fast bytes can go at all, in the same language.

One host multicasts bursts of whole messages, up to 60 KB each, to all others; UDP_SEGMENT has the kernel cut
them into datagrams, UDP_GRO hands them over in one piece. Nothing is ordered, repaired or looked at.

Receivers tell by unicast how many bytes they have, and the sender keeps at most a window of bursts under way:
a pump without any flow control only shows how fast its receivers' buffers overflow. What counts is what the
slowest receiver got. `best` tries several windows and takes the one that carried most.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from totempole.errors import TotemError
from totempole.lab import Host, Lab

BURST_BYTES_MAX = 60_000
SEGMENT_BYTES = 1_400
WINDOWS = (2, 4, 8, 16, 32)
"""In bursts. 32 are two megabytes: half of what a receive buffer may hold on many systems."""
LOSS_MAX = 0.01
"""A window that loses more does not count as carried."""
WARM_UP_S = 0.3
BURSTS_MIN = 200
"""A measurement goes on until so many bursts were sent: the loss of a few says nothing."""
STALL_S = 0.05
"""Bytes that were not acknowledged for so long are given up as lost. A slow link takes 5 ms for a burst."""
ACK_S_MAX = 0.002
"""On a slow link acknowledgements come by time, so that the last of them tells almost all of it."""
BUFFER_BYTES = 8_388_608
"""Asked for; the kernel gives what net.core.rmem_max and wmem_max allow."""
GROUP = "239.192.77.2"
DATA_PORT, ACK_PORT = 5410, 5411
ACK = struct.Struct("!IQ")
"""Host and bytes received so far."""
UDP_SEGMENT, UDP_GRO = 103, 104
SENDER = 1


class PumpError(TotemError):
    """The pump did not run to its end. The text has what it said."""


@dataclass(frozen=True, slots=True)
class PumpResult:
    message_bytes: int
    burst_bytes: int
    segment_bytes: int
    offload: bool
    window: int
    """Bursts under way at most; 0: no flow control."""
    bytes_per_s: float
    """What the slowest receiver got."""
    loss: float
    """The share of the bytes sent that the slowest receiver did not get."""

    @property
    def messages_per_s(self) -> float:
        return self.bytes_per_s / self.message_bytes

    @property
    def megabytes_per_s(self) -> float:
        return self.bytes_per_s / 1e6


def burst_bytes(message_bytes: int) -> int:
    """As many whole messages as fit; one that is larger than a burst is a burst of its own."""
    if not 1 <= message_bytes <= BURST_BYTES_MAX:
        raise PumpError(f"message_bytes is {message_bytes}: give a number between 1 and {BURST_BYTES_MAX}")
    return BURST_BYTES_MAX // message_bytes * message_bytes


def best(
    lab: Lab,
    message_bytes: int,
    seconds: float,
    segment_bytes: int = SEGMENT_BYTES,
    offload: bool = True,
    windows: tuple[int, ...] = WINDOWS,
) -> PumpResult:
    """The fastest window that lost next to nothing; where all lost, the one that got most across."""
    results = [pump(lab, message_bytes, seconds, segment_bytes, offload, window) for window in windows]
    return max(results, key=lambda result: (result.loss <= LOSS_MAX, result.bytes_per_s))


def pump(
    lab: Lab,
    message_bytes: int,
    seconds: float,
    segment_bytes: int = SEGMENT_BYTES,
    offload: bool = True,
    window: int = 8,
) -> PumpResult:
    """From the lab's first host to all others. With `Lab.holes` on, bursts travel as single segments."""
    job = Job(
        address=lab.hosts[SENDER].address,
        receivers=tuple(number for number in lab.hosts if number != SENDER),
        burst_bytes=burst_bytes(message_bytes),
        segment_bytes=segment_bytes,
        offload=offload,
        window=window,
        seconds=seconds,
    )
    programs = [_start(lab.hosts[number], "receive", job) for number in job.receivers]
    try:
        for receiver in programs:
            _line(receiver)
        programs.append(_start(lab.hosts[SENDER], "send", job))
        figures = json.loads(_line(programs[-1]))
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    return PumpResult(message_bytes, job.burst_bytes, segment_bytes, offload, window, **figures)


@dataclass(frozen=True, slots=True)
class Job:
    """What the programs on the hosts are told."""

    address: str
    receivers: tuple[int, ...]
    burst_bytes: int
    segment_bytes: int
    offload: bool
    window: int
    seconds: float

    @property
    def acknowledged_each(self) -> int:
        """Often enough that a window never waits for the last of its acknowledgements."""
        return max(1, self.window // 4) * self.burst_bytes


def _start(host: Host, role: str, job: Job) -> subprocess.Popen[Any]:
    argv = [sys.executable, "-m", __name__, role, str(host.number), host.address, json.dumps(asdict(job))]
    return host.popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _line(program: subprocess.Popen[Any]) -> str:
    assert program.stdout is not None
    line: str = program.stdout.readline()
    if not line:
        raise PumpError(f"the pump failed: {program.communicate()[1].strip()}")
    return line


# On the hosts


def receive(number: int, address: str, job: Job) -> None:
    """Until it is killed."""
    data = _socket(socket.SO_RCVBUF)
    data.bind((GROUP, DATA_PORT))
    member = socket.inet_aton(GROUP) + socket.inet_aton(address)
    data.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    if job.offload:
        data.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    answers = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    answers.connect((job.address, ACK_PORT))
    print("ready", flush=True)
    buffer = bytearray(65_536)
    received, told, told_s, each = 0, 0, 0.0, job.acknowledged_each
    while True:
        received += data.recv_into(buffer)
        now_s = time.monotonic()
        if received - told >= each or now_s - told_s >= ACK_S_MAX:
            told, told_s = received, now_s
            answers.send(ACK.pack(number, received))


class Sender:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._data = _socket(socket.SO_SNDBUF)
        self._data.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(job.address))
        self._data.connect((GROUP, DATA_PORT))
        if job.offload:
            self._data.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, job.segment_bytes)
        self._acks = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._acks.bind((job.address, ACK_PORT))
        self._acks.setblocking(False)
        self._sent = 0
        self._received = dict.fromkeys(job.receivers, 0)
        self._given_up = dict.fromkeys(job.receivers, 0)
        step = job.burst_bytes if job.offload else job.segment_bytes
        burst = bytes(job.burst_bytes)
        self._pieces = [burst[at : at + step] for at in range(0, len(burst), step)]

    def run(self) -> dict[str, float]:
        self._send_until(time.monotonic() + WARM_UP_S)
        began_s, sent, received = time.monotonic(), self._sent, dict(self._received)
        self._send_until(began_s + self._job.seconds, sent + BURSTS_MIN * self._job.burst_bytes)
        took_s = time.monotonic() - began_s
        least = min(self._received[number] - received[number] for number in received)
        return {"bytes_per_s": least / took_s, "loss": max(0.0, 1 - least / (self._sent - sent))}

    def _send_until(self, end_s: float, sent_min: int = 0) -> None:
        window = self._job.window * self._job.burst_bytes
        while time.monotonic() < end_s or self._sent < sent_min:
            for piece in self._pieces:
                self._data.send(piece)
            self._sent += self._job.burst_bytes
            self._take_acks()
            while window and self._under_way() >= window:
                self._wait()

    def _under_way(self) -> int:
        return self._sent - min(self._received[number] + lost for number, lost in self._given_up.items())

    def _wait(self) -> None:
        if select.select([self._acks], [], [], STALL_S)[0]:
            self._take_acks()
        else:
            self._given_up = {number: self._sent - had for number, had in self._received.items()}

    def _take_acks(self) -> None:
        while True:
            try:
                number, received = ACK.unpack(self._acks.recv(ACK.size))
            except BlockingIOError:
                return
            self._received[number] = received


def _socket(buffer: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, buffer, BUFFER_BYTES)
    return made


def main(words: list[str]) -> None:
    role, number, address, text = words
    job = Job(**json.loads(text))
    if role == "receive":
        receive(int(number), address, job)
    else:
        print(json.dumps(Sender(job).run()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
