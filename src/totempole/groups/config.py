"""The settings of the group layer: every limit it has."""

from __future__ import annotations

from dataclasses import dataclass, fields

from totempole.errors import ConfigurationError
from totempole.groups.packing import NAME_BYTES_MOST
from totempole.settings import whole_number as setting

MIB = 1024 * 1024
GROUPS_PER_MESSAGE_MOST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Checked on construction. All processors of a cluster should have the same."""

    message_bytes_max: int = setting(64 * MIB, "a message, at most", most=1024 * MIB)
    group_name_bytes_max: int = setting(100, "a group's name in UTF-8, at most", most=NAME_BYTES_MOST)
    groups_per_message_max: int = setting(
        16, "groups that one message is sent to", most=GROUPS_PER_MESSAGE_MOST
    )
    groups_per_process_max: int = setting(1_000, "groups that one process is in", most=100_000)
    memberships_max: int = setting(
        20_000,
        "groups that the processes of one processor are in, all together: a table that is quickly told",
        most=1_000_000,
    )
    processes_max: int = setting(2_000, "processes of one processor", most=100_000)
    lane_bytes_max: int = setting(1_000_000, "what one process may have waiting before it has to wait")
    partial_bytes_max: int = setting(
        80 * MIB, "messages of one processor that are under way in pieces, together"
    )

    def __post_init__(self) -> None:
        for item in fields(self):
            value, least, most = getattr(self, item.name), item.metadata["least"], item.metadata["most"]
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise ConfigurationError(
                    f"{item.name} = {value!r}: give a whole number from {least} to {most}"
                )
        if self.partial_bytes_max < self.message_bytes_max:
            raise ConfigurationError(
                f"partial_bytes_max = {self.partial_bytes_max} is below message_bytes_max = "
                f"{self.message_bytes_max}: no such message could be sent; raise partial_bytes_max"
            )
