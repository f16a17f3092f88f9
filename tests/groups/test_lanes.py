"""Lanes: each in its order, all in turn, packets within their limit, pieces bounded, nothing lost."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from totempole.groups.body import HEAD_BYTES, RUN_BYTES, Run, RunKind, runs_of
from totempole.groups.lanes import TABLE_LANE, TURN_BYTES, LaneKey, Lanes, Packed, Unit
from totempole.groups.partial import Partials
from totempole.types import ProcessId, RingId, Service

EPOCH = RingId(4, 1)
PARTIAL = 1_000_000


def unit(process: int, size: int, number: int = 1, service: Service = Service.AGREED) -> Unit:
    content = bytes([number % 256]) * size
    return Unit(RunKind.MESSAGES, (process, False), content=content, service=service, number=number, count=1)


def packets(lanes: Lanes, only: LaneKey | None = None) -> Iterator[Packed]:
    while (packed := lanes.take(EPOCH, only)) is not None:
        yield packed


def received(bodies: list[bytes]) -> list[Run]:
    """What a receiver makes of it."""
    partials = Partials()
    whole = [partials.add(ProcessId(1, 1, run.process), run) for body in bodies for run in runs_of(body)]
    assert len(partials) == 0
    return [run for run in whole if run is not None]


def numbers_of(runs: list[Run], process: int) -> list[int]:
    return [run.number for run in runs if run.process == process]


added = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 30_000), st.sampled_from(Service)), max_size=25)


@given(added, st.sampled_from((512, 3_000, 20_000, 60_000)), st.sampled_from((30_000, PARTIAL)))
def test_whatever_is_added_comes_out_once_in_each_lanes_order_within_the_limit(
    wanted: list[tuple[int, int, Service]], packet_bytes_max: int, partial_bytes_max: int
) -> None:
    lanes = Lanes(packet_bytes_max, partial_bytes_max)
    units = [unit(process, size, at, service) for at, (process, size, service) in enumerate(wanted, 1)]
    for each in units:
        lanes.add(each)
    taken = list(packets(lanes))
    assert all(len(packed.body) <= packet_bytes_max for packed in taken)
    runs = received([packed.body for packed in taken])
    for process in range(1, 5):
        assert numbers_of(runs, process) == [each.number for each in units if each.lane[0] == process]
    contents = {each.number: each.content for each in units}
    assert all(run.content == contents[run.number] for run in runs)
    assert sorted(each.number for packed in taken for each in packed.finished) == sorted(contents)
    for packed in taken:
        assert {each.service for each in packed.units} == {packed.service}
    assert not lanes
    assert lanes.waiting_bytes == 0
    assert all(lanes.weight((process, False)) == 0 for process in range(1, 5))


@given(added, st.integers(0, 12), st.data())
def test_what_comes_back_goes_first_and_whole_in_its_order(
    wanted: list[tuple[int, int, Service]], lost: int, data: st.DataObject
) -> None:
    """The last packets that were taken come back; of what began before them, nothing counts."""
    lanes = Lanes(3_000, PARTIAL)
    units = [unit(process, size, at, service) for at, (process, size, service) in enumerate(wanted, 1)]
    for each in units:
        lanes.add(each)
    taken = [packed for _ in range(data.draw(st.integers(0, 40))) if (packed := lanes.take(EPOCH))]
    delivered, came_back = taken[: len(taken) - lost], taken[len(taken) - lost :] if lost else []
    lanes.send_again([each for packed in came_back for each in packed.units])
    weight = lanes.waiting_bytes
    again = list(packets(lanes))
    before = Partials()
    runs = [
        run
        for packed in delivered
        for piece in runs_of(packed.body)
        if (run := before.add(ProcessId(1, 1, piece.process), piece)) is not None
    ]
    runs += received([packed.body for packed in again])
    for process in range(1, 5):
        assert numbers_of(runs, process) == [each.number for each in units if each.lane[0] == process]
    finished = {each for packed in again for each in packed.finished}
    assert weight == sum(each.weight for each in finished)
    assert lanes.waiting_bytes == 0


def test_small_units_share_a_packet() -> None:
    lanes = Lanes(60_000, PARTIAL)
    for process in range(1, 11):
        for number in range(1, 11):
            lanes.add(unit(process, 100, number))
    assert len(list(packets(lanes))) == 1


def test_a_large_unit_leaves_room_for_the_small_ones_of_others() -> None:
    lanes = Lanes(60_000, 80_000_000)
    lanes.add(unit(1, 64_000_000))
    for process in range(2, 12):
        lanes.add(unit(process, 500))
    first = lanes.take(EPOCH)
    assert first is not None
    assert {run.process for run in runs_of(first.body)} == set(range(1, 12))
    assert len(first.body) > 50_000


def test_packets_may_become_smaller_amid_a_unit() -> None:
    lanes = Lanes(60_000, PARTIAL)
    lanes.add(unit(1, 100_000))
    first = lanes.take(EPOCH)
    lanes.packet_bytes = 20_000
    rest = list(packets(lanes))
    assert first is not None
    assert all(len(packed.body) <= 20_000 for packed in rest)
    (whole,) = received([first.body, *[packed.body for packed in rest]])
    assert len(whole.content) == 100_000


def test_large_units_of_several_advance_alike() -> None:
    lanes = Lanes(60_000, PARTIAL)
    for process in range(1, 6):
        lanes.add(unit(process, 190_000))
    progress: list[dict[int, int]] = []
    sent = dict.fromkeys(range(1, 6), 0)
    for packed in packets(lanes):
        for run in runs_of(packed.body):
            sent[run.process] += len(run.content)
        progress.append(dict(sent))
    for sofar in progress:
        assert max(sofar.values()) - min(sofar.values()) <= 4 * TURN_BYTES
    assert set(sent.values()) == {190_000}


def test_a_thousand_busy_lanes_all_have_their_turn() -> None:
    lanes = Lanes(60_000, 80_000_000)
    for process in range(1, 1_001):
        for number in range(1, 4):
            lanes.add(unit(process, 8_000, number))
    seen: set[int] = set()
    for _ in range(1_000):
        packed = lanes.take(EPOCH)
        if packed is None:
            break
        seen |= {run.process for run in runs_of(packed.body)}
    assert seen == set(range(1, 1_001))


@given(
    st.lists(st.integers(1, 200_000), min_size=1, max_size=6),
    st.sampled_from((512, 3_000, 20_000, 60_000)),
    st.integers(0, 5),
    st.sampled_from(Service),
)
def test_a_small_unit_waits_for_at_most_a_packet_of_each_lane(
    large: list[int], packet_bytes: int, already: int, service: Service
) -> None:
    """Totem CACM: large messages travel between small ones, which do not wait for them."""
    lanes = Lanes(packet_bytes, PARTIAL)
    for process, size in enumerate(large, 2):
        lanes.add(unit(process, size))
    for _ in range(already):
        lanes.take(EPOCH)
    small = unit(1, 100, service=service)
    lanes.add(small)
    waited = next(at for at, packed in enumerate(packets(lanes)) if small in packed.finished)
    assert waited <= len(large)


def test_a_lane_that_asks_for_another_service_is_not_passed_over_for_ever() -> None:
    """Though whoever comes first in each packet is done with it, and another comes."""
    lanes = Lanes(2_000, PARTIAL)
    lanes.add(unit(1, 1_500))
    lanes.add(unit(2, 100, service=Service.SAFE))
    lanes.add(unit(3, 1_000_000))
    for process in range(4, 12):
        lanes.add(unit(process, 1_500))
        packed = lanes.take(EPOCH)
        assert packed is not None
        if packed.service is Service.SAFE:
            return
    raise AssertionError("the safe one never had its turn")


def test_what_is_under_way_in_pieces_is_bounded() -> None:
    lanes = Lanes(3_000, 100_000)
    for process in range(1, 6):
        for number in range(1, 4):
            lanes.add(unit(process, 40_000, number))
    partials = Partials()
    most = 0
    for packed in packets(lanes):
        for run in runs_of(packed.body):
            partials.add(ProcessId(1, 1, run.process), run)
        most = max(most, partials.bytes)
        assert len(partials) <= 2
    assert 40_000 < most <= 100_000


def test_a_unit_above_the_bound_goes_alone() -> None:
    lanes = Lanes(3_000, 10_000)
    lanes.add(unit(1, 20_000))
    lanes.add(unit(2, 20_000))
    runs = received([packed.body for packed in packets(lanes)])
    assert [run.process for run in runs] == [1, 2]


def test_small_units_pass_large_ones_that_have_to_wait() -> None:
    lanes = Lanes(20_000, 40_000)
    lanes.add(unit(1, 40_000))
    lanes.add(unit(2, 40_000))
    lanes.add(unit(3, 10))
    first = lanes.take(EPOCH)
    assert first is not None
    assert [run.process for run in runs_of(first.body)][:2] == [1, 3]


def test_the_table_goes_alone_and_is_not_held_up_by_what_is_under_way() -> None:
    lanes = Lanes(600, 1_000)
    lanes.add(unit(1, 5_000))
    assert lanes.take(EPOCH) is not None
    lanes.add(Unit(RunKind.TABLE, TABLE_LANE, content=b"t" * 5_000))
    taken = list(packets(lanes, TABLE_LANE))
    assert {each.kind for packed in taken for each in packed.units} == {RunKind.TABLE}
    assert received([packed.body for packed in taken])[0].content == b"t" * 5_000
    assert lanes


def test_a_lane_that_is_dropped_leaves_room_for_others() -> None:
    lanes = Lanes(600, 5_000)
    lanes.add(unit(1, 5_000))
    assert lanes.take(EPOCH) is not None
    lanes.add(unit(2, 5_000))
    lanes.drop((1, False))
    assert lanes.waiting_bytes == 5_000 + RUN_BYTES
    assert [run.process for run in received([packed.body for packed in packets(lanes)])] == [2]
    lanes.drop((7, False))


def test_a_unit_that_fits_to_the_byte_is_not_cut() -> None:
    lanes = Lanes(1_000, PARTIAL)
    lanes.add(unit(1, 1_000 - HEAD_BYTES - RUN_BYTES))
    (packed,) = packets(lanes)
    assert len(packed.body) == 1_000


def test_content_is_copied_only_into_the_packet() -> None:
    """A view of a client's buffer stays one until then."""
    lanes = Lanes(60_000, PARTIAL)
    content = memoryview(b"x" * 200_000)
    lanes.add(Unit(RunKind.MESSAGES, (1, False), content=content, count=1))
    assert received([packed.body for packed in packets(lanes)])[0].content == content


def test_many_units_that_come_back_to_a_long_lane_take_no_longer_than_their_number() -> None:
    lanes = Lanes(60_000, PARTIAL)
    for number in range(1, 60_001):
        lanes.add(unit(1, 10, number))
    taken = [packed for _ in range(30) if (packed := lanes.take(EPOCH))]
    units = [each for packed in taken for each in packed.units]
    assert len(units) > 30_000
    lanes.send_again(units)
    first = lanes.take(EPOCH)
    assert first is not None
    assert next(runs_of(first.body)).number == 1
