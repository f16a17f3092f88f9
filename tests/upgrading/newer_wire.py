"""`totem` as a later version might be, with another version of the wire: `python newer_wire.py node …`."""

from __future__ import annotations

import sys
from importlib import import_module

from totempole.cli import main
from totempole.segment import header
from totempole.wire import layout

NEWER = 77
PACKETS = ("totempole.wire", "totempole.segment", "totempole.rrp")
"""Who writes and reads packets."""


def change_the_wire() -> None:
    import_module("totempole.runtime.service")  # and with it all that writes or reads packets
    changed = 0
    for name, module in list(sys.modules.items()):
        if name.startswith(PACKETS) and hasattr(module, "VERSION"):
            setattr(module, "VERSION", NEWER)  # noqa: B010
            changed += 1
    assert changed >= 4, "the header of packets, that of segments, and those who read them"
    assert layout.VERSION == header.VERSION == NEWER


if __name__ == "__main__":
    change_the_wire()
    sys.exit(main())
