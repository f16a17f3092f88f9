"""Memory to read into that is used again: for those who move many bytes, and keep few.

What is allocated anew comes from the kernel page by page, each set to zero: for a large block that takes
longer than to fill it.
"""

from __future__ import annotations

BLOCK_BYTES = 4 * 1024 * 1024
BLOCKS_MAX = 8
"""That are kept. More, or larger ones, are allocated anew each time."""


class Blocks:
    """Each is handed out again when nobody has a view of it any more. For one thread."""

    def __init__(self) -> None:
        self._blocks: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """A view of so many bytes, with whatever they had before. Views of that view count, too."""
        for block in self._blocks:
            if len(block) >= size and _is_free(block):
                return memoryview(block)[:size]
        block = bytearray(max(size, BLOCK_BYTES))
        if len(block) == BLOCK_BYTES and len(self._blocks) < BLOCKS_MAX:
            self._blocks.append(block)
        return memoryview(block)[:size]


def _is_free(block: bytearray) -> bool:
    """A bytearray that somebody has a view of cannot change its size."""
    try:
        block.append(0)
    except BufferError:
        return False
    block.pop()
    return True
