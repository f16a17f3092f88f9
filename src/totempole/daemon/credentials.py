"""Who is at the other end of a Unix socket, and whether he may come in."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Iterable
from struct import Struct

from totempole.daemon.identity import Identity
from totempole.errors import ConfigurationError

ROOT = 0
_PEER = Struct("iII")
"""pid, uid, gid; in the machine's own order."""


def peer_of(sock: socket.socket) -> Identity:
    """As the kernel noted it when the peer connected."""
    pid, uid, _ = _PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return Identity(pid=pid, uid=uid)


def allowed_uids(users: Iterable[str]) -> frozenset[int]:
    """The daemon's own user, root, and these, by name or number."""
    return frozenset((ROOT, os.geteuid(), *map(uid_of, users)))


def uid_of(user: str) -> int:
    if user.isascii() and user.isdecimal():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ConfigurationError(
            f'users = ["{user}"]: this host knows no such user; `getent passwd` lists those that it knows: '
            "give one of them, or a number"
        ) from None
