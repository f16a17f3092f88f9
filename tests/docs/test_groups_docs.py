"""What groups.md, security.md and the README say about groups: the programs run, the numbers are true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemons import LIMIT_S, PATIENT, Cluster, cluster, wait_until
from totempole.runtime.config import ClientsConfig, NodeConfig
from totempole.settings import sections_of, settings_of

ROOT = Path(__file__).parents[2]
GROUPS = (ROOT / "docs/groups.md").read_text(encoding="utf-8")
SECURITY = (ROOT / "docs/security.md").read_text(encoding="utf-8")
UNSEALED = "running unsealed: whoever reaches the ports can forge messages\n"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A daemon runs, with a log; the settings of another one, which may be embedded, are in node.toml."""
    directory = tmp_path_factory.mktemp("ring")
    with cluster(2, directory, f"{PATIENT}[log]\nenabled = true\nreplicas = [1]\n") as ring:
        ring[2].end()
        (directory / "node.toml").write_text(ring[2].file.read_text().partition("[log]")[0])
        yield ring


def environment(ring: Cluster) -> dict[str, str]:
    bin_directory = str(Path(sys.executable).parent)
    return os.environ | {
        "TOTEMPOLE_SOCKET": str(ring[1].socket),
        "PATH": f"{bin_directory}:{os.environ['PATH']}",
    }


@pytest.mark.nodes
@pytest.mark.parametrize(
    "text",
    [
        text
        for text in (*blocks(GROUPS, "python"), *blocks(README, "python"))
        if not any(other in text for other in ("session.log(", "session.replica(", "totempole.testing"))
    ],
)
def test_programs_run(text: str, ring: Cluster) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        cwd=ring[1].directory.parent,
        env=environment(ring),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stderr.replace(UNSEALED, "")) == (0, "")


@pytest.mark.nodes
def test_commands_run(ring: Cluster) -> None:
    listen, send, groups = (line.split("#")[0] for line in blocks(GROUPS, "")[0].splitlines())
    options = {"shell": True, "env": environment(ring), "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(f"{listen} --count 1 --views", **options) as listening:  # type: ignore[call-overload]
        assert "1 member" in listening.stdout.readline()
        assert "orders" in subprocess.run(groups, check=True, **options).stdout  # type: ignore[call-overload]
        subprocess.run(send, check=True, **options)  # type: ignore[call-overload]
        assert listening.stdout.read() == "buy 10\n"
        assert listening.wait(LIMIT_S) == 0


def test_the_limits_are_those_of_the_settings() -> None:
    sections = sections_of(NodeConfig)
    named = re.findall(r"^\| (?:`\[(\w+)\]`)? ?\| `(\w+)`[^|]*\| (\d+) \|$", GROUPS, re.MULTILINE)
    section = ""
    assert len(named) == 10
    for heading, name, number in named:
        section = heading or section
        defaults = sections[section]()
        assert getattr(defaults, name) == int(number), name


def test_settings_in_the_page_on_security_can_be_used(tmp_path: Path) -> None:
    known = settings_of(ClientsConfig)
    for text in blocks(SECURITY, "toml"):
        document = tomllib.loads(text)
        assert set(document.get("clients", {})) <= set(known)


@pytest.mark.nodes
def test_certificates_let_in_and_keep_out(tmp_path: Path) -> None:
    """The worked example: its commands make the files, its settings use them, its commands come in."""
    (make,) = blocks(SECURITY, "sh")
    subprocess.run(
        ["bash", "-eu", "-c", make], cwd=tmp_path, check=True, capture_output=True, timeout=LIMIT_S
    )
    (settings,) = (text for text in blocks(SECURITY, "toml") if "listen" in text)
    with cluster(1, tmp_path) as ring:
        daemon = ring[1]
        daemon.end()
        address = tomllib.loads(daemon.file.read_text())["network"]["address"]
        place = f"{address}:{tomllib.loads(daemon.file.read_text())['network']['port'] + 5}"
        settings = settings.replace("10.0.0.1:5410", place).replace("/etc/totempole", str(tmp_path))
        daemon.file.write_text(daemon.file.read_text() + settings)
        daemon.start()
        wait_until(lambda: daemon.members() == [1] and daemon.socket.exists(), daemon.log)
        command = re.search(r"^totem send (?:.*\\\n)*.*$", SECURITY, re.MULTILINE)
        assert command is not None
        text = command[0].replace("10.0.0.1:5410", place)
        done = subprocess.run(text, shell=True, cwd=tmp_path, env=environment(ring), timeout=LIMIT_S)
        assert done.returncode == 0
        stranger = text.replace("app.crt", "other.crt").replace("app.key", "other.key")
        subprocess.run(
            "openssl req -x509 -newkey ed25519 -nodes -subj /CN=app -keyout other.key -out other.crt -days 2",
            shell=True,
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )
        refused = subprocess.run(
            stranger, shell=True, cwd=tmp_path, env=environment(ring), capture_output=True, timeout=LIMIT_S
        )
        assert refused.returncode == 2
        assert b"totem: " in refused.stderr
