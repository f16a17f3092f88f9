"""How many files and sockets a process may have open at a time (RLIMIT_NOFILE)."""

from __future__ import annotations

import resource

SPARE = 64
"""For all but clients."""


def allow_descriptors(needed: int) -> None:
    """Raises the soft limit, as far as the hard one goes. Connections beyond that are refused as they come,
    with a line that says so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard), hard))
