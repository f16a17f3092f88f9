"""Rows of Arrow batches become packed runs of their logs, in their order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from totempole.client.appending import RUN_BYTES, RUN_RECORDS_MAX, records_bytes
from totempole.errors import CodecError, ConfigurationError
from totempole.groups.packing import Batch
from totempole.spark_table.manifest import Manifest, PackedRun, Producer, check_id, decode, encode
from totempole.spark_table.packed_rows import RowPacker, joined

ROW_BYTES_MAX = 900_000

Row = tuple[str, bytes, str]


def payloads_of(run: PackedRun) -> list[bytes]:
    return [bytes(payload) for payload in Batch(run.batch)]


def keys_of(run: PackedRun) -> list[str]:
    return [str(key, "utf-8") for key in Batch(run.keys)] if run.keys else [""] * run.count


def rows_of(runs: list[PackedRun]) -> dict[str, list[tuple[bytes, str]]]:
    """By log."""
    found: dict[str, list[tuple[bytes, str]]] = {}
    for run in runs:
        assert len(Batch(run.batch)) == run.count
        found.setdefault(run.log, []).extend(zip(payloads_of(run), keys_of(run), strict=True))
    return found


def packed(*batches: Any, log: str = "orders") -> list[PackedRun]:
    packer = RowPacker(log, ROW_BYTES_MAX)
    found = [run for batch in batches for run in packer.add(batch)]
    found += packer.close()
    assert packer.rows == sum(batch.num_rows for batch in batches)
    return found


rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "häuser"]), st.binary(max_size=6), st.sampled_from(["", "k", "längst"])
    )
)


@given(st.lists(rows, max_size=4), st.booleans(), st.booleans(), st.integers(0, 3))
def test_all_rows_are_there_in_their_order(
    batches: list[list[Row]], is_large: bool, is_text: bool, cut: int
) -> None:
    kinds = {
        (False, False): pa.binary(),
        (False, True): pa.string(),
        (True, False): pa.large_binary(),
        (True, True): pa.large_string(),
    }
    text = pa.large_string() if is_large else pa.string()
    made, wanted = [], {}
    for batch in batches:
        values = [payload.hex() if is_text else payload for _, payload, _ in batch]
        table = pa.record_batch(
            {
                "key": pa.array([key or None for _, _, key in batch], text),
                "payload": pa.array(values, kinds[is_large, is_text]),
                "log": pa.array([log if log != "a" else None for log, _, _ in batch], text),
            }
        )
        made.append(table.slice(cut))
        for (log, _, key), value in list(zip(batch, values, strict=True))[cut:]:
            content = value.encode() if isinstance(value, str) else value
            wanted.setdefault(log, []).append((content, key))
    runs = packed(*made, log="a")
    assert rows_of(runs) == wanted
    assert rows_of(joined(runs)) == wanted
    assert all(decode(encode(run)) == run for run in runs)


@given(st.lists(st.integers(0, 200_000), max_size=30))
def test_runs_fit_what_a_fence_allows(sizes: list[int]) -> None:
    payloads = [bytes([size % 256]) * size for size in sizes]
    halves = [payloads[: len(payloads) // 2], payloads[len(payloads) // 2 :]]
    runs = packed(*[pa.record_batch({"payload": pa.array(half, pa.binary())}) for half in halves])
    assert [payload for run in runs for payload in payloads_of(run)] == payloads
    assert all(records_bytes(payloads_of(run)) <= RUN_BYTES for run in runs)
    assert len(runs) <= 1 + 2 * sum(size + 8 for size in sizes) // RUN_BYTES
    again = joined(runs)
    assert [payload for run in again for payload in payloads_of(run)] == payloads


def test_runs_have_no_more_records_than_a_fence_allows() -> None:
    batch = pa.record_batch({"payload": pa.array([b""] * 10_000, pa.binary())})
    assert [run.count for run in packed(batch)] == [
        RUN_RECORDS_MAX,
        RUN_RECORDS_MAX,
        10_000 - 2 * RUN_RECORDS_MAX,
    ]


def test_a_row_larger_than_a_run_is_one_of_its_own() -> None:
    large = bytes(RUN_BYTES + 1)
    batch = pa.record_batch({"payload": pa.array([b"a", large, b"b"], pa.binary())})
    assert [payloads_of(run) for run in packed(batch)] == [[b"a"], [large], [b"b"]]


def test_keys_count_where_runs_are_cut() -> None:
    keys = ["k" * 255] * 3_000
    batch = pa.record_batch({"payload": pa.array([b""] * 3_000, pa.binary()), "key": pa.array(keys)})
    runs = packed(batch)
    assert len(runs) == 2
    assert all(records_bytes(payloads_of(run), keys_of(run)) <= RUN_BYTES for run in runs)


@pytest.mark.parametrize(
    ("columns", "log", "says"),
    [
        ({"payload": [b"a", None]}, "a", "column payload is null in 1 rows"),
        (
            {"payload": [bytes(ROW_BYTES_MAX + 1)]},
            "a",
            "a row has 900001 bytes, and the daemon takes at most 900000",
        ),
        ({"payload": [b"a"], "key": ["k" * 256]}, "a", "a key has 256 bytes; give at most 255"),
        ({"payload": [b"a"], "log": [None]}, "", "column log is null"),
        ({"payload": [b"a"], "log": [""]}, "", "column log = '': log name"),
        ({"payload": [b"a"], "log": ["x" * 101]}, "", "give 1 to 100 bytes"),
        ({"payload": [b"a"], "log": ["objects/bank"]}, "", "replicated object 'bank'"),
        ({"payload": [b"a"], "log": ["staged/a"]}, "", "rows of batches that are on their way"),
    ],
)
def test_rows_that_cannot_be_written(columns: dict[str, list[Any]], log: str, says: str) -> None:
    batch = pa.record_batch(columns)
    with pytest.raises(ConfigurationError) as caught:
        packed(batch, log=log)
    assert says in str(caught.value)


@given(st.lists(st.integers(0, 2**60), unique=True, max_size=50))
def test_a_manifest_has_its_positions_in_order(positions: list[int]) -> None:
    manifest = decode(encode(Manifest.of(7, positions)))
    assert isinstance(manifest, Manifest)
    assert (manifest.batch, manifest.positions) == (7, sorted(positions))


def test_a_staged_record_that_is_none() -> None:
    for content in (b"", b"rubbish", encode(Manifest(1))[:-1]):
        with pytest.raises(CodecError):
            decode(content)


def test_the_names_of_a_producer_fit() -> None:
    longest = Producer("x" * 64)
    check_id("idempotencyKey", longest.id)
    assert len(longest.staged_log) <= 100
    assert len(longest.hold(2**31, 2**36)) <= 100
    assert longest.batch_held(longest.hold(12, 34)) == 12
    assert Producer("day").batch_held(Producer("day/0").hold(12, 34)) is None, "keys may have a slash"
    assert Producer("day").batch_held(Producer("day/0/1").hold(12, 34)) is None
    for wrong in ("", "x" * 65, "a\nb"):
        with pytest.raises(ConfigurationError, match="option idempotencyKey"):
            check_id("idempotencyKey", wrong)
