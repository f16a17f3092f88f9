"""What is in packaging/ is true: files, commands, ports, names and metrics are those that there are."""

from __future__ import annotations

import ipaddress
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from daemons import cluster, wait_until
from totempole.cli import main
from totempole.cli.command import _parser
from totempole.runtime import keyring
from totempole.runtime.config import NodeConfig

ROOT = Path(__file__).parents[2]
KIT = ROOT / "packaging"
CONTAINER, KUBERNETES, MONITORING = (KIT / name for name in ("container", "kubernetes", "monitoring"))


def parsed(argv: Sequence[str]) -> Any:
    """By the command's own parser, which ends the process where it does not understand."""
    assert argv[0] == "totem"
    try:
        return _parser().parse_args(argv[1:])
    except SystemExit as exit:
        raise AssertionError(f"{shlex.join(argv)}: not understood") from exit


def ports(config: NodeConfig) -> set[str]:
    network = config.network.port
    return {f"{network}/udp", f"{network + 1}/udp", f"{config.metrics.port}/tcp"}


# The container


def instructions(file: Path = CONTAINER / "Containerfile") -> Iterator[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, rest = line.partition(" ")
        yield name, rest.strip()


def given(name: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == name]


def test_the_recipe_has_only_instructions_that_there_are() -> None:
    known = "FROM COPY RUN USER ENV VOLUME EXPOSE HEALTHCHECK STOPSIGNAL ENTRYPOINT CMD"
    assert {name for name, _ in instructions()} == set(known.split())


def test_what_the_recipe_copies_is_there() -> None:
    for rest in given("COPY"):
        *sources, _ = (word for word in rest.split() if not word.startswith("--"))
        if "--from=build" not in rest:
            assert all((ROOT / source).exists() for source in sources), rest


def test_what_the_recipe_installs_is_the_package_with_extras_that_it_has() -> None:
    (command,) = (rest for rest in given("RUN") if "pip install" in rest)
    (wanted,) = re.findall(r"/src\[([\w,]+)\]", command)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(wanted.split(",")) <= project["optional-dependencies"].keys()
    assert {project["readme"], *project["license-files"]} <= set(" ".join(given("COPY")).split())


def test_what_the_container_runs_is_understood() -> None:
    (entry,), (command,), (check,) = given("ENTRYPOINT"), given("CMD"), given("HEALTHCHECK")
    assert parsed(json.loads(entry) + json.loads(command)).config == "/etc/totempole/node.toml"
    (health,) = re.findall(r"CMD (\[.*\])", check)
    config = NodeConfig.load(CONTAINER / "node.toml", places=False)
    assert parsed(json.loads(health)).directory == str(config.directory)
    assert f"TOTEMPOLE_SOCKET={config.clients_socket}" in given("ENV")
    assert set(given("EXPOSE")[0].split()) == ports(config)


@pytest.mark.long
def test_the_recipe_builds_a_node_that_runs(tmp_path: Path) -> None:
    """Its own steps, in a directory instead of an image: there may be no engine here."""
    for rest in given("COPY")[:2]:
        *sources, target = rest.split()
        for source in sources:
            subprocess.run(["mkdir", "-p", tmp_path / "src"], check=True)
            subprocess.run(["cp", "-r", ROOT / source, f"{tmp_path}{target}"], check=True)
    for command in given("RUN")[:2]:
        here = command.replace("/src", f"{tmp_path}/src").replace("/opt/", f"{tmp_path}/opt/")
        (tmp_path / "opt").mkdir(exist_ok=True)
        subprocess.run(["sh", "-ec", here.replace("python3", sys.executable)], check=True, timeout=600)
    totem = tmp_path / "opt/totempole/bin/totem"
    subprocess.run([totem, "node", "--print-config", "--short"], check=True, stdout=subprocess.PIPE)
    subprocess.run([totem, "completion", "bash"], check=True, stdout=subprocess.PIPE)


# Three nodes by compose


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((CONTAINER / "compose.yaml").read_text())


def test_the_nodes_of_compose_are_accepted(
    compose: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With addresses of loopback instead of the containers'; nothing else differs."""
    keyring.create(tmp_path / "totem.key")
    settings = (CONTAINER / "node.toml").read_text().replace("172.30.54.", "127.30.54.")
    file = tmp_path / "node.toml"
    file.write_text(settings)
    nodes = [service for name, service in compose["services"].items() if name.startswith("node-")]
    for service in nodes:
        arguments = parsed(["totem", *service["command"]])
        changes = [word.replace("172.30.54.", "127.30.54.") for word in arguments.set]
        changes += [f"directory={tmp_path / 'node'}", f"security.key_file={tmp_path / 'totem.key'}"]
        words = [word for change in (*changes, "metrics.port=0") for word in ("--set", change)]
        assert main(["node", "--config", str(file), *words, "--check"]) == 0, capsys.readouterr().out
    assert len(nodes) == 3


def test_the_addresses_of_compose_agree(compose: Any) -> None:
    (subnet,) = (
        ipaddress.ip_network(each["subnet"]) for each in compose["networks"]["ring"]["ipam"]["config"]
    )
    found, disks = set(), set()
    for name, service in compose["services"].items():
        assert service["build"]["dockerfile"] == "packaging/container/Containerfile"
        if name.startswith("node-"):
            config = NodeConfig.load(
                CONTAINER / "node.toml", parsed(["totem", *service["command"]]).set, places=False
            )
            address = service["networks"]["ring"]["ipv4_address"]
            assert config.network.address == address
            assert ipaddress.ip_address(address) in subnet
            assert [peer.address for peer in config.network.peers if peer.processor == config.processor] == [
                address
            ]
            key, settings, disk = (each.split(":") for each in service["volumes"])
            assert key[1:] == [str(config.security.key_file.parent), "ro"]  # type: ignore[union-attr]
            assert (CONTAINER / settings[0]).is_file()
            assert settings[1] in service["command"]
            assert config.directory.is_relative_to(disk[1])
            assert {key[0], disk[0]} <= compose["volumes"].keys()
            disks.add(disk[0])
            found.add((config.processor, config.expectation))
    assert [processor for processor, _ in sorted(found)] == [1, 2, 3]
    assert len(disks) == 3
    assert len({expectation for _, expectation in found}) == 1


def test_compose_makes_a_key(compose: Any) -> None:
    (script,) = compose["services"]["key"]["command"]
    (command,) = re.findall(r"totem keygen \S+", script)
    assert (
        parsed(command.split()).file
        == NodeConfig.load(CONTAINER / "node.toml", places=False).security.key_file
    )


# Kubernetes


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    kustomization = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
    found = [yaml.safe_load((KUBERNETES / name).read_text()) for name in kustomization["resources"]]
    return {manifest["kind"]: manifest for manifest in (kustomization, *found)}


@pytest.fixture(scope="module")
def config() -> NodeConfig:
    return NodeConfig.load(KUBERNETES / "node.toml", places=False)


def test_names_and_labels_of_kubernetes_agree(manifests: dict[str, Any], config: NodeConfig) -> None:
    stateful, service = manifests["StatefulSet"]["spec"], manifests["Service"]
    assert stateful["serviceName"] == service["metadata"]["name"] == config.network.peers_dns
    labels = stateful["template"]["metadata"]["labels"]
    assert stateful["selector"]["matchLabels"] == service["spec"]["selector"] == labels
    assert manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["clusterIP"] == "None"
    assert stateful["replicas"] == config.expected
    made = {each["name"] for each in manifests["Kustomization"]["configMapGenerator"]}
    sealed = {each["name"] for each in manifests["Kustomization"]["secretGenerator"]}
    volumes = {volume["name"]: volume for volume in stateful["template"]["spec"]["volumes"]}
    assert volumes["settings"]["configMap"]["name"] in made
    assert volumes["key"]["secret"]["secretName"] in sealed
    (container,) = stateful["template"]["spec"]["containers"]
    claims = {each["metadata"]["name"] for each in stateful["volumeClaimTemplates"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == {*volumes, *claims}


def test_ports_of_kubernetes_agree(manifests: dict[str, Any], config: NodeConfig) -> None:
    (container,) = manifests["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    inside = {f"{each['containerPort']}/{each['protocol'].lower()}" for each in container["ports"]}
    outside = {f"{each['port']}/{each['protocol'].lower()}" for each in manifests["Service"]["spec"]["ports"]}
    assert inside == outside == ports(config)
    annotations = manifests["StatefulSet"]["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(config.metrics.port)


def test_commands_of_kubernetes_are_understood(manifests: dict[str, Any], config: NodeConfig) -> None:
    pod = manifests["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    probe = parsed(container["readinessProbe"]["exec"]["command"])
    assert (probe.directory, probe.need) == (str(config.directory), "majority")
    assert "livenessProbe" not in container
    shell = {"HOSTNAME": "ring-2", "POD_IP": "10.1.2.3", "PATH": "/usr/bin:/bin"}
    (script,) = container["args"]
    copy, _, command = script.partition("&&")
    assert copy.split()[-1] == str(config.security.key_file)
    # The shell puts in what it knows, and prints the command instead of running it.
    shown = subprocess.run(
        ["sh", "-ec", command.replace("exec totem", "echo totem")],
        env=shell, capture_output=True, text=True, check=True,
    )  # fmt: skip
    arguments = parsed(shown.stdout.split())
    started = NodeConfig.load(KUBERNETES / "node.toml", arguments.set, places=False)
    assert (started.processor, started.network.address) == (3, "10.1.2.3")
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert arguments.config == f"{mounts['settings']}/node.toml"
    assert f"{mounts['key']}/totem.key" in copy
    user = f"--uid {pod['securityContext']['runAsUser']} "
    assert any(user in rest for rest in given("RUN"))


def test_settings_of_kubernetes_are_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keyring.create(tmp_path / "totem.key")
    changes = (
        "network.peers_dns=localhost", "metrics.port=0", "network.address=127.30.55.1",
        f"directory={tmp_path / 'node'}", f"security.key_file={tmp_path / 'totem.key'}",
    )  # fmt: skip
    words = [word for change in changes for word in ("--set", change)]
    assert main(["node", "--config", str(KUBERNETES / "node.toml"), *words, "--check"]) == 0, (
        capsys.readouterr().out
    )


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl here, which renders without a cluster")
def test_kustomize_renders_it(tmp_path: Path) -> None:
    shutil.copytree(KUBERNETES, tmp_path / "kit")
    keyring.create(tmp_path / "kit/totem.key")
    done = subprocess.run(
        ["kubectl", "kustomize", tmp_path / "kit"], capture_output=True, text=True, check=True, timeout=60
    )
    kinds = [manifest["kind"] for manifest in yaml.safe_load_all(done.stdout)]
    assert sorted(kinds) == ["ConfigMap", "PodDisruptionBudget", "Secret", "Service", "StatefulSet"]


# Prometheus and Grafana


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> str:
    """All that a node tells Prometheus: one on two networks, with a log."""
    directory = tmp_path_factory.mktemp("exported")
    with cluster(1, directory, networks=("left", "right"), start=False) as them:
        network = NodeConfig.load(them[1].file).network
        port = network.port + 4
        more = (
            f'\n[metrics]\naddress = "{network.address}"\nport = {port}\n'
            "[log]\nenabled = true\nreplicas = [1]\n"
        )
        text = them[1].file.read_text().replace("processor = 1\n", "processor = 1\nexpected = 1\n", 1)
        them[1].file.write_text(text + more)
        them.start()
        url = f"http://{network.address}:{port}/metrics"
        found: list[str] = []

        def all_there() -> bool:
            with urllib.request.urlopen(url, timeout=10) as answer:
                found.append(answer.read().decode())
            return 'totempole_log_standing{standing="primary"} 1.0' in found[-1]

        wait_until(all_there, lambda: found[-1])
        return found[-1]


def expressions() -> Iterator[str]:
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", []))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def test_metrics_that_are_asked_for_are_exported(exported: str) -> None:
    there = set(re.findall(r"^# TYPE (\w+)", exported, re.MULTILINE))
    there |= {sample.name for family in text_string_to_metric_families(exported) for sample in family.samples}
    named = {name for expression in expressions() for name in re.findall(r"\btotempole_\w+", expression)}
    assert len(named) > 25
    assert named <= there


def test_labels_that_are_asked_for_are_exported(exported: str) -> None:
    there = {
        (sample.name, label, value)
        for family in text_string_to_metric_families(exported)
        for sample in family.samples
        for label, value in sample.labels.items()
    }
    asked = 0
    for expression in expressions():
        for name, selector in re.findall(r"(totempole_\w+)\{([^}]*)\}", expression):
            for label, values in re.findall(r'(\w+)=~?"([^"$]+)"', selector):
                asked += 1
                assert {(name, label, value) for value in values.split("|")} <= there, expression
    assert asked >= 5


def test_every_alert_says_what_to_do() -> None:
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["alert"].startswith("Totempole")
            assert rule["labels"]["severity"] in ("critical", "warning", "info")
            for page in re.findall(r"docs/[\w-]+\.md", rule["annotations"]["description"]):
                assert (ROOT / page).exists()
            for command in re.findall(r"`(totem [^`]+)`", rule["annotations"]["description"]):
                parsed(command.split())


def test_the_dashboard_can_be_imported() -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    assert [panel["id"] for panel in dashboard["panels"]] == [*range(1, len(dashboard["panels"]) + 1)]
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_the_page_names_commands_and_files_that_there_are() -> None:
    text = (ROOT / "docs/deployment.md").read_text()
    for path in re.findall(r"packaging/[\w./-]*\w", text):
        assert (ROOT / path).exists() or path.endswith("totem.key"), path
    blocks = "".join(re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)).replace("\\\n", "")
    commands = re.findall(r"\b(totem (?:keygen|status|man|completion) [^>\n]*)", blocks)
    assert len(commands) >= 6
    for command in commands:
        parsed(command.split())
