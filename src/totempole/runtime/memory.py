"""How a process that does nothing but run a node treats its memory, and its threads.

Packets of 60 KB come and go thousands of times a second. As it is, the C library gives such blocks back to
the kernel as soon as they are free, and has them zeroed and mapped again for the next packet, which costs a
node a third of its throughput. Python's collector, for its part, looks for cycles that a node does not
make. And a thread that computes, such as the one that reads old records for a replica that is behind, may
keep the interpreter for 5 ms: too long for the ring's thread, which has a token to pass on.
"""

from __future__ import annotations

import ctypes
import gc
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
KEPT_BYTES = 64 * 1024 * 1024
"""Free memory beyond this goes back to the kernel."""
TOP_PAD_BYTES = 4 * 1024 * 1024
GC_THRESHOLD = 50_000
SWITCH_S = 0.0005
"""So long may one thread keep the interpreter from another."""


def prepare_for_packets() -> None:
    """For processes of our own only: in a program that embeds a node it is the program's to decide."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    sys.setswitchinterval(SWITCH_S)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # another C library than glibc knows no such thing, and need not
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES // 2)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_TOP_PAD, TOP_PAD_BYTES)
