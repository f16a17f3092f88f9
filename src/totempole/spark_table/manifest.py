"""Names, numbers and records by which a batch of a Spark query is written to the log once.

A *producer* is one streaming query, or one batch write. Its fences and its staged log bear its name:

    spark/<id>             the producer
    spark/<id>/rows        the fence of its rows in their logs: which step of which batch came last
    spark/<id>/batches     the fence of its manifests: which batch was decided last
    staged/spark/<id>      the log of its staged runs and manifests
    spark/<id>/<batch>/<position>   a hold: staged runs of a batch that are not in their logs yet

The mark of `rows` counts steps: batch b begins at (b + 1) << 20, each run that is copied is one step, and the
last one, or the only one of a small batch, is `LAST_STEP`. So a mark says whether its batch is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import msgspec

from totempole.errors import CodecError, ConfigurationError
from totempole.spark_table.access import STAGED

STEP_BITS = 20
LAST_STEP = (1 << STEP_BITS) - 1
RUNS_MAX = LAST_STEP
"""Of one batch."""
ID_BYTES_MAX = 64
"""Of a producer: fences, holds and logs have it in their names."""


@dataclass(frozen=True, slots=True)
class Producer:
    id: str

    def __str__(self) -> str:
        return f"spark/{self.id}"

    @property
    def rows(self) -> str:
        return f"{self}/rows"

    @property
    def batches(self) -> str:
        return f"{self}/batches"

    @property
    def staged_log(self) -> str:
        return f"{STAGED}{self}"

    def hold(self, batch: int, position: int) -> str:
        """Of what one task has staged, from this position on. Attempts of different drivers share nothing
        else that tells them apart."""
        return f"{self}/{batch}/{position}"

    def batch_held(self, hold: str) -> int | None:
        """The batch that a hold is of; None: it is not one of this producer's."""
        batch, _, position = hold.removeprefix(f"{self}/").partition("/")
        is_own = hold.startswith(f"{self}/") and batch.isdecimal() and position.isdecimal()
        return int(batch) if is_own else None


def check_id(option: str, value: str) -> None:
    if not 1 <= len(value.encode(errors="surrogatepass")) <= ID_BYTES_MAX or not value.isprintable():
        raise ConfigurationError(
            f"option {option} = {value[:80]!r}: give 1 to {ID_BYTES_MAX} bytes of text that can be printed"
        )


# Marks of the rows' fence


def step_number(batch: int, step: int, of: int) -> int:
    """The mark once this step (from 1), `of` so many, is in the log."""
    return ((batch + 1) << STEP_BITS) | (LAST_STEP if step == of else step)


def complete(batch: int) -> int:
    """The mark once all of a batch is in the log; of batch -1, the mark of a producer that wrote nothing."""
    return ((batch + 1) << STEP_BITS) | LAST_STEP if batch >= 0 else 0


def batch_of(mark: int) -> int:
    return (mark >> STEP_BITS) - 1


def step_of(mark: int) -> int:
    return mark & LAST_STEP


def is_complete(mark: int) -> bool:
    """Whether the batch of this mark has all of its rows in the log."""
    return mark == 0 or step_of(mark) == LAST_STEP


# Records of the staged log


class PackedRun(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Rows for one log that become one run of it. A staged run is one record, whatever its rows."""

    log: str
    count: int
    batch: bytes
    """Payloads, as `groups.packing` packs them."""
    keys: bytes = b""
    """Likewise, one for each row; empty: no row has one."""

    @property
    def size(self) -> int:
        return len(self.batch) + len(self.keys)


class Manifest(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Decides a batch: which staged runs it is made of."""

    batch: int
    steps: tuple[int, ...] = ()
    """The position of the first staged run, and of each further one how far it is from the one before."""

    @classmethod
    def of(cls, batch: int, positions: Sequence[int]) -> Manifest:
        ordered = sorted(positions)
        if len(ordered) > RUNS_MAX:
            raise ConfigurationError(
                f"batch {batch} has {len(ordered)} staged runs, at most {RUNS_MAX} fit: make batches smaller "
                "(maxOffsetsPerTrigger, or several writes)"
            )
        return cls(batch, tuple([stop - start for start, stop in zip([0, *ordered], ordered, strict=False)]))

    @property
    def positions(self) -> list[int]:
        return list(accumulate(self.steps))


_encode = msgspec.msgpack.encode
_decoder: msgspec.msgpack.Decoder[PackedRun | Manifest] = msgspec.msgpack.Decoder(PackedRun | Manifest)


def encode(record: PackedRun | Manifest) -> bytes:
    return _encode(record)


def decode(content: Any) -> PackedRun | Manifest:
    """Raises CodecError."""
    try:
        return _decoder.decode(content)
    except msgspec.MsgspecError as error:
        raise CodecError("staged record malformed", f"a staged record that cannot be read: {error}") from None
