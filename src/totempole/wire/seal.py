"""The seal: encrypts a ring packet as a whole, and vouches for who sent it (docs/decisions/0009-the-seal.md).

    header      in the clear, and vouched for; it names key, cluster, sender and incarnation
    counter     u64, one more for each packet of the sender's incarnation
    fields and contents, encrypted by AES-256-GCM
    tag         16 bytes, over all of it

Each incarnation of each sender has a subkey of its own, derived by HKDF-SHA256 from the cluster's key. Under
it the counter is the nonce. No pair of the two is ever used twice, because an incarnation is on stable
storage before its first packet leaves, and a seal only counts up.

A replay is a true packet: the ring knows it by what is inside.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct, error

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from totempole.errors import CodecError, ConfigurationError
from totempole.types import PROCESSOR_MAX, ProcessorId
from totempole.wire.layout import (
    CHECK_BYTES,
    COUNTER_BYTES,
    HEADER,
    IDENTITY,
    KEY_ID_MAX,
    PACKET_BYTES_MAX,
    PROCESSORS_MAX,
    SEAL_BYTES,
    UNSEALED,
)

SECRET_BYTES = 32

KEYS_MAX = 2
"""Keys that are accepted at a time: the old and the new one of a rotation."""

SUBKEYS_MAX = KEYS_MAX * PROCESSORS_MAX
"""Subkeys that are remembered, enough for the largest ring under both keys; the oldest is forgotten first."""

COUNTER_MAX = 2**64 - 1
"""Packets of one incarnation. At it nothing is sealed any more."""

PURPOSE = b"totempole seal 1"
"""Begins what a subkey is derived for; the header's cluster, sender and incarnation follow."""

_IDENTITY = Struct(">QII")
_NONCE = Struct(">IQ")
_NONCE_ZEROS = 4
_PREFIX = HEADER.size + COUNTER_BYTES
_HEADER_BYTES = HEADER.size
_ADDED_BYTES = HEADER.size + SEAL_BYTES

_Subkeys = dict[tuple[int, bytes], AESGCM]


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the cluster. Its secret never shows."""

    id: int
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not UNSEALED < self.id <= KEY_ID_MAX:
            raise ConfigurationError(f"key id = {self.id}: give a number from 1 to {KEY_ID_MAX}")
        if len(self.secret) != SECRET_BYTES:
            raise ConfigurationError(f"key {self.id} has {len(self.secret)} bytes: give {SECRET_BYTES}")


@dataclass(frozen=True, slots=True)
class Keyring:
    """The keys that a processor accepts, the active one first: it seals what this processor sends."""

    keys: tuple[Key, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.keys) <= KEYS_MAX:
            raise ConfigurationError(f"a ring of {len(self.keys)} keys: give 1 to {KEYS_MAX}")
        if len({key.id for key in self.keys}) < len(self.keys):
            raise ConfigurationError(f"two keys have the id {self.active.id}: give each its own")

    @property
    def active(self) -> Key:
        return self.keys[0]


class Seal:
    """Seals what one incarnation of one processor sends, and opens what any sends.

    There must be no second one of the same incarnation: it would use the same nonces again.
    """

    __slots__ = ("_active", "_counter", "_identity", "_secrets", "_subkeys", "key_id")

    def __init__(self, keyring: Keyring, cluster_id: int, sender: ProcessorId, incarnation: int) -> None:
        try:
            self._identity = _IDENTITY.pack(cluster_id, sender, incarnation)
        except error as problem:
            raise ConfigurationError(
                f"cluster_id = {cluster_id}, processor = {sender}, incarnation = {incarnation}: "
                f"give at most 2**64 - 1, {PROCESSOR_MAX} and 2**32 - 1"
            ) from problem
        assert len(self._identity) == HEADER.size - CHECK_BYTES - IDENTITY.start, "the header names all of it"
        self._counter = 0
        self.rekey(keyring)

    def rekey(self, keyring: Keyring) -> None:
        """From now on seals with the keyring's active key, and accepts its keys and no others."""
        self._secrets = {key.id: key.secret for key in keyring.keys}
        assert len(self._secrets) == len(keyring.keys), "two keys have one id"
        self._subkeys: _Subkeys = {}
        self.key_id = keyring.active.id
        """What the header of the next packet names."""
        self._active = _subkey(keyring.active.secret, self._identity)

    def close(self, header: bytes, body: bytes) -> bytes:
        """The sealed packet of this header, which names `key_id` and this incarnation, and this body."""
        if header[IDENTITY] != self._identity:
            raise ConfigurationError(
                "a packet of another cluster, processor or incarnation: only these themselves may seal it"
            )
        if self._counter == COUNTER_MAX:
            raise ConfigurationError("the counter of the seal has run out: restart the processor")
        assert len(header) == _HEADER_BYTES, "only a whole header is vouched for"
        self._counter += 1
        assert 0 < self._counter <= COUNTER_MAX, "a nonce is used once"
        nonce = _NONCE.pack(0, self._counter)
        return b"".join((header, nonce[_NONCE_ZEROS:], self._active.encrypt(nonce, body, header)))

    def open(self, key_id: int, data: bytes) -> bytes:
        """The fields and contents of a packet whose header names this key, or CodecError."""
        secret = self._secrets.get(key_id)
        if secret is None:
            raise CodecError("unsealed" if key_id == UNSEALED else "key")
        if not HEADER.size + SEAL_BYTES <= len(data) <= PACKET_BYTES_MAX:
            raise CodecError("oversized" if len(data) > PACKET_BYTES_MAX else "truncated")
        name = key_id, data[IDENTITY]
        known = self._subkeys.get(name)
        subkey = _subkey(secret, data[IDENTITY]) if known is None else known
        nonce = bytes(_NONCE_ZEROS) + data[HEADER.size : _PREFIX]
        try:
            body = subkey.decrypt(nonce, memoryview(data)[_PREFIX:], data[: HEADER.size])
        except InvalidTag:
            raise CodecError("seal") from None
        if known is None:
            # Only now: forgers cannot push out the subkeys of those who hold a key.
            self._remember(name, subkey)
        assert len(body) + _ADDED_BYTES == len(data), "opening takes off the seal alone"
        return body

    def _remember(self, name: tuple[int, bytes], subkey: AESGCM) -> None:
        if len(self._subkeys) >= SUBKEYS_MAX:
            del self._subkeys[next(iter(self._subkeys))]
        self._subkeys[name] = subkey
        assert len(self._subkeys) <= SUBKEYS_MAX, "more subkeys than are remembered"


def _subkey(secret: bytes, identity: bytes) -> AESGCM:
    assert len(identity) == _IDENTITY.size, "a subkey is of one processor's one life"
    return AESGCM(HKDF(SHA256(), SECRET_BYTES, salt=None, info=PURPOSE + identity).derive(secret))
