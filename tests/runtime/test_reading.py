"""Datagrams put together as receive offload would have."""

from hypothesis import given
from hypothesis import strategies as st

from totempole.runtime.reading import Reading
from totempole.runtime.sockets import Read
from totempole.segment import Burst

SOURCES = (("10.0.0.1", 5400), ("10.0.0.2", 5400))


def drain(reads: list[Read], most: int = 1_000) -> list[Read]:
    waiting = iter(reads)
    return list(Reading(lambda _: next(waiting, None), None, most))  # type: ignore[arg-type]


def pieces(read: Read) -> list[tuple[bytes, tuple[str, int]]]:
    found = Burst(read.data, read.segment_bytes or max(1, len(read.data))).datagrams
    return [(datagram, read.source) for datagram in found]


singles = st.builds(
    lambda size, fill, source: Read(bytes([fill]) * size, 0, source),
    st.sampled_from((1, 3, 3, 3, 5)),
    st.integers(0, 255),
    st.sampled_from(SOURCES),
)
bursts = st.builds(lambda count: Read(b"abc" * count + b"x", 3, SOURCES[0]), st.integers(2, 5))


@given(st.lists(singles | bursts, max_size=30))
def test_nothing_is_lost_repeated_or_moved(reads: list[Read]) -> None:
    before = [piece for read in reads for piece in pieces(read)]
    assert [piece for read in drain(reads) for piece in pieces(read)] == before


def test_a_packets_datagrams_come_in_one_piece() -> None:
    reads = [Read(b"aaa", 0, SOURCES[0]), Read(b"bbb", 0, SOURCES[0]), Read(b"c", 0, SOURCES[0])]
    assert drain([*reads, *reads]) == [Read(b"aaabbbc", 3, SOURCES[0])] * 2


def test_sources_are_kept_apart_and_reads_counted() -> None:
    one, other = (Read(b"aaa", 0, source) for source in SOURCES)
    assert drain([one, one, other]) == [Read(b"aaaaaa", 3, SOURCES[0]), other]
    assert drain([one, one, one], most=2) == [Read(b"aaaaaa", 3, SOURCES[0])]
