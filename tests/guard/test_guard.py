"""The protocols do what they did, to the last bit. `make guard` compares all 300 seeds; here are a few.

A change that is meant to change runs writes the file anew (`make guard WRITE=1`), with the reason in its
message.
"""

from __future__ import annotations

import pytest
from digests import SEEDS, digests, known

from sweeps import first_row_of

EVERY = 25


@pytest.mark.parametrize(
    ("kind", "seed"),
    [row for kind, seeds in SEEDS.items() for row in first_row_of((kind, seed) for seed in seeds[::EVERY])],
)
def test_a_seed_runs_as_it_did(kind: str, seed: int) -> None:
    assert digests(kind, seed) == known()[kind][str(seed)]


def test_every_seed_is_known() -> None:
    assert {kind: [*map(int, seeds)] for kind, seeds in known().items()} == {
        kind: [*seeds] for kind, seeds in SEEDS.items()
    }
