"""Every error that the package raises on purpose descends from TotemError."""

from __future__ import annotations

from typing import Generic, TypeVar

R = TypeVar("R")
"""A receipt: of a record, of a call of an object, of a multicast."""


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


class LogDamagedError(StorageError):
    """Part of a log on disk is not what was written. The text says where."""


class LogTrimmedError(StorageError):
    """What was asked for is not in this replica's log any more. The text says where it begins."""

    def __init__(self, text: str, earliest: int = 0) -> None:
        super().__init__(text)
        self.earliest = earliest
        """The first position that is kept."""


class LogError(TotemError):
    """A log that cannot be read as asked. The text says why, and the way out."""


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


class Unknown(SessionError, Generic[R]):
    """Whether what the program has sent is done, or will be, is not known. Of records, a receipt may tell
    later; the same append with the same key may be tried again safely."""

    def __init__(self, why: str, receipts: tuple[R, ...]) -> None:
        super().__init__(why)
        self.receipts = receipts
        """Of those records that the daemon had accepted, in their order. A record with a key that was sent
        several times has several."""

    @property
    def receipt(self) -> R | None:
        """The last; of a single record, that of its last sending. None: the daemon had accepted nothing."""
        return self.receipts[-1] if self.receipts else None


class NotPrimary(SessionError):
    """This side of the cluster may not go on, or not yet. The command was not applied anywhere, and will not
    be: it may be given again, here or to another member."""

    may_pass = True


class TlsError(SessionError):
    """A program and a service do not accept each other's certificates. The same would be said again."""


class ScenarioError(TotemError):
    """A scenario file that cannot be run. The text names the file and the line."""


class TraceError(TotemError):
    """A trace that cannot be read or indexed. The text names the file and the line where there is one."""


class ObjectError(TotemError):
    """A replicated object that cannot be used as asked. The text names the object's class, and the way
    out."""


class CannotCarryError(ObjectError):
    """A value, or a type, that cannot be written to the log. The text names the parameter or the
    attribute."""


class ObjectClassError(ObjectError):
    """Another class is kept under this name, or the record that names the class is missing."""


class ObjectVersionError(ObjectError):
    """The object is at a version that this program does not have. The text names both."""


class ObjectBrokenError(ObjectError):
    """A command was interrupted in the middle: what this program holds of the object is worth nothing. It has
    to be read again, from a snapshot or from the beginning of its log."""

    may_pass = True

    def __init__(self, text: str, token: int | None = None) -> None:
        super().__init__(text)
        self.token = token
        """Of a command that ran out of stack: it would do so again. `ObjectMachine.skip` takes it."""
