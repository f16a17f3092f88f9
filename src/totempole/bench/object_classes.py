"""The classes of replicated objects that benchmarks call."""

from __future__ import annotations

from totempole.objects.commands import Refused, command

KEY = "bench"


class Store:
    """What etcd does in the same run: values by key, with the number of puts of each."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.versions: dict[str, int] = {}

    @command
    def put(self, key: str, value: bytes) -> int:
        version = self.versions[key] = self.versions.get(key, 0) + 1
        self.values[key] = value
        return version

    @command
    def put_if(self, key: str, value: bytes) -> int:
        """A compare and a put: as etcd's transaction "if version(key) > 0 then put"."""
        version = self.versions.get(key, 0)
        if not version:
            raise Refused(f"there is no {key}")
        self.versions[key] = version + 1
        self.values[key] = value
        return version + 1

    @command
    def fill(self, first: int, count: int, size: int) -> int:
        """So many values of this size, under numbers from `first` on. Each has memory of its own."""
        for number in range(first, first + count):
            self.values[str(number)] = number.to_bytes(8, "big") + bytes(size - 8)
        return len(self.values)

    def get(self, key: str) -> bytes:
        return self.values[key]


class Tally:
    """Counts, and knows what it has counted."""

    def __init__(self) -> None:
        self.value = 0
        self.times: dict[str, int] = {}

    @command
    def count(self, name: str) -> int:
        self.value += 1
        self.times[name] = self.times.get(name, 0) + 1
        return self.value

    def all(self) -> tuple[int, dict[str, int]]:
        return self.value, self.times
