"""The settings of the durable order: its replicas, its quorum rule, and every limit it has."""

from __future__ import annotations

from dataclasses import dataclass, field

from totempole.corel.quorum import MAJORITY, RULES, ReplicaSet, Voter
from totempole.errors import ConfigurationError
from totempole.settings import check_settings, setting, whole, wholes, words
from totempole.types import PROCESSOR_MAX

MIB = 1024 * 1024
ACKNOWLEDGEMENTS = ("quorum", "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Checked on construction. All replicas should have the same."""

    replicas: tuple[int, ...] = field(
        default=(),
        metadata=setting(
            wholes(1, PROCESSOR_MAX),
            "the processors that found the log; later the log itself says who its replicas are",
        ),
    )
    weights: tuple[int, ...] = field(
        default=(),
        metadata=setting(
            wholes(1, 1_000), "of the founders' votes, in the same order; an empty list: one each"
        ),
    )
    rule: str = field(
        default=MAJORITY,
        metadata=setting(words(RULES), "who may order: a majority of the replicas, or of the last to order"),
    )
    floor: int = field(
        default=2, metadata=setting(whole(1, 1_000), "with dynamic voting: at least so many replicas")
    )
    acknowledgements: str = field(
        default="quorum",
        metadata=setting(
            words(ACKNOWLEDGEMENTS), "disks that a record waits for: a quorum's, or all (COReL's own rule)"
        ),
    )
    window_bytes: int = field(
        default=8 * MIB,
        metadata=setting(whole(65_536, 1024 * MIB), "what one node may have under way, not yet ordered"),
    )
    red_bytes_max: int = field(
        default=64 * MIB,
        metadata=setting(whole(65_536, 4096 * MIB), "records that wait for a majority, at most"),
    )
    queue_bytes_max: int = field(
        default=64 * MIB,
        metadata=setting(
            whole(65_536, 4096 * MIB), "frames that wait for a slow disk; beyond it the replica steps aside"
        ),
    )
    disk_timeout_us: int = field(
        default=5_000_000,
        metadata=setting(
            whole(100_000, 600_000_000), "a disk that takes longer to write hangs: the replica steps aside"
        ),
    )
    recent_bytes: int = field(
        default=8 * MIB,
        metadata=setting(
            whole(65_536, 1024 * MIB), "ordered records kept in memory for replicas that are a little behind"
        ),
    )
    segment_bytes: int = field(
        default=64 * MIB, metadata=setting(whole(65_536, 1024 * MIB), "size of one file of the log")
    )
    retention_bytes: int = field(
        default=0,
        metadata=setting(whole(0, 2**50), "older records go when the log is larger; 0: all are kept"),
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if len(set(self.replicas)) != len(self.replicas):
            raise ConfigurationError(f"replicas = {list(self.replicas)}: name each processor once")
        if self.weights and len(self.weights) != len(self.replicas):
            raise ConfigurationError(
                f"weights = {list(self.weights)}: give one for each of {len(self.replicas)} replicas"
            )
        if self.floor > max(1, len(self.replicas)) and self.rule != MAJORITY:
            raise ConfigurationError(
                f"floor = {self.floor}: there are {len(self.replicas)} replicas; give at most so many"
            )

    @property
    def founding(self) -> ReplicaSet | None:
        """The first set, without disks; None for a replica that waits to be added."""
        if not self.replicas:
            return None
        weights = self.weights or (1,) * len(self.replicas)
        voters = {who: Voter(0, weight) for who, weight in sorted(zip(self.replicas, weights, strict=True))}
        return ReplicaSet(voters, self.rule, self.floor)
