"""A work queue without a queue server: every task has exactly one winner, and the total order decides.

    python examples/work_queue.py [--seconds S] [--socket PATH | --embed node.toml]     # a worker
    python examples/work_queue.py --add 'first task' 'second task' [--socket PATH]      # tasks for them

Start several workers, then add tasks. Workers that are free claim a task; the claim that is delivered first
wins, and as all see the same order, all know who has won, without asking anyone. Kill a worker: the view that
tells the others opens its task again, at the same place in the order for all, and again one of them wins.

When the network parts, each side takes the other's workers for dead, and may do their tasks too. When it
heals, the first member of each side tells what its side knows: what is done is done, and a task that both
sides work on stays with one of the two workers.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, dataclass

from helping import options, run, session, show

from totempole import Group, Messages, Reconnected, Session, State, View


@dataclass
class Task:
    text: str
    winner: str = ""
    result: str | None = None

    @property
    def rank(self) -> tuple[bool, bool, str]:
        """Of two records of the same task, the lower one counts: done, then won."""
        return self.result is None, not self.winner, self.winner


class Worker:
    def __init__(self, mine: Session, group: Group, seconds: float) -> None:
        self.mine, self.group, self.seconds = mine, group, seconds
        self.tasks: dict[str, Task] = {}
        self.work: asyncio.Task[None] | None = None
        self.busy_with = self.claimed = ""

    # What all copies do alike, each event at its place

    def handle(self, sender: str, number: int, message: dict[str, str]) -> None:
        match message:
            case {"task": text}:
                self.tasks[f"{sender}:{number}"] = Task(text)
            case {"claim": name}:
                self.claim(name, sender)
            case {"done": name, "result": result} if self.is_winner(sender, name):
                self.tasks[name].result = result
                show("done", name, sender, result)
            case {"merge": tasks}:
                self.merge(tasks)

    def claim(self, name: str, sender: str) -> None:
        if sender == str(self.mine.process):
            self.claimed = ""
        if name in self.tasks and not self.tasks[name].winner:
            self.tasks[name].winner = sender
            show("won", name, sender)

    def is_winner(self, process: str, name: str) -> bool:
        """Whether it has won the task, and has not finished it."""
        return name in self.tasks and (self.tasks[name].winner, self.tasks[name].result) == (process, None)

    def reopen(self, members: set[str]) -> None:
        """Who is gone will not finish."""
        for name, task in self.tasks.items():
            if task.result is None and task.winner and task.winner not in members:
                show("open again", name, task.winner)
                task.winner = ""

    def merge(self, text: str) -> None:
        for name, values in json.loads(text).items():
            found = Task(**values)
            self.tasks[name] = min(self.tasks.get(name, found), found, key=lambda task: task.rank)

    def snapshot(self) -> bytes:
        return json.dumps({name: asdict(task) for name, task in self.tasks.items()}).encode()

    # What this one does

    async def take_part(self) -> None:
        async for event in self.group:
            match event:
                case Messages(sender=sender, payloads=payloads, number=first):
                    for number, payload in enumerate(payloads, first):
                        self.handle(str(sender), number, json.loads(payload))
                case State(data=data):
                    self.merge((data or b"{}").decode())
                    show("ready")
                case View(kind="regular", members=members, together=together, strangers=strangers):
                    self.reopen({*map(str, members)})
                    if strangers and together[:1] == (self.mine.process,):
                        await self.say(merge=self.snapshot().decode())
                case Reconnected():
                    self.claimed = ""
            await self.look_for_work()

    async def look_for_work(self) -> None:
        me, members = str(self.mine.process), [*map(str, self.group.members)]
        if self.is_winner(me, self.busy_with) or me not in members:
            return
        if self.work is not None:
            self.work.cancel()  # finished, or not its task any more
        self.work, self.busy_with = None, ""
        free = [name for name, task in self.tasks.items() if not task.winner]
        won = [name for name in self.tasks if self.is_winner(me, name)]
        if won:
            self.busy_with = won[0]
            self.work = asyncio.create_task(self.do(won[0]))
        elif free and not self.claimed:
            # Not all of them the same one: that would be as right, but slower.
            self.claimed = free[members.index(me) % len(free)]
            await self.say(claim=self.claimed)

    async def do(self, name: str) -> None:
        await asyncio.sleep(self.seconds)  # the work
        await self.say(done=name, result=self.tasks[name].text.upper())

    async def say(self, **message: str) -> None:
        await self.group.multicast(json.dumps(message).encode())


async def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--add", nargs="+", metavar="TASK", help="add tasks and leave")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a task takes")
    arguments = parser.parse_args()
    async with session(arguments) as mine:
        if arguments.add:
            messages = [json.dumps({"task": text}).encode() for text in arguments.add]
            await mine.multicast_many("tasks", messages)
            return
        worker: Worker | None = None
        group = mine.join("tasks", state=lambda: worker.snapshot() if worker else b"{}", want_state=True)
        async with group:
            worker = Worker(mine, group, arguments.seconds)
            await worker.take_part()


if __name__ == "__main__":
    run(main())
