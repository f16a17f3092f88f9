"""Where each field of a frame stands (`frames` says it in words)."""

from __future__ import annotations

from struct import Struct

from totempole.types import ConfigurationKind, ProcessId

SEND = Struct(">BBH")
JOIN = Struct(">IBB")
LARGE = Struct(">IBQ")
REQUEST = Struct(">I")
CREDIT = Struct(">Q")
GAP = Struct(">QQ")
PROCESS = Struct(">IQI")
PROCESS_PLACE = Struct(">IQI QIQQII")
CHUNK = Struct(">IQI QIQQII BB")
MESSAGES = Struct(">IQI QIB QIQQII H")
SAFE = Struct(">IQI QI QIQQII")
VIEW = Struct(">B QIQQII BBII")
NOTICE = 1
"""A flag of SEND."""
DONOR, WANTS_STATE = 1, 2
"""Flags of JOIN."""
NOBODY = ProcessId(0, 0, 0)
VIEW_KINDS = {1: ConfigurationKind.REGULAR, 2: ConfigurationKind.TRANSITIONAL}
VIEW_NUMBERS = {kind: number for number, kind in VIEW_KINDS.items()}
