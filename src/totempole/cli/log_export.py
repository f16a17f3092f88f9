"""`totem log export`: records of a range of positions, as a file for other programs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from totempole.cli import options
from totempole.cli.log_show import items_of, position, record_document
from totempole.cli.log_source import WHERE, LogSource, Span, add_source, source_of
from totempole.cli.output import Advance, Screen
from totempole.client.endpoint import Reconnect
from totempole.client.log_records import Record
from totempole.corel.zones import Ordered
from totempole.errors import TotemError

PARQUET, NDJSON = "parquet", "ndjson"
SUFFIXES = {".parquet": PARQUET, ".ndjson": NDJSON, ".jsonl": NDJSON}
UNFINISHED = ".part"
SHOW_EVERY_RUNS = 64
WRITE_BYTES = 1024 * 1024

EXAMPLES = f"""\
examples:
  totem log export all.parquet                          all that is kept, of all logs
  totem log export orders.ndjson --log orders           one log, an object a line
  totem log export part.parquet --start 0 --stop 1000000
  totem log export all.parquet --directory /backup/log  from files, the fastest way

{WHERE}
A Parquet file has the columns position, time, log, origin, life, number, index, key and payload. The file
appears under its name when it is complete. Parquet needs pyarrow: pip install '.[trace]' in a clone.
"""


def add_export(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("file", metavar="FILE", help="what to write; .parquet or .ndjson says how")
    parser.add_argument("--format", choices=(PARQUET, NDJSON), help="if the file's name does not say")
    parser.add_argument("--log", default="", metavar="NAME", help="only records of this log")
    parser.add_argument(
        "--start", type=position, metavar="POSITION", help="begin with it (default: earliest)"
    )
    parser.add_argument("--stop", type=position, metavar="POSITION", help="end before it (default: the end)")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    options.add_json(parser, "what was written, as data")
    add_source(parser)
    parser.set_defaults(run=run_export)


def run_export(arguments: argparse.Namespace) -> int:
    file = Path(arguments.file)
    kind = arguments.format or SUFFIXES.get(file.suffix.lower())
    if kind is None:
        raise TotemError(f"{file}: name it .parquet or .ndjson, or give --format")
    if file.exists() and not arguments.force:
        raise TotemError(f"{file} is there already: give another name, or --force")
    screen = Screen(arguments.json)
    source = source_of(arguments, Reconnect())
    span = source.span()
    start = span.first if arguments.start is None else arguments.start
    stop = span.stop if arguments.stop is None else min(arguments.stop, span.stop)
    started_s = time.monotonic()
    with screen.progress("positions", max(0, stop - start)) as advance, _written(file) as out:
        runs = _watched(source, start, stop, arguments.log, advance)
        write = _write_parquet if kind == PARQUET else _write_ndjson
        rows = write(runs, out, start, stop, arguments.log)
    taken_s = time.monotonic() - started_s
    size = file.stat().st_size
    screen.save_json({"file": str(file), "rows": rows, "bytes": size, "start": start, "stop": stop})
    screen.long(
        f"{rows:,} records in {file}, of {Span(start, stop)}: {size:,} bytes, "
        f"{rows / max(taken_s, 1e-6):,.0f} records/s"
    )
    return 0


def _watched(source: LogSource, start: int, stop: int, log: str, advance: Advance) -> Iterator[Ordered]:
    if start >= stop:
        return
    for number, ordered in enumerate(source.runs(start, stop, log, follow=False)):
        if number % SHOW_EVERY_RUNS == 0:
            advance(max(0, ordered.position - start))
        yield ordered


@contextmanager
def _written(file: Path) -> Iterator[BinaryIO]:
    """A file that gets its name when it is complete."""
    unfinished = file.with_name(file.name + UNFINISHED)
    try:
        with open(unfinished, "wb") as out:
            yield out
        unfinished.replace(file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _write_parquet(runs: Iterator[Ordered], out: BinaryIO, start: int, stop: int, log: str) -> int:
    import pyarrow.parquet as parquet

    from totempole.log import arrow

    rows = 0
    with parquet.ParquetWriter(out, arrow.SCHEMA, compression="zstd") as writer:
        for batch in arrow.to_batches(runs, start, stop, log or None):
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _write_ndjson(runs: Iterator[Ordered], out: BinaryIO, start: int, stop: int, log: str) -> int:
    encode = msgspec.json.Encoder().encode
    rows = 0
    pieces: list[bytes] = []
    size = 0
    for ordered in runs:
        for item in items_of(ordered, start, stop, log, events=False):
            assert isinstance(item, Record), "no events were asked for"
            line = encode(record_document(item))
            pieces += (line, b"\n")
            size += len(line)
            rows += 1
        if size >= WRITE_BYTES:
            out.write(b"".join(pieces))
            pieces, size = [], 0
    out.write(b"".join(pieces))
    return rows
