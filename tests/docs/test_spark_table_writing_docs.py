"""What spark-table.md says of writing: columns, options and limits are those of the sink."""

from __future__ import annotations

import re
from pathlib import Path

from totempole.client.appending import RUN_BYTES
from totempole.corel.fences import FENCES_MAX
from totempole.corel.zones import KEYS_MAX
from totempole.spark_table.access import TLS_OPTIONS
from totempole.spark_table.manifest import ID_BYTES_MAX, Producer
from totempole.spark_table.staging import COLUMNS, INLINE_BYTES, OF_SPARK, OPTIONS

PAGE = (Path(__file__).parents[2] / "docs/spark-table.md").read_text(encoding="utf-8")
WRITING = PAGE.split("\n## Writing\n")[1].split("\n## ")[0]


def test_every_column_and_option_is_told_of_once() -> None:
    told = re.findall(r"^\| `(\w+)` \|", WRITING.split("\n### ")[0], re.MULTILINE)
    others = {*OF_SPARK, *TLS_OPTIONS, "path"}
    assert sorted(told) == sorted([*COLUMNS, *[name for name in OPTIONS if name not in others]])


def test_limits_and_names_are_true() -> None:
    for text in (
        f"at most {INLINE_BYTES >> 10} KiB",
        f"up to {RUN_BYTES >> 10} KiB",
        f"Up to {ID_BYTES_MAX} bytes",
        f"remembers the {FENCES_MAX:,} fences",
        f"for {KEYS_MAX:,} keys",
        f"`{Producer('<query id>').staged_log}`",
        "`spark/<query id>/<batch>/<position>`",
    ):
        assert text in WRITING, text
    assert Producer("<query id>").hold(1, 2) == "spark/<query id>/1/2"


def test_tests_that_are_named_are_there() -> None:
    names = set(re.findall(r"`(test_\w+\.py)`", WRITING))
    assert names
    for name in names:
        assert (Path(__file__).parents[1] / "spark_table" / name).exists(), name
