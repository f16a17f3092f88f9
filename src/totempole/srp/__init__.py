"""The single-ring protocol: order, membership and recovery on one ring (000 chapter 4).

`machine` is the way in: what each event does in each state. It builds on `membership` (who is on the ring),
which builds on `passing` (the token); the arithmetic is in `ordering`, `ring`, `flow`, `gathering` and
`recovery`. `engine` puts it between a link and the order interface.
"""

from totempole.srp.config import RingConfig
from totempole.srp.engine import SingleRing

__all__ = ["RingConfig", "SingleRing"]
