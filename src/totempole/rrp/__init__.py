"""The redundant ring (RRP): one ring on several networks, as a layer between the ring and its links.

`Replicator` stands on one link for each network and looks like a link to the ring. It decides on which
networks a packet goes (`route`), holds tokens back while messages may still be under way (`gate`), and
watches what each network loses (`watching`, by `accounts`, `paths` and `hello`). What is done about a network
that fails, all members decide together, above the ring (`totempole.networks`).
"""

from totempole.rrp.config import RedundancyConfig
from totempole.rrp.layer import Replicator

__all__ = ["RedundancyConfig", "Replicator"]
