"""The single-ring protocol: order, membership and recovery on one ring (000 chapter 4).

`machine` is the way in: what each event does in each state. It builds on `membership` (who is on the ring),
which builds on `passing` (the token); the arithmetic is in `ordering`, `ring`, `flow`, `gathering` and
`recovery`. `endpoint` adds bytes and gives the order interface.
"""

from totempole.srp.config import RingConfig
from totempole.srp.endpoint import Endpoint

__all__ = ["Endpoint", "RingConfig"]
