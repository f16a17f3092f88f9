"""Figures 6 to 9 of RRP: payload over message size, of one network and of two, active and passive.

The points are read off the vectors of the paper's PostScript. Figures 6 and 7 are messages a second with four
and with six processors, figures 8 and 9 the same in KB/s (of 1,000 bytes); they agree to 0.1 %. So one table
says all.

RRP §8: two networks of 100 Mbit/s, every processor sends as flow control permits; four Pentium II of 450 MHz,
six Pentium III of 900 MHz to 1 GHz.
"""

from __future__ import annotations

from typing import NamedTuple

NONE, ACTIVE, PASSIVE = "none", "active", "passive"


class Point(NamedTuple):
    """KB/s of payload."""

    none: int
    active: int
    passive: int

    def ratio(self, style: str) -> float:
        """Of a style to no replication."""
        return float(getattr(self, style)) / self.none


KILOBYTES_PER_S: dict[int, dict[int, Point]] = {
    4: {
        100: Point(7_683, 6_895, 7_520),
        140: Point(8_578, 7_328, 10_563),
        200: Point(8_788, 7_634, 11_213),
        300: Point(8_727, 7_119, 10_971),
        500: Point(8_145, 6_434, 10_002),
        700: Point(9_136, 8_131, 12_626),
        1_000: Point(8_294, 6_519, 10_272),
        1_400: Point(8_965, 8_213, 12_764),
        2_000: Point(8_209, 6_430, 10_038),
        3_000: Point(7_794, 6_533, 9_931),
        5_000: Point(8_472, 7_655, 11_820),
        7_000: Point(9_054, 8_273, 12_867),
        10_000: Point(8_585, 7_726, 11_667),
    },
    6: {
        100: Point(8_617, 8_113, 11_152),
        140: Point(8_703, 8_188, 12_541),
        200: Point(9_093, 8_543, 13_343),
        300: Point(8_823, 8_344, 13_180),
        500: Point(8_614, 8_213, 11_866),
        700: Point(9_157, 9_072, 13_034),
        1_000: Point(8_734, 8_624, 12_424),
        1_400: Point(9_153, 9_054, 13_794),
        2_000: Point(8_223, 8_191, 10_212),
        3_000: Point(8_333, 8_305, 10_890),
        5_000: Point(8_869, 8_717, 12_299),
        7_000: Point(9_129, 8_816, 13_315),
        10_000: Point(8_862, 8_390, 12_257),
    },
}
"""By number of processors and message size."""
