"""Named breakages of the redundant ring: of `rrp`, and of `networks` above it."""

from __future__ import annotations

from totempole.sim.fuzz.mutation import Mutant

NETWORK_MUTANTS: tuple[Mutant, ...] = ()
