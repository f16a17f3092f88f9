"""`totem node` and `totem status`: settings, checks, signals, systemd, and a node that really runs."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority
from daemons import wait_until
from status_document import healthy
from totempole.cli import main
from totempole.cli import status as status_command
from totempole.cli.output import Screen
from totempole.log.segments import Header
from totempole.runtime import daemon, keyring, logs
from totempole.runtime.config import NetworkConfig, NodeConfig, SecurityConfig
from totempole.runtime.status import SOCKET_NAME, StatusError, StatusServer, read_status

LIMIT_S = 60
LOGGER = logging.getLogger("totempole.test.node")


def free_port() -> int:
    """A UDP port of loopback that is free, with the one after it."""
    while True:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as first,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as second,
        ):
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(
        'processor = 1\ndirectory = "state"\n'
        f'[network]\naddress = "127.0.0.1"\nport = {free_port()}\n[security]\nunsealed = true\n'
    )
    return path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], Path]]:
    servers = []

    def serve(document: dict[str, Any]) -> Path:
        servers.append(StatusServer(tmp_path, lambda: document, LOGGER))
        return tmp_path

    yield serve
    for server in servers:
        server.close()


# Settings


def test_the_printed_settings_are_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "--print-config"]) == 0
    assert "\nport = 5400\n" in capsys.readouterr().out


def test_the_effective_settings(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "--config", str(file), "--set", "processor=9", "--print-config"]) == 0
    text = capsys.readouterr().out
    assert "\nprocessor = 9\n" in text
    file.write_text(text)
    assert NodeConfig.load(file).processor == 9


def test_a_short_file_is_six_lines_and_runs_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {}
    port = free_port()
    for number in (1, 2):
        words = ["--set", f"processor={number}", "--set", f"network.address=127.0.0.{number}"]
        assert main(["node", "--print-config", "--short", *words, "--set", f"network.port={port}"]) == 0
        files[number] = tmp_path / f"node-{number}.toml"
        files[number].write_text(capsys.readouterr().out)
    assert files[2].read_text().splitlines() == [
        "processor = 2",
        'directory = "node-2"',
        "[network]",
        'address = "127.0.0.2"',
        f"port = {port}",
        "[security]",
        "unsealed = true",
    ]
    argv = [sys.executable, "-m", "totempole", "node", "--config"]
    with ExitStack() as stack:
        for file in files.values():
            running = subprocess.Popen([*argv, str(file)], stderr=subprocess.DEVNULL)
            stack.callback(running.wait)
            stack.callback(running.kill)
        wait_until(lambda: ring_of(tmp_path / "node-1") == ring_of(tmp_path / "node-2") == [1, 2])


def ring_of(directory: Path) -> list[int]:
    try:
        return list(read_status(directory)["members"])
    except StatusError:
        return []


def test_the_shortest_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "--print-config", "--short"]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) == 6
    assert tomllib.loads(text) == {
        "processor": 1,
        "directory": "node-1",
        "network": {"address": "127.0.0.1"},
        "security": {"unsealed": True},
    }


def test_a_short_file_of_given_settings_has_what_differs(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--set", "expected=3", "--set", "logging.level=debug"]
    assert main(["node", "--config", str(file), *words, "--print-config", "--short"]) == 0
    text = capsys.readouterr().out
    assert "expected = 3\n" in text
    assert text.endswith('[logging]\nlevel = "debug"\n')
    again = file.with_name("again.toml")
    again.write_text(text)
    assert NodeConfig.load(again) == NodeConfig.load(
        file, ["expected=3", "logging.level=debug"], places=False
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["node", "--short"], "totem: node: --short goes with --print-config"),
        (["node"], "totem: node: --config FILE is missing"),
        (["node", "--config", "/no/such.toml"], "totem: /no/such.toml: no such file"),
        (["status", "--directory", "/no/such"], "totem: /no/such/status.sock: no such socket: no node runs"),
        (["status", "--config", "a", "--directory", "b"], "totem: status: give --config or --directory"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    found = capsys.readouterr()
    assert found.err.startswith(problem)
    assert found.err.count("\n") == 1


# --check


def test_a_check_says_what_would_be_opened(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["node", "--config", str(file), "--check"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "1 of cluster 1, classic ring" in text
    assert "UDP 127.0.0.1 port" in text
    assert "whoever reaches the ports can forge messages" in text
    assert "Ready to run." in text
    assert not (tmp_path / "state").exists()


def test_a_check_looks_at_the_log(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["node", "--config", str(file), "--check"]
    assert main(words) == 0
    assert "log off" in " ".join(capsys.readouterr().out.split())
    file.write_text(file.read_text() + "[log]\nenabled = true\nreplicas = [1, 2, 3]\n")
    assert main(words) == 0
    assert "empty; replicas: 1, 2, 3" in " ".join(capsys.readouterr().out.split())
    directory = tmp_path / "state" / "log"
    directory.mkdir(parents=True)
    header = Header(7, 1, 5, 6, 1, 1, 0, 0, 0, 0)
    (directory / "000000000001.segment").write_bytes(header.pack())
    assert main(words) == 2
    text = " ".join(capsys.readouterr().out.split())
    assert "holds the log of processor = 7" in text
    assert "Not ready to run." in text


def test_a_check_reads_the_keys(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keyring.create(tmp_path / "totem.key")
    file.write_text(file.read_text().replace("unsealed = true", 'key_file = "totem.key"'))
    assert main(["node", "--config", str(file), "--check"]) == 0
    assert "totem.key: key 1 active" in " ".join(capsys.readouterr().out.split())


def test_a_check_names_what_stands_against_it(file: Path, tmp_path: Path) -> None:
    (tmp_path / "totem.key").write_text("no key\n")
    (tmp_path / "totem.key").chmod(0o600)
    (tmp_path / "state").write_text("")
    file.write_text(file.read_text().replace("unsealed = true", 'key_file = "totem.key"'))
    port = NodeConfig.load(file, ["directory=other"]).network.port
    out = tmp_path / "check.json"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", port + 1))
        assert main(["node", "--config", str(file), "--check", "--json", str(out)]) == 2
    found = json.loads(out.read_text())
    problems = {row["what"]: row["problem"] for row in found["findings"] if row["problem"]}
    assert found["holds"] is False
    assert "it is a file: name a directory" in problems["places"]
    assert f"{tmp_path / 'totem.key'}, line 1" in problems["seal"]
    assert f"UDP port {port + 1}: Address already in use" in problems["sockets"]


def test_a_check_resolves_the_peers(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mesh = ["--set", "network.transport=mesh", "--set", 'network.peers=["2@127.0.0.2"]']
    assert (
        main(["node", "--config", str(file), *mesh, "--set", "network.peers_dns=localhost", "--check"]) == 0
    )
    text = " ".join(capsys.readouterr().out.split())
    assert "2@127.0.0.2:" in text
    assert "localhost: 127.0.0.1" in text


TLS = 'tls_certificate = "no.pem"\ntls_key = "no.pem"\ntls_authorities = "no.pem"\n'


@pytest.mark.parametrize(
    ("clients", "problem"),
    [
        ('users = ["nobody-such"]', 'users = ["nobody-such"]: this host knows no such user'),
        (f'listen = "127.0.0.1:5410"\n{TLS}', "No such file or directory; give a certificate and its key"),
        ('socket = "node.toml"', "node.toml: it is there and is no socket; remove it, or choose another"),
        ('socket = "no/such.sock"', "No such file or directory; choose another with the setting socket"),
    ],
    ids=["users", "tls", "socket", "directory of the socket"],
)
def test_clients_that_could_never_be_let_in_are_found_before_the_ring_is_joined(
    clients: str, problem: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the node joins, finds out, stops, and is started again by its supervisor, for ever."""
    file.write_text(f"{file.read_text()}[clients]\n{clients}\n")
    out = tmp_path / "check.json"
    assert main(["node", "--config", str(file), "--check", "--json", str(out)]) == 2
    problems = {row["what"]: row["problem"] for row in json.loads(out.read_text())["findings"]}
    assert problem in problems["clients"]
    capsys.readouterr()
    assert main(["node", "--config", str(file)]) == 2
    said = capsys.readouterr().err
    assert problem in said
    assert "configuration" not in said  # of a ring


def test_ports_that_are_taken_are_found_before_the_ring_is_joined(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("daemon")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = file.read_text()
        clients = (
            f'[clients]\nlisten = "{{listen}}"\ntls_certificate = "{certificate}"\ntls_key = "{key}"\n'
            f'tls_authorities = "{authority.path}"\n'
        )
        metrics = f"[metrics]\nport = {taken.getsockname()[1]}\n"
        log = f'[log]\nenabled = true\nlisten = "{place}"\n'
        for what, more, stops in (
            ("clients", clients.format(listen=place), True),
            ("metrics", metrics, True),
            ("log", clients.format(listen="127.0.0.1:0") + log, False),
        ):
            file.write_text(settings + more)
            out = tmp_path / "check.json"
            assert main(["node", "--config", str(file), "--check", "--json", str(out)]) == 2
            problems = {row["what"]: row["problem"] for row in json.loads(out.read_text())["findings"]}
            assert [name for name, text in problems.items() if "Address already in use" in text] == [what]
            capsys.readouterr()
            if stops:  # without its log service a node goes on, and tries again
                assert main(["node", "--config", str(file)]) == 2
                said = capsys.readouterr().err
                assert "Address already in use" in said
                assert "configuration" not in said


@pytest.mark.parametrize(
    ("section", "what"),
    [
        ('[log]\nenabled = true\ndirectory = "node.toml/log"', "log"),
        ('[trace]\nlevel = "delivery"\ndirectory = "node.toml/trace"', "trace"),
    ],
    ids=["log", "trace"],
)
def test_directories_that_cannot_be_made_are_found(
    section: str, what: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(f"{file.read_text()}{section}\n")
    assert main(["node", "--config", str(file), "--check"]) == 2
    text = " ".join(capsys.readouterr().out.split())
    assert f"node.toml/{what}" in text.replace(" ", "")
    assert "is a file: name a directory" in text


def test_a_check_ends_as_the_node_would(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An address that is not there yet may come: both say 3, on which a supervisor tries again."""
    words = ["node", "--config", str(file), "--set", "network.address=198.51.100.7"]
    assert main([*words, "--check"]) == 3
    assert main(words) == 3
    assert "no interface of this host has it" in capsys.readouterr().err


def test_a_check_leaves_a_running_nodes_sockets_alone(
    file: Path, served: Callable[[dict[str, Any]], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    directory = served(healthy())
    assert main(["node", "--config", str(file), "--set", f"directory={directory}", "--check"]) == 0
    assert "not tried: a node with this directory is running" in " ".join(capsys.readouterr().out.split())


# Status


def test_the_page(served: Callable[[dict[str, Any]], Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--directory", str(served(healthy()))]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for part in (
        "node 1 of cluster 7, up 1 h 2 min, totempole 0.1.0",
        "state operational",
        "ring 12@1, classic, installed 1 min 30 s ago; 3 configuration changes",
        "members 1 2 3",
        "multicast at 10.0.0.1 port 5400, datagrams of 1,472 bytes, offload send and receive",
        "seal key 1 active, key 2 accepted too",
        "rotation last 180 µs, median 200 µs, 99 % below 500 µs, longest 12.3 ms",
        "rates 142,000 messages/s, 95.0 MB/s",
        "queues 3 of 300 packets wait for the token, 17,000 bytes for a packet",
        "timeouts token loss 100 ms",
        "dropped none",
    ):
        assert part in text
    assert "!" not in text


def test_the_page_warns(served: Callable[[dict[str, Any]], Path], capsys: pytest.CaptureFixture[str]) -> None:
    document = healthy() | {
        "state": "gather",
        "sealed": False,
        "offload": {"send": False, "receive": True, "reason": "UDP_SEGMENT: Protocol not available"},
        "dropped": {"cluster": 12, "stale join": 3},
        "kernel_refused": {"ENETUNREACH": 1_234},
        "lag": {"alarms": 2},
        "receive_buffer_bytes": {"asked": 8_388_608, "got": 212_992, "window": 212_992},
    }
    assert main(["status", "--directory", str(served(document))]) == 1
    text = " ".join(capsys.readouterr().out.split())
    for part in (
        "! not operational: gather",
        "! unsealed: whoever reaches",
        "! no UDP offload: UDP_SEGMENT: Protocol not available",
        "! packets dropped, cluster: another cluster uses this network and port",
        "! 1,234 packets not sent, ENETUNREACH: the kernel refused them",
        "! event loop lag, 2 times",
        "! receive buffers are smaller than asked for: raise net.core.rmem_max",
        "dropped cluster 12, stale join 3",
    ):
        assert part in text


def test_a_document_that_says_little_is_shown(
    served: Callable[[dict[str, Any]], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--directory", str(served({}))]) == 1
    assert "unknown" in capsys.readouterr().out


def test_the_document_as_it_is(
    served: Callable[[dict[str, Any]], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--directory", str(served(healthy())), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == healthy()


def with_expected(present: int, count: int = 3) -> dict[str, Any]:
    absent = [
        {"processor": 3, "address": "10.0.0.3:5400", "met": False},
        {"processor": 2, "address": "", "met": True},
    ]
    expected = {"count": count, "processors": [1, 2, 3], "present": present, "missing": count - present}
    members = [1, 2, 3][:present]
    return healthy() | {
        "members": members,
        "expected": expected | {"absent": absent[: 3 - present], "for_s": 61},
    }


@pytest.mark.parametrize(("present", "codes"), [(3, [0, 0, 0]), (2, [3, 0, 0]), (1, [3, 3, 0])])
def test_the_exit_code_tells_one_of_three_from_three_of_three(
    present: int, codes: list[int], served: Callable[[dict[str, Any]], Path]
) -> None:
    words = ["status", "--directory", str(served(with_expected(present)))]
    assert main(words) == codes[0]
    assert [main([*words, "--need", need]) for need in ("all", "majority", "one")] == codes


def test_a_ring_that_is_being_formed_is_not_enough_for_anybody(
    served: Callable[[dict[str, Any]], Path],
) -> None:
    words = ["status", "--directory", str(served(with_expected(3) | {"state": "gather"}))]
    assert [main([*words, "--need", need]) for need in ("all", "majority", "one")] == [1, 1, 1]


def test_the_page_names_who_is_missing(
    served: Callable[[dict[str, Any]], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["status", "--directory", str(served(with_expected(1)))])
    text = " ".join(capsys.readouterr().out.split())
    assert "members 1; 1 of 3 expected" in text
    assert (
        "! 2 of 3 expected members are missing, for 1 min 1 s: 3 at 10.0.0.3:5400, never met; 2 at an "
        "unknown address" in text
    )


def test_the_settings_name_the_directory(
    file: Path, tmp_path: Path, served: Callable[[dict[str, Any]], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(file.read_text().replace('"state"', f'"{served(healthy())}"'))
    assert main(["status", "--config", str(file)]) == 0
    assert "12@1" in capsys.readouterr().out


def test_watching_goes_on_until_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    answers: list[Any] = [StatusError("nobody answers"), healthy() | {"state": "gather"}, healthy()]

    def read() -> dict[str, Any]:
        answer = answers.pop(0)
        if isinstance(answer, StatusError):
            raise answer
        return dict(answer)

    def pause(_seconds: float) -> None:
        if not answers:
            raise KeyboardInterrupt

    assert status_command.watch(Screen(), read, pause) == 0
    text = capsys.readouterr().out
    assert [text.count(word) for word in ("nobody answers", "state ", "not operational: gather")] == [1, 2, 1]
    assert "12@1" in text


def test_watching_pauses_as_long_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """SRP_DEBUG_TIMEOUT of appendix A: seconds between status printouts."""
    paused: list[float] = []

    def watch(*_: Any, every_s: float, need: str) -> int:
        paused.append(every_s)
        return 0

    monkeypatch.setattr(status_command, "watch", watch)
    assert main(["status", "--watch"]) == main(["status", "--watch", "500"]) == 0
    assert paused == [status_command.WATCH_S, 500.0]
    assert main(["status", "--watch", "0"]) == 2


# Signals and systemd, with a service that only waits


class Waiting:
    """Runs until it is told to stop; notes what it is told."""

    def __init__(self, on_start: Callable[[], None] = lambda: None) -> None:
        self.told: list[str] = []
        self._on_start = on_start
        self._told = threading.Event()

    def run(self) -> int:
        self._on_start()
        while "stop" not in self.told:
            assert self._told.wait(LIMIT_S)
            self._told.clear()
        return 0

    def stop(self) -> None:
        self.told.append("stop")
        self._told.set()

    def reload(self) -> None:
        self.told.append("reload")
        self._told.set()
        os.kill(os.getpid(), signal.SIGTERM)

    def snapshot(self) -> dict[str, Any]:
        return healthy() | {"expected": {"count": 4, "present": 3}}

    network_requests = None
    log_requests = None
    packet_filter = None


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    return NodeConfig(
        processor=1,
        directory=tmp_path,
        network=NetworkConfig(address="127.0.0.1"),
        security=SecurityConfig(unsealed=True),
    )


def test_signals_reach_the_service_and_all_is_put_back(config: NodeConfig) -> None:
    before = [signal.getsignal(number) for number in daemon.SIGNALS]
    threads = threading.active_count()

    def start() -> None:
        assert read_status(config.directory) == service.snapshot()
        os.kill(os.getpid(), signal.SIGHUP)

    service = Waiting(start)
    stream = io.StringIO()
    logger = logs.start_logging("info", "text", stream)
    try:
        assert daemon.run_daemon(service, config, logger) == 0
    finally:
        logs.stop_logging()
    assert service.told == ["reload", "stop"]
    assert stream.getvalue().endswith("info    stopping signal=SIGTERM how=gracefully\n")
    assert [signal.getsignal(number) for number in daemon.SIGNALS] == before
    assert signal.set_wakeup_fd(-1) == -1
    assert threading.active_count() == threads
    assert not (config.directory / SOCKET_NAME).exists()


def test_a_signal_that_comes_while_handlers_are_set_is_not_lost(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that was told to stop in its first moment ran on, and its supervisor waited for it."""
    real, fired = signal.signal, []

    def set_and_raise(number: int, handler: Any) -> Any:
        old = real(number, handler)
        if number == signal.SIGTERM and not fired:
            fired.append(number)
            signal.raise_signal(number)
        return old

    told = threading.Event()
    service = Waiting(lambda: None)
    monkeypatch.setattr(service, "stop", told.set)
    monkeypatch.setattr(signal, "signal", set_and_raise)
    with daemon.taking_signals(service, LOGGER):
        assert told.wait(5)
    assert fired


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told(
    config: NodeConfig, tmp_path: Path, abstract: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"@{tmp_path}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{tmp_path}" if abstract else name)
        listener.settimeout(LIMIT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        told = []

        def start() -> None:
            told.extend([listener.recv(1000), listener.recv(1000)])
            os.kill(os.getpid(), signal.SIGTERM)

        assert daemon.run_daemon(Waiting(start), config) == 0
        told.append(listener.recv(1000))
    line = b"STATUS=ring 12@1, members 1, 2, 3; 3 of 4 expected"
    assert told == [line, b"READY=1", b"STOPPING=1"]


@pytest.mark.parametrize("address", ["", "relative", "/no/such/socket"])
def test_a_supervisor_that_is_not_there_does_not_matter(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not daemon.notify("READY=1")


def test_asked_a_third_time_the_process_ends_where_it_is(tmp_path: Path) -> None:
    program = (
        "import logging, os, signal, threading\n"
        "from totempole.runtime import daemon\n"
        "class Deaf:\n"
        "    def stop(self): print('stop', flush=True); os.kill(os.getpid(), signal.SIGTERM)\n"
        "with daemon.taking_signals(Deaf(), logging.getLogger('totempole')):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    threading.Event().wait()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "stop\nstop\n")


# A node that really runs


class Node:
    """A process that runs `totem node`."""

    def __init__(self, file: Path, log: Path) -> None:
        self.directory = file.parent / "state"
        self.log = log
        command = [sys.executable, "-m", "totempole", "node", "--config", str(file)]
        with log.open("w") as stream:
            self.process = subprocess.Popen(command, stderr=stream)

    def wait_for(self, happened: Callable[[], bool]) -> None:
        end_s = time.monotonic() + LIMIT_S
        while not happened():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end_s, self.log.read_text()
            time.sleep(0.02)

    def is_operational(self) -> bool:
        try:
            return bool(read_status(self.directory).get("state") == "operational")
        except StatusError:
            return False


@pytest.fixture
def node(file: Path, tmp_path: Path) -> Iterator[Node]:
    keyring.create(tmp_path / "totem.key")
    file.write_text(file.read_text().replace("unsealed = true", 'key_file = "totem.key"'))
    node = Node(file, tmp_path / "log")
    yield node
    if node.process.poll() is None:
        node.process.kill()
    node.process.wait()


def test_a_node_runs_tells_reloads_and_leaves(
    node: Node, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node.wait_for(node.is_operational)
    assert main(["status", "--config", str(file)]) == 0
    assert "key 1 active" in capsys.readouterr().out
    keyring.add(file.parent / "totem.key")
    node.process.send_signal(signal.SIGHUP)
    node.wait_for(lambda: read_status(node.directory)["key_ids"] == [1, 2])
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(LIMIT_S) == 0
    assert "left the ring" in node.log.read_text()
    assert main(["status", "--config", str(file)]) == 2
    assert "no node runs in this directory" in capsys.readouterr().err


@pytest.mark.nodes
def test_a_second_node_in_the_same_directory_is_refused(node: Node, file: Path) -> None:
    node.wait_for(node.is_operational)
    command = [sys.executable, "-m", "totempole", "node", "--config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("totem: ")
    assert node.is_operational()


@pytest.mark.nodes
def test_a_killed_node_leaves_a_socket_that_says_so(
    node: Node, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node.wait_for(node.is_operational)
    node.process.kill()
    node.process.wait()
    assert main(["status", "--config", str(file)]) == 2
    assert "nobody answers: the node is gone, killed perhaps" in capsys.readouterr().err
