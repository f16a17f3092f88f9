"""Every error that the package raises on purpose descends from TotemError."""

from __future__ import annotations


class TotemError(Exception):
    """The root: catch this to catch all."""

    may_pass = False
    """Whether the same may go well later, with nothing set differently."""


class ConfigurationError(TotemError):
    """A setting has a value it cannot have. The text names the setting, the value and the way out."""


class CodecError(TotemError):
    """Bytes that are not a packet of ours. `reason` is a short fixed word, for counters and traces."""

    def __init__(self, reason: str, text: str = "") -> None:
        super().__init__(text or reason)
        self.reason = reason


class StorageError(TotemError):
    """Stable storage that cannot be opened or written. The text says what, where and the way out."""


class StorageFullError(StorageError):
    """No room for a write."""

    may_pass = True


class NetworkError(TotemError):
    """Sockets that cannot be opened. The text names the address, the port and the way out."""


class NetworkAbsentError(NetworkError):
    """This host does not have the address: a mistake, or an interface that comes late or has gone."""

    may_pass = True


class NumberInUseError(NetworkError):
    """Another node seems to have this processor's number. It may be a mistake that is put right elsewhere, or
    packets that somebody has recorded: so it is worth another try."""

    may_pass = True


class SessionError(TotemError):
    """A program and its node have parted: the text says who gave up, and why."""


class ScenarioError(TotemError):
    """A scenario file that cannot be run. The text names the file and the line."""


class TraceError(TotemError):
    """A trace that cannot be read or indexed. The text names the file and the line where there is one."""
