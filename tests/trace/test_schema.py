"""What the layers declare, and that no code reads what is for eyes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import totempole
from totempole.trace import schema
from totempole.trace.kinds import Level
from totempole.trace.recorder import Recorder
from totempole.trace.schema import COLUMNS, COMMON, KINDS, LEVELS, OWN, Row, flat, in_layers

SOURCE = Path(totempole.__file__).parent

SHOWN = {
    "trace/told.py",
    "spark/report/timeline.py",
    "spark/report/tables.py",
}
"""The modules that may read `detail`: each of them only to show it."""


# Declarations


def test_every_level_has_what_the_lower_ones_have() -> None:
    delivery, checked, protocol = LEVELS.values()
    assert list(LEVELS) == ["delivery", "checked", "protocol"]
    assert delivery < checked < protocol == KINDS.keys()


def test_every_kind_says_what_it_means() -> None:
    assert all(kind.means for kind in KINDS.values())
    assert {kind.level for kind in KINDS.values()} == set(Level)


def test_files_have_the_layers_columns_by_the_layers_names() -> None:
    names = [column.name for column in COLUMNS]
    assert names[: len(COMMON)] == list(COMMON)
    assert names[len(COMMON) :] == [f"{layer}_{name}" for layer, own in OWN.items() for name in own._fields]
    assert len(set(names)) == len(names)


def test_an_empty_row_has_the_empty_values() -> None:
    row = Row("run", 1, 1, 1, 0, "srp", "token")
    assert flat(row)[7:] == tuple(column.empty for column in COLUMNS[7:])


def test_rows_without_a_layer_s_columns_share_one_tuple() -> None:
    first, second = (Row("run", 1, 1, step, 0, "srp", "deliver") for step in (1, 2))
    assert first.groups is second.groups
    assert first.srp is second.srp


def test_columns_of_another_layer_are_refused() -> None:
    rows: list[Row] = []
    recorder = Recorder("run", 1, "protocol", rows.append)
    recorder.record(1, "token", layer="srp", aru=3, rtr=1, seq=4)
    assert (rows[0].seq, rows[0].srp.aru, rows[0].srp.rtr) == (4, 3, 1)
    with pytest.raises(TypeError, match="aru"):
        recorder.record(1, "group_view", layer="groups", aru=3)


def test_columns_change_beside_those_that_a_row_has() -> None:
    row = Row("run", 1, 1, 1, 0, "groups", "group_view", **in_layers("groups", {"index": 2, "peer": "1.1.1"}))
    changed = row._replace(**in_layers("groups", {"index": 3, "seq": 9}, row))
    assert (changed.seq, changed.groups.index, changed.groups.peer) == (9, 3, "1.1.1")


# `detail` is for eyes


def reads_detail(text: str) -> list[int]:
    """The lines on which `detail` is read: as an attribute, or named in a text that is no documentation."""
    tree = ast.parse(text)
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr="detail", ctx=ast.Load()):
                found.add(node.lineno)
            case ast.Constant(value=str(value)) if re.search(r"\bdetail\b", value):
                if id(node) not in documentation:
                    found.add(node.lineno)
    return sorted(found)


def test_no_code_parses_detail() -> None:
    found = {
        str(path.relative_to(SOURCE)): lines
        for path in SOURCE.rglob("*.py")
        if "detail" in (text := path.read_text()) and (lines := reads_detail(text))
    }
    assert found.keys() == SHOWN, f"`detail` is for eyes: give what code reads a column ({found})"


@pytest.mark.parametrize(
    "line",
    [
        'row.detail.split(" ")',
        'row["detail"]',
        'F.col("detail").startswith("x")',
        'F.substring_index("detail", ">", 1)',
        'getattr(row, "detail")',
        'F.col("change.detail")',
        'F.expr("substring(detail, 2)")',
    ],
)
def test_the_test_notices(line: str) -> None:
    assert reads_detail(line) == [1]


def test_the_schema_names_the_layers() -> None:
    assert schema.SCHEMA_VERSION == 4
    assert set(OWN) == {"srp", "groups", "corel"}
