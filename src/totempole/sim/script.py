"""A scenario as data: who takes part, what happens when, and what is expected. `to_text` writes its file.

One frozen dataclass for each kind of action; the fuzzer makes them, the shrinker takes them away, the parser
(script_parser) and `to_text` turn them from and into lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from totempole.corel.config import LogConfig
from totempole.groups.config import GroupConfig
from totempole.rrp.config import RedundancyConfig
from totempole.sim.conditions import Buffers, Condition, Costs, DiskSpeed, Lan
from totempole.sim.load import MESSAGE_BYTES
from totempole.sim.script_faults import CrashWithin, LimitSegments, Namer, OnDisk, SetKeys, Stray, on_text
from totempole.sim.script_logs import Append, OnLog, Read, SetReplica
from totempole.sim.script_objects import OnHost, Work
from totempole.sim.settings_text import fields_text, time_text, value_text
from totempole.types import ProcessorId, RingKind, Service

PROCESSOR_VERBS = ("crash", "restart", "pause", "resume", "leave", "retire", "move", "double", "single")
LINK_VERBS = ("cut", "sever", "mend")
INTERFACE_VERBS = ("mute", "deafen", "cure")
SERVICE_VERBS = ("drain", "restore")
PROCESS_VERBS = ("connect", "disconnect", "crash", "stall", "wake")
SHAPES = ("poisson", "steady", "saturate", "driver")


@dataclass(frozen=True, slots=True)
class OnProcessor:
    """`crash p`, `restart p`, `pause p`, `resume p`, `leave p`; `retire p`: leave when all that programs have
    handed in is sent"""

    verb: str
    processor: ProcessorId

    def text(self, name: Namer) -> str:
        return f"{self.verb} {name(self.processor)}"


@dataclass(frozen=True, slots=True)
class OnLink:
    """`cut p q [on a]`, `mend p q`: one way; `sever p q`: a cut that no `heal` ends; on all networks, or on
    the one that is named"""

    verb: str
    source: ProcessorId
    target: ProcessorId
    network: str = ""

    def text(self, name: Namer) -> str:
        return f"{self.verb} {name(self.source)} {name(self.target)}{on_text(self.network)}"


@dataclass(frozen=True, slots=True)
class OnInterface:
    """`mute p [on a]`: nobody hears p there; `deafen p [on a]`: p hears nobody; `cure p [on a]`, or `heal`,
    ends both"""

    verb: str
    processor: ProcessorId
    network: str = ""

    def text(self, name: Namer) -> str:
        return f"{self.verb} {name(self.processor)}{on_text(self.network)}"


@dataclass(frozen=True, slots=True)
class Wire:
    """`wire a b`: two networks are joined by mistake, and what is sent on one comes on both, until `heal`"""

    one: str
    other: str

    def text(self, name: Namer) -> str:
        return f"wire {self.one} {self.other}"


@dataclass(frozen=True, slots=True)
class OnService:
    """`drain a by p`, `restore a by p`: somebody asks p to take network a out of service, or back"""

    verb: str
    network: str
    processor: ProcessorId

    def text(self, name: Namer) -> str:
        return f"{self.verb} {self.network} by {name(self.processor)}"


@dataclass(frozen=True, slots=True)
class Partition:
    """`partition (p q) (r s t) [sharp] [on a]`: processors not named form one more component together;
    `sharp`: what is under way is lost too"""

    components: tuple[tuple[ProcessorId, ...], ...]
    sharp: bool = False
    network: str = ""

    def text(self, name: Namer) -> str:
        words = ["partition", *(f"({_names(part, name)})" for part in self.components)]
        return " ".join([*words, "sharp"] if self.sharp else words) + on_text(self.network)


@dataclass(frozen=True, slots=True)
class Heal:
    """`heal`: partitions, cuts, wires, `drop-next`, packets led astray and `when` end; `sever` does not.
    `heal on a`: the partitions, cuts and wires of a, and what was to happen on a alone"""

    network: str = ""

    def text(self, name: Namer) -> str:
        return f"heal{on_text(self.network)}"


@dataclass(frozen=True, slots=True)
class Slow:
    """`slow p 10`: everything takes p ten times as long"""

    processor: ProcessorId
    factor: float

    def text(self, name: Namer) -> str:
        return f"slow {name(self.processor)} {value_text(self.factor)}"


@dataclass(frozen=True, slots=True)
class SetCondition:
    """`condition loss=0.1 … [from p] [to q] [on a]`, `loss 0.1 [on a]`: fields not named stay as they are on
    the LAN"""

    condition: Condition
    source: ProcessorId | None = None
    target: ProcessorId | None = None
    network: str = ""

    def text(self, name: Namer, before: Condition | None = None) -> str:
        words = ["condition"]
        changes = fields_text(self.condition, before or Condition())
        if changes:
            words.append(changes)
        if self.source is not None:
            words.append(f"from {name(self.source)}")
        if self.target is not None:
            words.append(f"to {name(self.target)}")
        return " ".join(words) + on_text(self.network)

    @property
    def general(self) -> bool:
        return self.source is None and self.target is None and not self.network


@dataclass(frozen=True, slots=True)
class Send:
    """`send p 20 [size=1000] [safe|agreed]`"""

    processor: ProcessorId
    count: int
    size: int = MESSAGE_BYTES
    service: Service = Service.AGREED

    def text(self, name: Namer) -> str:
        return f"send {name(self.processor)} {self.count} size={self.size} {self.service.name.lower()}"


@dataclass(frozen=True, slots=True)
class Traffic:
    """`load p rate=100 size=1000 safe=0.5 until=5s [shape=poisson|steady|saturate|driver]`"""

    processor: ProcessorId
    rate_per_s: float = 100.0
    size: int = MESSAGE_BYTES
    safe: float = 0.0
    until_us: int | None = None
    shape: str = "poisson"

    def text(self, name: Namer) -> str:
        words = [f"load {name(self.processor)} rate={value_text(self.rate_per_s)} size={self.size}"]
        words.append(f"safe={value_text(self.safe)}")
        if self.until_us is not None:
            words.append(f"until={time_text(self.until_us)}")
        return " ".join([*words, f"shape={self.shape}"])


@dataclass(frozen=True, slots=True)
class DropNext:
    """`drop-next token|commit-token|join|message|… [from p] [to q] [count=1] [on a]`: on all networks, or
    only the copies on one"""

    kind: str
    source: ProcessorId | None = None
    to: ProcessorId | None = None
    count: int = 1
    network: str = ""

    def text(self, name: Namer) -> str:
        words = [f"drop-next {self.kind}"]
        if self.source is not None:
            words.append(f"from {name(self.source)}")
        if self.to is not None:
            words.append(f"to {name(self.to)}")
        return " ".join([*words, f"count={self.count}"]) + on_text(self.network)


@dataclass(frozen=True, slots=True)
class OnProcess:
    """`process p.a connect`, `disconnect` in good order, `crash` without a word, `stall` and `wake`

    Programs are named by their processor and a name of their own. One that does not run is started by
    whatever it is asked for.
    """

    verb: str
    processor: ProcessorId
    process: str

    def text(self, name: Namer) -> str:
        return f"process {name(self.processor)}.{self.process} {self.verb}"


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """`join p.a orders [donor] [state]`: it can give the group's state; it wants it"""

    processor: ProcessorId
    process: str
    group: str
    donor: bool = False
    wants_state: bool = False

    def text(self, name: Namer) -> str:
        words = [f"join {name(self.processor)}.{self.process} {self.group}"]
        flags = (("donor", self.donor), ("state", self.wants_state))
        return " ".join([*words, *(word for word, on in flags if on)])


@dataclass(frozen=True, slots=True)
class QuitGroup:
    """`quit p.a orders`"""

    processor: ProcessorId
    process: str
    group: str

    def text(self, name: Namer) -> str:
        return f"quit {name(self.processor)}.{self.process} {self.group}"


@dataclass(frozen=True, slots=True)
class Multicast:
    """`multicast p.a orders,stock units=3 count=2 size=100 [safe] [notice]`: so many batches of messages"""

    processor: ProcessorId
    process: str
    groups: tuple[str, ...]
    units: int = 1
    count: int = 1
    size: int = MESSAGE_BYTES
    service: Service = Service.AGREED
    notice: bool = False

    def text(self, name: Namer) -> str:
        words = [
            f"multicast {name(self.processor)}.{self.process} {','.join(self.groups)}",
            f"units={self.units} count={self.count} size={self.size}",
        ]
        flags = (("safe", self.service is Service.SAFE), ("notice", self.notice))
        return " ".join([*words, *(word for word, on in flags if on)])


ProcessAction = OnProcess | JoinGroup | QuitGroup | Multicast
LogFault = OnLog | SetReplica


@dataclass(frozen=True, slots=True)
class When:
    """`when "promise given" [by p] [after 2] crash q`: once, at the next `state` or `branch` row of the trace
    that says so, those skipped that `after` counts; `heal` calls it off. What happens may be another `when`,
    which then begins to wait."""

    says: str
    action: Ambush
    by: ProcessorId | None = None
    after: int = 0

    def text(self, name: Namer) -> str:
        words = [f'when "{self.says}"']
        if self.by is not None:
            words.append(f"by {name(self.by)}")
        if self.after:
            words.append(f"after {self.after}")
        return " ".join([*words, self.action.text(name)])


Ambush = (
    OnProcessor
    | OnLink
    | OnInterface
    | OnService
    | Wire
    | Partition
    | Heal
    | Slow
    | DropNext
    | Stray
    | OnDisk
    | CrashWithin
    | ProcessAction
    | LogFault
    | Read
    | When
)
"""What can be made to happen at a moment of the protocol's own."""


@dataclass(frozen=True, slots=True)
class ExpectMembers:
    """`expect members p (p q r)`: p's regular configuration at that time"""

    processor: ProcessorId
    members: tuple[ProcessorId, ...]

    def text(self, name: Namer) -> str:
        return f"expect members {name(self.processor)} ({_names(self.members, name)})"


@dataclass(frozen=True, slots=True)
class ExpectConfigurations:
    """`expect configurations q: {p q r} [q r] {q r s}`: the last installed; {} regular, [] transitional"""

    processor: ProcessorId
    sequence: tuple[tuple[bool, tuple[ProcessorId, ...]], ...]
    """(regular, members) of each."""

    def text(self, name: Namer) -> str:
        parts = [configuration_text(regular, members, name) for regular, members in self.sequence]
        return f"expect configurations {name(self.processor)}: {' '.join(parts)}"


@dataclass(frozen=True, slots=True)
class ExpectDelivered:
    """`expect delivered q 20`: messages that q has delivered since the run began"""

    processor: ProcessorId
    count: int

    def text(self, name: Namer) -> str:
        return f"expect delivered {name(self.processor)} {self.count}"


@dataclass(frozen=True, slots=True)
class ExpectNetwork:
    """`expect network a faulty at p`: the state of network a, as p sees it"""

    network: str
    state: str
    processor: ProcessorId

    def text(self, name: Namer) -> str:
        return f"expect network {self.network} {self.state} at {name(self.processor)}"


@dataclass(frozen=True, slots=True)
class ExpectAlarm:
    """`expect alarm a "2 cannot send" since 6s within 2s`: a fault that began then, and stays, is told of
    within so long, and named so at last; judged by `expect settled` after it"""

    network: str
    why: str
    since_us: int
    within_us: int

    def text(self, name: Namer) -> str:
        since, within = time_text(self.since_us), time_text(self.within_us)
        return f'expect alarm {self.network} "{self.why}" since {since} within {within}'


@dataclass(frozen=True, slots=True)
class ExpectCheckers:
    """`expect checkers hold`: no property is violated by the trace so far"""

    def text(self, name: Namer) -> str:
        return "expect checkers hold"


@dataclass(frozen=True, slots=True)
class ExpectRollbacks:
    """`expect rollbacks noticed`: whoever remembers better has refused a processor whose disk was rolled
    back, and was on no ring with it"""

    def text(self, name: Namer) -> str:
        return "expect rollbacks noticed"


@dataclass(frozen=True, slots=True)
class ExpectSettled:
    """`expect settled 2500ms`: every property holds of the run as a whole, and all who are up have come
    together, and delivered all, within so long of the last fault; where links are severed or rings are full,
    what these allow (settling.py). The same is asked after every earlier fault, or another time:
    `expect settled 600ms earlier 2500ms`"""

    within_us: int
    earlier_us: int = 0

    def text(self, name: Namer) -> str:
        earlier = f" earlier {time_text(self.earlier_us)}" if self.earlier_us else ""
        return f"expect settled {time_text(self.within_us)}{earlier}"


Fault = (
    OnProcessor
    | OnLink
    | OnInterface
    | OnService
    | Wire
    | Partition
    | Heal
    | Slow
    | SetCondition
    | DropNext
    | Stray
    | OnDisk
    | CrashWithin
    | LimitSegments
    | SetKeys
    | LogFault
    | When
)
Expectation = (
    ExpectMembers
    | ExpectConfigurations
    | ExpectDelivered
    | ExpectNetwork
    | ExpectAlarm
    | ExpectCheckers
    | ExpectRollbacks
    | ExpectSettled
)
Action = Fault | Send | Traffic | ProcessAction | Append | Read | OnHost | Work | Expectation


@dataclass(frozen=True, slots=True)
class Step:
    at_us: int
    action: Action


@dataclass(frozen=True, slots=True)
class Setting:
    """`set token_loss_us 100000 [for p q]`: a field of RingConfig"""

    field: str
    value: int | RingKind
    processors: tuple[ProcessorId, ...] = ()

    def text(self, name: Namer) -> str:
        value = self.value.name.lower() if isinstance(self.value, RingKind) else str(self.value)
        tail = f" for {_names(self.processors, name)}" if self.processors else ""
        return f"set {self.field} {value}{tail}"


@dataclass(frozen=True, slots=True)
class ScenarioNetwork:
    """`network a bandwidth=12500000 shared=yes delay=100..300 loss=0.01 segment_bytes=1400 capacity=10`: one
    of several networks under the ring. What is not named of its condition is as on the others."""

    name: str
    lan: Lan = field(default_factory=Lan)
    condition: Condition | None = None
    segment_bytes: int = 0
    """0: what the ring's settings say."""
    capacity: int = 1

    def text(self, general: Condition) -> str:
        words = [f"network {self.name}", fields_text(self.lan, Lan())]
        if self.condition is not None:
            words.append(fields_text(self.condition, general))
        if self.segment_bytes:
            words.append(f"segment_bytes={self.segment_bytes}")
        if self.capacity != 1:
            words.append(f"capacity={self.capacity}")
        return " ".join(filter(None, words))


@dataclass(frozen=True, slots=True)
class Scenario:
    """`steps` are in time order; expectations without a time stand at the end."""

    name: str
    processors: tuple[tuple[str, ProcessorId], ...]
    end_us: int
    seed: int = 1
    settings: tuple[Setting, ...] = ()
    absent: tuple[ProcessorId, ...] = ()
    """Not started at first; `restart` starts them."""
    drift_ppm: int = 0
    """No clock is off by more."""
    discard_limit: int = 0
    """A processor halts when it has delivered so many messages (appendix A, -d); 0 is no limit."""
    condition: Condition = field(default_factory=Condition)
    lan: Lan = field(default_factory=Lan)
    costs: Costs = field(default_factory=Costs)
    buffers: Buffers = field(default_factory=Buffers)
    disk: DiskSpeed = field(default_factory=DiskSpeed)
    groups: GroupConfig | None = None
    """Without it there are no processes."""
    sealed: bool = False
    """Under a seal, with key 1 at first."""
    networks: tuple[ScenarioNetwork, ...] = ()
    """If they are several."""
    redundancy: RedundancyConfig | None = None
    """How the ring uses them."""
    log: LogConfig | None = None
    """Each processor has a replica of the durable order."""
    objects: str = ""
    """Programs have this replicated object (`objects/own.py`)."""
    steps: tuple[Step, ...] = ()

    @property
    def names(self) -> dict[ProcessorId, str]:
        return {processor: name for name, processor in self.processors}

    def to_text(self) -> str:
        """The file that parses to this scenario."""
        name = self.names.__getitem__
        return "\n".join([*self._header(name), "", *self._steps(name), f"end {time_text(self.end_us)}", ""])

    def _header(self, name: Namer) -> list[str]:
        people = [who if who == str(number) else f"{who}={number}" for who, number in self.processors]
        lines = [f"processors {' '.join(people)}", f"seed {self.seed}"]
        lines += [setting.text(name) for setting in self.settings]
        if self.absent:
            lines.append(f"absent {_names(self.absent, name)}")
        if self.drift_ppm:
            lines.append(f"drift {self.drift_ppm}")
        if self.discard_limit:
            lines.append(f"discard-limit {self.discard_limit}")
        for word, value in self._tunables():
            changes = fields_text(value, type(value)())
            if changes:
                lines.append(f"{word} {changes}")
        lines += [network.text(self.condition) for network in self.networks]
        if self.redundancy is not None:
            lines.append(f"redundancy {fields_text(self.redundancy, RedundancyConfig())}")
        if self.sealed:
            lines.append("sealed")
        if self.groups is not None:
            lines.append(f"groups {fields_text(self.groups, GroupConfig())}".rstrip())
        if self.log is not None:
            plain, usual = replace(self.log, weights=()), LogConfig(replicas=self.log.replicas)
            names = _names(self.log.replicas, name)
            weights = f"weights={','.join(map(str, self.log.weights))}" if self.log.weights else ""
            lines.append(" ".join(filter(None, ("log", names, weights, fields_text(plain, usual)))))
        if self.objects:
            lines.append(f"objects {self.objects}")
        return lines

    def _tunables(self) -> tuple[tuple[str, Condition | Lan | Costs | Buffers | DiskSpeed], ...]:
        return (
            ("condition", self.condition),
            ("lan", self.lan),
            ("costs", self.costs),
            ("buffers", self.buffers),
            ("disk", self.disk),
        )

    def _steps(self, name: Namer) -> list[str]:
        lines = []
        current = self.condition
        for step in self.steps:
            action = step.action
            if isinstance(action, SetCondition):
                text = action.text(name, current)
                current = action.condition if action.general else current
            else:
                text = action.text(name)
            lines.append(f"at {time_text(step.at_us)} {text}")
        return lines


def configuration_text(regular: bool, members: Iterable[ProcessorId], name: Namer) -> str:
    opening, closing = "{}" if regular else "[]"
    return f"{opening}{_names(members, name)}{closing}"


def _names(members: Iterable[ProcessorId], name: Namer) -> str:
    return " ".join(name(member) for member in members)
