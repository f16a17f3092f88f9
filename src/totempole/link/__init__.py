"""Packets on one network: encoded packets as datagrams, and back.

`Link` stands below an engine. Where a ring has several networks, it has a link on each, and the
redundant-ring layer between them and the engine.
"""

from totempole.link.link import Below, Link, LinkUser, Transmission

__all__ = ["Below", "Link", "LinkUser", "Transmission"]
