"""Packets (`wire.packets`) to bytes and back: one versioned codec, every length checked before it is used.

`Codec` is the way in. `layout` says where each field stands and how large a packet may be; `soundness` what a
packet must be to mean anything.
"""

from totempole.wire.codec import Codec

__all__ = ["Codec"]
