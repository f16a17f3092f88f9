"""Daemons on the hosts of a lab: `totem node` as its users run it, started, killed, ended, and watched."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Self

from totempole.lab.cluster import Cluster, Setup
from totempole.lab.commands import LabError
from totempole.lab.lab import Lab
from totempole.lab.loopback import LoopbackLab
from totempole.runtime.control import FilterRequest, ask_node
from totempole.runtime.status import StatusError, is_operational, read_status
from totempole.trace.schema import Row

SETTLE_S = 60.0
END_S = 60.0
"""How long a daemon may take to leave; a machine that is busy takes its time."""
PAUSE_S = 0.02
LOG_SHOWN = 2_000


class Daemons:
    """`totem node` on each host, by number. Their files are under `directory`.

    `settings` go before what their configuration files say, as `totem node --set` takes them; they may have
    `{address}` in them, for the host's.
    """

    def __init__(
        self,
        lab: Lab | LoopbackLab,
        directory: Path,
        setup: Setup | None,
        hosts: Collection[int] | None = None,
        settings: Collection[str] = (),
        *,
        filtered: bool = False,
    ) -> None:
        """Without a setup the configurations are there already. `filtered`: on loopback, each has a packet
        filter (`cut`), runs in a session of its own, and leaves when this process ends."""
        directory.mkdir(parents=True, exist_ok=True)
        if setup is not None:
            Cluster(lab, directory, setup, hosts)  # only writes the configurations
        self._trace = directory / "trace"
        self._filtered = filtered
        self._cuts: dict[int, tuple[str, ...]] = {}
        self.lab = lab
        self.directory = directory
        self.numbers = sorted(hosts or lab.hosts)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        """Those that run."""
        self.environments: dict[int, dict[str, str]] = {}
        """What a daemon finds in its environment beside what is in that of this process."""
        self._settings = settings

    def __enter__(self) -> Self:
        try:
            for number in self.numbers:
                self.start(number)
            self.wait_for(self.numbers)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """At once."""
        for number in list(self.processes):
            self.kill(number)

    # One of them

    def start(self, number: int) -> None:
        argv = [sys.executable, "-P", "-m", "totempole", "node", "--config", str(self.file(number))]
        for setting in self._settings_of(number):
            argv += ["--set", setting]
        if self._filtered:
            argv += ["--lab", *self._cuts.get(number, ())]
        with self._log(number).open("ab") as log:
            self.processes[number] = self.lab.hosts[number].popen(
                argv,
                stdin=subprocess.PIPE if self._filtered else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self.environments.get(number, {}),
                start_new_session=self._filtered,
            )

    def _settings_of(self, number: int) -> list[str]:
        address = self.lab.hosts[number].address
        return [setting.format(address=address) for setting in self._settings]

    def kill(self, number: int) -> None:
        process = self.processes.pop(number)
        process.kill()
        _reap(process)

    def end(self, number: int) -> None:
        """It leaves the ring; LabError if it does not."""
        process = self.processes[number]
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise LabError(f"the daemon of host {number} did not leave: {self.said(number)}") from None
        _reap(self.processes.pop(number))
        if code:
            raise LabError(f"the daemon of host {number} ended with {code}: {self.said(number)}")

    def signal(self, number: int, what: signal.Signals) -> None:
        self.processes[number].send_signal(what)

    def cut(self, number: int, addresses: Collection[str]) -> None:
        """From here on the daemon hears nothing from these addresses, and everything from others. A daemon
        that does not run will start like this."""
        self._cuts[number] = tuple(addresses)
        if number in self.processes:
            ask_node(self.home(number), FilterRequest(self._cuts[number]))

    def file(self, number: int) -> Path:
        return self.directory / f"node-{number}.toml"

    def home(self, number: int) -> Path:
        """Its own directory."""
        return self.directory / f"node-{number}"

    def socket(self, number: int) -> Path:
        """For its programs."""
        for setting in self._settings_of(number):
            name, _, value = setting.partition("=")
            if name == "clients.socket":
                return Path(value)
        return self.home(number) / "clients.sock"

    def _log(self, number: int) -> Path:
        return self.directory / f"daemon-{number}.log"

    def log(self, number: int) -> str:
        return self._log(number).read_text(encoding="utf-8", errors="replace")

    def said(self, number: int) -> str:
        """The end of its log."""
        return self.log(number)[-LOG_SHOWN:].strip()

    def status(self, number: int) -> dict[str, Any]:
        """Empty when there is no answer."""
        try:
            return read_status(self.home(number))
        except StatusError:
            return {}

    def resident_bytes(self, number: int) -> int:
        pages = Path(f"/proc/{self.processes[number].pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * resource.getpagesize()

    def peak_resident_bytes(self, number: int) -> int:
        """The most that it ever had."""
        status = Path(f"/proc/{self.processes[number].pid}/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def cpu_s(self, number: int) -> float:
        text = Path(f"/proc/{self.processes[number].pid}/stat").read_text(encoding="ascii")
        user, system = text.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    # All of them

    def wait_for(self, *groups: Collection[int], timeout_s: float = SETTLE_S) -> None:
        """Until each group of hosts is a ring of its own; LabError when one of them ends meanwhile."""
        wanted = {number: sorted(group) for group in groups for number in group}
        give_up_s = time.monotonic() + timeout_s
        while not all(self._is_in(number, group) for number, group in wanted.items()):
            for number in wanted:
                if number not in self.processes or self.processes[number].poll() is not None:
                    raise LabError(f"the daemon of host {number} has ended: {self.said(number)}")
            if time.monotonic() > give_up_s:
                seen = {number: self.status(number).get("members") for number in wanted}
                said = self.said(next(iter(wanted)))
                raise LabError(f"after {timeout_s} s the rings are {seen}, not {wanted}: {said}")
            time.sleep(PAUSE_S)

    def _is_in(self, number: int, group: list[int]) -> bool:
        status = self.status(number)
        return is_operational(status) and status["members"] == group

    def trace(self) -> list[Row]:
        from totempole.trace.reader import read_trace  # and with it pyarrow, which not every cluster needs

        return read_trace(self._trace)

    @property
    def recordings(self) -> list[Path]:
        """Of their inputs, if the setup asks for them."""
        return sorted(self._trace.rglob("inputs-*.totem"))


def _reap(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
