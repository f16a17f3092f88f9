"""The Unix socket that programs on this host connect to.

A daemon that was killed leaves its socket file behind. It is replaced, but only when it is a socket and
nobody listens on it; and only the daemon's own file is removed at the end.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from totempole.daemon.config import SOCKET_PATH_BYTES_MAX
from totempole.errors import NetworkError

BACKLOG = 1024


class UnixListener:
    """Open on construction."""

    def __init__(self, path: Path, mode: int) -> None:
        self.path = path
        if len(bytes(path)) > SOCKET_PATH_BYTES_MAX:
            raise _trouble(
                path, f"a socket's path has at most {SOCKET_PATH_BYTES_MAX} bytes; set a shorter one"
            )
        _remove_stale(path)
        self.socket = socket.socket(
            socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        try:
            self.socket.bind(str(path))
            # Nobody can connect before the permissions are right: it does not listen yet.
            path.chmod(mode)
            self._file = _identity(path)
            self.socket.listen(BACKLOG)
        except OSError as error:
            self.socket.close()
            raise _trouble(path, f"{error.strerror}; choose another with the setting socket") from None

    def close(self) -> None:
        with suppress(OSError):
            if _identity(self.path) == self._file:
                self.path.unlink()
        self.socket.close()


def _remove_stale(path: Path) -> None:
    try:
        status = path.lstat()
    except OSError:
        return  # there is none, or binding will say what is wrong
    if not stat.S_ISSOCK(status.st_mode):
        raise _trouble(path, "it is there and is no socket; remove it, or choose another path")
    if _someone_listens(path):
        raise _trouble(path, "another daemon listens there; stop it, or choose another path")
    with suppress(FileNotFoundError):
        path.unlink()


def _someone_listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # a full backlog, or one of another user's: somebody's at any rate
        return True


def _identity(path: Path) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino


def _trouble(path: Path, text: str) -> NetworkError:
    return NetworkError(f"socket {path}: {text}")
