"""How often networks have failed, as members tell each other."""

from __future__ import annotations

import pytest

from totempole.networks.reports import MAGIC, RELAPSES_MAX, Relapses, ReportKind, pack_relapses, unpack

SOME = Relapses((0, RELAPSES_MAX, 1, 0, 0, 0, 2))


def test_relapses_are_read_back() -> None:
    assert unpack(pack_relapses(SOME)) == SOME


@pytest.mark.parametrize(
    "counts",
    [(), (0,) * 6, (0,) * 8, (RELAPSES_MAX + 1, 0, 0, 0, 0, 0, 0)],
)
def test_relapses_that_no_processor_can_have_are_none(counts: tuple[int, ...]) -> None:
    assert unpack(pack_relapses(Relapses(counts))) is None


def test_a_report_of_a_kind_that_comes_later_is_passed_over() -> None:
    """Nodes of another release may be on the ring."""
    assert unpack(MAGIC + bytes((max(ReportKind) + 1,)) + bytes(7)) is None
