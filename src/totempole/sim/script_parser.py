"""Reads scenario files: one command a line, `#` begins a comment, times in us, ms or s.

Every mistake is a ScenarioError that names the file, the line, its text, and what is allowed there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NoReturn

from totempole.corel.config import LogConfig
from totempole.errors import ConfigurationError, ScenarioError
from totempole.groups.config import GroupConfig
from totempole.networks.events import NetworkState
from totempole.rrp.config import RedundancyConfig
from totempole.sim.conditions import Buffers, Condition, Costs, DiskSpeed, Lan
from totempole.sim.disk import STORED
from totempole.sim.packet_filter import PACKET_KINDS
from totempole.sim.script import (
    INTERFACE_VERBS,
    LINK_VERBS,
    PROCESS_VERBS,
    PROCESSOR_VERBS,
    SERVICE_VERBS,
    SHAPES,
    Action,
    Ambush,
    DropNext,
    ExpectAlarm,
    ExpectCheckers,
    ExpectConfigurations,
    ExpectDelivered,
    ExpectMembers,
    ExpectNetwork,
    ExpectRollbacks,
    ExpectSettled,
    Heal,
    JoinGroup,
    Multicast,
    OnInterface,
    OnLink,
    OnProcess,
    OnProcessor,
    OnService,
    Partition,
    QuitGroup,
    Scenario,
    ScenarioNetwork,
    Send,
    SetCondition,
    Setting,
    Slow,
    Step,
    Traffic,
    When,
    Wire,
)
from totempole.sim.script_faults import (
    DISK_VERBS,
    STRAY_VERBS,
    CrashWithin,
    LimitSegments,
    OnDisk,
    SetKeys,
    Stray,
    on_text,
)
from totempole.sim.script_logs import LOG_VERBS, Append, OnLog, Read, SetReplica
from totempole.sim.script_objects import HOST_VERBS, OnHost, Work
from totempole.sim.settings_text import (
    BadValue,
    parse_fields,
    parse_number,
    parse_range,
    parse_time,
    short_names,
    split_pair,
)
from totempole.srp.config import RingConfig
from totempole.types import PROCESSOR_MAX, Fence, ProcessorId, RingKind, Service
from totempole.wire.layout import KEY_ID_MAX
from totempole.wire.seal import KEYS_MAX

WHEN = re.compile(r'"([^"]+)"(?: by (\S+))?(?: after (\d+))? (\S+)( .*)?')
ALARM = re.compile(r'(\S+) "([^"]+)" since (\S+) within (\S+)')
MEMBERS = re.compile(r"\(([^()]*)\)")
CONFIGURATIONS = re.compile(r"\{([^{}]*)\}|\[([^\[\]]*)\]")

TUNABLES: dict[str, type] = {
    "condition": Condition,
    "lan": Lan,
    "costs": Costs,
    "buffers": Buffers,
    "disk": DiskSpeed,
}


def parse(text: str, name: str = "scenario") -> Scenario:
    """The scenario in `text`; `name` is what errors call the file."""
    parser = _Parser(name)
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip()
        if words:
            parser.read(number, words)
    return parser.scenario()


def fail(file: str, number: int, line: str, problem: str) -> NoReturn:
    raise ScenarioError(f"{file}, line {number}: {line!r}: {problem}")


@dataclass(slots=True)
class _Parser:
    file: str
    processors: dict[str, ProcessorId] = field(default_factory=dict)
    seed: int = 1
    settings: list[Setting] = field(default_factory=list)
    absent: tuple[ProcessorId, ...] = ()
    drift_ppm: int = 0
    discard_limit: int = 0
    tunables: dict[str, Any] = field(
        default_factory=lambda: {word: kind() for word, kind in TUNABLES.items()}
    )
    groups: GroupConfig | None = None
    sealed: bool = False
    networks: dict[str, list[str]] = field(default_factory=dict)
    """What is said of each."""
    redundancy: RedundancyConfig | None = None
    log: LogConfig | None = None
    objects: str = ""
    steps: list[Step] = field(default_factory=list)
    last_words: list[Action] = field(default_factory=list)
    """Expectations without a time: they hold at the end."""
    current: Condition | None = None
    end_us: int | None = None
    last_line: tuple[int, str] = (0, "")

    def read(self, number: int, line: str) -> None:
        self.last_line = (number, line)
        try:
            self._command(line)
        except BadValue as problem:
            fail(self.file, number, line, str(problem))

    def scenario(self) -> Scenario:
        if not self.processors:
            self._fail_at_end("no processors: give a line like `processors p=1 q=2` before all others")
        if self.end_us is None:
            self._fail_at_end("no end: finish with a line like `end 10s`")
        steps = [*self.steps, *(Step(self.end_us, action) for action in self.last_words)]
        self._check_settings()
        networks = tuple(self._scenario_network(name, words) for name, words in self.networks.items())
        self._check_networks()
        if self.discard_limit and self.groups is not None:
            self._fail_at_end("discard-limit counts messages of the ring: it cannot be used with groups")
        return Scenario(
            name=self.file,
            processors=tuple(self.processors.items()),
            end_us=self.end_us,
            seed=self.seed,
            settings=tuple(self.settings),
            absent=self.absent,
            drift_ppm=self.drift_ppm,
            discard_limit=self.discard_limit,
            groups=self.groups,
            sealed=self.sealed,
            networks=networks,
            redundancy=self.redundancy,
            log=self.log,
            objects=self.objects,
            steps=tuple(steps),
            **self.tunables,
        )

    def _check_settings(self) -> None:
        try:
            for processor in self.processors.values():
                ring_config(self.settings, processor)
        except ConfigurationError as problem:
            self._fail_at_end(str(problem))

    def _check_networks(self) -> None:
        if not self.networks and self.redundancy is None:
            return
        if self.redundancy is None:
            self._fail_at_end("several networks: say how the ring uses them, `redundancy style=passive`")
        try:
            self.redundancy.copies_on(len(self.networks))
        except ConfigurationError as problem:
            self._fail_at_end(str(problem))

    def _scenario_network(self, name: str, words: Sequence[str]) -> ScenarioNetwork:
        """Each word is about the LAN, its condition, or the network itself."""
        general: Condition = self.tunables["condition"]
        of_lan, of_condition, own = [], [], {}
        for word in words:
            key = word.partition("=")[0]
            if key in short_names(Lan):
                of_lan.append(word)
            elif key in ("segment_bytes", "capacity"):
                own[key] = word.partition("=")[2]
            else:
                of_condition.append(word)
        try:
            numbers = {key: parse_number(text, 1, whole=True) for key, text in own.items()}
            lan = parse_fields(Lan, of_lan, Lan())
            condition = parse_fields(Condition, of_condition, general) if of_condition else None
        except BadValue as problem:
            self._fail_at_end(f"network {name}: {problem}")
        return ScenarioNetwork(name, lan, condition, **numbers)

    def _fail_at_end(self, problem: str) -> NoReturn:
        fail(self.file, *self.last_line, problem)

    # Lines

    def _command(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if self.end_us is not None and word != "expect":
            raise BadValue("nothing but expectations may follow `end`")
        if word == "at":
            self._timed(rest)
        elif word == "expect":
            self.last_words.append(self._expectation(rest))
        elif word in _HEADERS:
            self._header(word, rest)
        elif word in _ACTIONS:
            raise BadValue(f"{word} needs a time: write `at 1.5s {line}`")
        else:
            raise BadValue(f"unknown command {word!r}: give one of {', '.join([*_HEADERS, 'at', 'expect'])}")

    def _header(self, word: str, rest: str) -> None:
        if word not in ("processors", "end") and self.steps:
            raise BadValue(f"{word} belongs before the first `at`")
        if word in TUNABLES:
            self.tunables[word] = parse_fields(TUNABLES[word], rest.split(), self.tunables[word])
        else:
            _HEADERS[word](self, rest)

    def _processors(self, rest: str) -> None:
        if self.processors:
            raise BadValue("the processors were given before")
        for word in rest.split():
            name, _, number = word.rpartition("=")
            me = parse_number(number, least=1, whole=True)
            if me > PROCESSOR_MAX:
                raise BadValue(f"{number} is above the greatest processor, {PROCESSOR_MAX}")
            name = name or number
            if name in self.processors or me in self.processors.values():
                raise BadValue(f"{word} is there twice")
            self.processors[name] = me
        if not self.processors:
            raise BadValue("name at least one processor")

    def _seed(self, rest: str) -> None:
        self.seed = parse_number(rest, whole=True)

    def _drift(self, rest: str) -> None:
        self.drift_ppm = parse_number(rest, whole=True)

    def _discard_limit(self, rest: str) -> None:
        self.discard_limit = parse_number(rest, least=1, whole=True)

    def _absent(self, rest: str) -> None:
        self.absent = self._members(rest)

    def _set(self, rest: str) -> None:
        words, _, names = rest.partition(" for ")
        parts = words.split()
        if len(parts) != 2:
            raise BadValue("write `set FIELD VALUE` or `set FIELD VALUE for p q`")
        name, text = parts
        allowed = [item.name for item in fields(RingConfig)]
        if name not in allowed:
            raise BadValue(f"unknown setting {name!r}: give one of {', '.join(allowed)}")
        value = _ring_kind(text) if name == "ring_kind" else parse_number(text, whole=True)
        self.settings.append(Setting(name, value, self._members(names) if names else ()))

    def _groups_config(self, rest: str) -> None:
        self.groups = parse_fields(GroupConfig, rest.split(), self.groups or GroupConfig())

    def _sealed(self, rest: str) -> None:
        self._exactly(rest.split(), 0, "sealed")
        self.sealed = True

    def _network(self, rest: str) -> None:
        name, *words = rest.split() or [""]
        if not name or "=" in name:
            raise BadValue("name it: `network a delay=100..300`")
        if name in self.networks:
            raise BadValue(f"network {name} was given before")
        self.networks[name] = words

    def _redundancy(self, rest: str) -> None:
        self.redundancy = parse_fields(RedundancyConfig, rest.split(), RedundancyConfig())

    def _log(self, rest: str) -> None:
        if self.groups is None:
            raise BadValue("a log stands on groups: give the line `groups` before it")
        words = rest.split()
        names = [word for word in words if "=" not in word]
        weights = [word.removeprefix("weights=") for word in words if word.startswith("weights=")]
        others = [word for word in words if "=" in word and not word.startswith("weights=")]
        numbers = tuple(parse_number(text, 1, whole=True) for text in ",".join(weights).split(",") if text)
        replicas = self._members(" ".join(names)) if names else ()
        try:
            # The replicas first: a floor is compared with them.
            config = parse_fields(LogConfig, others, LogConfig(replicas=replicas))
            self.log = replace(config, weights=numbers)
        except ConfigurationError as problem:
            raise BadValue(str(problem)) from None

    def _objects(self, rest: str) -> None:
        if self.log is None:
            raise BadValue("objects need a log: give the line `log p q r` before it")
        (self.objects,) = self._exactly(rest.split(), 1, "objects store")

    def _end(self, rest: str) -> None:
        self.end_us = self._in_order(parse_time(rest))

    # Timed actions

    def _timed(self, rest: str) -> None:
        if not self.processors:
            raise BadValue("no processors yet: give a line like `processors p=1 q=2` before all others")
        time, _, command = rest.partition(" ")
        at_us = self._in_order(parse_time(time))
        word, _, arguments = command.strip().partition(" ")
        if word not in _ACTIONS:
            raise BadValue(f"unknown action {word!r}: give one of {', '.join(_ACTIONS)}")
        action = _ACTIONS[word](self, word, arguments.strip())
        self.steps.append(Step(at_us, action))

    def _in_order(self, at_us: int) -> int:
        if self.steps and at_us < self.steps[-1].at_us:
            raise BadValue("time goes backwards: put the lines in order of time")
        return at_us

    def _on_processor(self, verb: str, rest: str) -> OnProcessor:
        (processor,) = self._exactly(rest.split(), 1, f"{verb} p")
        return OnProcessor(verb, self._processor(processor))

    def _on_link(self, verb: str, rest: str) -> OnLink:
        rest, network = self._on(rest)
        source, target = self._exactly(rest.split(), 2, f"{verb} p q")
        return OnLink(verb, self._processor(source), self._processor(target), network)

    def _on_interface(self, verb: str, rest: str) -> OnInterface:
        rest, network = self._on(rest)
        (processor,) = self._exactly(rest.split(), 1, f"{verb} p [on a]")
        return OnInterface(verb, self._processor(processor), network)

    def _on_service(self, verb: str, rest: str) -> OnService:
        network, by, processor = self._exactly(rest.split(), 3, f"{verb} a by p")
        if by != "by":
            raise BadValue(f"write `{verb} a by p`")
        return OnService(verb, self._network_named(network), self._processor(processor))

    def _wire(self, verb: str, rest: str) -> Wire:
        one, other = (self._network_named(word) for word in self._exactly(rest.split(), 2, "wire a b"))
        if one == other:
            raise BadValue("give two networks: `wire a b`")
        return Wire(one, other)

    def _partition(self, verb: str, rest: str) -> Partition:
        rest, network = self._on(rest)
        listing = rest.removesuffix(" sharp")
        parts = self._groups(listing, MEMBERS, "partition (p q) (r s)")
        components = tuple(self._members(part[0]) for part in parts)
        everyone = [member for component in components for member in component]
        if len(set(everyone)) < len(everyone):
            raise BadValue("a processor is in two components")
        return Partition(components, listing != rest, network)

    def _heal(self, verb: str, rest: str) -> Heal:
        rest, network = self._on(rest)
        self._exactly(rest.split(), 0, "heal [on a]")
        return Heal(network)

    def _slow(self, verb: str, rest: str) -> Slow:
        processor, factor = self._exactly(rest.split(), 2, "slow p 10")
        return Slow(self._processor(processor), parse_number(factor))

    def _loss(self, verb: str, rest: str) -> SetCondition:
        rest, network = self._on(rest)
        (loss,) = self._exactly(rest.split(), 1, "loss 0.2 [on a]")
        return self._condition(verb, f"loss={loss}{on_text(network)}")

    def _condition(self, verb: str, rest: str) -> SetCondition:
        rest, network = self._on(rest)
        words, source, target = self._ends(rest.split())
        before: Condition = self.current or self.tunables["condition"]
        action = SetCondition(parse_fields(Condition, words, before), source, target, network)
        if action.general:
            self.current = action.condition
        return action

    def _send(self, verb: str, rest: str) -> Send:
        words = rest.split()
        if len(words) < 2:
            raise BadValue("write `send p 20 [size=1000] [safe|agreed]`")
        services = {service.name.lower(): service for service in Service}
        service = next((services[word] for word in words[2:] if word in services), Service.AGREED)
        pairs = dict(split_pair(word, ("size",)) for word in words[2:] if word not in services)
        send = Send(self._processor(words[0]), parse_number(words[1], 1, whole=True), service=service)
        if "size" in pairs:
            return Send(send.processor, send.count, parse_number(pairs["size"], whole=True), service)
        return send

    def _load(self, verb: str, rest: str) -> Traffic:
        words = rest.split()
        if not words:
            raise BadValue("write `load p rate=100 size=1000 safe=0.5 until=5s`")
        readers: dict[str, tuple[str, Callable[[str], Any]]] = {
            "rate": ("rate_per_s", lambda text: parse_number(text, 0.001)),
            "size": ("size", lambda text: parse_number(text, whole=True)),
            "safe": ("safe", _probability),
            "until": ("until_us", parse_time),
            "shape": ("shape", lambda text: _choice(text, SHAPES)),
        }
        values: dict[str, Any] = {}
        for word in words[1:]:
            key, text = split_pair(word, readers)
            values[readers[key][0]] = readers[key][1](text)
        return Traffic(self._processor(words[0]), **values)

    def _drop_next(self, verb: str, rest: str) -> DropNext:
        rest, network = self._on(rest)
        words, source, to = self._ends(rest.split())
        if not words:
            raise BadValue("write `drop-next token|commit-token|join|message [from p] [to q] [count=1]`")
        kind = _choice(words[0], tuple(PACKET_KINDS))
        pairs = dict(split_pair(word, ("count",)) for word in words[1:])
        return DropNext(kind, source, to, parse_number(pairs.get("count", "1"), 1, whole=True), network)

    def _stray(self, verb: str, rest: str) -> Stray:
        rest, network = self._on(rest)
        words, source, to = self._ends(rest.split())
        if not words:
            raise BadValue(f"write `{verb} token|commit-token|join|message [from p] [to q] [count=1]`")
        if verb in ("show", "misdirect") and to is None:
            raise BadValue(f"say to whom: `{verb} {words[0]} to q`")
        if verb == "reflect" and to is not None:
            raise BadValue("it comes back to its sender: `reflect` takes no `to`")
        kind = _choice(words[0], tuple(PACKET_KINDS))
        allowed = ("count", "after") if verb == "replay" else ("count",)
        pairs = dict(split_pair(word, allowed) for word in words[1:])
        if verb == "replay" and "after" not in pairs:
            raise BadValue("say when it comes again: `replay message after=500ms`")
        count = parse_number(pairs.get("count", "1"), 1, whole=True)
        return Stray(verb, kind, source, to, count, parse_time(pairs.get("after", "0us")), network)

    def _on_disk(self, verb: str, rest: str) -> OnDisk:
        words = rest.split()
        if len(words) < 2:
            raise BadValue(f"write `disk p {'|'.join(DISK_VERBS)}`")
        name, what, *arguments = words
        processor = self._processor(name)
        what = _choice(what, DISK_VERBS)
        if what == "lose":
            lost = tuple(_choice(word, STORED) for word in arguments)
            if not lost:
                raise BadValue(f"say what is lost: {', '.join(STORED)}")
            return OnDisk(what, processor, lost=lost)
        if what == "rollback":
            (records,) = self._exactly(arguments, 1, "disk p rollback 3")
            return OnDisk(what, processor, records=parse_number(records, 1, whole=True))
        if what == "slow":
            (latency,) = self._exactly(arguments, 1, "disk p slow 50ms..500ms")
            return OnDisk(what, processor, latency_us=parse_range(latency))
        self._exactly(arguments, 0, f"disk p {what}")
        return OnDisk(what, processor)

    def _crash_within(self, verb: str, rest: str) -> CrashWithin:
        name, pair = self._exactly(rest.split(), 2, "crash-within p after=3")
        _, after = split_pair(pair, ("after",))
        return CrashWithin(self._processor(name), parse_number(after, whole=True))

    def _segments(self, verb: str, rest: str) -> LimitSegments:
        rest, network = self._on(rest)
        name, size = self._exactly(rest.split(), 2, "segments p 600 [on a]")
        least = RingConfig.__dataclass_fields__["segment_bytes"].metadata["least"]
        return LimitSegments(self._processor(name), parse_number(size, least, whole=True), network)

    def _keys(self, verb: str, rest: str) -> SetKeys:
        name, *ids = rest.split() or [""]
        if not self.sealed:
            raise BadValue("no seal here: give the line `sealed` before the first `at`")
        keys = tuple(parse_number(word, 1, whole=True) for word in ids)
        if not 1 <= len(keys) <= KEYS_MAX or len(set(keys)) < len(keys) or max(keys) > KEY_ID_MAX:
            raise BadValue(f"give 1 to {KEYS_MAX} different keys: `keys p 2 1`")
        return SetKeys(self._processor(name), keys)

    def _when(self, verb: str, rest: str) -> When:
        found = WHEN.fullmatch(rest)
        if not found:
            raise BadValue('write `when "promise given" [by p] [after 2] crash q`')
        says, by, after, word, arguments = found.groups()
        if word not in _AMBUSHES:
            raise BadValue(f"{word!r} cannot wait for a moment: give one of {', '.join(_AMBUSHES)}")
        action = _AMBUSHES[word](self, word, (arguments or "").strip())
        return When(says, action, self._processor(by) if by else None, int(after or 0))

    # Processes

    def _process(self, words: Sequence[str], shape: str) -> tuple[ProcessorId, str]:
        if self.groups is None:
            raise BadValue("no process groups here: give the line `groups` before the first `at`")
        processor, dot, process = words[0].rpartition(".") if words else ("", "", "")
        if not dot or not process:
            raise BadValue(f"write `{shape}`")
        return self._processor(processor), process

    def _on_process(self, verb: str, rest: str) -> OnProcess:
        shape = "process p.a connect"
        words = self._exactly(rest.split(), 2, shape)
        return OnProcess(_choice(words[1], PROCESS_VERBS), *self._process(words, shape))

    def _join(self, verb: str, rest: str) -> JoinGroup:
        shape = "join p.a orders [donor] [state]"
        words = rest.split()
        who = self._process(words, shape)
        if len(words) < 2:
            raise BadValue(f"write `{shape}`")
        flags = [_choice(word, ("donor", "state")) for word in words[2:]]
        return JoinGroup(*who, words[1], "donor" in flags, "state" in flags)

    def _quit(self, verb: str, rest: str) -> QuitGroup:
        shape = "quit p.a orders"
        words = self._exactly(rest.split(), 2, shape)
        return QuitGroup(*self._process(words, shape), words[1])

    def _multicast(self, verb: str, rest: str) -> Multicast:
        shape = "multicast p.a orders,stock [units=1] [count=1] [size=100] [safe] [notice]"
        words = rest.split()
        who = self._process(words, shape)
        if len(words) < 2:
            raise BadValue(f"write `{shape}`")
        flags = [word for word in words[2:] if word in ("safe", "notice")]
        pairs = (split_pair(word, ("units", "count", "size")) for word in words[2:] if word not in flags)
        numbers = {key: parse_number(text, 0 if key == "size" else 1, whole=True) for key, text in pairs}
        service = Service.SAFE if "safe" in flags else Service.AGREED
        groups = tuple(words[1].split(","))
        return Multicast(*who, groups, service=service, notice="notice" in flags, **numbers)

    # The durable order

    def _append(self, verb: str, rest: str) -> Append:
        shape = "append p orders [units=1] [count=1] [size=100] [key=k] [fence=f:0..4:5]"
        words = rest.split()
        if len(words) < 2 or self.log is None:
            raise BadValue(f"write `{shape}`, and a line `log p q r` before the first `at`")
        pairs = dict(split_pair(word, ("units", "count", "size", "key", "fence")) for word in words[2:])
        key, fence = pairs.pop("key", ""), pairs.pop("fence", "")
        least = {"size": 0}
        numbers = {name: parse_number(text, least.get(name, 1), whole=True) for name, text in pairs.items()}
        who = self._processor(words[0])
        return Append(who, words[1], key=key, fence=_fence(fence) if fence else None, **numbers)

    def _read(self, verb: str, rest: str) -> Read:
        words = rest.split()
        if len(words) not in (1, 2) or self.log is None:
            raise BadValue("write `read p [3]`, and a line `log p q r` before the first `at`")
        return Read(self._processor(words[0]), *(parse_number(word, 1, whole=True) for word in words[1:]))

    def _log_disk(self, verb: str, rest: str) -> OnLog:
        words = rest.split()
        if len(words) < 2 or self.log is None:
            raise BadValue(f"write `log-disk p {'|'.join(LOG_VERBS)}`, and `log p q r` before the first `at`")
        name, what, *arguments = words
        processor, what = self._processor(name), _choice(what, LOG_VERBS)
        if what == "rollback":
            (frames,) = self._exactly(arguments, 1, "log-disk p rollback 3")
            return OnLog(what, processor, frames=parse_number(frames, 1, whole=True))
        if what == "slow":
            (latency,) = self._exactly(arguments, 1, "log-disk p slow 50ms..500ms")
            return OnLog(what, processor, latency_us=parse_range(latency))
        self._exactly(arguments, 0, f"log-disk p {what}")
        return OnLog(what, processor)

    def _replica(self, verb: str, rest: str) -> SetReplica:
        words = rest.split()
        if len(words) not in (3, 4) or words[1] not in ("add", "remove") or self.log is None:
            raise BadValue("write `replica p add q [weight]` or `replica p remove q`")
        weight = parse_number(words[3], 1, whole=True) if len(words) == 4 else 1
        who, other = self._processor(words[0]), self._processor(words[2])
        return SetReplica(who, other, weight if words[1] == "add" else 0)

    # Programs with a replicated object

    def _host(self, words: Sequence[str], shape: str) -> tuple[ProcessorId, str]:
        processor, dot, program = words[0].rpartition(".") if words else ("", "", "")
        if not dot or not program or not self.objects:
            raise BadValue(f"write `{shape}`, and a line `objects store` before the first `at`")
        return self._processor(processor), program

    def _on_host(self, verb: str, rest: str) -> OnHost:
        shape = "host p.a open"
        words = self._exactly(rest.split(), 2, shape)
        return OnHost(_choice(words[1], HOST_VERBS), *self._host(words, shape))

    def _work(self, verb: str, rest: str) -> Work:
        shape = "work p.a count=10 [callers=1] [pause=5000]"
        words = rest.split()
        who = self._host(words, shape)
        pairs = (split_pair(word, ("count", "callers", "pause")) for word in words[1:])
        numbers = {key: parse_number(text, 0 if key == "pause" else 1, whole=True) for key, text in pairs}
        return Work(*who, **numbers)

    # Expectations

    def _expect(self, verb: str, rest: str) -> Action:
        return self._expectation(rest)

    def _expectation(self, rest: str) -> Action:
        word, _, arguments = rest.partition(" ")
        if word not in _EXPECTATIONS:
            raise BadValue(f"unknown expectation {word!r}: give one of {', '.join(_EXPECTATIONS)}")
        return _EXPECTATIONS[word](self, arguments.strip())

    def _expect_members(self, rest: str) -> ExpectMembers:
        name, _, listing = rest.partition(" ")
        parts = self._groups(listing, MEMBERS, "expect members p (p q r)")
        if len(parts) != 1:
            raise BadValue("give one membership: `expect members p (p q r)`")
        return ExpectMembers(self._processor(name), tuple(sorted(self._members(parts[0][0]))))

    def _expect_configurations(self, rest: str) -> ExpectConfigurations:
        name, _, listing = rest.partition(":")
        parts = self._groups(listing, CONFIGURATIONS, "expect configurations q: {p q r} [q r] {q r s}")
        sequence = []
        for regular, transitional in parts:
            members = tuple(sorted(self._members(regular or transitional)))
            sequence.append((bool(regular), members))
        return ExpectConfigurations(self._processor(name.strip()), tuple(sequence))

    def _expect_delivered(self, rest: str) -> ExpectDelivered:
        name, count = self._exactly(rest.split(), 2, "expect delivered q 20")
        return ExpectDelivered(self._processor(name), parse_number(count, whole=True))

    def _expect_network(self, rest: str) -> ExpectNetwork:
        network, state, at, name = self._exactly(rest.split(), 4, "expect network a faulty at p")
        if at != "at":
            raise BadValue("write `expect network a faulty at p`")
        known = tuple(one.name.lower() for one in NetworkState)
        return ExpectNetwork(self._network_named(network), _choice(state, known), self._processor(name))

    def _expect_alarm(self, rest: str) -> ExpectAlarm:
        found = ALARM.fullmatch(rest)
        if not found:
            raise BadValue('write `expect alarm a "p cannot send" since 6s within 2s`')
        network, why, since, within = found.groups()
        return ExpectAlarm(self._network_named(network), why, parse_time(since), parse_time(within))

    def _expect_checkers(self, rest: str) -> ExpectCheckers:
        if rest != "hold":
            raise BadValue("write `expect checkers hold`")
        return ExpectCheckers()

    def _expect_rollbacks(self, rest: str) -> ExpectRollbacks:
        if rest != "noticed":
            raise BadValue("write `expect rollbacks noticed`")
        return ExpectRollbacks()

    def _expect_settled(self, rest: str) -> ExpectSettled:
        within, earlier, time = rest.partition(" earlier ")
        return ExpectSettled(parse_time(within), parse_time(time) if earlier else 0)

    # Words

    def _on(self, rest: str) -> tuple[str, str]:
        """What is said without `on a` at its end, and the network."""
        words = rest.split()
        if words[-2:-1] != ["on"]:
            return rest, ""
        return rest.rpartition(" on ")[0] if len(words) > 2 else "", self._network_named(words[-1])

    def _network_named(self, name: str) -> str:
        if not self.networks:
            raise BadValue("there is one network here: give lines `network NAME` before the first `at`")
        if name not in self.networks:
            raise BadValue(f"unknown network {name!r}: give one of {', '.join(self.networks)}")
        return name

    def _processor(self, name: str) -> ProcessorId:
        if name not in self.processors:
            raise BadValue(f"unknown processor {name!r}: give one of {', '.join(self.processors)}")
        return self.processors[name]

    def _members(self, listing: str) -> tuple[ProcessorId, ...]:
        members = tuple(self._processor(name) for name in listing.split())
        if not members:
            raise BadValue("an empty list of processors")
        if len(set(members)) < len(members):
            raise BadValue(f"a processor is there twice in {listing!r}")
        return members

    def _ends(self, words: Sequence[str]) -> tuple[list[str], ProcessorId | None, ProcessorId | None]:
        """The words without `from p` and `to q`, p, and q."""
        ends: dict[str, ProcessorId] = {}
        rest = list(words)
        for key in ("from", "to"):
            if key in rest:
                place = rest.index(key)
                if place + 1 == len(rest):
                    raise BadValue(f"`{key}` needs a processor")
                ends[key] = self._processor(rest[place + 1])
                del rest[place : place + 2]
        return rest, ends.get("from"), ends.get("to")

    def _exactly(self, words: Sequence[str], count: int, shape: str) -> Sequence[str]:
        if len(words) != count:
            raise BadValue(f"write `{shape}`")
        return words

    def _groups(self, text: str, pattern: re.Pattern[str], shape: str) -> list[tuple[str, ...]]:
        parts = [match.groups() for match in pattern.finditer(text)]
        if not parts or pattern.sub("", text).strip():
            raise BadValue(f"write `{shape}`")
        return parts


_HEADERS: dict[str, Callable[[_Parser, str], None]] = {
    "processors": _Parser._processors,
    "seed": _Parser._seed,
    "set": _Parser._set,
    "absent": _Parser._absent,
    "drift": _Parser._drift,
    "discard-limit": _Parser._discard_limit,
    "groups": _Parser._groups_config,
    "sealed": _Parser._sealed,
    "network": _Parser._network,
    "redundancy": _Parser._redundancy,
    "log": _Parser._log,
    "objects": _Parser._objects,
    "end": _Parser._end,
    **dict.fromkeys(TUNABLES, lambda parser, rest: None),
}

_AMBUSHES: dict[str, Callable[[_Parser, str, str], Ambush]] = {
    **dict.fromkeys(PROCESSOR_VERBS, _Parser._on_processor),
    **dict.fromkeys(LINK_VERBS, _Parser._on_link),
    **dict.fromkeys(INTERFACE_VERBS, _Parser._on_interface),
    **dict.fromkeys(SERVICE_VERBS, _Parser._on_service),
    "wire": _Parser._wire,
    "partition": _Parser._partition,
    "heal": _Parser._heal,
    "slow": _Parser._slow,
    "drop-next": _Parser._drop_next,
    **dict.fromkeys(STRAY_VERBS, _Parser._stray),
    "disk": _Parser._on_disk,
    "crash-within": _Parser._crash_within,
    "when": _Parser._when,
    "process": _Parser._on_process,
    "join": _Parser._join,
    "quit": _Parser._quit,
    "multicast": _Parser._multicast,
    "log-disk": _Parser._log_disk,
    "replica": _Parser._replica,
    "read": _Parser._read,
}

_ACTIONS: dict[str, Callable[[_Parser, str, str], Action]] = {
    **_AMBUSHES,
    "loss": _Parser._loss,
    "condition": _Parser._condition,
    "send": _Parser._send,
    "load": _Parser._load,
    "segments": _Parser._segments,
    "keys": _Parser._keys,
    "append": _Parser._append,
    "host": _Parser._on_host,
    "work": _Parser._work,
    "expect": _Parser._expect,
}

_EXPECTATIONS: dict[str, Callable[[_Parser, str], Action]] = {
    "members": _Parser._expect_members,
    "configurations": _Parser._expect_configurations,
    "delivered": _Parser._expect_delivered,
    "network": _Parser._expect_network,
    "alarm": _Parser._expect_alarm,
    "checkers": _Parser._expect_checkers,
    "rollbacks": _Parser._expect_rollbacks,
    "settled": _Parser._expect_settled,
}


def ring_config(settings: Sequence[Setting], processor: ProcessorId) -> RingConfig:
    """One processor's settings; the last word on a field counts."""
    values: dict[str, Any] = {}
    for setting in settings:
        if not setting.processors or processor in setting.processors:
            values[setting.field] = setting.value
    return RingConfig(**values)


def _ring_kind(text: str) -> RingKind:
    return RingKind[_choice(text, tuple(kind.name.lower() for kind in RingKind)).upper()]


def _choice(text: str, allowed: Sequence[str]) -> str:
    if text not in allowed:
        raise BadValue(f"{text!r} is not allowed here: give one of {', '.join(allowed)}")
    return text


def _fence(text: str) -> Fence:
    name, _, rest = text.partition(":")
    bounds, _, number = rest.partition(":")
    low, _, high = bounds.partition("..")
    fence = Fence(name, *(parse_number(each, whole=True) for each in (number, low, high)))
    if fence.problem:
        raise BadValue(fence.problem)
    return fence


def _probability(text: str) -> float:
    value: float = parse_number(text)
    if value > 1:
        raise BadValue(f"{text!r} is not a probability: give 0 to 1")
    return value
