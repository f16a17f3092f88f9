"""Named one-line breakages of the protocol. A search that does not notice one of them is blind to its kind.

A mutant is the protocol's own source with one piece of text replaced, compiled afresh beside the true one and
run in its place. `seed` is one that is known to give it away, so that a test need not look for it each time.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any, cast

from totempole.sim.contract import EndpointFactory
from totempole.sim.fuzz.group_plan import group_plan
from totempole.sim.fuzz.plan import plan
from totempole.sim.fuzz.trial import Verdict, try_scenario
from totempole.sim.grouped import Grouped

SHARED = ("totempole.groups.events",)
"""What a broken layer says must be of the types that the simulator knows."""


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    module: str
    """Of its package."""
    old: str
    """Stands exactly once in the module's source."""
    new: str
    seed: int = 0
    package: str = "srp"


MUTANTS: tuple[Mutant, ...] = (
    # 000 §4.1, ordering
    Mutant("safe after one rotation", "ring", "safe = min(aru, self.last_aru_seen)", "safe = aru"),
    Mutant(
        "safe delivered as agreed",
        "ring",
        "if message.service is Service.SAFE and message.seq > self.safe_up_to:",
        "if message.seq < 0:",
    ),
    Mutant(
        "deliver past a gap",
        "ring",
        "while (held := self.messages.get(self.delivered + 1)) is not None:",
        "while held := self.messages.get(min({s for s in self.messages if s > self.delivered}, default=0)):",
    ),
    Mutant("rebroadcast messages delivered", "ring", "if not message.recovered:", "if message.seq:"),
    Mutant(
        "aru never lowered",
        "ring",
        "if self.my_aru < aru or aru_id in (me, NO_PROCESSOR):",
        "if aru_id in (me, NO_PROCESSOR):",
        10,
    ),
    Mutant(
        "buffers freed before safe",
        "ring",
        "stop = min(self.safe_up_to, self.delivered)",
        "stop = self.delivered",
        51,
    ),
    Mutant("nothing asked for again", "ring", "if self.my_aru >= up_to:", "if self.my_aru >= 0:", 0),
    Mutant(
        "a stale token accepted",
        "passing",
        "if token.token_seq < ring.my_token_seq:",
        "if token.token_seq < 0:",
    ),
    Mutant(
        "seq not advanced",
        "ordering",
        "seq = token.seq + len(sent.new)",
        "seq = token.seq + len(sent.new) // 2",
    ),
    Mutant(
        "timestamp of the token ignored",
        "passing",
        "self._held_token = token\n        self._ordering.clock.witness(token.timestamp)",
        "self._held_token = token",
    ),
    Mutant(
        "timestamp restarts at zero",
        "timestamps",
        "self._stable = stored + interval",
        "self._stable = interval",
    ),
    # 000 §4.2, membership
    Mutant(
        "ring number not persisted",
        "endpoint",
        'ring_seq = max(stable.get("ring_seq", 0), stable.get("future_ring_seq", 0))',
        "ring_seq = 0",
    ),
    Mutant(
        "ring number persisted after the token has left",
        "membership",
        "if self._ticket:",
        "if self._ticket < 0:",
        160,
    ),
    Mutant(
        "restart on the number of the last ring",
        "passing",
        "self.ring_id = RingId(ring_seq + RING_SEQ_STEP, me)",
        "self.ring_id = RingId(max(ring_seq, RING_SEQ_STEP), me)",
        3,
    ),
    Mutant(
        "an outsider's fail set believed",
        "gathering",
        "return join.fail_set if join.sender in self._memb else join.fail_set - self._memb",
        "return join.fail_set",
        2,
    ),
    Mutant(
        "idle rings never meet",
        "passing",
        "self._multicast(NullMessage(self._me, self._incarnation, self.ring_id))",
        "pass",
        7,
    ),
    Mutant("transitional configuration reuses the ring's name", "machine", "RING_SEQ_STEP // 2", "0"),
    Mutant(
        "the silent never fail", "gathering", "for processor in silent:", "for processor in silent[:0]:", 8
    ),
    # Timeouts, resting and laggards (docs/decisions/0007, 0008)
    Mutant(
        "a resting token never let go",
        "passing",
        "self._output.set_timer(Timer.HOLD, self._config.idle_hold_us)",
        "pass",
    ),
    Mutant("an early timer taken for due", "timeouts", "if left_us <= 0:", "if left_us <= NEVER:"),
    Mutant("a moved timer forgotten", "timeouts", "if self.due_us != NEVER:", "if self.due_us < 0:", seed=5),
    Mutant(
        "an expelled laggard never taken back",
        "membership",
        "self._barred_until_us[ring.notorious] = until_us",
        "self._barred_until_us[ring.notorious] = NEVER",
        27,
    ),
    # 000 §4.3, recovery
    Mutant(
        "no transitional configuration",
        "output",
        "self._effects.append(InstallConfiguration(configuration, key))",
        "self._effects += [InstallConfiguration(configuration, key)] if regular else []",
    ),
    Mutant(
        "everyone of the new ring in the transitional configuration",
        "machine",
        "ConfigurationKind.TRANSITIONAL, transitional, recovery.trans_memb, old.ring_id, old.delivered",
        "ConfigurationKind.TRANSITIONAL, transitional, new.members, old.ring_id, old.delivered",
    ),
    Mutant(
        "the received promise forgotten",
        "membership",
        "deliver_memb=tuple(sorted(self._promise)),",
        "deliver_memb=(),",
        20,
    ),
    Mutant(
        "the promise never given",
        "machine",
        "self._promise = recovery.deliver_memb",
        "self._promise = frozenset()",
        20,
    ),
    Mutant(
        "old-ring buffers replaced before delivery",
        "machine",
        'self._enter(State.RECOVER, "commit token")',
        'self._enter(State.RECOVER, "commit token"); self.installed.messages.clear()',
    ),
    Mutant(
        "old-ring messages taken in beside the exchange",
        "machine",
        "Event.REGULAR_MESSAGE: (_drop, _M._on_message, _M._on_message, _M._on_message, _drop, _drop),",
        "Event.REGULAR_MESSAGE: (_drop, *(_M._on_message,) * 4, _drop),",
        36,
    ),
    Mutant(
        "messages of other old rings taken in",
        "machine",
        "if old is not None and old.ring_id == self.installed.ring_id:",
        "if old is not None:",
        9,
    ),
    Mutant(
        "nothing exchanged",
        "recovery",
        "for seq in sorted(old.messages) if seq > self.low_ring_aru",
        "for seq in sorted(old.messages) if seq < 0",
        3,
    ),
    Mutant(
        "exchange starts too late", "recovery", "min(entry.old_ring_aru for", "max(entry.old_ring_aru for", 3
    ),
    Mutant(
        "what a companion delivered ignored",
        "recovery",
        "max(entry.high_delivered for",
        "min(entry.high_delivered for",
        4,
    ),
    Mutant(
        "installed before everyone has everything",
        "recovery",
        "return self._quiet_rounds >= 3 and self._covered_rounds >= 2",
        "return self._quiet_rounds >= 1",
        2,
    ),
    Mutant(
        "unsafe messages delivered on the old ring",
        "recovery",
        "if message.service is Service.SAFE and message.seq > self.high_ring_delivered:",
        "if message.seq < 0:",
        4,
    ),
    Mutant(
        "everything delivered past a gap",
        "recovery",
        "if seq > old.delivered and (seq <= old.my_aru or message.sender in self.deliver_memb):",
        "if seq > old.delivered:",
        31,
    ),
    Mutant(
        "nothing delivered past a gap",
        "recovery",
        "if seq > old.delivered and (seq <= old.my_aru or message.sender in self.deliver_memb):",
        "if old.delivered < seq <= old.my_aru:",
    ),
)


UNNOTICED: tuple[Mutant, ...] = (
    # What a plan allows is about as slow as its faults make a ring, and the calm is long enough for a little
    # more. tests/srp/test_timeouts.py holds the bound.
    Mutant(
        "timeouts stretched without bound",
        "timeouts",
        "return min(max(100, wanted), self._config.timeout_stretch_max_percent)",
        "return max(100, wanted)",
    ),
    # The Commit token is refused by whoever does not agree, so this costs time and breaks no promise. A check
    # of theorem 4.2 would need rows for the Joins that a representative had seen.
    Mutant(
        "consensus without agreement",
        "gathering",
        "return processor == self._me or (join is not None and self._matches(join))",
        "return processor == self._me or join is not None",
    ),
    # A number that is too low is refused, and the next attempt's is higher. A check would need rows for the
    # numbers that a representative had heard of.
    Mutant(
        "rings numbered by the representative alone",
        "membership",
        "highest = max(self.ring_id.seq, self.future_ring_seq, self._gathering.highest_ring_seq())",
        "highest = self.ring_id.seq",
    ),
)
"""Breakages that no checker noticed in seeds 0:500: what the search is still blind to."""


class _MutatingLoader(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Loads the protocol package from its files, with one text replaced in one of them."""

    def __init__(self, mutant: Mutant, directory: str) -> None:
        self._mutant = mutant
        self._package = f"totempole.{mutant.package}"
        self._directory = directory

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not _within(fullname, self._package):
            return None
        package = fullname == self._package
        name = "__init__" if package else fullname.rpartition(".")[2]
        return importlib.util.spec_from_file_location(
            fullname,
            f"{self._directory}/{name}.py",
            loader=self,
            submodule_search_locations=[self._directory] if package else None,
        )

    def get_filename(self, fullname: str) -> str:
        name = "__init__" if fullname == self._package else fullname.rpartition(".")[2]
        return f"{self._directory}/{name}.py"

    def get_data(self, path: str) -> bytes:
        with open(path, "rb") as file:
            source = file.read().decode()
        if path.endswith(f"/{self._mutant.module}.py"):
            found = source.count(self._mutant.old)
            assert found == 1, f"mutant {self._mutant.name!r}: its text stands {found} times in {path}"
            source = source.replace(self._mutant.old, self._mutant.new)
        return source.encode()

    @staticmethod
    def source_to_code(data: Any, path: Any = "<string>") -> CodeType:  # type: ignore[override]
        """Without the protocol's own assertions: a checker must notice, from outside."""
        return compile(data, path, "exec", dont_inherit=True, optimize=1)

    def path_stats(self, path: str) -> dict[str, int]:
        raise OSError("never from a cache")


def mutated_endpoint(mutant: Mutant) -> EndpointFactory:
    """The endpoint of the broken protocol; the true one stays as it was."""
    if mutant.package == "groups":
        return Grouped(layer=_mutated(mutant, "layer").GroupLayer)
    return cast(EndpointFactory, _mutated(mutant, "endpoint").Endpoint)


def _mutated(mutant: Mutant, module: str) -> Any:
    """The module of the mutant's package, with the whole package loaded afresh around it."""
    root = f"totempole.{mutant.package}"
    package = importlib.import_module(root)
    true_modules = {name: module for name, module in sys.modules.items() if _within(name, root)}
    finder = _MutatingLoader(mutant, package.__path__[0])
    for name in true_modules:
        if name not in SHARED:
            del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module(f"{root}.{module}")
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if _within(name, root)]:
            del sys.modules[name]
        sys.modules.update(true_modules)
        # Importing a submodule also sets it on its parent package.
        setattr(sys.modules["totempole"], mutant.package, package)


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def hunt(mutant: Mutant, seeds: Sequence[int]) -> tuple[int, Verdict] | None:
    """The first of the seeds that gives the mutant away."""
    endpoint = mutated_endpoint(mutant)
    planned = group_plan if mutant.package == "groups" else plan
    for seed in seeds:
        verdict, _ = try_scenario(planned(seed), endpoint)
        if verdict.violated:
            return seed, verdict
    return None
