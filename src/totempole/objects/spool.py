"""Encodes a snapshot into a temporary file, at once or in a forked child, so that commands go on meanwhile.

Why a fork is safe here. The child has the state as it was between two commands, and its memory is its own.
It runs on one thread, the one that forked. It does nothing but encode that memory and write to one file: it
takes no lock that another thread of the program may have held (it does not log, import, or speak with
anybody; malloc and the interpreter mend their own locks at a fork), and closes all other descriptors at once,
so that no connection of the program stays open for its sake. Signals are blocked in it, for the program's
handlers would tell the program's event loop; only SIGALRM is not, with which the kernel ends a child that
takes too long, even if the program is gone. It leaves by `os._exit`: no exit handler runs, and no buffer of
the program is written twice.

An object whose state is not plain memory (an open database, a GPU) must not be encoded in a child: its class
says so, and it is encoded at once.

It costs memory: pages that either side changes while the child runs exist twice, and Python changes a page
by looking at an object (reference counts). So a large state may need its size once more, for that long. It is
written in pieces, so that its encoded form is not in memory, too. The child rests between two of them.
"""

from __future__ import annotations

import errno
import gc
import os
import select
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from struct import Struct
from typing import NoReturn

from isal.isal_zlib import crc32

from totempole.objects.pieces import Piece
from totempole.objects.resting import Rest
from totempole.objects.snapshot_transfer import SnapshotError

Encode = Callable[[], Iterable[Piece]]
"""Gives the content of a snapshot in pieces, and needs nothing but memory for it."""

NICE = 10
"""Of a child: commands come first."""
TEXT_BYTES_MAX = 1000
WRITE_BYTES_MAX = 2**30
_REPORT = Struct(">BQI")
_DONE, _RAISED = 1, 2


class ProviderError(SnapshotError):
    """What encodes the state has raised, has taken too long, or was killed."""


class Spool:
    """The content of a snapshot in a file without a name, which is gone when it is closed."""

    def __init__(self, directory: str | None = None) -> None:
        self._file = tempfile.TemporaryFile(dir=directory, prefix="totempole-snapshot-")  # noqa: SIM115
        self.size = 0
        self.crc = 0

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self.fileno(), min(size, max(0, self.size - offset)), offset)

    def write(self, pieces: Iterable[Piece]) -> None:
        self.size, self.crc = write_pieces(self.fileno(), pieces)

    def close(self) -> None:
        self._file.close()


def write_pieces(file: int, pieces: Iterable[Piece]) -> tuple[int, int]:
    """Returns their size and their CRC-32."""
    size = crc = 0
    for piece in pieces:
        crc = crc32(piece, crc)
        rest = memoryview(piece).cast("B")
        while rest:
            written = os.pwrite(file, rest[:WRITE_BYTES_MAX], size)
            size += written
            rest = rest[written:]
    return size, crc


def encode_now(encode: Encode, spool: Spool) -> None:
    """Raises ProviderError, and OSError if the file cannot be written."""
    try:
        pieces = iter(encode())
    except Exception as error:
        raise _raised(error) from error
    spool.write(_guarded(pieces))


def _guarded(pieces: Iterable[Piece]) -> Iterable[Piece]:
    try:
        yield from pieces
    except OSError:
        raise
    except Exception as error:
        raise _raised(error) from error


def _raised(error: BaseException) -> ProviderError:
    return ProviderError(f"{type(error).__name__}: {str(error)[:TEXT_BYTES_MAX]}")


class EncodingChild:
    """A forked child that fills a spool. `wait` is for another thread than the one that has forked."""

    def __init__(self, encode: Encode, spool: Spool, deadline_s: float) -> None:
        """Forks. Raises OSError where that is not possible."""
        if not hasattr(os, "fork"):
            raise OSError(errno.ENOSYS, "this platform cannot fork")
        self._spool = spool
        self._deadline_s = deadline_s
        self._ends_s = time.monotonic() + deadline_s
        self._report, told = os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns where there are threads
                pid = os.fork()
            if pid == 0:
                _live(encode, spool.fileno(), told, deadline_s)
        except OSError:
            os.close(self._report)
            os.close(told)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.pid = pid
        self._is_reaped = False
        self._lock = threading.Lock()
        os.close(told)

    def kill(self) -> None:
        """From any thread: `wait` raises then."""
        with self._lock:
            if not self._is_reaped:
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        """Until the spool is full. Raises ProviderError. The child is gone when this returns."""
        heard = b""
        poll = select.poll()  # `select` takes no descriptor from 1024 on
        poll.register(self._report, select.POLLIN)
        try:
            while poll.poll(1000 * max(0.0, self._ends_s - time.monotonic())):
                piece = os.read(self._report, 65_536)
                if not piece:
                    break
                heard += piece
            else:
                raise ProviderError(f"encoding the state has taken longer than {self._deadline_s:g} s")
        finally:
            os.close(self._report)
            ended = self._reap()
        if len(heard) < _REPORT.size:
            raise ProviderError(f"the process that encoded the state has ended {ended}")
        kind, size, crc = _REPORT.unpack_from(heard)
        if kind != _DONE:
            raise ProviderError(heard[_REPORT.size :].decode(errors="replace"))
        self._spool.size, self._spool.crc = size, crc

    def give_up(self) -> None:
        """In place of `wait`, where nobody can wait."""
        os.close(self._report)
        self._reap()

    def _reap(self) -> str:
        """Ends the child, if it has not ended: it has said all that it has to say. How it ended, in words."""
        self.kill()
        try:
            _, status = os.waitpid(self.pid, 0)
        except ChildProcessError:
            return "unseen"  # the program waits for all its children by itself
        finally:
            with self._lock:
                self._is_reaped = True
        if os.WIFSIGNALED(status):
            return f"by signal {os.WTERMSIG(status)}; the system may have run out of memory"
        return f"with status {os.WEXITSTATUS(status)}"


def _live(encode: Encode, file: int, told: int, deadline_s: float) -> NoReturn:
    """The child's whole life."""
    code = 1
    try:
        gc.disable()  # it would touch every page, for nothing
        os.nice(NICE)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, max(deadline_s, 0.001))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        _close_all_but(file, told)
        try:
            size, crc = write_pieces(file, resting(encode(), deadline_s))
            os.write(told, _REPORT.pack(_DONE, size, crc))
            code = 0
        except BaseException as error:
            text = f"{type(error).__name__}: {error}".encode(errors="replace")[:TEXT_BYTES_MAX]
            os.write(told, _REPORT.pack(_RAISED, 0, 0) + text)
    finally:
        os._exit(code)


def resting(pieces: Iterable[Piece], deadline_s: float) -> Iterable[Piece]:
    """With a rest after each is written; after half of the time without."""
    rest = Rest()
    hurry_s = time.monotonic() + deadline_s / 2
    for piece in pieces:
        yield piece
        if time.monotonic() < hurry_s:
            rest.end()


def _close_all_but(*kept: int) -> None:
    """The standard ones are open and lead nowhere: a provider may print."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    for file in _descriptors():
        if file > 2 and file not in kept:
            with suppress(OSError):
                os.close(file)


def _descriptors() -> Iterable[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        most = os.sysconf("SC_OPEN_MAX")
        return range(most if most > 0 else 65_536)
