"""Key files: the cluster's key on disk, and the three steps that replace it (docs/security.md).

A key file is text. Lines that begin with `#`, and empty ones, say nothing; any other is `ID BASE64`: a number
from 1 to 255 and 32 bytes. The first key is the active one; a second one is accepted too.

A rotation adds a key, activates it and retires the old one, and each step reaches every host before the next
one begins. So that no step can be repeated or skipped, the file shows how far it is: the new key's id follows
the old one's, and 1 follows 255.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shlex import quote

from totempole.errors import ConfigurationError
from totempole.wire.layout import KEY_ID_MAX
from totempole.wire.seal import KEYS_MAX, SECRET_BYTES, Key, Keyring

KEY_FILE_MODE = 0o600
OTHERS = stat.S_IRWXG | stat.S_IRWXO

KEY_FILE_BYTES_MAX = 65_536
"""A longer file is no key file, and is refused unread."""

HEADING = b"""\
# The key of a Totempole cluster. Who has it can read and forge everything: keep it secret.
# One key a line; the first is active, a second is accepted too. `totem keygen --help` tells how to rotate.
"""


def load(path: Path) -> Keyring:
    """The keyring in this file, which only its owner, who must be who runs this, may read or write."""
    return _parse(path, _read(path))


def create(path: Path) -> Keyring:
    """Makes a key file with one new key. What is there already is never overwritten."""
    keyring = Keyring((_new_key(1),))
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, KEY_FILE_MODE)
    except FileExistsError:
        raise ConfigurationError(
            f"{path} exists, and may be the key of a running cluster: give another name, or replace its key "
            "step by step, beginning with --add"
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be made ({error.strerror}): name a file in a directory where you may write"
        ) from error
    try:
        _fill(file, HEADING + _lines(keyring), KEY_FILE_MODE)
    except BaseException:
        os.unlink(path)
        raise
    _sync_directory(path.parent)
    return keyring


def add(path: Path) -> Keyring:
    """Step 1: a new key, accepted but not yet active."""

    def change(old: Keyring) -> Keyring:
        if len(old.keys) == KEYS_MAX:
            raise ConfigurationError(f"{path} has {KEYS_MAX} keys: finish that rotation first, {_next(old)}")
        return Keyring((old.active, _new_key(_following(old.active.id))))

    return _replace(path, change)


def activate(path: Path) -> Keyring:
    """Step 2: the new key becomes the active one; the old one is still accepted."""

    def change(old: Keyring) -> Keyring:
        if not is_staged(old):
            raise ConfigurationError(f"{path} has no new key that waits to become active: {_next(old)}")
        return Keyring(old.keys[::-1])

    return _replace(path, change)


def retire(path: Path) -> Keyring:
    """Step 3: the old key is accepted no more."""

    def change(old: Keyring) -> Keyring:
        if not is_activated(old):
            raise ConfigurationError(f"{path} has no old key to retire: {_next(old)}")
        return Keyring((old.active,))

    return _replace(path, change)


def is_staged(keyring: Keyring) -> bool:
    """Whether step 1 is done: the second key is the new one."""
    return len(keyring.keys) == KEYS_MAX and keyring.keys[1].id == _following(keyring.active.id)


def is_activated(keyring: Keyring) -> bool:
    """Whether step 2 is done: the second key is the old one."""
    return len(keyring.keys) == KEYS_MAX and keyring.active.id == _following(keyring.keys[1].id)


def next_step(keyring: Keyring) -> str:
    """The option of `totem keygen` that comes next; empty if the ids do not tell which key is new."""
    if len(keyring.keys) < KEYS_MAX:
        return "--add"
    return "--activate" if is_staged(keyring) else "--retire" if is_activated(keyring) else ""


def _next(keyring: Keyring) -> str:
    step = next_step(keyring)
    if not step:
        return "its ids do not follow each other, so order its lines by hand, the active key first"
    return f"the next step is {step}"


def _following(key_id: int) -> int:
    return key_id % KEY_ID_MAX + 1


def _new_key(key_id: int) -> Key:
    return Key(key_id, secrets.token_bytes(SECRET_BYTES))


# Reading


def _read(path: Path) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise _error(path, "there is no such file; `totem keygen` makes one") from None
    except OSError as error:
        raise _error(
            path, f"it cannot be read ({error.strerror}); it must belong to who runs this"
        ) from error
    try:
        # Of the open file, not of its name: what is judged is what is read.
        _check(path, os.fstat(file))
        data = os.read(file, KEY_FILE_BYTES_MAX + 1)
    finally:
        os.close(file)
    if len(data) > KEY_FILE_BYTES_MAX:
        raise _error(path, f"a key file has at most {KEY_FILE_BYTES_MAX} bytes; this is something else")
    return data


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _error(path, "this is not a regular file; name a file that `totem keygen` made")
    me = os.geteuid()
    if status.st_uid != me:
        raise _error(path, f"it belongs to user {status.st_uid}, not to {me}: chown {me} {quote(str(path))}")
    mode = stat.S_IMODE(status.st_mode)
    if mode & OTHERS:
        raise _error(
            path, f"its mode {mode:04o} lets others at it: chmod {mode & ~OTHERS:o} {quote(str(path))}"
        )


def _parse(path: Path, data: bytes) -> Keyring:
    keys: list[Key] = []
    for number, line in enumerate(data.splitlines(), 1):
        if _says_nothing(line):
            continue
        key = _parse_line(path, number, line)
        if key.id in {other.id for other in keys}:
            raise _error(path, f"the id {key.id} is there twice; give each key its own", number)
        if len(keys) == KEYS_MAX:
            raise _error(path, f"more than {KEYS_MAX} keys; remove the oldest", number)
        keys.append(key)
    if not keys:
        raise _error(path, "there is no key in it; `totem keygen` makes a file with one")
    return Keyring(tuple(keys))


def _says_nothing(line: bytes) -> bool:
    return not line.strip() or line.lstrip().startswith(b"#")


def _parse_line(path: Path, number: int, line: bytes) -> Key:
    """Says what is wrong without showing any of it: it may be nearly a key."""
    words = line.split()
    if len(words) != 2 or not words[0].isdigit() or not 1 <= int(words[0][:4]) <= KEY_ID_MAX:
        raise _error(path, f"not `ID BASE64` with an ID from 1 to {KEY_ID_MAX}; correct the line", number)
    try:
        secret = base64.b64decode(words[1], validate=True)
    except binascii.Error:
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise _error(path, f"not {SECRET_BYTES} bytes in base64; copy the line again", number)
    return Key(int(words[0]), secret)


def _error(path: Path, problem: str, line: int = 0) -> ConfigurationError:
    place = f", line {line}" if line else ""
    return ConfigurationError(f"key_file = {path}{place}: {problem}")


# Writing


def _lines(keyring: Keyring) -> bytes:
    return b"".join([b"%d %s\n" % (key.id, base64.b64encode(key.secret)) for key in keyring.keys])


def _replace(path: Path, change: Callable[[Keyring], Keyring]) -> Keyring:
    """Writes the changed keyring beside the file, then renames it: whoever reads finds the old or the new."""
    path = Path(os.path.realpath(path))
    data = _read(path)
    keyring = change(_parse(path, data))
    comments = b"".join([line + b"\n" for line in data.splitlines() if _says_nothing(line)])
    file, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        _fill(file, comments + _lines(keyring), stat.S_IMODE(path.stat().st_mode))
        os.rename(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_directory(path.parent)
    return keyring


def _fill(file: int, data: bytes, mode: int) -> None:
    """Writes and closes a file that is not in use yet."""
    with os.fdopen(file, "wb") as opened:
        os.fchmod(file, mode)
        opened.write(data)
        opened.flush()
        os.fsync(file)


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
