"""Replicated objects in real nodes: three processes on loopback, their disks, and programs that call."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from test_log_node import BRISK, LOG, QUICK, log_of, three, wait_for_primary

import totempole
from daemons import Cluster, Daemon, cluster, wait_until
from totempole import Refused, command, ordered
from totempole.client.endpoint import Reconnect
from totempole.errors import CannotCarryError, ObjectClassError, ObjectError, SessionError
from totempole.objects.records import Limits
from totempole.runtime.config import NodeConfig

pytestmark = pytest.mark.nodes

LIMIT_S = 60.0


class Bank:
    def __init__(self) -> None:
        self.accounts: dict[str, int] = {}
        self.kept = b""

    @command
    def put(self, name: str, amount: int) -> int:
        self.accounts[name] = self.accounts.get(name, 0) + amount
        return self.accounts[name]

    @command
    def transfer(self, source: str, target: str, amount: int) -> int:
        if self.accounts.get(source, 0) < amount:
            raise Refused(f"{source} has only {self.accounts.get(source, 0)}")
        self.accounts[source] -= amount
        self.accounts[target] = self.accounts.get(target, 0) + amount
        return self.accounts[source]

    @command
    def divide(self, name: str, by: int) -> int:
        return self.accounts[name] // by

    @command
    def stamp(self) -> tuple[float, int, int, str]:
        return ordered.time(), ordered.position(), ordered.token(), ordered.caller()

    @command
    def keep(self, content: bytes) -> int:
        self.kept = content
        return len(content)

    @command
    def dig(self, depth: int) -> int:
        return self.dig(depth - 1) + 1 if depth else 0

    def balance(self, name: str) -> int:
        return self.accounts.get(name, 0)

    def all(self) -> dict[str, int]:
        return self.accounts


class Ledger:
    def __init__(self) -> None:
        self.lines: list[str] = []

    @command
    def write(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(scope="module")
def them(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """For tests that disturb nobody: each has an object of its own."""
    with three(tmp_path_factory.mktemp("objects")) as found:
        yield found


Use = Callable[[totempole.Replica[Bank]], Awaitable[None]]


def use(name: str, *daemons: Daemon, by: Use, reconnect: Reconnect = QUICK) -> None:
    async def run() -> None:
        sockets = [daemon.socket for daemon in daemons]
        async with (
            totempole.connect(sockets, reconnect=reconnect) as session,
            session.replica(Bank, name) as bank,
        ):
            await by(bank)

    asyncio.run(asyncio.wait_for(run(), LIMIT_S))


def test_two_programs_have_one_object(them: Cluster) -> None:
    async def run() -> None:
        async with (
            totempole.connect(them[1].socket) as one,
            totempole.connect(them[2].socket) as two,
            one.replica(Bank, "shared") as here,
            two.replica(Bank, "shared") as there,
        ):
            assert await here.call(Bank.put, "ann", 100) == 100
            assert await there.read(Bank.balance, "ann") == 100, "a read has what any call has returned"
            assert await there.call(Bank.transfer, "ann", "bob", amount=30) == 70
            assert await here.read(Bank.all) == {"ann": 70, "bob": 30}
            assert there.peek(Bank.balance, "bob") == 30, "a replica sees its own calls"
            await asyncio.gather(
                *(bank.call(Bank.put, "sum", 1) for bank in (here, there) for _ in range(200))
            )
            await here.call_many(Bank.put, [("sum", number) for number in range(100)])
            reads = await asyncio.gather(*(bank.read(Bank.balance, "sum") for bank in (here, there) * 20))
            assert set(reads) == {400 + sum(range(100))}
            copied = here.peek(Bank.all)
            copied["sum"] = 0
            assert here.peek(Bank.balance, "sum"), "what was read is a copy"

    asyncio.run(asyncio.wait_for(run(), LIMIT_S))


def test_what_a_command_raises_is_raised_at_its_caller(them: Cluster) -> None:
    async def calls(bank: totempole.Replica[Bank]) -> None:
        with pytest.raises(Refused, match="ann has only 0"):
            await bank.call(Bank.transfer, "ann", "bob", 1)
        with pytest.raises(totempole.CommandRaisedError, match="KeyError"):
            await bank.call(Bank.divide, "ann", 1)
        answers = await bank.call_many(Bank.put, [("a", 1), ("a", 2)], return_exceptions=True)
        assert answers == [1, 3]
        many = [("a", "b", 1), ("a", "b", 9)]
        answers = await bank.call_many(Bank.transfer, many, return_exceptions=True)
        assert answers[0] == 2
        assert isinstance(answers[1], Refused)
        with pytest.raises(Refused):
            await bank.call_many(Bank.transfer, [("a", "b", 9)])
        time, position, token, caller = await bank.call(Bank.stamp)
        assert time > 1_700_000_000
        assert token >> 16 == position
        assert len(caller) == 32

    use("raises", them[1], by=calls)


def test_what_cannot_be_called_is_refused_before_anything_is_sent(them: Cluster) -> None:
    async def calls(bank: totempole.Replica[Bank]) -> None:
        before = bank.position
        with pytest.raises(CannotCarryError, match="amount"):
            await bank.call(Bank.put, "ann", "ten")  # type: ignore[arg-type]
        with pytest.raises(ObjectError, match="is no command"):
            await bank.call(Bank.balance, "ann")
        with pytest.raises(ObjectError, match="is a command"):
            bank.peek(Bank.put, "ann", 1)
        with pytest.raises(SessionError, match="at most"):
            await bank.call(Bank.keep, bytes(50_000_000))
        with pytest.raises(SessionError, match="no receipt"):
            bank.receipt("nonsense")
        assert bank.position == before or bank.position == before + 1

    use("refuses", them[1], by=calls)


def test_another_class_and_a_bad_name_are_told(them: Cluster) -> None:
    async def open_as_another(bank: totempole.Replica[Bank]) -> None:
        await bank.call(Bank.put, "a", 1)
        async with totempole.connect(them[2].socket) as session:
            with pytest.raises(ObjectClassError, match="is a Bank"):
                async with session.replica(Ledger, "classes"):
                    pass
            for name in ("", "x" * 200, "a\nb"):
                with pytest.raises(SessionError, match="name"):
                    session.replica(Bank, name)
        with pytest.raises(SessionError, match="async with"):
            await session.replica(Bank, "classes").call(Bank.put, "a", 1)
        assert await bank.call(Bank.put, "a", 1) == 2

    use("classes", them[1], by=open_as_another)


def test_a_receipt_outlives_its_program(them: Cluster) -> None:
    texts: list[str] = []

    async def submits(bank: totempole.Replica[Bank]) -> None:
        receipt = await bank.submit(Bank.put, "ann", 5)
        texts.append(str(receipt))
        assert await receipt.result() == 5
        texts.append(str(await bank.submit(Bank.put, "ann", 6)))
        texts.append(str(await bank.submit(Bank.put, "ann", 7)))
        texts.append(str(await bank.submit(Bank.transfer, "bob", "ann", 1)))
        await bank.after(receipt)
        assert bank.peek(Bank.balance, "ann") >= 5

    async def asks(bank: totempole.Replica[Bank]) -> None:
        second = bank.receipt(texts[1], Bank.put)
        assert await second.result(timeout=10) == 11
        assert second.position is not None
        assert await bank.receipt(texts[2]).result(timeout=10) == 18
        with pytest.raises(Refused, match="bob has only 0"):
            await bank.receipt(texts[3]).result(timeout=10)
        with pytest.raises(SessionError, match="is one of 'other'"):
            bank.receipt("other" + texts[1].removeprefix("receipts"))
        with pytest.raises(SessionError, match="another method"):
            bank.receipt(texts[1], Bank.transfer)

    use("receipts", them[1], by=submits)
    use("receipts", them[3], by=asks)


def test_a_program_without_asyncio(them: Cluster) -> None:
    with (
        totempole.blocking.connect(them[1].socket) as one,
        totempole.blocking.connect(them[2].socket) as two,
        one.replica(Bank, "blocking") as here,
        two.replica(Bank, "blocking") as there,
    ):
        assert here.call(Bank.put, "ann", 10) == 10
        assert there.read(Bank.balance, "ann") == 10
        with pytest.raises(Refused):
            there.call(Bank.transfer, "ann", "bob", 99)
        assert there.call_many(Bank.put, [("bob", 1)] * 500)[-1] == 500
        assert here.within(LIMIT_S).read(Bank.balance, "bob") == 500
        receipt = here.submit(Bank.put, "ann", 1)
        assert receipt.result(timeout=LIMIT_S) == 11
        there.after(here.position)
        assert there.peek(Bank.balance, "ann") == 11
        assert there.receipt(str(receipt)).result(timeout=LIMIT_S) == 11
        wait_until(lambda: here.peek(Bank.balance, "bob") == 500)
        assert here.tentative.accounts == {"ann": 11, "bob": 500}
    with pytest.raises(SessionError, match="closed"):
        here.call(Bank.put, "ann", 1)


def test_a_closed_replica_says_so(them: Cluster) -> None:
    async def run() -> None:
        async with totempole.connect(them[1].socket) as session:
            async with session.replica(Bank, "closed") as bank:
                await bank.call(Bank.put, "a", 1)
            for ask in (bank.call(Bank.put, "a", 1), bank.read(Bank.balance, "a")):
                with pytest.raises(SessionError, match="closed"):
                    await ask
            with pytest.raises(SessionError, match="closed"):
                bank.peek(Bank.balance, "a")
            async with session.replica(Bank, "closed") as again:
                assert again.peek(Bank.balance, "a") == 1

    asyncio.run(asyncio.wait_for(run(), LIMIT_S))


def test_calls_that_are_cancelled(them: Cluster) -> None:
    async def run(bank: totempole.Replica[Bank]) -> None:
        await bank.call(Bank.put, "a", 1)
        unsent = asyncio.create_task(bank.call(Bank.put, "a", 10))
        await asyncio.sleep(0)
        sent = [asyncio.create_task(bank.call(Bank.put, "b", 1)) for _ in range(3)]
        unsent.cancel()
        await asyncio.sleep(0.001)
        for task in sent:
            task.cancel()
        await asyncio.gather(unsent, *sent, return_exceptions=True)
        assert await bank.call(Bank.put, "c", 1) == 1
        assert await bank.read(Bank.balance, "a") in (1, 11)
        assert await bank.read(Bank.balance, "b") in (0, 3)
        assert not bank._running.hosting.host.waiting_bytes

    use("cancelled", them[1], by=run)


def test_a_command_that_runs_out_of_stack_stops_no_host(them: Cluster) -> None:
    async def run() -> None:
        async with (
            totempole.connect(them[1].socket) as one,
            totempole.connect(them[2].socket) as two,
            one.replica(Bank, "deep") as here,
            two.replica(Bank, "deep") as there,
        ):
            assert await here.call(Bank.dig, 10) == 10
            calls = [here.call(Bank.put, "a", 1), here.call(Bank.dig, 100_000), there.call(Bank.put, "a", 1)]
            first, deep, second = await asyncio.gather(*calls, return_exceptions=True)
            assert {first, second} == {1, 2}
            assert isinstance(deep, totempole.CommandRaisedError)
            assert "RecursionError" in str(deep)
            assert await there.call(Bank.put, "a", 1) == 3
            assert await here.read(Bank.balance, "a") == 3

    asyncio.run(asyncio.wait_for(run(), LIMIT_S))
    with totempole.blocking.connect(them[3].socket) as session, session.replica(Bank, "deep") as bank:
        assert bank.peek(Bank.balance, "a") == 3
        with pytest.raises(totempole.CommandRaisedError, match="RecursionError"):
            bank.call(Bank.dig, 100_000)
        assert bank.call(Bank.put, "a", 1) == 4


class Forked:
    """Its state depends on the process that applies it."""

    object_limits = Limits(digest_every=50)

    def __init__(self) -> None:
        self.values: list[int] = []

    @command
    def add(self) -> None:
        self.values.append(id(self))


def test_hosts_that_differ_are_told(them: Cluster) -> None:
    async def run() -> None:
        told: list[str] = []
        async with (
            totempole.connect(them[1].socket) as one,
            totempole.connect(them[2].socket) as two,
            one.replica(Forked, "forked") as here,
            two.replica(Forked, "forked") as there,
        ):
            for bank in (here, there):
                bank.on_divergence(lambda divergence: told.append(str(divergence)))
            while not told:
                await here.call_many(Forked.add, [()] * 20)
        assert "different state at position" in told[0]

    asyncio.run(asyncio.wait_for(run(), LIMIT_S))


def test_a_program_begins_with_a_snapshot(them: Cluster) -> None:
    async def fill(bank: totempole.Replica[Bank]) -> None:
        snapshots = bank._running.hosting.snapshots
        assert snapshots is not None
        count = 0
        while not snapshots.taker.taken:
            count += 1
            assert await bank.call(Bank.keep, bytes([count % 256]) * 200_000) == 200_000
            await bank.call(Bank.put, "count", 1)
            assert bank._running.hosting.start == 0

    async def look(bank: totempole.Replica[Bank]) -> None:
        assert bank._running.hosting.start > 0
        count = await bank.read(Bank.balance, "count")
        assert bank._running.hosting.machine.state.kept[:1] == bytes([count % 256])
        assert await bank.call(Bank.put, "count", 1) == count + 1

    use("snapshots", them[1], by=fill)
    use("snapshots", them[1], by=look)


def test_a_session_that_does_not_come_back_says_what_it_does_not_know(tmp_path: Path) -> None:
    async def run(daemon: Daemon) -> None:
        async with (
            totempole.connect(daemon.socket, reconnect=False) as session,
            session.replica(Bank, "bank") as bank,
        ):
            daemon.process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]
            waiting = asyncio.create_task(bank.call(Bank.put, "a", 1))
            reading = asyncio.create_task(bank.read(Bank.balance, "a"))
            await asyncio.sleep(0.1)
            daemon.process.kill()  # type: ignore[union-attr]
            with pytest.raises(totempole.Unknown) as caught:
                await waiting
            assert str(caught.value.receipt).startswith("bank/put/")
            with pytest.raises(SessionError):
                await reading
            with pytest.raises(SessionError):
                await bank.call(Bank.put, "a", 1)

    log = LOG.replace("[1, 2, 3]", "[1]")
    with cluster(1, tmp_path, log) as found:
        wait_for_primary(found, 1)
        asyncio.run(asyncio.wait_for(run(found[1]), LIMIT_S))


def test_a_node_without_a_log_is_told(tmp_path: Path) -> None:
    async def run(config: NodeConfig) -> None:
        async with totempole.Node(config) as session:
            with pytest.raises(SessionError, match="log"):
                async with session.replica(Bank, "bank"):
                    pass

    with cluster(1, tmp_path, start=False) as found:
        asyncio.run(asyncio.wait_for(run(NodeConfig.load(found[1].file)), LIMIT_S))


def test_calls_are_applied_once_when_daemons_are_killed(tmp_path: Path) -> None:
    """Programs that have three daemons to go to, or only the one that is killed, and one without asyncio."""
    calls, done = 2_000, 0
    told: list[totempole.PrimaryChanged] = []

    async def caller(bank: totempole.Replica[Bank], name: str, count: int) -> None:
        nonlocal done
        for number in range(1, count + 1):
            assert await bank.call(Bank.put, name, 1) == number, "none was lost, and none applied twice"
            done += 1

    def blocking_caller(daemon: Daemon) -> None:
        with (
            totempole.blocking.connect(daemon.socket, reconnect=QUICK) as session,
            session.replica(Bank, "bank") as bank,
        ):
            for number in range(1, calls // 16 + 1):
                assert bank.call(Bank.put, "b0", 1) == number

    async def kill(found: Cluster) -> None:
        for part, number in enumerate((1, 2, 1), 1):
            while done < part * calls // 5:
                await asyncio.sleep(0.01)
            found[number].end(signal.SIGKILL)
            await asyncio.sleep(0.2)
            found[number].start()

    async def run(found: Cluster) -> None:
        sockets = [daemon.socket for daemon in found.daemons.values()]
        async with (
            totempole.connect(sockets, reconnect=QUICK) as one,
            totempole.connect(found[1].socket, reconnect=QUICK) as two,
            one.replica(Bank, "bank") as anywhere,
            two.replica(Bank, "bank") as first,
        ):
            anywhere.on_primary(told.append)
            async with asyncio.TaskGroup() as group:
                group.create_task(kill(found))
                group.create_task(asyncio.to_thread(blocking_caller, found[2]))
                for index in range(8):
                    group.create_task(caller(anywhere, f"a{index}", calls // 16))
                    group.create_task(caller(first, f"f{index}", calls // 16))
            expected = {f"{who}{index}": calls // 16 for who in "af" for index in range(8)}
            expected["b0"] = calls // 16
            assert await first.read(Bank.all) == expected
            assert await anywhere.read(Bank.all) == expected

    with three(tmp_path, BRISK) as found:
        asyncio.run(asyncio.wait_for(run(found), 2 * LIMIT_S))
    numbers = [primary.number for primary in told]
    assert (2, 3) in [primary.members for primary in told]
    assert numbers == sorted(set(numbers)), "new primaries are told, once and in order"


def test_a_minority_takes_calls_and_says_what_it_does_not_know(tmp_path: Path) -> None:
    texts: list[str] = []

    async def alone(bank: totempole.Replica[Bank]) -> None:
        receipt = await bank.within(LIMIT_S).submit(Bank.put, "ann", 1)
        texts.append(str(receipt))
        assert receipt.position is None
        with pytest.raises(totempole.Unknown) as caught:
            await receipt.result(timeout=0.2)
        assert caught.value.receipt == receipt
        with pytest.raises(totempole.Unknown) as caught:
            await bank.within(0.3).call(Bank.put, "ann", 10)
        assert caught.value.receipt is not None
        texts.append(str(caught.value.receipt))
        answers = await bank.within(0.3).call_many(Bank.put, [("ann", 100)] * 2, return_exceptions=True)
        assert [type(answer) for answer in answers] == [totempole.Unknown] * 2
        with pytest.raises(SessionError, match="nothing was read"):
            await bank.within(0.3).read(Bank.balance, "ann")
        assert bank.peek(Bank.balance, "ann") == 0
        assert bank.tentative.balance("ann") == 211

    async def together(bank: totempole.Replica[Bank]) -> None:
        first, second = [await bank.receipt(text).result(timeout=LIMIT_S) for text in texts]
        assert (first, second) == (1, 11)
        wait = asyncio.timeout(LIMIT_S)
        async with wait:
            while await bank.read(Bank.balance, "ann") != 211:
                await asyncio.sleep(0.02)

    with three(tmp_path, BRISK) as found:
        for number in (2, 3):
            found[number].end(signal.SIGKILL)
        wait_until(lambda: log_of(found[1]).get("standing") == "minority", found[1].log)
        use("bank", found[1], by=alone)
        found[3].start()
        wait_for_primary(found, 1, 3)
        use("bank", found[3], by=together)


def test_an_object_in_an_embedded_node(tmp_path: Path) -> None:
    async def run(config: NodeConfig, total: int) -> None:
        async with totempole.Node(config) as session, session.replica(Bank, "bank") as bank:
            assert await bank.call(Bank.put, "ann", 3) == total
            assert await bank.read(Bank.balance, "ann") == total

    log = LOG.replace("[1, 2, 3]", "[1]")
    with cluster(1, tmp_path, log, start=False) as found:
        config = NodeConfig.load(found[1].file)
        for total in (3, 6):  # it is still there when the program starts again
            asyncio.run(asyncio.wait_for(run(config, total), LIMIT_S))
