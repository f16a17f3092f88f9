"""A ring packet as datagrams that fit the path, and back, with holes named so that they can be repaired.

Sans-I/O like the rest of the pole: `Cutter` makes bursts of datagrams, `Reassembler` takes them. No paper
has this layer; it is what lets one `seq` span many datagrams (docs/architecture.md, "The fast path").
"""

from totempole.segment.burst import Burst
from totempole.segment.cutter import Cutter
from totempole.segment.header import PacketName
from totempole.segment.reassembler import NotNeighbours, Reassembler

__all__ = ["Burst", "Cutter", "NotNeighbours", "PacketName", "Reassembler"]
