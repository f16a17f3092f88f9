"""How a ring uses its networks: the styles of RRP, and the choices that its authors left open."""

from __future__ import annotations

from dataclasses import dataclass, field

from totempole.errors import ConfigurationError
from totempole.settings import check_settings, setting, whole, words

STYLES = ("none", "active", "passive", "active-passive")
NETWORKS_MIN = 2
NETWORKS_MAX = 7
"""Networks under one ring: a route has a bit for each (route.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedundancyConfig:
    """Of a ring on several networks. All processors of a cluster should have the same."""

    style: str = field(
        default="none",
        metadata=setting(
            words(STYLES),
            "with several networks: each message on all (active), on one (passive), or on `copies`",
        ),
    )
    copies: int = field(
        default=0,
        metadata=setting(
            whole(0, NETWORKS_MAX - 1), "active-passive: networks that carry each message; 0: not set"
        ),
    )
    tokens: str = field(
        default="all",
        metadata=setting(
            words(("all", "one")), "networks that carry each token; one: as many as a message, as in RRP"
        ),
    )
    hello_us: int = field(
        default=350_000,
        metadata=setting(
            whole(10_000, 10_000_000), "how often each network is shown to work while nothing is sent"
        ),
    )
    probation_us: int = field(
        default=2_000_000,
        metadata=setting(
            whole(10_000, 600_000_000), "a mended network waits so long; twice as long after each relapse"
        ),
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.style == "active-passive" and not self.copies:
            raise ConfigurationError(
                'copies = 0: with style = "active-passive" give how many networks carry each message'
            )
        if self.style != "active-passive" and self.copies:
            raise ConfigurationError(
                f'copies = {self.copies}: only style = "active-passive" takes it; leave it out'
            )

    def copies_on(self, networks: int) -> int:
        """How many of so many networks carry each message (K of RRP section 7)."""
        if self.style == "none":
            raise ConfigurationError(
                f'style = "none": there are {networks} networks; give one of {", ".join(STYLES[1:])}'
            )
        if networks < NETWORKS_MIN:
            raise ConfigurationError(
                f'style = "{self.style}": there is {networks} network; give a [[network]] table for each, or '
                "leave [redundancy] out"
            )
        if networks > NETWORKS_MAX:
            raise ConfigurationError(f"{networks} networks under one ring: give at most {NETWORKS_MAX}")
        if self.style == "active":
            return networks
        if self.style == "passive":
            return 1
        if not 1 < self.copies < networks:
            raise ConfigurationError(
                f'copies = {self.copies}: with style = "active-passive" and {networks} networks give a '
                f"number above 1 and below {networks}"
            )
        return self.copies
