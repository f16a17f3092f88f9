"""The single-ring protocol: order, membership and recovery on one ring (000 chapter 4).

Read `machine` first, its tables last; then `ordering`, `ring`, `gathering`, `recovery`, `flow`.
"""

from totempole.srp.config import RingConfig
from totempole.srp.endpoint import Endpoint

__all__ = ["Endpoint", "RingConfig"]
