"""`totem dev`: real nodes led by lines of text, what it shows, and that nothing is left behind."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from daemons import wait_until
from totempole import blocking
from totempole.cli import main
from totempole.cli.dev import DevSession
from totempole.cli.dev_load import Orders
from totempole.cli.dev_terminal import Terminal, log_line
from totempole.cli.output import Screen
from totempole.lab.local_cluster import LocalCluster

LIMIT_S = 120

STORY = """\
load 60
sleep 1.2
part 1 | 2 3          # both sides go on
sleep 1.2
status
heal
kill 2
start 2
pause 3
resume 3
load off
stop 1
status
"""


def dev(directory: Path, *arguments: str, script: str) -> subprocess.CompletedProcess[str]:
    """As a program would lead it; its temporary files are under `directory`."""
    return subprocess.run(
        [sys.executable, "-m", "totempole", "dev", *arguments],
        input=script,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=os.environ | {"TMPDIR": str(directory)},
    )


@contextmanager
def running(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", "totempole", "dev", *arguments]
    environment = os.environ | {"TMPDIR": str(directory)}
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=_interruptible,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def _interruptible() -> None:
    """Who runs in the background of a shell inherits that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def processes_of(directory: Path) -> list[str]:
    """Those that have its name on their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in words and process.name != str(os.getpid()):
            found.append(words)
    return found


@pytest.fixture
def place() -> Iterator[Path]:
    """A short name: sockets have room for 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dev-") as found:
        yield Path(found)


@pytest.mark.nodes
def test_a_story_of_faults(place: Path) -> None:
    done = dev(place, "--nodes", "3", script=STORY)
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    rings = re.findall(r"^(rings? .*?) after", said, re.MULTILINE)
    assert rings == [
        "ring 1 2 3",
        "rings 1 | 2 3",
        "ring 1 2 3",
        "ring 1 3",
        "ring 1 2 3",
        "ring 1 2",
        "ring 1 2 3",
        "ring 2 3",
    ]
    assert re.search(r"export TOTEMPOLE_SOCKET=\S+/node-3/clients.sock", said)
    assert re.search(r"^node 2 │ [\d:.]+ regular configuration ring=\S+ members=2,3$", said, re.MULTILINE)
    assert re.search(
        r"^load: delivered in a second 1: \d+  2: \d+  3: \d+; orders equal$", said, re.MULTILINE
    )
    assert re.search(r"^node 1 +operational +1 +minority ", said, re.MULTILINE)
    assert re.search(r"^node 2 +operational +2 3 +primary .* [1-9]\d* *$", said, re.MULTILINE), (
        "nothing was cut"
    )
    assert re.search(r"^node 1 +does not run", said, re.MULTILINE)
    assert done.stderr == ""
    assert list(place.iterdir()) == []
    assert processes_of(place) == []


@pytest.mark.nodes
def test_state_stays_in_a_directory_that_is_named(place: Path) -> None:
    directory = place / "kept"
    socket = directory / "node-1" / "clients.sock"
    with running(place, "--nodes", "1", "--directory", str(directory)) as first:
        assert first.stdin is not None
        wait_until(socket.exists)
        with blocking.connect(str(socket)) as session, session.log("orders") as log:
            log.append(b"paid")
        first.communicate("quit\n", timeout=LIMIT_S)
    assert first.returncode == 0
    assert processes_of(place) == []
    again = dev(place, "--nodes", "1", "--directory", str(directory), script="status\n")
    assert re.search(r"^node 1 +operational +1 +primary +1 ", again.stdout, re.MULTILINE), again.stdout


@pytest.mark.nodes
@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_all_of_it(place: Path, how: signal.Signals, code: int) -> None:
    with running(place, "--nodes", "2") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ring 1 2 after"):
                break
        assert processes_of(place)
        process.send_signal(how)
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == code
    assert list(place.iterdir()) == []
    assert processes_of(place) == []


@pytest.mark.nodes
def test_a_command_that_cannot_be_carried_out_ends_a_script(place: Path) -> None:
    done = dev(place, "--nodes", "1", script="explode 1\nstatus\n")
    assert done.returncode == 2
    assert "explode: there is no such command: give kill, stop," in done.stdout
    assert "operational" not in done.stdout


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("kill", "kill: give the number of a node: kill 2"),
        ("kill 2", "there is no node 2"),
        ("kill 1", "node 1 does not run"),
        ("part 1 | x", "part: give the number of a node: part 1 | 2 3"),
        ("load 1e9", "load: messages a second: give a number up to 2,000"),
        ("heal 1", "heal: takes nothing more"),
        ("logs", "logs: give on or off"),
    ],
)
def test_a_command_that_makes_no_sense(
    place: Path, line: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = LocalCluster(1, place)
    session = DevSession(cluster, Terminal(Screen(), io.StringIO(f"{line}\n")))
    assert session.obey(strict=True) == 2
    session.close()
    cluster.close()
    assert says in capsys.readouterr().out


def test_help_has_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {usage}  " in text for usage in ("kill 2      ", "part 1 | 2 3", "load [RATE | off]"))


# The load


def test_orders_that_agree_on_what_both_have_are_equal() -> None:
    orders = Orders([1, 2, 3])
    for number, messages in ((1, "abcf"), (2, "bcdf"), (3, "de")):
        for message in messages:
            orders.add(number, (0, ord(message)))
    assert orders.difference() == ""


def test_orders_that_differ_are_noticed() -> None:
    orders = Orders([1, 2, 3])
    for number, messages in ((1, "ab"), (2, "xyz"), (3, "bxa")):
        for message in messages:
            orders.add(number, (0, ord(message)))
    assert (
        orders.difference() == "node 3 has message 98 of node 0 before message 97 of node 0, and node 1 not"
    )


def test_a_message_that_came_twice_is_noticed() -> None:
    orders = Orders([1, 2])
    for number, messages in ((1, "ab"), (2, "abb")):
        for message in messages:
            orders.add(number, (0, ord(message)))
    assert orders.difference()


# What is shown


def test_a_line_of_a_log() -> None:
    line = "2026-01-02T03:04:05.678Z warning log minority processor=2 members=2"
    assert log_line(2, line).plain == "node 2 │ 03:04:05.678 warning: log minority members=2"
    assert log_line(2, "2026-01-02T03:04:05.678Z info    left the ring processor=2").plain.endswith(
        "left the ring"
    )
    assert log_line(1, "Traceback").plain == "node 1 │ Traceback"
