"""Programs on the hosts of a lab that send and receive datagrams with numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

from totempole.lab import Lab

GROUP, GROUP6 = "239.192.54.9", "ff15::5409"
PORT = 5400

RECEIVER = """
import json, select, socket, struct, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
sock = socket.socket(family, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
sock.bind(("", 5400))
if family == socket.AF_INET:
    member = socket.inet_aton("239.192.54.9") + socket.inet_aton(sys.argv[1])
    sock.setsockopt(socket.IPPROTO_IP, 49, 0)  # IP_MULTICAST_ALL: what was joined on this interface only
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
else:
    device = struct.pack("@I", socket.if_nametoindex(sys.argv[2]))
    member = socket.inet_pton(socket.AF_INET6, "ff15::5409") + device
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member)
print("ready", flush=True)
numbers, ending = [], False
while True:
    # Once told to end, all that is still in a queue somewhere is waited for.
    readable, _, _ = select.select([sock] if ending else [sock, sys.stdin], [], [], 0.4 if ending else None)
    if sock in readable:
        numbers.append(struct.unpack_from(">I", sock.recv(65536))[0])
    elif ending:
        break
    else:
        ending = True
print(json.dumps(numbers))
"""

SENDER = """
import socket, struct, sys, time
source, address, count, size, burst = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
family = socket.AF_INET6 if ":" in source else socket.AF_INET
sock = socket.socket(family, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
sock.bind((source, 0))
if family == socket.AF_INET:
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(source))
else:
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex(sys.argv[6]))
if burst > 1:
    sock.setsockopt(socket.IPPROTO_UDP, 103, size)
for first in range(0, count, burst):
    numbers = range(first, first + burst)
    sock.sendto(b"".join(struct.pack(">I", number).ljust(size, b".") for number in numbers), (address, 5400))
"""


@dataclass
class Traffic:
    """Receivers on some hosts, then datagrams with numbers, then what each host got."""

    lab: Lab
    receivers: dict[int, Any] = field(default_factory=dict)

    def listen(self, *numbers: int, ipv6: bool = False, network: int = 0) -> Traffic:
        for number in numbers:
            host = self.lab.hosts[number]
            own = (host.addresses6 if ipv6 else host.addresses)[network]
            argv = [sys.executable, "-c", RECEIVER, own, f"eth{network}"]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self.receivers[number] = host.popen(argv, **pipes)
        for number in numbers:
            assert self.receivers[number].stdout.readline() == "ready\n"
        return self

    def send(
        self, source: int, to: str, count: int = 200, size: int = 100, burst: int = 1, network: int = 0
    ) -> Traffic:
        host = self.lab.hosts[source]
        own = (host.addresses6 if ":" in to else host.addresses)[network]
        words = [own, to, *map(str, (count, size, burst)), f"eth{network}"]
        host.run([sys.executable, "-c", SENDER, *words])
        return self

    def got(self) -> dict[int, list[int]]:
        for receiver in self.receivers.values():
            receiver.stdin.close()
        answers = {number: json.loads(program.stdout.read()) for number, program in self.receivers.items()}
        for receiver in self.receivers.values():
            receiver.stdout.close()
            receiver.wait()
        self.receivers.clear()
        return answers
