"""Key files: which are refused and why, and the steps of a rotation."""

from __future__ import annotations

import os
import stat
from base64 import b64encode
from pathlib import Path

import pytest

from totempole.errors import ConfigurationError
from totempole.runtime import keyring
from totempole.runtime.keyring import KEY_FILE_BYTES_MAX
from totempole.wire.seal import Key, Keyring

ONE, TWO, THREE = (Key(number, bytes([number]) * 32) for number in (1, 2, 3))


def line(key: Key) -> str:
    return f"{key.id} {b64encode(key.secret).decode()}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "totem.key"


def write(path: Path, *parts: str | Key, mode: int = 0o600) -> Path:
    path.write_text("".join(line(part) if isinstance(part, Key) else part for part in parts))
    path.chmod(mode)
    return path


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def problem(path: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        keyring.load(path)
    text = str(caught.value)
    assert text.startswith(f"key_file = {path}")
    return text.removeprefix(f"key_file = {path}")


# Reading


def test_the_first_key_is_the_active_one(path: Path) -> None:
    assert keyring.load(write(path, ONE)) == Keyring((ONE,))
    assert keyring.load(write(path, "# why\n\n", TWO, "  # and\n", ONE)) == Keyring((TWO, ONE))


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_files_for_the_owner_alone_are_read(path: Path, mode: int) -> None:
    assert keyring.load(write(path, ONE, mode=mode)).active == ONE


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o604, 0o602, 0o644, 0o666])
def test_files_that_others_can_get_at_are_refused(path: Path, mode: int) -> None:
    text = problem(write(path, ONE, mode=mode))
    assert text == f": its mode {mode:04o} lets others at it: chmod 600 {path}"


def test_what_is_to_be_typed_can_be_typed(tmp_path: Path) -> None:
    path = write(tmp_path / "my key", ONE, mode=0o444)
    assert problem(path).endswith(f": chmod 400 '{path}'")


def test_a_foreign_owner_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, ONE)
    monkeypatch.setattr(os, "geteuid", lambda: 4_321)
    owner = path.stat().st_uid
    assert problem(path) == f": it belongs to user {owner}, not to 4321: chown 4321 {path}"


def test_what_is_no_file_is_refused(path: Path, tmp_path: Path) -> None:
    assert "no such file; `totem keygen` makes one" in problem(path)
    assert "not a regular file" in problem(tmp_path)
    os.mkfifo(path, 0o600)
    assert "not a regular file" in problem(path)


BAD_LINES = {
    "no id": "AAAA\n",
    "no key": "2\n",
    "three words": line(TWO).strip() + " x\n",
    "id 0": "0 " + line(TWO).split()[1],
    "id 256": "256 " + line(TWO).split()[1],
    "a very long id": "9" * 5_000 + " " + line(TWO).split()[1],
    "a negative id": "-1 " + line(TWO).split()[1],
    "an id in words": "two " + line(TWO).split()[1],
    "no base64": "2 " + "!" * 44,
    "a short key": "2 " + b64encode(bytes(31)).decode(),
    "a long key": "2 " + b64encode(bytes(33)).decode(),
    "a key cut off": line(TWO).strip()[:-3],
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_malformed_line_is_named_and_not_shown(path: Path, name: str) -> None:
    text = problem(write(path, "# a comment\n", ONE, BAD_LINES[name]))
    assert text.startswith(", line 3: not ")
    assert BAD_LINES[name].split()[-1] not in text.split()


def test_bytes_that_are_no_text_are_a_malformed_line(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00\n")
    path.chmod(0o600)
    assert problem(path).startswith(", line 1: not `ID BASE64`")


def test_duplicate_ids_too_many_keys_and_none_are_refused(path: Path) -> None:
    text = problem(write(path, ONE, Key(1, TWO.secret)))
    assert text == ", line 2: the id 1 is there twice; give each key its own"
    text = problem(write(path, ONE, TWO, "# the third\n", THREE))
    assert text == ", line 4: more than 2 keys; remove the oldest"
    assert "there is no key in it" in problem(write(path, "# nothing\n"))


def test_a_file_of_the_largest_size_is_read_and_a_larger_one_refused(path: Path) -> None:
    filler = "#" * (KEY_FILE_BYTES_MAX - len(line(ONE)) - 1) + "\n"
    assert keyring.load(write(path, filler, ONE)).active == ONE
    assert "at most 65536 bytes" in problem(write(path, "#", filler, ONE))


# Making one


def test_a_new_file_has_one_key_and_is_for_its_owner_alone(path: Path) -> None:
    made = keyring.create(path)
    assert mode_of(path) == 0o600
    assert keyring.load(path) == made
    assert [key.id for key in made.keys] == [1]


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_the_mode_does_not_depend_on_the_umask(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        keyring.create(path)
    finally:
        os.umask(before)
    assert mode_of(path) == 0o600


def test_no_two_keys_are_the_same(tmp_path: Path) -> None:
    made = {keyring.create(tmp_path / str(number)).active.secret for number in range(20)}
    assert len(made) == 20


def test_a_file_that_is_there_is_never_overwritten(path: Path, tmp_path: Path) -> None:
    write(path, ONE)
    dangling = tmp_path / "link"
    dangling.symlink_to(tmp_path / "elsewhere")
    for there in (path, dangling):
        with pytest.raises(ConfigurationError, match="exists, and may be the key of a running cluster"):
            keyring.create(there)
    assert path.read_text() == line(ONE)
    assert not (tmp_path / "elsewhere").exists()


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be made \(No such file or directory\)"):
        keyring.create(tmp_path / "no" / "totem.key")


def full_disk(_file: int) -> None:
    raise OSError(28, "No space left on device")


def test_a_file_that_cannot_be_written_whole_is_not_left_behind(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        keyring.create(path)
    assert not path.exists()


# Rotation


def test_the_three_steps(path: Path) -> None:
    old = keyring.create(path).active
    assert keyring.next_step(keyring.load(path)) == "--add"
    added = keyring.add(path)
    new = added.keys[1]
    assert (added.keys, new.id) == ((old, new), 2)
    assert new.secret != old.secret
    assert keyring.next_step(keyring.load(path)) == "--activate"
    assert keyring.activate(path).keys == (new, old)
    assert keyring.next_step(keyring.load(path)) == "--retire"
    assert keyring.retire(path).keys == (new,)
    assert keyring.load(path) == Keyring((new,))
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_1_follows_255(path: Path) -> None:
    last = Key(255, ONE.secret)
    write(path, last)
    assert [key.id for key in keyring.add(path).keys] == [255, 1]
    assert [key.id for key in keyring.activate(path).keys] == [1, 255]
    assert [key.id for key in keyring.retire(path).keys] == [1]


@pytest.mark.parametrize(
    ("keys", "step", "text"),
    [
        ((ONE,), keyring.activate, "has no new key that waits to become active: the next step is --add"),
        ((ONE,), keyring.retire, "has no old key to retire: the next step is --add"),
        ((ONE, TWO), keyring.add, "has 2 keys: finish that rotation first, the next step is --activate"),
        ((ONE, TWO), keyring.retire, "has no old key to retire: the next step is --activate"),
        ((TWO, ONE), keyring.add, "has 2 keys: finish that rotation first, the next step is --retire"),
        ((TWO, ONE), keyring.activate, "that waits to become active: the next step is --retire"),
        ((ONE, THREE), keyring.activate, "order its lines by hand"),
        ((THREE, ONE), keyring.retire, "order its lines by hand"),
    ],
)
def test_no_step_can_be_repeated_or_skipped(path: Path, keys: tuple[Key, ...], step, text: str) -> None:
    write(path, *keys)
    before = path.read_text()
    with pytest.raises(ConfigurationError) as caught:
        step(path)
    assert text in str(caught.value)
    assert path.read_text() == before


def test_a_step_keeps_mode_and_comments(path: Path) -> None:
    write(path, "# the cluster in the cellar\n", ONE, "\n# end\n", mode=0o400)
    keyring.add(path)
    assert mode_of(path) == 0o400
    comments = [part for part in path.read_text().splitlines() if part.startswith("#")]
    assert comments == ["# the cluster in the cellar", "# end"]


def test_a_step_through_a_link_changes_the_file_and_keeps_the_link(path: Path, tmp_path: Path) -> None:
    write(path, ONE)
    link = tmp_path / "link"
    link.symlink_to(path)
    keyring.add(link)
    assert link.is_symlink()
    assert len(keyring.load(path).keys) == 2


def test_a_step_that_fails_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, ONE)
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        keyring.add(path)
    assert path.read_text() == line(ONE)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_file_that_others_can_read_is_not_rotated(path: Path) -> None:
    write(path, ONE, mode=0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        keyring.add(path)
