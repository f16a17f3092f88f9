"""`totem send`, `totem listen` and `totem groups`, with real daemons, as a newcomer types them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from daemons import LIMIT_S, Cluster, Daemon, Program, cluster, wait_until
from totempole.cli import groups as groups_command
from totempole.cli import main
from totempole.cli import send as send_command
from totempole.cli.event_text import as_json, as_remark, shown
from totempole.cli.output import Screen
from totempole.client.events import Gap, Reconnected, Safe, State, View
from totempole.errors import TotemError
from totempole.session import Groups
from totempole.types import NO_RING, OrderKey, Place, ProcessId, RingId

TOTEM = (sys.executable, "-m", "totempole")
PLACE = Place(OrderKey(RingId(12, 1), 7, NO_RING), 2)
ANN, BOB = ProcessId(1, 1, 1), ProcessId(2, 1, 1)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(2, tmp_path_factory.mktemp("ring")) as ring:
        yield ring


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(stack: ExitStack, directory: Path, *arguments: str) -> Program:
    return stack.enter_context(Program([*TOTEM, *arguments], directory))


def listener(stack: ExitStack, directory: Path, daemon: Daemon, *arguments: str) -> Program:
    """In its groups already."""
    found = start(stack, directory, "listen", "--socket", str(daemon.socket), *arguments)
    groups = [word for word in arguments if word.isalpha()]
    if "--json" in arguments:
        wait_until(lambda: '"members"' in found.out, lambda: found.err)
    for group in groups if "--json" not in arguments else ():
        wait_until(lambda group=group: f"# {group}: " in found.err + found.out, lambda: found.err)
    return found


def send(daemon: Daemon, *arguments: str, text: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    argv = [*TOTEM, "send", "--config", str(daemon.file), *arguments]
    return subprocess.run(argv, input=text, capture_output=True, timeout=LIMIT_S)


def test_what_is_sent_is_heard_in_one_order(ring: Cluster, stack: ExitStack, tmp_path: Path) -> None:
    first = listener(stack, tmp_path, ring[1], "red", "--count", "1007", "blue", "--long")
    second = listener(stack, tmp_path, ring[2], "blue", "--count", "1006")
    assert send(ring[2], "red", "only red").returncode == 0
    assert send(ring[2], "red,blue", "--safe", "both", "two").returncode == 0
    lines = b"".join(b"line %d\n" % number for number in range(1000))
    assert send(ring[1], "blue", text=lines + b"\nbell \a\xff\xc3\xa9\r\n\tno end").returncode == 0
    assert send(ring[1], "blue", "last", "too many").returncode == 0
    assert first.end() == second.end() == 0
    assert len(first.out.splitlines()) == 1007
    expected = ["both", "two", *[f"line {number}" for number in range(1000)], ""]
    expected += [r"bell \x07\xff" "é" r"\r", "\tno end", "last"]
    assert second.out.splitlines() == expected[:1006]
    heard = [line.split(" ", 2) for line in first.out.splitlines()]
    assert [words[2] for words in heard] == ["only red", *expected]
    assert {tuple(words[0].split(",")) for words in heard} == {("red",), ("red", "blue"), ("blue",)}


def test_a_group_without_members_is_remarked(ring: Cluster, stack: ExitStack, tmp_path: Path) -> None:
    hearer = listener(stack, tmp_path, ring[2], "inhabited", "--count", "3")
    sent = send(ring[1], "inhabited,empty", "hello")
    assert sent.returncode == 0
    assert sent.stderr.decode().splitlines() == [
        "# group empty has no members: nobody receives what is sent to it"
    ]
    sent = send(ring[1], "inhabited", text=b"again\n")
    assert (sent.returncode, sent.stderr) == (0, b"")
    # The remark is of the moment after the message was accepted, and with its last message the hearer leaves.
    assert send(ring[1], "inhabited", "last").returncode == 0
    assert hearer.end() == 0


@pytest.mark.nodes
def test_lines_are_sent_as_they_come(ring: Cluster, stack: ExitStack, tmp_path: Path) -> None:
    hearing = listener(stack, tmp_path, ring[1], "tail")
    typing = start(stack, tmp_path, "send", "tail", "--socket", str(ring[2].socket))
    for word in ("one", "two", "three"):
        typing.type(word)
        hearing.wait_for(word)
    assert typing.end() == 0
    assert hearing.end(signal.SIGINT) == 0
    assert hearing.err.splitlines()[-1] == "# 3 messages"


@pytest.mark.nodes
def test_a_file_is_one_message_and_comes_out_as_it_was(
    ring: Cluster, stack: ExitStack, tmp_path: Path
) -> None:
    picture = tmp_path / "cat.jpg"
    picture.write_bytes(bytes(range(256)) * 8_000)
    hearing = listener(stack, tmp_path, ring[1], "pictures", "--raw", "--count", "1")
    assert send(ring[2], "pictures", "--file", str(picture)).returncode == 0
    assert hearing.end() == 0
    assert hearing.out_file.read_bytes() == picture.read_bytes()


@pytest.mark.nodes
def test_a_file_of_lines_can_be_the_input(ring: Cluster, stack: ExitStack, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("a\nb\n")
    hearing = listener(stack, tmp_path, ring[1], "lines", "--count", "2")
    with file.open() as lines:
        argv = [*TOTEM, "send", "lines", "--socket", str(ring[1].socket)]
        assert subprocess.run(argv, stdin=lines, timeout=LIMIT_S).returncode == 0
    assert hearing.end() == 0
    assert hearing.out == "a\nb\n"


@pytest.mark.nodes
def test_json_has_an_object_for_each_message_and_view(
    ring: Cluster, stack: ExitStack, tmp_path: Path
) -> None:
    hearing = listener(stack, tmp_path, ring[1], "j", "--json", "--count", "2")
    assert send(ring[2], "j", text=b"text\n\xff").returncode == 0
    assert hearing.end() == 0
    view, text, binary = map(json.loads, hearing.out.splitlines())
    assert (view["event"], view["kind"], len(view["members"])) == ("view", "regular", 1)
    assert (text["event"], text["groups"], text["text"], text["service"]) == (
        "message",
        ["j"],
        "text",
        "agreed",
    )
    assert (binary["base64"], binary["number"]) == ("/w==", text["number"] + 1)


@pytest.mark.nodes
def test_views_can_stand_between_the_messages(ring: Cluster, stack: ExitStack, tmp_path: Path) -> None:
    hearing = listener(stack, tmp_path, ring[1], "v", "--views")
    other = listener(stack, tmp_path, ring[2], "v", "--count", "1", "--views")
    assert send(ring[1], "v", "hi").returncode == 0
    assert other.end() == 0
    hearing.wait_for(r"# v: 1 member: \S+ \((?:left|gone): -2\.\d+\.\d+\)")
    shape = [line.split(": ")[-1].split()[0] for line in hearing.out.splitlines() if "hi" in line]
    assert shape == ["hi"]
    assert hearing.end(signal.SIGTERM) == 0


@pytest.mark.nodes
def test_whoever_stops_reading_ends_it_quietly(ring: Cluster, tmp_path: Path) -> None:
    argv = [*TOTEM, "listen", "pipe", "--socket", str(ring[1].socket), "--views"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as hearing:
        assert hearing.stdout is not None
        assert hearing.stderr is not None
        assert b"1 member" in hearing.stdout.readline()
        hearing.stdout.close()  # as `head -1` does; nothing more need come
        assert hearing.wait(LIMIT_S) == 0
        assert hearing.stderr.read() == b""


@pytest.mark.nodes
def test_the_table_of_groups(
    ring: Cluster, stack: ExitStack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listener(stack, tmp_path, ring[1], "here")
    start(stack, tmp_path, "listen", "here", "there", "--config", str(ring[2].file)).wait_for_remark(
        "there: 1"
    )
    out = tmp_path / "groups.json"
    for daemon in (ring[1], ring[2]):
        assert main(["groups", "--config", str(daemon.file), "--json", str(out)]) == 0
        found = json.loads(out.read_text())["groups"]
        assert [(len(found[name]), found[name][-1][:2]) for name in ("here", "there")] == [
            (2, "2."),
            (1, "2."),
        ]
        text = capsys.readouterr().out
        assert text.split()[:3] == ["group", "members", "who"]
        assert f"here         2  {found['here'][0]} {found['here'][1]}" in text


@pytest.mark.nodes
def test_both_survive_the_daemon(stack: ExitStack, tmp_path: Path) -> None:
    with cluster(1, tmp_path) as ring:
        hearing = listener(stack, tmp_path, ring[1], "g")
        typing = start(stack, tmp_path, "send", "g", "--config", str(ring[1].file))
        typing.type("before")
        hearing.wait_for("before")
        ring[1].end(signal.SIGKILL)
        hearing.wait_for_remark("# the connection to .* is lost")
        ring[1].start()
        hearing.wait_for_remark(r"# the daemon is back, and this is 1\.\d+\.\d+ now; missed: .* in g after ")
        typing.wait_for_remark("# the daemon is back; (nothing|of the last 1 )")
        wait_until(lambda: hearing.err.count("1 member") == 2)
        typing.type("after")
        hearing.wait_for("after")
        # The message before was delivered, but the daemon may not have had an occasion to say so.
        assert typing.end() == (0 if "nothing was lost" in typing.err else 1)
        assert hearing.end(signal.SIGINT) == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["send"], "totem send: the following arguments are required: GROUP[,GROUP…] (see"),
        (["send", "a,,b", "x"], "totem: group name '' has 0 bytes"),
        (["send", "a\udcff", "x"], r"totem: group name 'a\udcff': it cannot be written as UTF-8"),
        (["listen", "n" * 101], "totem: group name "),
        (["listen", ""], "totem: group name '' has 0 bytes: give 1 to 100"),
        (["send", "g", "x", "--file", "y"], "totem: send: give messages or --file, not both"),
        (["send", "g", "--file", "/no/such"], "totem: [Errno 2] No such file or directory: '/no/such'"),
        (["send", "g", "x", "--host", "h:1"], "totem: give --socket or --host, not both"),
        (["groups", "--tls-key", "k"], "totem: --tls-… is for a daemon on another host"),
    ],
)
def test_mistakes_are_one_line(
    ring: Cluster, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--socket", str(ring[1].socket)]) == 2
    found = capsys.readouterr().err
    assert found.startswith(problem)
    assert found.count("\n") == 1


@pytest.mark.parametrize("verb", [["send", "g", "x"], ["listen", "g"], ["groups"]])
def test_a_daemon_that_is_not_there(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*verb, "--socket", "/no/such.sock"]) == 2
    assert capsys.readouterr().err.startswith(
        "totem: no daemon at /no/such.sock: No such file or directory; "
    )
    assert main([*verb, "--host", "127.0.0.1:1"]) == 2
    assert "give --tls-certificate FILE too" in capsys.readouterr().err


# Without a daemon


def test_watching_goes_on_until_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    answers = [TotemError("nobody answers"), Groups({}), Groups({"orders": (ANN, BOB)})]

    def ask() -> Groups:
        answer = answers.pop(0)
        if isinstance(answer, TotemError):
            raise answer
        return answer

    def pause(_seconds: float) -> None:
        if not answers:
            raise KeyboardInterrupt

    assert groups_command.watch(Screen(), ask, pause) == 0
    assert "1.1.1 2.1.1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            View("regular", "g", (ANN, BOB), (ANN,), PLACE, "join"),
            "g: 2 members: 1.1.1 2.1.1 (joined: +2.1.1)",
        ),
        (
            View("transitional", "g", (BOB,), (BOB,), PLACE, "configuration"),
            "g: transitional, 1 member: 2.1.1 (hosts came or went: +2.1.1 -1.1.1)",
        ),
        (Safe(ANN, 4, 3, ("g",), PLACE), "g: 4 to 6 of 1.1.1: safe"),
        (Gap("g", 1200, 34000), "g: 1,200 messages (34,000 bytes) dropped: they were not read in time"),
        (
            Reconnected(BOB, ANN, 3, "gone", {"g": PLACE, "h": None}),
            "the daemon is back, and this is 2.1.1 now; missed: all that was sent in g after 12@1:7:2, "
            "in h from the beginning",
        ),
        (State("g", ANN, b"", PLACE), "g: state"),
        (State("g\n\x1b[2J", ANN, b"", PLACE), r"g\n\x1b[2J: state"),
    ],
)
def test_remarks(event: View | Safe | Gap | Reconnected | State, text: str) -> None:
    assert as_remark(event, {"g": (ANN,)}) == text
    assert json.loads(as_json(event))["event"] == type(event).__name__.lower()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("orders", ("orders",)),
        ("orders,audit", ("orders", "audit")),
        (r"a\,b,c", ("a,b", "c")),
        (r"\,", (",",)),
        ("two words\nand a line", ("two words\nand a line",)),
    ],
)
def test_groups_to_send_to(text: str, names: tuple[str, ...]) -> None:
    assert send_command.names_in(text) == names


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"plain", "plain"),
        ("Füße".encode(), "Füße"),
        (b"a\tb", "a\tb"),
        (b"\x1b[2J", r"\x1b[2J"),
        (b"two\nlines", r"two\nlines"),
        (b"\xff\xfe", r"\xff\xfe"),
        ("\u202edrow".encode(), r"\u202edrow"),
    ],
)
def test_what_is_shown_cannot_harm(payload: bytes, text: str) -> None:
    assert shown(payload) == text
