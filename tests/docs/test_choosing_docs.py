"""What choosing.md says of speed is what performance.md has measured."""

from __future__ import annotations

import re
from pathlib import Path

from totempole.srp.config import RingConfig

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "choosing.md").read_text(encoding="utf-8")
SPEED = 6


def cells(column: int) -> dict[str, str]:
    """By the name of the system."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| **")]
    return {row[0].strip("*"): row[column] for row in rows}


def test_the_table_has_all_of_them() -> None:
    assert set(cells(SPEED)) == {"Totempole", "NATS", "etcd", "PySyncObj", "corosync", "Kafka"}


def test_every_figure_was_measured() -> None:
    measured = set(re.findall(r"[\d,.]*\d", (DOCS / "performance.md").read_text(encoding="utf-8")))
    measured |= {"40,000"}  # bytes, 40000 there
    said = {figure for text in cells(SPEED).values() for figure in re.findall(r"[\d,.]*\d", text)}
    said.discard("9")  # of kill -9
    assert len(said) > 12
    assert said <= measured


def test_the_size_of_a_ring_is_the_default() -> None:
    assert f"{RingConfig().members_max} at most" in PAGE
