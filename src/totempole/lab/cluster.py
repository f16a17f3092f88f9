"""Players on the hosts of a lab, as one cluster: started, led, killed, and judged by their traces."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from totempole.lab.commands import LabError
from totempole.lab.hosts import Host
from totempole.lab.lab import Lab
from totempole.lab.loopback import LoopbackHost, LoopbackLab
from totempole.rrp.config import RedundancyConfig
from totempole.runtime.config import (
    LoggingConfig,
    NetworkConfig,
    NodeConfig,
    Peer,
    SecurityConfig,
    TraceConfig,
)
from totempole.runtime.config_text import print_config
from totempole.srp.config import RingConfig
from totempole.trace.schema import Row
from totempole.types import ProcessorId

RUN = "lab"
ANSWER_S = 20.0
"""How long a player may take to answer; a machine that is busy takes its time."""
SETTLE_S = 60.0


@dataclass(frozen=True, slots=True)
class Setup:
    """How the nodes of a cluster are configured."""

    ring: RingConfig = field(default_factory=RingConfig)
    transport: str = "multicast"
    ipv6: bool = False
    multicast_group: str = ""
    """Of all networks; empty: the default of each."""
    key_file: Path | None = None
    offload: str = "auto"
    trace: str = "off"
    inputs: bool = False
    log_level: str = "warning"
    networks: int = 1
    """Those of the lab that are used, the first ones."""
    redundancy: RedundancyConfig = field(default_factory=RedundancyConfig)
    capacities: tuple[int, ...] = ()
    """Of each network; without them all are equal."""


class PlayerProcess:
    """One player: what it has said so far, and its end."""

    def __init__(self, host: Host | LoopbackHost, config_file: Path) -> None:
        self.host = host
        self.members: tuple[ProcessorId, ...] = ()
        self.views: list[tuple[int, tuple[ProcessorId, ...]]] = []
        """When, on the machine's steady clock, and who."""
        self.ended: dict[str, Any] = {}
        """Its last words, if it left of its own will: what it sent and delivered in this life."""
        self._config_file = config_file
        self._reports: queue.Queue[dict[str, Any]] = queue.Queue()
        self.start()

    def start(self) -> None:
        self.members = ()
        self.ended = {}
        self.errors = open(self._config_file.with_suffix(".log"), "ab")  # noqa: SIM115
        self.process: subprocess.Popen[str] = self.host.popen(
            [sys.executable, "-P", "-m", "totempole.lab.player", str(self._config_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            bufsize=1,
        )
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):  # else it was killed in the middle of a word
                self._take(json.loads(line))

    def _take(self, said: dict[str, Any]) -> None:
        match said["event"]:
            case "view":
                self.members = tuple(said["members"])
                self.views.append((said["at_us"], self.members))
            case "ended":
                self.ended = said
            case _:
                self._reports.put(said)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def log(self) -> str:
        return self._config_file.with_suffix(".log").read_text(encoding="utf-8")

    def tell(self, *words: object) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise LabError(f"player {self.host.number} has ended: {self.log[-2000:]}") from error

    def report(self) -> dict[str, Any]:
        self.tell("report")
        try:
            return self._reports.get(timeout=ANSWER_S)
        except queue.Empty:
            raise LabError(f"player {self.host.number} does not answer: {self.log[-2000:]}") from None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.close()

    def close(self) -> None:
        """Hears out a player that has ended."""
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout, self.errors):
            assert pipe is not None
            with suppress(OSError):  # what was written to it last found nobody there
                pipe.close()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        """Leaves the ring, and waits for that."""
        if self.alive:
            self.signal(signal.SIGCONT)
            self.tell("leave")
        try:
            self.process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise LabError(f"player {self.host.number} did not leave: {self.log[-2000:]}") from None
        self.close()
        if self.process.returncode:
            raise LabError(f"player {self.host.number} failed: {self.log[-2000:]}")


class Cluster:
    """Players on hosts of a lab, by number. Their files are under `directory`."""

    def __init__(
        self,
        lab: Lab | LoopbackLab,
        directory: Path,
        setup: Setup | None = None,
        hosts: Collection[int] | None = None,
        changes: Mapping[int, Setup] | None = None,
    ) -> None:
        """`changes` gives single hosts a setup of their own."""
        self.directory = directory
        self.lab = lab
        self._setup = setup or Setup()
        numbers = sorted(hosts or lab.hosts)
        self._files = {
            number: self._write_config(number, (changes or {}).get(number, self._setup), numbers)
            for number in numbers
        }
        self.players: dict[int, PlayerProcess] = {}

    def __enter__(self) -> Self:
        for number in self._files:
            self.start(number)
        return self

    def __exit__(self, *_: object) -> None:
        for player in self.players.values():
            if player.alive:
                player.kill()
            else:
                player.close()

    def start(self, number: int) -> PlayerProcess:
        if number in self.players:
            self.players[number].start()
        else:
            self.players[number] = PlayerProcess(self.lab.hosts[number], self._files[number])
        return self.players[number]

    def _address(self, number: int, setup: Setup, network: int) -> str:
        host = self.lab.hosts[number]
        return (host.addresses6 if setup.ipv6 else host.addresses)[network]

    def _network(self, number: int, setup: Setup, numbers: Iterable[int], network: int) -> NetworkConfig:
        peers: tuple[Peer, ...] = ()
        if setup.transport == "mesh":
            peers = tuple(Peer(other, self._address(other, setup, network), 5400) for other in numbers)
        return NetworkConfig(
            name=network_name(network) if setup.networks > 1 else "",
            address=self._address(number, setup, network),
            transport=setup.transport,
            multicast_group=setup.multicast_group,
            peers=peers,
            offload=setup.offload,
            capacity=setup.capacities[network] if setup.capacities else 1,
        )

    def _write_config(self, number: int, setup: Setup, numbers: Iterable[int]) -> Path:
        networks = [self._network(number, setup, numbers, network) for network in range(setup.networks)]
        config = NodeConfig(
            processor=number,
            directory=self.directory / f"node-{number}",
            network=networks[0],
            more_networks=tuple(networks[1:]),
            redundancy=setup.redundancy,
            security=SecurityConfig(key_file=setup.key_file, unsealed=setup.key_file is None),
            ring=setup.ring,
            trace=TraceConfig(
                level=setup.trace, directory=self.trace_directory, run=RUN, inputs=setup.inputs
            ),
            logging=LoggingConfig(level=setup.log_level),
        )
        file = self.directory / f"node-{number}.toml"
        file.write_text(print_config(config), encoding="utf-8")
        return file

    @property
    def trace_directory(self) -> Path:
        return self.directory / "trace"

    # Leading

    def tell(self, *words: object, numbers: Collection[int] | None = None) -> None:
        for number in numbers or [number for number, player in self.players.items() if player.alive]:
            self.players[number].tell(*words)

    def part(self, groups: Collection[Collection[int]]) -> None:
        """On loopback: only players of one group hear each other. One group of all makes it whole again."""
        for group in groups:
            for number in group:
                others = [other for other in self.players if other not in group]
                self.players[number].tell("cut", *(self.lab.hosts[other].address for other in others))

    def fits(self, groups: Collection[Collection[int]]) -> bool:
        """Whether each group is a configuration of its own."""
        return all(self.players[number].members == members for number, members in _by_member(groups).items())

    def wait_for(self, groups: Collection[Collection[int]], timeout_s: float = SETTLE_S) -> float:
        """Waits until each group is a configuration of its own; gives the seconds that it took."""
        wanted = _by_member(groups)
        started_s = time.monotonic()
        while time.monotonic() - started_s < timeout_s:
            if self.fits(groups):
                return time.monotonic() - started_s
            time.sleep(0.005)
        seen = {number: self.players[number].members for number in wanted}
        logs = "\n".join(f"--- {number}\n{self.players[number].log[-1500:]}" for number in wanted)
        raise LabError(f"after {timeout_s} s the configurations are {seen}, not {wanted}\n{logs}")

    def wait_whole(self, timeout_s: float = SETTLE_S) -> float:
        return self.wait_for([[number for number, player in self.players.items() if player.alive]], timeout_s)

    def reports(self, numbers: Collection[int] | None = None) -> dict[int, dict[str, Any]]:
        alive = numbers or [number for number, player in self.players.items() if player.alive]
        return {number: self.players[number].report() for number in alive}

    def end(self) -> None:
        """All leave, one after the other."""
        for player in self.players.values():
            if player.alive:
                player.end()

    # Judging

    def trace(self) -> list[Row]:
        from totempole.trace.reader import read_trace  # and with it pyarrow, which not every cluster needs

        return read_trace(self.trace_directory)


def with_ring(setup: Setup, **settings: Any) -> Setup:
    return replace(setup, ring=replace(setup.ring, **settings))


def network_name(network: int) -> str:
    """In the nodes' configurations: a, b, c."""
    return chr(ord("a") + network)


def _by_member(groups: Collection[Collection[int]]) -> dict[int, tuple[int, ...]]:
    return {number: tuple(sorted(group)) for group in groups for number in group}
