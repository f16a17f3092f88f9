"""`totem log state` and `totem log diff`, on directories, copies and services."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgers import Bank, Moody, ObjectInLog
from serving import serving
from totempole.cli import main
from totempole.log.segments import segment_name
from totempole.log.snapshots import HEAD_BYTES, snapshot_name, snapshots_of
from totempole.objects import records
from totempole.objects.records import Checkpoint, Digest, Knows, Upgrade
from written_logs import WrittenLog

BANK = ("--class", "ledgers:Bank")
Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def totem(capsys: pytest.CaptureFixture[str]) -> Ask:
    def ask(*words: object) -> tuple[int, str, str]:
        code = main(["log", *map(str, words)])
        out, err = capsys.readouterr()
        return code, out, err

    return ask


@pytest.fixture
def bank(tmp_path: Path) -> ObjectInLog:
    """Records: 0 opens it, then at 1 to 40 put, and noise between."""
    found = ObjectInLog(WrittenLog(tmp_path / "log"), Bank)
    for number in range(1, 41):
        found.call("put", f"account-{number % 3}", number)
        if number == 20:
            found.others(5)
    return found


def document(totem: Ask, *words: object, code: int = 0) -> dict[str, Any]:
    status, out, err = totem(*words, "--json", "-")
    assert status == code, err
    found: dict[str, Any] = json.loads(out)
    return found


def balances(last: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for number in range(1, last + 1):
        name = f"account-{number % 3}"
        found[name] = found.get(name, 0) + number
    return found


# state


def test_an_object_as_it_is(totem: Ask, bank: ObjectInLog) -> None:
    found = document(totem, "state", "bank", *BANK, "--directory", bank.log.directory)
    assert found["state"] == {"accounts": balances(40), "transfers": 0}
    assert found["commands"] == 40
    assert found["class"] == "Bank"
    assert found["snapshot"] is None
    assert found["last_record"] == 45
    code, out, _ = totem("state", "objects/bank", *BANK, "--directory", bank.log.directory)
    assert code == 0
    assert "class Bank version 1, after position 45: 40 commands" in out
    assert 'accounts = {"account-1": 287' in out


@pytest.mark.parametrize("at", [0, 1, 7, 20, 22, 25, 26, 45])
def test_an_object_as_it_was(totem: Ask, bank: ObjectInLog, at: int) -> None:
    found = document(totem, "state", "bank", *BANK, "--at", at, "--directory", bank.log.directory)
    last = at if at <= 20 else max(20, at - 5)
    assert found["state"]["accounts"] == balances(last)
    assert found["at"] == at


def test_snapshots_are_used_and_give_the_same(totem: Ask, bank: ObjectInLog, tmp_path: Path) -> None:
    plain = [
        document(totem, "state", "bank", *BANK, "--at", at, "--directory", bank.log.directory)
        for at in range(30, 50, 3)
        if at <= 45
    ]
    head = bank.snapshot()
    later = bank.call("put", "x", 1)
    bank.snapshot()
    assert head.position == 46
    with_snapshots = [
        document(totem, "state", "bank", *BANK, "--at", at, "--directory", bank.log.directory)
        for at in range(30, 50, 3)
        if at <= 45
    ]
    for one, other in zip(plain, with_snapshots, strict=True):
        assert one["state"] == other["state"]
        assert one["digest"] == other["digest"]
    assert with_snapshots[-1]["snapshot"] == 46, "of records before 46: those up to 45"
    end = document(totem, "state", "bank", *BANK, "--directory", bank.log.directory)
    assert end["snapshot"] == later + 1
    assert end["state"]["accounts"]["x"] == 1


def trimmed(bank: ObjectInLog) -> ObjectInLog:
    """Two snapshots, and the log trimmed behind the older."""
    bank.snapshot()
    bank.log.begin_segment()
    bank.log.hold("object:bank@1", bank.log.zones.position)
    bank.call("put", "x", 1)
    bank.snapshot()
    bank.call("put", "x", 1)
    bank.log.trim(2)
    return bank


def test_a_trimmed_log_and_a_snapshot_are_the_whole_object(totem: Ask, bank: ObjectInLog) -> None:
    trimmed(bank)
    directory = bank.log.directory
    whole = {"accounts": balances(40) | {"x": 2}, "transfers": 0}
    assert document(totem, "state", "bank", *BANK, "--directory", directory)["state"] == whole
    at_older = document(totem, "state", "bank", *BANK, "--at", 46, "--directory", directory)
    assert at_older["state"]["accounts"]["x"] == 1
    assert at_older["snapshot"] == 47
    _damage(directory, 47)
    assert document(totem, "state", "bank", *BANK, "--directory", directory)["state"] == whole
    assert document(totem, "state", "bank", *BANK, "--directory", directory)["snapshot"] == 46


def _damage(directory: Path, position: int) -> None:
    path = snapshots_of(directory) / snapshot_name("bank", position)
    content = bytearray(path.read_bytes())
    content[HEAD_BYTES + 20] ^= 1
    path.write_bytes(content)


def test_what_is_trimmed_is_said(totem: Ask, bank: ObjectInLog) -> None:
    trimmed(bank)
    code, _, err = totem("state", "bank", *BANK, "--at", 30, "--directory", bank.log.directory)
    assert code == 2
    assert "the log begins with position 46" in err
    for position in (46, 47):
        _damage(bank.log.directory, position)
    code, _, err = totem("state", "bank", *BANK, "--directory", bank.log.directory)
    assert code == 2
    assert "does not fit its checksum" in err
    shutil.rmtree(snapshots_of(bank.log.directory))
    code, _, err = totem("state", "bank", *BANK, "--directory", bank.log.directory)
    assert code == 2
    assert "in snapshots only" in err
    assert "node 1 (from position 46 on)" in err


@pytest.mark.nodes
def test_state_from_a_service(totem: Ask, bank: ObjectInLog, tmp_path: Path) -> None:
    trimmed(bank)
    with serving(bank.log.directory, tmp_path / "clients-log.sock"):
        found = document(totem, "state", "bank", *BANK, "--socket", tmp_path / "clients.sock")
        assert found["state"]["accounts"]["x"] == 2
        assert found["snapshot"] == 47
        code, out, _ = totem("state", "bank", "--socket", tmp_path / "clients.sock")
        assert code == 0
        assert 'put("x", 1)' in out


def test_without_the_class_the_commands_are_shown(totem: Ask, bank: ObjectInLog) -> None:
    code, out, _ = totem("state", "bank", "--at", 22, "--directory", bank.log.directory)
    assert code == 0
    assert "test#20" in out
    assert 'put("account-2", 20)' in out
    assert 'account-0", 21' not in out
    assert "--class MODULE:CLASS" in out
    found = document(totem, "state", "bank", "--at", 2, "--directory", bank.log.directory)
    assert found["class"] == "Bank"
    assert [row.get("method") for row in found["commands"]] == [None, "put", "put"]
    assert found["commands"][2]["arguments"] == ["account-2", 2]
    code, out, _ = totem("state", "nobody", "--directory", bank.log.directory)
    assert code == 0
    assert "no records of object nobody" in out


def test_other_records_of_an_object_are_named(totem: Ask, bank: ObjectInLog) -> None:
    for record in (
        Knows("host-1", 2),
        Knows("host-1", 0),
        Upgrade(2),
        Digest("host-1", (Checkpoint(5, 6, b"", b""),)),
    ):
        bank.log.append([records.encode(record)], log="objects/bank")
    _, out, _ = totem("state", "bank", "--directory", bank.log.directory)
    for text in ("knows version 2", "closes the object", "upgrade to version 2", "digest after 5 commands"):
        assert text in out


def test_strange_records_are_shown_as_they_are(totem: Ask, bank: ObjectInLog) -> None:
    bank.log.append([b"\x1b[2Jrubbish"], log="objects/bank")
    code, out, _ = totem("state", "bank", "--directory", bank.log.directory)
    assert code == 0
    assert "no record of an object" in out
    assert "\x1b" not in out
    found = document(totem, "state", "bank", *BANK, "--directory", bank.log.directory)
    assert found["commands"] == 40
    assert found["events"] == ["the record at position 46 was passed over: no record of an object"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--class", "ledgers"), "give module:Class"),
        (("--class", "no_such_module:Bank"), "cannot be imported"),
        (("--class", "ledgers:Bonk"), "has no Bonk"),
        (("--class", "ledgers:keep"), "is no class"),
        (("--class", "ledgers:Path"), "no commands"),
        (("--class", "ledgers:Moody"), "Bank"),
        ((*BANK, "--at", "46"), "ends before position 46"),
    ],
)
def test_mistakes_of_state_are_explained(
    totem: Ask, bank: ObjectInLog, words: tuple[str, ...], text: str
) -> None:
    code, _, err = totem("state", "bank", *words, "--directory", bank.log.directory)
    assert code == 2
    assert text in err


def test_an_object_that_is_not_there(totem: Ask, bank: ObjectInLog) -> None:
    code, _, err = totem("state", "nobody", *BANK, "--directory", bank.log.directory)
    assert code == 2
    assert "there is no object 'nobody'" in err


def test_values_that_json_has_not_are_written_plainly() -> None:
    from totempole.cli.object_log import plain

    class Odd:
        def __init__(self) -> None:
            self.data = b"\xff"
            self.pair = (1, {3, 2})
            self.by_number = {4: "four"}
            self.self = object()

    found = plain(Odd())
    assert found["data"] == {"base64": "/w=="}
    assert found["pair"] == [1, [2, 3]]
    assert found["by_number"] == {"4": "four"}
    assert "object" in str(found["self"])


# diff


def copy_of(bank: ObjectInLog, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bank.log.directory, tmp_path / "copy"))


def test_copies_are_the_same(totem: Ask, bank: ObjectInLog, tmp_path: Path) -> None:
    bank.snapshot()
    bank.call("put", "x", 1)
    copy = copy_of(bank, tmp_path)
    bank.call("put", "only here", 1)
    for more in (BANK, ()):
        found = document(totem, "diff", bank.log.directory, copy, "bank", *more)
        assert found["same"]
        assert found["compared"]["records"] == 42
    code, out, _ = totem("diff", bank.log.directory, copy, "bank", *BANK)
    assert code == 0
    assert "records, outcomes and states are the same" in out
    assert "42 records" in out
    code, out, _ = totem("diff", bank.log.directory, copy, "bank")
    assert "were not compared" in out


def two(tmp_path: Path, cls: type[Any] = Bank) -> tuple[ObjectInLog, ObjectInLog]:
    return tuple(  # type: ignore[return-value]
        ObjectInLog(WrittenLog(tmp_path / name), cls, client="test") for name in ("one", "other")
    )


def test_the_first_record_that_differs_is_named(totem: Ask, tmp_path: Path) -> None:
    one, other = two(tmp_path)
    for each in (one, other):
        each.call("put", "a", 1)
    one.call("put", "a", 2)
    other.call("put", "a", 3)
    for more in (BANK, ()):
        found = document(totem, "diff", one.log.directory, other.log.directory, "bank", *more, code=1)
        assert found["difference"]["part"] == "record"
        assert found["difference"]["position"] == 2
        assert found["difference"]["a"]["content"] == ['put("a", 2)']
        assert found["difference"]["b"]["content"] == ['put("a", 3)']
    code, out, _ = totem("diff", one.log.directory, other.log.directory, "bank")
    assert code == 1
    assert "They part at position 2: the records differ" in out


def test_a_record_that_only_one_has_is_named(totem: Ask, tmp_path: Path) -> None:
    one, other = two(tmp_path)
    one.call("put", "a", 1)
    other.others(1)
    found = document(totem, "diff", one.log.directory, other.log.directory, "bank", *BANK, code=1)
    assert found["difference"]["part"] == "record"
    assert found["difference"]["position"] == 1
    assert found["difference"]["b"] is None
    turned = document(totem, "diff", other.log.directory, one.log.directory, "bank", code=1)
    assert turned["difference"]["position"] == 1
    assert turned["difference"]["a"] is None


def test_logs_of_two_clusters_are_told_apart(totem: Ask, tmp_path: Path, bank: ObjectInLog) -> None:
    stranger = ObjectInLog(WrittenLog(tmp_path / "stranger", log=99), Bank)
    found = document(totem, "diff", bank.log.directory, stranger.log.directory, "bank", *BANK, code=1)
    assert found["difference"]["part"] == "log"


def moody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mood: str) -> ObjectInLog:
    """A host whose commands see another environment from the 6th record on."""
    monkeypatch.setenv(Moody.VARIABLE, "calm")
    host = ObjectInLog(WrittenLog(tmp_path / name), Moody)
    host.call("add", 1)
    host.call("feel")
    host.snapshot()
    host.call("add", 2)
    host.call("add", 3)
    monkeypatch.setenv(Moody.VARIABLE, mood)
    host.call("feel")
    monkeypatch.setenv(Moody.VARIABLE, "calm")
    host.call("add", 4)
    host.snapshot()
    host.call("add", 5)
    return host


MOODY = ("--class", "ledgers:Moody")


def test_a_host_that_went_another_way_is_found_by_its_snapshot(
    totem: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = moody(tmp_path, monkeypatch, "good", "calm")
    bad = moody(tmp_path, monkeypatch, "bad", "wild")
    found = document(totem, "diff", good.log.directory, bad.log.directory, "bank", *MOODY, code=1)
    assert found["difference"]["part"] == "snapshot"
    assert found["difference"]["position"] == 7
    assert "state.moods[1]: calm and wild" in found["difference"]["text"]
    assert "between positions 3 and 7" in found["difference"]["text"]
    assert document(totem, "diff", good.log.directory, good.log.directory, "bank", *MOODY)["same"]


def test_states_that_differ_where_the_logs_begin_are_found(
    totem: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = []
    for name, mood in (("good", "calm"), ("bad", "wild")):
        host = moody(tmp_path, monkeypatch, name, mood)
        host.log.begin_segment()
        host.log.trim(2)
        (snapshots_of(host.log.directory) / snapshot_name("bank", 3)).unlink()
        host.log.hold("object:bank@1", 7)
        host.snapshot()
        host.call("add", 6)
        hosts.append(host)
    found = document(totem, "diff", hosts[0].log.directory, hosts[1].log.directory, "bank", *MOODY, code=1)
    assert found["difference"]["part"] == "state"
    assert found["difference"]["position"] == 7
    assert "state.moods[1]: calm and wild" in found["difference"]["text"]
    assert "the first position where both can be compared" in found["difference"]["text"]


def test_the_first_record_after_which_states_differ_is_searched_for(
    totem: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One replica's code does something else: its machine is made to."""
    from totempole.cli import log_diff

    one = ObjectInLog(WrittenLog(tmp_path / "one"), Bank)
    for number in range(1, 50):
        one.call("put", "a", number)
    apply = log_diff._Side.apply

    def other(side: Any, record: Any) -> Any:
        outcomes = apply(side, record)
        if side.log.where.endswith("copy") and record.position == 23:
            side.machine.state.transfers += 1
        return outcomes

    monkeypatch.setattr(log_diff._Side, "apply", other)
    copy = copy_of(one, tmp_path)
    found = document(totem, "diff", one.log.directory, copy, "bank", *BANK, code=1)
    assert found["difference"]["part"] == "state"
    assert found["difference"]["position"] == 23
    assert found["difference"]["text"] == "state.transfers: 0 and 1"


def test_the_first_outcome_that_differs_is_named(
    totem: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from totempole.cli import log_diff

    one = ObjectInLog(WrittenLog(tmp_path / "one"), Bank)
    for number in range(1, 10):
        one.call("put", "a", number)
    copy = copy_of(one, tmp_path)
    apply = log_diff._Side.apply

    def other(side: Any, record: Any) -> Any:
        if side.log.where.endswith("copy") and record.position == 5:
            side.machine.state.accounts["a"] += 100
        return apply(side, record)

    monkeypatch.setattr(log_diff._Side, "apply", other)
    found = document(totem, "diff", one.log.directory, copy, "bank", *BANK, code=1)
    assert found["difference"]["part"] == "outcome"
    assert found["difference"]["position"] == 5
    assert found["difference"]["a"]["kind"] == "done"


def test_what_cannot_be_compared_is_said(totem: Ask, bank: ObjectInLog, tmp_path: Path) -> None:
    copy = copy_of(bank, tmp_path)
    (copy / segment_name(1)).unlink()
    code, _, err = totem("diff", bank.log.directory, copy, "bank", *BANK)
    assert code == 2
    assert "no log in it" in err
    code, _, err = totem("diff", bank.log.directory, tmp_path / "nowhere", "bank", *BANK)
    assert code == 2
    assert "no directory, no socket, and no ADDRESS:PORT" in err
    code, _, err = totem("diff", bank.log.directory, "127.0.0.1:99", "bank", *BANK)
    assert code == 2
    assert "--tls-certificate" in err


@pytest.mark.nodes
def test_diff_of_services(totem: Ask, bank: ObjectInLog, tmp_path: Path) -> None:
    trimmed(bank)
    copy = copy_of(bank, tmp_path)
    with (
        serving(bank.log.directory, tmp_path / "a-log.sock"),
        serving(copy, tmp_path / "b-log.sock"),
    ):
        found = document(totem, "diff", tmp_path / "a-log.sock", tmp_path / "b-log.sock", "bank", *BANK)
        assert found["same"]
        assert found["compared"]["first"] == 46
        mixed = document(totem, "diff", tmp_path / "a-log.sock", copy, "bank", *BANK)
        assert mixed["same"]


@pytest.mark.parametrize("verb", ["state", "diff"])
def test_help_has_examples(totem: Ask, verb: str) -> None:
    code, out, _ = totem(verb, "--help")
    assert code == 0
    assert f"totem log {verb} " in out.split("examples:")[1]


def test_check_reads_snapshots(totem: Ask, bank: ObjectInLog) -> None:
    bank.snapshot()
    bank.call("put", "x", 1)
    bank.snapshot()
    code, out, _ = totem("check", bank.log.directory)
    assert code == 0
    assert "bank" in out
    _damage(bank.log.directory, 47)
    found = document(totem, "check", bank.log.directory, code=1)
    assert [(each["position"], bool(each["problem"])) for each in found["snapshots"]] == [
        (46, False),
        (47, True),
    ]
    assert not found["is_good"]
    code, out, _ = totem("check", bank.log.directory)
    assert code == 1
    assert "does not fit its checksum" in out
