"""Frames and messages: what is encoded is decoded, and garbage raises CodecError and nothing else."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from totempole.corel import frames, messages
from totempole.corel.frames import Colour
from totempole.corel.messages import Round
from totempole.corel.quorum import Formation, ReplicaSet, Voter
from totempole.corel.run import (
    Hold,
    Records,
    Run,
    RunId,
    RunKind,
    Stamp,
    hold_of,
    pack_body,
    pack_records,
    pack_run,
    primary_of,
    primary_run,
    records_of,
    unpack_run,
)
from totempole.corel.zones import Zones
from totempole.errors import CodecError

RUN = Run(
    RunId(1, 2, 3), Stamp(4, 1, 7, 0), 99, RunKind.RECORDS, 2, pack_records("log", [b"a", b"b"], ("k", ""))
)
FORMATION = Formation(3, (1, 2))
SET = ReplicaSet({1: Voter(11, 2), 2: Voter(12)}, "dynamic", 2)
ROUND = Round(Stamp(4, 1, 9, 0), 2)
RECORD = primary_run(FORMATION, {1: 11, 2: 12}, SET)
MARK = Zones().mark()

FRAMES: tuple[frames.Frame, ...] = (
    frames.Placed(RUN, Colour.YELLOW),
    frames.Promoted((RUN.id,)),
    frames.Greened(7),
    frames.Agreed(1, (RUN.id,), 2, FORMATION, 5, (RECORD,)),
    frames.Attempted(FORMATION),
    frames.Committed(FORMATION, RECORD, (RUN.id,)),
    frames.Identified(2**62 + 1),
    frames.Heard((frames.Shown(1, 11, 2, 5),)),
    frames.Opened(frames.Opening(2, 5)),
    frames.Rescued(1, 5, 11),
    frames.Begun(MARK),
    MARK,
)

MESSAGES: tuple[messages.Message, ...] = (
    messages.Data(5, RUN, True, ROUND, 7, 9),
    messages.Acknowledge(5, ROUND, 7, 9),
    messages.State(ROUND, 5, 11, 9, 3, (FORMATION,), FORMATION, 7, 1, 0, (RUN.id,), (RUN.id,), (), (), SET),
    messages.Priority(5, ROUND, (RUN.id,), (RUN, RECORD), False),
    messages.Attempt(5, ROUND, 3),
    messages.Commit(5, ROUND, 3),
    messages.CaughtUp(5, ROUND),
    messages.Fetch(5, ROUND, 1, 7, 100),
    messages.Fetched(5, ROUND, 7, (RUN,), 9, MARK),
    messages.AskBarrier(5, ROUND),
    messages.AnswerBarriers(5, ROUND, 4, 3),
    messages.AnswerBarriers(5, ROUND, 4),
)

CODECS: tuple[tuple[Any, tuple[Any, ...]], ...] = ((frames, FRAMES), (messages, MESSAGES))
SAMPLES = [(codec, sample) for codec, samples in CODECS for sample in samples]


def test_there_is_a_sample_of_each() -> None:
    assert {type(frame) for frame in FRAMES} == set(frames.Frame.__args__)
    assert {type(message) for message in MESSAGES} == set(messages.Message.__args__)


@pytest.mark.parametrize(("codec", "sample"), SAMPLES, ids=lambda each: type(each).__name__)
def test_what_is_encoded_is_decoded(codec: Any, sample: Any) -> None:
    assert codec.decode(codec.encode(sample)) == sample
    assert codec.decode(memoryview(codec.encode(sample))) == sample


def test_what_replicas_of_older_versions_say_is_read() -> None:
    """Fields that were added at the end have the value that is safe for whoever does not know of them."""
    for sample, added in (
        (messages.AnswerBarriers(5, ROUND, 4), {"durable": messages.UNKNOWN}),
        (next(each for each in MESSAGES if isinstance(each, messages.State)), {"takes_hints": False}),
    ):
        shorter = msgspec.msgpack.decode(messages.encode(sample))[: -len(added)]
        found = messages.decode(msgspec.msgpack.encode(shorter))
        assert found == msgspec.structs.replace(sample, **added)


@pytest.mark.parametrize(("codec", "sample"), SAMPLES, ids=lambda each: type(each).__name__)
def test_garbage_raises_only_codec_errors(codec: Any, sample: Any) -> None:
    rng = Random(type(sample).__name__)
    whole = codec.encode(sample)
    for _ in range(500):
        content = bytearray(whole[: rng.randint(0, len(whole))] if rng.random() < 0.3 else whole)
        for _ in range(rng.randint(0, 3)):
            if content:
                content[rng.randrange(len(content))] = rng.randrange(256)
        try:
            codec.decode(bytes(content))
        except CodecError:
            continue


@pytest.mark.parametrize("codec", [frames, messages])
def test_noise_raises_only_codec_errors(codec: Any) -> None:
    rng = Random(7)
    for _ in range(2_000):
        with pytest.raises(CodecError):
            codec.decode(rng.randbytes(rng.randint(0, 40)))


def test_bodies() -> None:
    assert records_of(RUN) == Records("log", records_of(RUN).batch, ("k", ""))
    assert [bytes(payload) for payload in records_of(RUN).payloads] == [b"a", b"b"]
    primary = primary_of(RECORD)
    assert (primary.number, primary.voters, primary.disks) == (3, (1, 2), {1: 11, 2: 12})
    assert primary.founding == SET
    hold = Run(RUN.id, RUN.stamp, 0, RunKind.HOLD, 0, pack_body(Hold("spark", 7)))
    assert hold_of(hold) == Hold("spark", 7)
    assert unpack_run(pack_run(RUN)) == RUN
