"""What stands on the order interface. So far: many messages in one ring packet."""

from totempole.groups.outbox import Outbox
from totempole.groups.packing import Batch, pack

__all__ = ["Batch", "Outbox", "pack"]
