"""Traces as text: what is written is read back, and what cannot be read says where and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from totempole.errors import TotemError, TraceError
from totempole.trace.layers.groups import GroupColumns
from totempole.trace.ndjson import read_ndjson, write_ndjson
from totempole.trace.schema import SCHEMA_VERSION, Row

ROWS = [
    Row("run", 1, 1, 1, 0, "sim", "restart"),
    Row("run", 1, 1, 2, 5, "srp", "configuration", configuration="4@1", members=(1,), previous="0@0"),
    Row("run", 1, 1, 3, 9, "srp", "branch", detail='żółw "quoted"\nand a second line'),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "trace.ndjson"
    write_ndjson(path, ROWS)
    return path


def test_round_trip(path: Path) -> None:
    assert read_ndjson(path) == ROWS


def test_the_first_line_names_the_schema(path: Path) -> None:
    assert json.loads(path.read_text().splitlines()[0])["schema"] == SCHEMA_VERSION


@given(data=st.data())
def test_every_prefix_is_legal(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("trace") / "trace.ndjson"
    write_ndjson(path, ROWS)
    whole = path.read_bytes()
    header = whole.index(b"\n") + 1
    length = data.draw(st.integers(header, len(whole)))
    path.write_bytes(whole[:length])
    rows = read_ndjson(path)
    assert rows == ROWS[: len(rows)]
    assert len(rows) >= whole[:length].count(b"\n") - 1


def test_a_last_line_that_lost_only_its_newline_is_kept(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])
    assert read_ndjson(path) == ROWS


def refuses(path: Path, text: str, match: str) -> None:
    path.write_text(text)
    with pytest.raises(TraceError, match=match) as caught:
        read_ndjson(path)
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, TotemError)


def test_an_empty_file(path: Path) -> None:
    refuses(path, "", "the file is empty")


def test_a_header_cut_short(path: Path) -> None:
    refuses(path, '{"schema"', ":1: the first line is cut short")


def test_another_schema(path: Path) -> None:
    refuses(path, '{"schema":99}\n', ":1: the trace has schema 99 and this program reads schema 4")


def test_an_older_trace_is_refused_with_the_way_out(path: Path) -> None:
    refuses(path, '{"schema":3}\n', ":1: the trace has schema 3 .* read it with the version that wrote it")


def test_no_schema(path: Path) -> None:
    refuses(path, '{"hello":1}\n', ":1: the first line does not name a schema")


def edited(path: Path, line: int, **columns: object) -> str:
    lines = path.read_text().splitlines()
    values = {**json.loads(lines[line - 1]), **columns}
    lines[line - 1] = json.dumps({name: value for name, value in values.items() if value is not None})
    return "\n".join(lines) + "\n"


def test_a_missing_column(path: Path) -> None:
    refuses(path, edited(path, 3, ring=None), ":3: column 'ring' is missing")


def test_an_unknown_column(path: Path) -> None:
    refuses(path, edited(path, 3, colour="red"), ":3: column 'colour' is not in schema 4")


def test_a_value_of_another_type(path: Path) -> None:
    refuses(path, edited(path, 2, node="one"), ":2: column 'node' has the value 'one', not int")


def test_a_layer_s_columns(path: Path) -> None:
    row = Row("run", 1, 1, 4, 9, "groups", "group_deliver", groups=GroupColumns(to=("a,b", "c\nd"), index=2))
    write_ndjson(path, [*ROWS, row])
    assert read_ndjson(path)[-1] == row
    first, *_, last = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    assert "groups" not in first
    assert last["groups"]["to"] == ["a,b", "c\nd"]
    refuses(path, edited(path, 5, groups={**last["groups"], "to": [1]}), ":5: column 'to' has the value")
    refuses(path, edited(path, 5, groups={"to": []}), ":5: column 'index' is missing")
    refuses(path, edited(path, 5, groups=1), ":5: column 'groups' has the value 1, not an object")


def test_a_broken_line_in_the_middle(path: Path) -> None:
    lines = path.read_text().splitlines()
    refuses(path, "\n".join([lines[0], lines[1][:20], *lines[2:]]) + "\n", ":2: not a line of JSON")


def test_a_line_that_is_no_object(path: Path) -> None:
    refuses(path, path.read_text() + "[1]\n", ":5: a line of a trace is a JSON object, not list")
