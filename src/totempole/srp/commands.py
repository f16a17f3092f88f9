"""What a node asks of a running ring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from totempole.core.inputs import Command

if TYPE_CHECKING:
    from totempole.wire.seal import Keyring


@dataclass(frozen=True, slots=True)
class Rekey(Command):
    """The key file has changed: seal with its active key, accept its others."""

    keyring: Keyring
