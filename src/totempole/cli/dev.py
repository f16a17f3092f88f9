"""`totem dev`: a cluster of real nodes on this machine, in one terminal, to be parted, killed and loaded."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO

from rich.markup import escape

from totempole.cli import options
from totempole.cli.dev_load import RATE, RATE_MAX, GroupLoad, Tick
from totempole.cli.dev_terminal import LogFollower, Terminal, colour_of
from totempole.cli.output import Screen, table
from totempole.client.endpoint import SOCKET_VARIABLE
from totempole.errors import TotemError
from totempole.lab.local_cluster import NODES_MAX, LocalCluster

NODES = 3
NETWORK = "127.0.0"
"""Of their addresses: 127.0.0.1, 127.0.0.2, and so on."""
SLEEP_S_MAX = 86_400

EXAMPLES = """\
examples:
  totem dev                           three nodes, files in a temporary directory that is removed at the end
  totem dev --nodes 5 --directory d   five nodes, whose state stays in d for the next start
  totem dev --run story.txt           commands from a file; the end of the file ends the nodes
  echo 'part 1 | 2 3' | totem dev     the same from another program

commands:
{commands}

The nodes are processes (`totem node`) on 127.0.0.1, 127.0.0.2 and so on. No root is needed. They have a key
of their own and a durable log, and reach each other by unicast: other rings of this machine do not mix in.
Where the network is parted, the nodes themselves drop what comes from the other side (docs/dev.md).

Exits 0; 1 if the programs of `load` had different orders; 2 if a command of a file could not be carried out.
"""


def add(parser: options.Parser) -> None:
    width = max(len(command.usage) for command in COMMANDS.values())
    lines = [f"  {command.usage:{width}}  {command.summary}" for command in COMMANDS.values()]
    parser.epilog = EXAMPLES.format(commands="\n".join(lines))
    add = parser.add_argument
    add(
        "--nodes",
        type=options.at_least_one,
        default=NODES,
        metavar="N",
        help=f"up to {NODES_MAX} (default 3)",
    )
    add("--directory", type=Path, metavar="DIR", help="keep the nodes' files there")
    add("--port", type=options.port, default=0, metavar="PORT", help="UDP, and the next one (5400)")
    add(
        "--run",
        type=Path,
        dest="script",
        metavar="FILE",
        help="take the commands from a file; - is standard input",
    )
    parser.set_defaults(run=run_dev)


def run_dev(arguments: argparse.Namespace) -> int:
    with ExitStack() as opened:
        source = opened.enter_context(_source(arguments.script))
        terminal = Terminal(Screen(), source)
        directory: Path | None = arguments.directory
        if directory is None:
            found = opened.enter_context(tempfile.TemporaryDirectory(prefix="totem-dev-"))
            directory = Path(found)
        opened.enter_context(_ending_on_signals())
        cluster = LocalCluster(arguments.nodes, directory.absolute(), NETWORK, arguments.port)
        opened.callback(cluster.close)
        session = DevSession(cluster, terminal)
        opened.callback(session.close)
        session.begin(temporary=arguments.directory is None)
        return session.obey(strict=source is not None)


@contextmanager
def _source(file: Path | None) -> Iterator[TextIO | None]:
    """Where commands come from; None: from the keyboard."""
    if file is not None and str(file) != "-":
        with file.open(encoding="utf-8") as opened:
            yield opened
    else:
        yield None if file is None and sys.stdin.isatty() else sys.stdin


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """SIGTERM, and a terminal that is closed, end all as Ctrl-C does."""

    def interrupt(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    old = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


class DevSession:
    """What a person, or a file, does with the cluster."""

    def __init__(self, cluster: LocalCluster, terminal: Terminal) -> None:
        self.cluster = cluster
        self._say = terminal.print
        self._terminal = terminal
        self._load: GroupLoad | None = None
        self._orders_differ = False
        self._closing = False
        self.ended: set[int] = set()
        """Nodes whose end has been told."""
        logs = {number: cluster.directory / f"daemon-{number}.log" for number in cluster.numbers}
        self._logs = LogFollower(logs, terminal.print, self._watch)

    # From beginning to end

    def begin(self, temporary: bool) -> None:
        cluster = self.cluster
        addresses = ", ".join(cluster.address(number) for number in cluster.numbers)
        self._say(
            f"[bold]nodes {_words(cluster.numbers)}[/] on {addresses}, UDP ports {cluster.port} and "
            f"{cluster.port + 1}"
        )
        kept = "removed at the end" if temporary else "kept for the next start"
        self._say(f"their files: {escape(str(cluster.directory))} ({kept})")
        for number in cluster.numbers:
            cluster.start(number)
        self.settle()
        self._show_ways_in()

    def _show_ways_in(self) -> None:
        totem = options.totem_command()
        python = "python" if totem == "totem" else str(Path(totem).with_name("python"))
        self._say()
        for number in self.cluster.numbers:
            line = f"export {SOCKET_VARIABLE}={shlex.quote(str(self.cluster.socket(number)))}"
            self._say(f"  [{colour_of(number)}]node {number}[/]  {escape(line)}")
        self._say("\nIn another terminal, paste one of these lines, and then:")
        if activate := activation(totem):
            self._say(f"  {escape(activate)}")
        self._say(f"  {totem} listen orders            {totem} send orders 'buy 10'")
        self._say(f"  {python} my_program.py")
        self._say("\n[bold]help[/] shows what can be done here; [bold]quit[/] or Ctrl-C ends the nodes.\n")

    def obey(self, strict: bool) -> int:
        """Until the end of what is asked; with `strict`, a command that fails is the end too."""
        try:
            for line in self._terminal.commands():
                try:
                    if not self._carry_out(line):
                        break
                except (TotemError, OSError) as error:
                    self._say(f"[bold red]{escape(str(error))}[/]")
                    if strict:
                        return 2
        except KeyboardInterrupt:  # the usual way out for a person
            if strict:
                raise
        return 1 if self._orders_differ else 0

    def close(self) -> None:
        self._stop_load()
        self._closing = True
        if self.cluster.daemons.processes:
            self._say("the nodes leave")
            self.cluster.leave()
        self._logs.close()

    def _carry_out(self, line: str) -> bool:
        """Whether to go on."""
        name, *words = line.replace("|", " | ").split()
        command = COMMANDS.get(name)
        if command is None:
            raise TotemError(f"{name}: there is no such command: give {', '.join(COMMANDS)}")
        if name == "quit":
            return False
        command.run(self, words)
        return True

    def settle(self) -> None:
        """Waits for the rings, and tells them."""
        took_s = self.cluster.wait()
        self._logs.flush()
        rings = self.cluster.rings
        if not rings:
            self._say("[bold green]no node runs[/]")
            return
        what = "rings" if len(rings) > 1 else "ring"
        self._say(f"[bold green]{what} {' | '.join(map(_words, rings))}[/] after {took_s:.1f} s")

    def _watch(self) -> None:
        """Tells of nodes that have ended by themselves."""
        for number, process in list(self.cluster.daemons.processes.items()):
            code = process.poll()
            if code is not None and number not in self.ended and not self._closing:
                self.ended.add(number)
                self._say(f"[bold red]node {number} has ended with exit code {code}[/]")

    # Commands

    def part(self, words: Sequence[str]) -> None:
        sides = [side.replace(",", " ").split() for side in " ".join(words).split("|")]
        self.cluster.part(*[self.numbers(side, "part") for side in sides])
        self.settle()

    def heal(self, words: Sequence[str]) -> None:
        _take_nothing(words, "heal")
        self.cluster.heal()
        self.settle()

    def load(self, words: Sequence[str]) -> None:
        self._stop_load()
        if list(words) == ["off"]:
            return
        rate = _number(words[0] if words else str(RATE), "load: messages a second", RATE_MAX)
        sockets = {number: self.cluster.socket(number) for number in self.cluster.numbers}
        self._load = GroupLoad(sockets, rate, self._tell_load)
        self._load.start()

    def sleep(self, words: Sequence[str]) -> None:
        time.sleep(_number(words[0] if words else "", "sleep: seconds", SLEEP_S_MAX))

    def logs(self, words: Sequence[str]) -> None:
        if list(words) not in (["on"], ["off"]):
            raise TotemError("logs: give on or off")
        self._logs.shown = list(words) == ["on"]

    def status(self, words: Sequence[str]) -> None:
        _take_nothing(words, "status")
        shown = table("node", "state", "ring", "log", "position", "programs", "packets cut off")
        for number in self.cluster.numbers:
            shown.add_row(f"[{colour_of(number)}]node {number}[/]", *self._status_cells(number))
        self._say(shown)

    def _status_cells(self, number: int) -> tuple[str, ...]:
        if not self.cluster.is_running(number):
            return ("[red]does not run[/]",)
        if number in self.cluster.paused:
            return ("[yellow]paused[/]",)
        status = self.cluster.status(number)
        log = status.get("log", {})
        return (
            str(status.get("state", "starting")),
            _words(status.get("members", ())),
            str(log.get("standing", "")),
            f"{log.get('position', 0):,}",
            f"{status.get('clients', {}).get('clients', 0):,}",
            f"{self.cluster.dropped(number):,}",
        )

    def help(self, words: Sequence[str]) -> None:
        _take_nothing(words, "help")
        shown = table("command", "what it does")
        for command in COMMANDS.values():
            shown.add_row(escape(command.usage), command.summary)
        self._say(shown)

    def numbers(self, words: Sequence[str], command: str) -> list[int]:
        """Of nodes; at least one."""
        if not words or not all(word.isascii() and word.isdecimal() for word in words):
            raise TotemError(f"{command}: give the number of a node: {COMMANDS[command].usage}")
        return list(dict.fromkeys(map(int, words)))

    # The load

    def _stop_load(self) -> None:
        if self._load is None:
            return
        load, self._load = self._load, None
        load.stop()
        delivered = _by_node(load.delivered)
        self._say(f"load: {load.sent:,} messages sent; delivered {delivered}; {_verdict(load.difference)}")

    def _tell_load(self, tick: Tick) -> None:
        self._orders_differ |= bool(tick.difference)
        self._say(f"load: delivered in a second {_by_node(tick.delivered)}; {_verdict(tick.difference)}")


def activation(totem: str) -> str:
    """The line that makes `totem` and `python` of this virtual environment known to another terminal. Empty
    if there is none, or if the commands are shown with their paths anyway."""
    script = Path(sys.prefix) / "bin" / "activate"
    is_virtual = sys.prefix != sys.base_prefix and script.exists()
    return f"source {shlex.quote(str(script))}" if totem == "totem" and is_virtual else ""


def _words(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))


def _by_node(counts: Mapping[int, int]) -> str:
    return "  ".join(
        f"[{colour_of(number)}]{number}:[/] {count:,}" for number, count in sorted(counts.items())
    )


def _verdict(difference: str) -> str:
    return f"[bold red]orders differ: {difference}[/]" if difference else "[green]orders equal[/]"


def _number(word: str, what: str, most: int) -> float:
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 0 < value <= most:
        raise TotemError(f"{what}: give a number up to {most:,}")
    return value


def _take_nothing(words: Sequence[str], command: str) -> None:
    if words:
        raise TotemError(f"{command}: takes nothing more")


class Command(NamedTuple):
    usage: str
    summary: str
    run: Callable[[DevSession, Sequence[str]], None]


def _each(command: str, what: Callable[[LocalCluster, int], None]) -> Callable[..., None]:
    """Does it to each node that is named, and then waits for the rings."""

    def run(session: DevSession, words: Sequence[str]) -> None:
        for number in session.numbers(words, command):
            what(session.cluster, number)
            session.ended.discard(number)
        session.settle()

    return run


COMMANDS = {
    "kill": Command("kill 2", "kill -9, as a crash", _each("kill", LocalCluster.kill)),
    "stop": Command("stop 2", "end it gracefully: it leaves the ring", _each("stop", LocalCluster.stop)),
    "start": Command(
        "start 2", "start it again, with what is on its disk", _each("start", LocalCluster.start)
    ),
    "pause": Command("pause 2", "SIGSTOP: a machine that hangs", _each("pause", LocalCluster.pause)),
    "resume": Command("resume 2", "SIGCONT", _each("resume", LocalCluster.resume)),
    "part": Command("part 1 | 2 3", "part the network; nodes not named are a side too", DevSession.part),
    "heal": Command("heal", "make the network whole again", DevSession.heal),
    "load": Command(
        "load [RATE | off]", f"a program at each node sends, {RATE} messages a second in all", DevSession.load
    ),
    "status": Command("status", "how each node is", DevSession.status),
    "logs": Command("logs on | off", "whether the nodes' logs are shown", DevSession.logs),
    "sleep": Command("sleep SECONDS", "wait, in a file of commands", DevSession.sleep),
    "help": Command("help", "this list", DevSession.help),
    "quit": Command("quit", "end the nodes; Ctrl-C and the end of the input do the same", DevSession.help),
}
