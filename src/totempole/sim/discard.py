"""The discard limit of Totem appendix A (`-d`): a processor halts when it has delivered so many messages."""

from __future__ import annotations

from totempole.core.order import Deliver
from totempole.sim.host import Host
from totempole.sim.world import World


class DiscardLimit:
    """Halts each processor, as a crash does, after the input in which it delivers its last message.

    Messages of the same input are delivered before it halts, so it may have delivered a few more.
    """

    def __init__(self, world: World, messages: int) -> None:
        self.world = world
        self.messages = messages
        self.last_halt_us = 0
        for host in world.hosts.values():
            assert host.listener is None, "processes listen here: a discard limit is for rings without groups"
            host.listener = self._listen

    def _listen(self, host: Host, event: object) -> None:
        if type(event) is Deliver and host.delivered == self.messages:
            # Not now: the processor is in the middle of an input.
            self.world.scheduler.at(self.world.now_us, self._halt, host)

    def _halt(self, host: Host) -> None:
        self.last_halt_us = self.world.now_us
        self.world.crash(host.me)
