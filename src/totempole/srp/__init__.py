"""The single-ring protocol: order, membership and recovery on one ring (Totem chapter 4).

`machine` is the way in: what each event does in each state, and every transition. The states are objects:
`operational`, `gather`, `commit`, `recover`, and two in `phase`. They share a `processor`, what it thinks of
its `peers`, and a ring's `token_holder`. The arithmetic is in `ordering`, `ring`, `flow`, `gathering` and
`recovery`. `engine` puts it between a link and the order interface.
"""

from totempole.srp.config import RingConfig
from totempole.srp.engine import SingleRing

__all__ = ["RingConfig", "SingleRing"]
