"""Hosts on one machine: network namespaces joined by veth pairs and a bridge, with faults on demand.

    with Lab("loss", hosts=4) as lab:
        program = lab.hosts[1].popen(["totem", "node", …])
        with lab.loss(2, percent=20):
            …

With `networks=2` each host is on two switches, and a fault names one: `lab.loss(2, percent=20, network=1)`.

Needs root, iproute2 and nftables: `missing()` says what is not there. The machine's own network is never
touched: the bridge, too, lives in a namespace. For tests on real sockets and for benchmarks.
"""

from totempole.lab.commands import LabError
from totempole.lab.counters import Counters, PortCounters
from totempole.lab.faults import Fault
from totempole.lab.hosts import Host
from totempole.lab.lab import Lab, missing

__all__ = ["Counters", "Fault", "Host", "Lab", "LabError", "PortCounters", "missing"]
