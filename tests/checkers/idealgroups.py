"""Random runs of ideal groups on an ideal ring, written down by one who sees everything."""

from __future__ import annotations

import random

from groupbuilder import GroupBuilder, Sent

GROUPS = ("g", "h", "k")


class IdealGroups:
    def __init__(self, seed: int, nodes: int) -> None:
        self.random = random.Random(seed)
        self.trace = GroupBuilder()
        self.seq = 8
        everyone = list(range(1, nodes + 1))
        self.trace.ring(*everyone, seq=8)
        self.components: list[list[int]] = [everyone]
        self.down: list[int] = []
        self.processes: list[str] = []

    def rows_of(self, changes: int, acts: int) -> GroupBuilder:
        for _ in range(changes):
            for component in self.components:
                self._act(component, self.random.randrange(acts))
            self._crash_and_restart()
            self._regroup()
        self._install([sorted(node for component in self.components for node in component)])
        self._act(self.components[0], acts)
        return self.trace

    def _alive(self, component: list[int]) -> list[str]:
        return [
            name
            for name in self.processes
            if name not in self.trace.gone and int(name.split(".")[0]) in component
        ]

    def _act(self, component: list[int], acts: int) -> None:
        for _ in range(acts):
            self._act_once(component)

    def _act_once(self, component: list[int]) -> None:
        trace, choose = self.trace, self.random
        alive = self._alive(component)
        if not alive or choose.random() < 0.15:
            self.processes.append(trace.connect(choose.choice(component)))
            return
        process = choose.choice(alive)
        table = trace.tables[component[0]]
        inside = [group for group in GROUPS if process in table.get(group, [])]
        outside = [group for group in GROUPS if group not in inside]
        what = choose.random()
        if what < 0.3 and outside:
            trace.join(process, choose.choice(outside))
        elif what < 0.4 and inside:
            trace.leave_group(process, choose.choice(inside))
        elif what < 0.45:
            trace.disconnect(process)
        else:
            groups = choose.sample(GROUPS, choose.choice((1, 1, 2)))
            trace.say(process, *groups, count=choose.randint(1, 3), service=choose.choice(("agreed", "safe")))

    def _crash_and_restart(self) -> None:
        for node in self.down:
            self.seq += 4
            self.trace.start(node, seq=self.seq)
            self.components.append([node])
        victims = [c[0] for c in self.components if len(c) > 2 and self.random.random() < 0.2]
        self.trace.crash(*victims)
        self.processes = [name for name in self.processes if int(name.split(".")[0]) not in victims]
        self.down = victims
        self.components = [[n for n in c if n not in victims] for c in self.components]

    def _regroup(self) -> None:
        alive = sorted(node for component in self.components for node in component)
        self.random.shuffle(alive)
        cut = self.random.randrange(len(alive))
        self._install([sorted(part) for part in (alive[:cut], alive[cut:]) if part])

    def _install(self, parts: list[list[int]]) -> None:
        self.seq += 4
        for part in parts:
            for old in self.components:
                staying = [node for node in old if node in part]
                if staying:
                    self._transition(staying)
            self.trace.merge(*part, seq=self.seq)
        self.components = parts

    def _transition(self, staying: list[int]) -> None:
        """The last messages reach only those who stay together."""
        late: list[Sent] = []
        if len(staying) > 1:
            senders = [process for process in self._alive(staying) if self.random.random() < 0.3]
            late = [
                self.trace.offer(name, self.random.choice(GROUPS), service="safe", to=staying)
                for name in senders
            ]
        self.trace.cut(*staying, seq=self.seq)
        for sent in late:
            self.trace.bring(sent, *staying)
