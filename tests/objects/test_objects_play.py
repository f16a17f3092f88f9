"""Exactly once, whatever is repeated; a snapshot at any point and the rest equal the whole; the table is
bounded.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects_play import KINDS, Play, TightPlay, steps_of


@pytest.mark.parametrize("seed", range(12))
def test_a_random_history(seed: int) -> None:
    Play().run(steps_of(seed))


@pytest.mark.parametrize("seed", range(12))
def test_a_random_history_in_a_small_table(seed: int) -> None:
    TightPlay().run(steps_of(seed))


def test_a_history_is_the_same_whatever_the_hash_seed() -> None:
    program = (
        "from objects_play import Play, steps_of\n"
        "play = Play()\n"
        "play.run(steps_of(5))\n"
        "print(play.machine.digest().hex())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_000, 3_000))
def test_many_random_histories(seed: int) -> None:
    Play(clients_max=seed % 5 + 1).run(steps_of(seed, 200))
    TightPlay().run(steps_of(seed, 200))


@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(st.sampled_from(sorted(set(KINDS))), st.integers(0, 99), st.integers(0, 99)), max_size=25
    ),
)
def test_any_history(clients_max: int, steps: list[tuple[str, int, int]]) -> None:
    Play(clients_max=clients_max).run(iter(steps))
