"""Process groups on the order interface (003): joining, views, packing, pieces, state for joiners."""

from totempole.groups.config import GroupConfig
from totempole.groups.layer import GroupLayer
from totempole.groups.outbox import Outbox
from totempole.groups.packing import Batch, pack

__all__ = ["Batch", "GroupConfig", "GroupLayer", "Outbox", "pack"]
