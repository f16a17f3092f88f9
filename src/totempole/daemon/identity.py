"""Who a client is, as far as the daemon can prove it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Identity:
    """By the kernel's word (a process on this host), by a certificate, or the program that embeds the
    node."""

    pid: int = 0
    uid: int | None = None
    certificate: str = ""

    def fields(self) -> dict[str, Any]:
        """For a line of the log."""
        if self.certificate:
            return {"certificate": self.certificate}
        if self.uid is not None:
            return {"pid": self.pid, "uid": self.uid}
        return {"client": "embedded"}

    def __str__(self) -> str:
        return " ".join(f"{name} {value}" for name, value in self.fields().items())


EMBEDDED = Identity()
