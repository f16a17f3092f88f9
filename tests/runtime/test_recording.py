"""A node's inputs, written and read and fed again: the same effects, or the first input that differs."""

from __future__ import annotations

import logging
import os
import stat
import zlib
from collections.abc import Iterator
from dataclasses import replace as replaced
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordings import header_of, life, write
from totempole.core.effects import CancelTimer, Channel, Effect, Role, Send, SetTimer, Tell, TimerName, Trace
from totempole.core.inputs import Arrived, Command, Expired, Input, Narrowed, Start, Written
from totempole.core.order import Deliver, Leave, Submit
from totempole.errors import ConfigurationError, TraceError
from totempole.groups import GroupConfig
from totempole.groups.commands import Connect, GiveState, JoinGroup, Multicast
from totempole.jitter import jitter
from totempole.runtime import recording
from totempole.runtime.recording import (
    INPUTS,
    InputRecorder,
    KeyIds,
    RecordingHeader,
    RecordingReader,
    _fields,
    effects_digest,
)
from totempole.runtime.replaying import replay, stack_builder
from totempole.segment.burst import Burst
from totempole.srp.commands import Rekey
from totempole.srp.engine import SingleRing
from totempole.srp.packets import NullMessage
from totempole.srp.states import Timer
from totempole.stack import Parts, ProcessorStack, StackSpec, build
from totempole.types import NO_RING, MessageId, OrderKey, Place, ProcessId, RingId, Service
from totempole.wire.seal import Key, Keyring

HEADER = RecordingHeader(StackSpec(1), {}, frozenset())


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("recording") / "inputs.totem", life())


# Reading what was written


def test_every_input_of_a_life_is_read_back(path: Path) -> None:
    reader = RecordingReader(path)
    found = list(reader)
    reader.close()
    assert [(each.now_us, each.given) for each in found] == [
        (now_us, _immutable(given)) for now_us, given in life().inputs
    ]
    assert reader.header == header_of(life())
    assert reader.ended == "closed"


def _immutable(given: Input) -> Input:
    return given._replace(datagrams=tuple(given.datagrams)) if isinstance(given, Arrived) else given


def test_enums_come_back_as_such(tmp_path: Path) -> None:
    with InputRecorder(tmp_path / "x", HEADER) as recorder:
        recorder.record(5, Expired(TimerName("srp", 0, Timer.JOIN)), [])
        recorder.record(6, Submit(b"payload", Service.SAFE, (2**64 - 1,)), [])
    timer, submission = (each.given for each in RecordingReader(tmp_path / "x"))
    assert isinstance(timer, Expired)
    assert type(timer.timer) is TimerName
    assert isinstance(submission, Submit)
    assert type(submission.service) is Service
    assert submission == Submit(b"payload", Service.SAFE, (2**64 - 1,))


processes = st.builds(ProcessId, *[st.integers(1, 2**32 - 1)] * 3)
rings = st.builds(RingId, st.integers(0, 2**62), st.integers(0, 2**32 - 1))
places = st.builds(Place, st.builds(OrderKey, rings, st.integers(0, 2**62), rings), st.integers(0, 2**40))
numbers = st.integers(1, 2**40)
names = st.text(max_size=20)
inputs = (
    st.just(Start())
    | st.builds(
        Arrived,
        st.integers(0, 3),
        st.sampled_from(Channel),
        st.lists(st.binary(max_size=50), max_size=3).map(tuple),
        st.integers(0, 65_507),
        st.none() | st.tuples(names, st.integers(0, 65_535)),
    )
    | st.builds(Written, numbers)
    | st.builds(Narrowed, st.integers(0, 3), numbers)
    | st.builds(Connect, numbers)
    | st.builds(JoinGroup, numbers, names, st.booleans(), st.booleans())
    | st.builds(
        Multicast,
        numbers,
        st.lists(names, max_size=3).map(tuple),
        st.binary(max_size=50),
        st.sampled_from(Service),
        st.booleans(),
    )
    | st.builds(GiveState, numbers, names, processes, places, st.binary(max_size=50), st.booleans())
)


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), inputs), max_size=6))
def test_any_input(tmp_path_factory: pytest.TempPathFactory, given_: list[tuple[int, Input]]) -> None:
    path = tmp_path_factory.mktemp("recording") / "x"
    with InputRecorder(path, HEADER) as recorder:
        for now_us, each in given_:
            recorder.record(now_us, each, [])
    found = [(each.now_us, each.given) for each in RecordingReader(path)]
    assert found == given_
    assert [list(map(type, _fields(each))) for _, each in found] == [
        list(map(type, _fields(each))) for _, each in given_
    ]


def test_a_keyring_is_its_ids_and_its_secrets_are_nowhere(tmp_path: Path) -> None:
    secret = bytes(range(100, 132))
    keyring = Keyring((Key(7, secret), Key(6, bytes(32))))
    with InputRecorder(tmp_path / "x", RecordingHeader(StackSpec(1), {}, frozenset(), (7, 6))) as recorder:
        recorder.record(5, Rekey(keyring), [])
    reader = RecordingReader(tmp_path / "x")
    (found,) = reader
    assert isinstance(found.given, Rekey)
    assert found.given.keyring == KeyIds((7, 6))  # type: ignore[comparison-overlap]
    assert type(found.given.keyring) is KeyIds
    assert reader.header.key_ids == (7, 6)
    assert secret not in (tmp_path / "x").read_bytes()


def test_it_is_its_owner_s_alone_and_overwrites_nothing(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(TraceError, match=r"cannot be recorded .*File exists"):
        InputRecorder(path, HEADER)


def test_what_it_cannot_hold(tmp_path: Path) -> None:
    with InputRecorder(tmp_path / "x", HEADER) as recorder:
        with pytest.raises(TypeError, match="no place for a field of type dict"):
            recorder.record(1, Arrived(0, Channel.DATA, ({},), 0, None), [])  # type: ignore[arg-type]
        with pytest.raises(KeyError):
            recorder.record(1, Reformat(), [])


class Reformat(Command):
    """What no layer takes."""


def test_every_command_of_a_stack_can_be_recorded() -> None:
    stack = build(StackSpec(1, groups=GroupConfig()), {})
    assert {kind.__name__ for kind in stack._commands} <= set(INPUTS)


# The digest of effects

RING = RingId(4, 1)
PACKET = NullMessage(1, 1, 1, RING)
JOIN = TimerName("srp", 0, Timer.JOIN)
SEND = Send((0,), None, Channel.DATA, (Burst(b"datagram", 1_400),), Role.CONTROL, PACKET)
DELIVER = Deliver(MessageId(1, 1, 1), 1, b"payload", Service.SAFE, OrderKey(RING, 1, NO_RING), 5, RING)
TELL = Tell(("order", 0), DELIVER)
EFFECTS: list[Effect] = [SEND, SetTimer(JOIN, 17), TELL]
CHANGED: list[list[Effect]] = [
    EFFECTS[:2],
    [EFFECTS[1], EFFECTS[0], EFFECTS[2]],
    [SEND._replace(networks=(1,)), *EFFECTS[1:]],
    [SEND._replace(to=2), *EFFECTS[1:]],
    [SEND._replace(channel=Channel.TOKEN), *EFFECTS[1:]],
    [SEND._replace(bursts=(Burst(b"datagran", 1_400),)), *EFFECTS[1:]],
    [SEND._replace(bursts=(Burst(b"datagram", 4),)), *EFFECTS[1:]],
    [SEND._replace(role=Role.SEARCH), *EFFECTS[1:]],
    [SEND, SetTimer(JOIN, 18), TELL],
    [SEND, SetTimer(JOIN._replace(instance=1), 17), TELL],
    [SEND, CancelTimer(JOIN), TELL],
    [*EFFECTS[:2], TELL._replace(layer=("order", 1))],
    [*EFFECTS[:2], TELL._replace(event=DELIVER._replace(payload=b"paylaod"))],
    [*EFFECTS[:2], TELL._replace(event=DELIVER._replace(timestamp=6))],
]


def test_the_digest_tells_effects_apart() -> None:
    digests = [effects_digest(effects) for effects in [EFFECTS, [], *CHANGED]]
    assert len(set(digests)) == len(digests)


def test_the_packet_for_traces_does_not_count() -> None:
    other = SEND._replace(packet=NullMessage(2, 2, 1, RING))
    assert effects_digest([other]) == effects_digest(EFFECTS[:1])


# Replaying


@pytest.mark.parametrize("level", ["delivery", "protocol"])
def test_a_replay_is_identical(tmp_path: Path, level: str) -> None:
    found = life(level)
    report = replay(write(tmp_path / "x", found))
    assert report.identical
    assert report.agreed == len(found.inputs)
    assert (report.first_us, report.last_us) == (found.inputs[0][0], found.inputs[-1][0])
    assert report.deliveries == sum(
        type(effect) is Trace and effect.kind == "deliver" for effects in found.effects for effect in effects
    )
    assert {"gather", "recover", "operational", "left"} <= set(report.states)
    members = [item.configuration.members for item in report.configurations]
    assert (1, 2, 3) in members
    assert (1, 2) in members
    assert report.ended == "closed"


def test_one_changed_input_is_found_where_it_is(tmp_path: Path) -> None:
    found = life()
    index = next(i for i, (_, each) in enumerate(found.inputs) if i > 200 and isinstance(each, Submit))
    now_us, submit = found.inputs[index]
    assert isinstance(submit, Submit)
    changed = list(found.inputs)
    changed[index] = (now_us, replaced(submit, payload=submit.payload + b"!"))
    report = replay(write(tmp_path / "x", replaced(found, inputs=changed)))
    # The payload shows when the token takes it: at this input or soon after, and never before.
    assert report.difference is not None
    assert index <= report.difference.index < index + 50
    assert report.agreed == report.difference.index
    assert report.difference.found


def test_a_later_clock_shows_at_once(tmp_path: Path) -> None:
    found = life()
    index = max(i for i, effects in enumerate(found.effects) if _begins_to_gather(effects))
    assert index > 400
    now_us, given = found.inputs[index]
    changed = list(found.inputs)
    changed[index] = (now_us + 1, given)
    report = replay(write(tmp_path / "x", replaced(found, inputs=changed)))
    assert report.difference is not None
    assert (report.difference.index, report.difference.input) == (index, type(given).__name__)
    assert report.difference.now_us == now_us + 1
    assert not report.identical


def _begins_to_gather(effects: list[Effect]) -> bool:
    """And sets a timer that counts from the input's own time."""
    return any(type(effect) is SetTimer and effect.timer.timer == Timer.CONSENSUS for effect in effects)


def test_a_protocol_that_raises_differs_there(path: Path) -> None:
    class Broken(SingleRing):
        def leave(self, *_: Any, **__: Any) -> None:
            raise ZeroDivisionError("broken")

    def make(header: RecordingHeader) -> ProcessorStack:
        draw = jitter(header.spec.processor, header.stable)
        parts = Parts(engines={"totem": Broken})
        return build(header.spec, header.stable, header.trace_kinds, draw=draw, parts=parts)

    report = replay(path, make)
    first = next(i for i, (_, given) in enumerate(life().inputs) if isinstance(given, Leave))
    assert report.difference is not None
    assert report.difference.index == first
    assert report.difference.text == "it raises ZeroDivisionError: broken"


def test_a_replay_may_stop_early(path: Path) -> None:
    report = replay(path, inputs_max=10)
    assert (report.agreed, report.ended, report.identical) == (10, None, True)


# Sealed


OLD, NEW = Key(1, bytes(range(32))), Key(2, bytes(range(1, 33)))


def sealed(path: Path) -> Path:
    """A node alone, sealed, whose key is rotated while it runs."""
    header = RecordingHeader(StackSpec(1, groups=GroupConfig()), {}, frozenset(), (OLD.id,))
    stack = stack_builder({OLD.id: OLD})(header)
    with InputRecorder(path, header) as recorder:

        def feed(now_us: int, given: Input) -> None:
            recorder.record(now_us, given, stack.feed(now_us, given))

        feed(0, Start())
        feed(10, Written(1))
        feed(20_000, Expired(TimerName("srp", 0, Timer.JOIN)))
        feed(30_000, Rekey(Keyring((NEW, OLD))))
        feed(40_000, Expired(TimerName("srp", 0, Timer.JOIN)))
    return path


def test_a_sealed_node_is_replayed_with_its_keys(tmp_path: Path) -> None:
    path = sealed(tmp_path / "x")
    report = replay(path, keys={OLD.id: OLD, NEW.id: NEW})
    assert (report.identical, report.agreed) == (True, 5)
    assert report.inputs["Rekey"] == 1


@pytest.mark.parametrize(("keys", "missing"), [({}, 1), ({OLD.id: OLD}, 2)])
def test_a_key_that_is_missing_is_named(tmp_path: Path, keys: dict[int, Key], missing: int) -> None:
    with pytest.raises(ConfigurationError, match=f"sealed with key {missing}: give the key file"):
        replay(sealed(tmp_path / "x"), keys=keys)


def test_another_secret_under_the_same_id_differs(tmp_path: Path) -> None:
    report = replay(sealed(tmp_path / "x"), keys={OLD.id: Key(1, NEW.secret), NEW.id: NEW})
    assert not report.identical


# Cuts, damage and limits


def test_a_recording_that_was_cut_off_is_a_prefix(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    first = write(tmp_path / "empty", life(), stop=0).stat().st_size
    random = Random(1)
    cut = tmp_path / "cut"
    for length in [first, *(random.randrange(first, len(whole)) for _ in range(20)), len(whole) - 1]:
        cut.write_bytes(whole[:length])
        report = replay(cut, inputs_max=400)
        assert report.identical
        assert report.ended in ("cut off", None)
        assert report.agreed <= len(life().inputs)


def test_every_cut_of_a_small_recording(tmp_path: Path) -> None:
    path = write(tmp_path / "x", life(), stop=4)
    whole, cut = path.read_bytes(), tmp_path / "cut"
    start = write(tmp_path / "empty", life(), stop=0).read_bytes().rindex(recording._framed(b"\xffclosed"))
    counts = []
    for length in range(len(whole)):
        cut.unlink(missing_ok=True)  # some file systems sync a file that is written over
        cut.write_bytes(whole[:length])
        if length < start:
            with pytest.raises(TraceError, match=r"cut off within its header|not a recording"):
                RecordingReader(cut)
            continue
        reader = RecordingReader(cut)
        counts.append(len(list(reader)))
        reader.close()
        assert reader.ended == "cut off"
    assert sorted(set(counts)) == [0, 1, 2, 3, 4]
    assert counts == sorted(counts)


def test_room_that_was_never_written_is_a_cut(path: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.write_bytes(write(tmp_path / "x", life(), stop=4).read_bytes()[: -len(b"xxxxxxxx" + b"\xffclosed")])
    with open(cut, "ab") as file:
        file.write(bytes(4096))
    report = replay(cut)
    assert (report.agreed, report.ended) == (4, "cut off")


def test_damage_is_not_a_cut(path: Path, tmp_path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    damaged = tmp_path / "damaged"
    damaged.write_bytes(bytes(data))
    with pytest.raises(TraceError, match=r"damaged before byte \d+ \((a wrong checksum|a frame of)"):
        replay(damaged)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (recording._INPUT.pack(200, 0, 0), "index out of range"),
        (recording._INPUT.pack(1, 0, 0) + b"X\x00", "unknown type b'X'"),
        (recording._INPUT.pack(1, 0, 0) + b"B\x00\x00\x00\x09abc", "longer than its frame"),
        (recording._INPUT.pack(1, 0, 0) + b"I\x01\x00I\x01\x63", "99 is not a valid Channel"),
        (recording._INPUT.pack(1, 0, 0) + b"I\x01\x00I\x01\x00", "argument 2 is shorter"),
        (b"\x01", "unpack_from requires"),
    ],
)
def test_frames_that_say_nothing_we_know(tmp_path: Path, body: bytes, problem: str) -> None:
    path = write(tmp_path / "x", life(), stop=0)
    end = path.read_bytes().rindex(recording._framed(b"\xffclosed"))
    path.write_bytes(path.read_bytes()[:end] + recording._framed(body))
    with pytest.raises(TraceError, match="damaged before byte") as caught:
        list(RecordingReader(path))
    assert problem in str(caught.value)


def edited_header(path: Path, old: bytes, new: bytes) -> Path:
    data = path.read_bytes()
    length, _ = recording._FRAME.unpack_from(data, 12)
    body = data[20 : 20 + length].replace(old, new)
    path.write_bytes(data[:12] + recording._FRAME.pack(len(body), zlib.crc32(body)) + body)
    return path


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (b'"join_us"', b'"joy_us"', "only this version has the setting 'join_us'"),
        (b'"join_us"', b'"a_us": 1, "join_us"', "only the recording has the setting 'a_us'"),
        (b'"ring_kind": 2', b'"ring_kind": 9', "9 is not a valid RingKind"),
        (b'"Leave"', b'"Love"', "it has inputs 'Love', which this version's stack does not take"),
        (b'"processor"', b'"p"', "its header cannot be used"),
        (b"{", b"[", "its header cannot be used"),
    ],
)
def test_headers_that_cannot_be_used(tmp_path: Path, old: bytes, new: bytes, problem: str) -> None:
    path = edited_header(write(tmp_path / "x", life(), stop=1), old, new)
    with pytest.raises(TraceError) as caught:
        RecordingReader(path)
    assert problem in str(caught.value)
    assert str(path) in str(caught.value)


def test_another_version(tmp_path: Path) -> None:
    path = write(tmp_path / "x", life(), stop=0)
    path.write_bytes(recording.MAGIC + b"\0\0\0\x09" + path.read_bytes()[12:])
    with pytest.raises(TraceError, match="has version 9 and this program reads version 5"):
        RecordingReader(path)


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a letter")
    with pytest.raises(TraceError, match="not a recording of a node's inputs"):
        RecordingReader(tmp_path / "x")
    with pytest.raises(TraceError, match="cannot be read"):
        RecordingReader(tmp_path / "nowhere")


def test_at_its_limit_it_stops_with_a_mark(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    header = header_of(life())
    with (
        caplog.at_level(logging.WARNING),
        InputRecorder(tmp_path / "x", header, bytes_max=20_000) as recorder,
    ):
        for (now_us, each), effects in zip(life().inputs, life().effects, strict=True):
            recorder.record(now_us, each, effects)
        assert recorder.ended == "bytes_max was reached"
    assert len(caplog.records) == 1
    assert (tmp_path / "x").stat().st_size <= 20_000 + 100
    report = replay(tmp_path / "x")
    assert report.identical
    assert 5 < report.agreed < len(life().inputs)
    assert report.ended == "bytes_max was reached"


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Bytes that the disk still takes; a write that does not fit is done in part."""
    room = [10**9]
    write_ = os.write

    def limited(handle: int, data: memoryview) -> int:
        taken = write_(handle, data[: room[0]]) if room[0] else 0
        room[0] -= taken
        if not taken:
            raise OSError(28, "No space left on device")
        return taken

    monkeypatch.setattr(recording.os, "write", limited)
    return room


def test_a_full_disk_ends_the_recording_aloud(tmp_path: Path, full_disk: list[int]) -> None:
    recorder = InputRecorder(tmp_path / "x", header_of(life()))
    inputs = zip(life().inputs, life().effects, strict=True)
    for (now_us, each), effects in [next(inputs) for _ in range(5)]:
        recorder.record(now_us, each, effects)
    recorder.flush()
    (now_us, each), effects = next(inputs)
    recorder.record(now_us, each, effects)
    full_disk[0] = 10
    with pytest.raises(TraceError, match=r"cannot be recorded .*No space left.*free some space"):
        recorder.flush()
    assert recorder.ended == "cut off"
    recorder.record(now_us, each, effects)
    recorder.close()
    report = replay(tmp_path / "x")
    assert (report.agreed, report.ended) == (5, "cut off")
