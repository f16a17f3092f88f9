"""Packets to bytes and back: one versioned header and codec, every length checked before it is used.

`Codec` is the way in. An engine brings its packets (`Formats`); `layout` has the header and how large a
packet may be; `seal` encrypts and vouches.
"""

from totempole.wire.codec import Codec, Format, Formats

__all__ = ["Codec", "Format", "Formats"]
