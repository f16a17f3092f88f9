"""Members of a primary group on simulated processors, faults at random, and a judge of what was done."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any, cast

from totempole.client.primary_member import Phase, PrimaryMember
from totempole.core.inputs import Command
from totempole.errors import NotPrimary, Unknown
from totempole.groups import Batch, GroupConfig, pack
from totempole.groups.commands import Connect, Disconnect, JoinGroup, Multicast
from totempole.groups.events import GroupEvent, GroupMessages, GroupView, ToProcesses
from totempole.sim.host import Host
from totempole.sim.stacks import RealStack
from totempole.sim.world import World
from totempole.types import ProcessId, Service

GROUP = "kv"
MS = 1_000
SECOND = 1_000_000


class Journal:
    """The state is the list of all commands; a command's result is its place in it."""

    def __init__(self) -> None:
        self.commands: list[str] = []

    def apply(self, command: bytes) -> int:
        self.commands.append(command.decode())
        return len(self.commands) - 1

    def snapshot(self) -> bytes:
        return json.dumps(self.commands).encode()

    def restore(self, snapshot: bytes) -> None:
        self.commands = json.loads(snapshot)


Member = PrimaryMember[Journal]


class Program:
    """A member, one session after another."""

    def __init__(self, cluster: Cluster, host: Host) -> None:
        self.cluster = cluster
        self.host = host
        self.member = cluster.make_member()
        self.life = host.life
        self.gone = False
        self.tickets: dict[int, str] = {}
        self._inbox: deque[GroupEvent] = deque()
        self._waking = False
        self.id = cluster.begin_session(self)

    @property
    def alive(self) -> bool:
        return not self.gone and self.host.alive and self.life == self.host.life

    def hear(self, event: GroupEvent) -> None:
        self._inbox.append(event)
        if not self._waking:
            self._waking = True
            self.cluster.later(0, self._take)

    def _take(self) -> None:
        self._waking = False
        while self._inbox and self.alive:
            event = self._inbox.popleft()
            if isinstance(event, GroupView):
                self.member.view(self.id, event.kind.value, event.members, event.place)
            elif isinstance(event, GroupMessages):
                for payload in Batch(event.batch):
                    self.member.message(event.sender, bytes(payload))
            self.pump()

    def lose_session(self) -> None:
        """Its daemon drops it; the program lives on, and comes back as another process."""
        self._inbox.clear()
        self.cluster.end_session(self)
        self.member.lost()
        self.pump()
        self.id = self.cluster.begin_session(self)

    def do(self, name: str) -> None:
        self.cluster.sent[name] = self.cluster.now_us
        self.tickets[self.member.do(name.encode())] = name
        self.pump()

    def pump(self) -> None:
        out, self.member.out = self.member.out, []
        for payload in out:
            self.cluster.ask(self, Multicast(self.id.number, (GROUP,), pack([payload]), self.cluster.service))
        answers, self.member.answers = self.member.answers, []
        for ticket, value, error in answers:
            self.cluster.answered(self, self.tickets.pop(ticket), value, error)
        self.cluster.look(self)


class Cluster:
    def __init__(self, seed: int, nodes: int, make: type[Member] = Member) -> None:
        self.world = World(seed, nodes, stack=RealStack(GroupConfig()))
        self.random = Random(f"{seed}/primary")
        self.nodes = nodes
        self.service = Service.SAFE
        self.programs: dict[int, Program] = {}
        self.sent: dict[str, int] = {}
        self.done: dict[str, tuple[int, int]] = {}
        """Where in the journal, and when it was known."""
        self.refused: set[str] = set()
        self.unknown: set[str] = set()
        self.acts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._make = make
        self._numbers: dict[tuple[int, int], int] = {}
        self._by_id: dict[tuple[int, int, int], Program] = {}
        for host in self.world.hosts.values():
            host.listener = self._listen

    # What programs use

    @property
    def now_us(self) -> int:
        return self.world.now_us

    def later(self, delay_us: int, call: Callable[..., None], *given: Any) -> None:
        self.world.scheduler.at(self.now_us + delay_us, call, *given)

    def make_member(self) -> Member:
        return self._make(Journal, self.nodes)

    def begin_session(self, program: Program) -> ProcessId:
        host = program.host
        assert host.stack is not None
        incarnation = host.stack.incarnation
        number = self._numbers[host.me, incarnation] = self._numbers.get((host.me, incarnation), 0) + 1
        program.id = ProcessId(host.me, incarnation, number)
        self._by_id[host.me, host.life, number] = program
        self.ask(program, Connect(number))
        self.ask(program, JoinGroup(number, GROUP))
        return program.id

    def end_session(self, program: Program) -> None:
        self._by_id.pop((program.host.me, program.host.life, program.id.number), None)
        self.ask(program, Disconnect(program.id.number))

    def ask(self, program: Program, command: Command) -> None:
        assert program.host.ask(command)

    def _listen(self, host: Host, event: object) -> None:
        if type(event) is ToProcesses:
            for number in event.processes:
                program = self._by_id.get((host.me, host.life, number))
                if program is not None:
                    program.hear(event.event)

    def answered(self, program: Program, name: str, value: Any, error: Exception | None) -> None:
        if error is None:
            self.done[name] = (value, self.now_us)
        elif isinstance(error, NotPrimary):
            self.refused.add(name)
        else:
            assert isinstance(error, Unknown), error
            self.unknown.add(name)

    def look(self, program: Program) -> None:
        member = program.member
        if member.phase is Phase.PRIMARY:
            self.acts["primary"] += 1
            if not member.certain:
                self.problems.append(f"{program.id} goes on with a state that may lack something")

    # Life

    def start(self) -> None:
        self.world.start()
        self.world.run_for(SECOND)
        for me in self.world.hosts:
            self.begin(me)

    def begin(self, me: int) -> None:
        if me not in self.programs or not self.programs[me].alive:
            self.programs[me] = Program(self, self.world.hosts[me])

    def run(self, duration_us: int) -> None:
        self.world.run_for(duration_us)

    def run_until_primary(self, *nodes: int) -> None:
        for _ in range(2_000):
            if all(map(self.has_memory, nodes)):
                return
            self.run(10 * MS)
        raise AssertionError([(me, self.programs[me].member.problem) for me in nodes])

    def do(self, me: int, name: str) -> None:
        self.programs[me].do(name)

    # Faults that cost a node its memory

    def crash(self, me: int, down_us: int) -> None:
        self.acts["crash"] += 1
        self.world.crash(me)
        self.later(down_us, self._restart, me)

    def _restart(self, me: int) -> None:
        self.world.restart(me)
        self.later(SECOND, self._begin_again, me)  # a node settles before it lets programs in

    def _begin_again(self, me: int) -> None:
        if self.world.hosts[me].alive:
            self.begin(me)

    def kill(self, me: int) -> None:
        """The program only: it begins again with nothing."""
        self.acts["kill"] += 1
        program = self.programs[me]
        self.end_session(program)
        program.gone = True
        self.later(50 * MS, self._begin_again, me)

    def drop(self, me: int) -> None:
        self.acts["drop"] += 1
        self.programs[me].lose_session()

    def has_memory(self, me: int) -> bool:
        """Whether it is established in a primary, so that another may lose its memory."""
        program = self.programs[me]
        if not program.alive or program.member.phase is not Phase.PRIMARY:
            return False
        return program.id in cast(Any, program.member)._round.established

    # Judging

    def heal(self) -> None:
        self.world.heal()
        for me in self.world.hosts:
            if not self.world.hosts[me].alive:
                self._restart(me)
        self.run(2 * SECOND)
        for me in self.world.hosts:
            self._begin_again(me)
        self.run_until_primary(*self.world.hosts)
        self.run(SECOND)

    def judge(self) -> list[str]:
        problems = list(self.problems)
        journals = {me: program.member.machine.commands for me, program in self.programs.items()}
        final = journals[1]
        if any(journal != final for journal in journals.values()):
            problems.append("the members differ")
        for name, count in Counter(final).items():
            if count > 1:
                problems.append(f"{name} was applied {count} times")
        for name, (index, _) in self.done.items():
            if index >= len(final) or final[index] != name:
                problems.append(f"{name} was done at {index}, and is not there")
        problems += [f"{name} was refused, and applied" for name in self.refused & set(final)]
        lasting = [name for name in final if name in self.done]
        latest_us = -1
        for name in lasting:
            if self.done[name][1] < latest_us:
                problems.append(f"{name} was done before another began, and comes after it")
            latest_us = max(latest_us, self.sent[name])
        open_calls = [each.tickets for each in self.programs.values() if each.tickets]
        if open_calls:
            problems.append(f"never answered: {open_calls}")
        return problems


def stormy(seed: int, nodes: int, make: type[Member] = Member, service: Service = Service.SAFE) -> Cluster:
    """Seconds of trouble, in which fewer than half of the nodes are without memory at any time."""
    cluster = Cluster(seed, nodes, make)
    cluster.service = service
    cluster.start()
    cluster.run_until_primary(*cluster.world.hosts)
    random = cluster.random
    lost: set[int] = set()
    for number in range(250):
        cluster.run(random.choice((1, 3, 10, 30)) * MS)
        lost = {me for me in lost if not cluster.has_memory(me)}
        me = random.choice(list(cluster.world.hosts))
        program = cluster.programs[me]
        action = random.random()
        if action < 0.85:
            if program.alive:
                cluster.do(me, f"{me}-{number}")
        elif action < 0.90:
            shuffled = random.sample(list(cluster.world.hosts), nodes)
            cut = random.randint(1, nodes) if nodes > 1 else 1
            cluster.acts["partition"] += 1
            cluster.world.partition([part for part in (shuffled[:cut], shuffled[cut:]) if part])
        elif action < 0.95:
            cluster.acts["heal"] += 1
            cluster.world.heal()
        elif program.alive and len(lost | {me}) <= (nodes - 1) // 2:
            lost.add(me)
            fault = random.choice(("crash", "kill", "drop"))
            if fault == "crash":
                cluster.crash(me, random.choice((20, 300)) * MS)
            else:
                getattr(cluster, fault)(me)
    cluster.heal()
    return cluster
