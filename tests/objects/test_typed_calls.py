"""A user's program under mypy --strict: calls are checked against the methods of the user's own class."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

PROGRAM = """
import totempole
from totempole import Refused, command, ordered


class Bank:
    def __init__(self) -> None:
        self.accounts: dict[str, int] = {}

    @command
    def transfer(self, source: str, target: str, amount: int = 1) -> int:
        if self.accounts.get(source, 0) < amount:
            raise Refused("not enough")
        return ordered.token()

    def balance(self, name: str) -> int:
        return self.accounts.get(name, 0)


async def main() -> None:
    async with totempole.connect() as session, session.replica(Bank, "bank") as bank:
        left: int = await bank.call(Bank.transfer, "ann", "bob", 10)
        left = await bank.within(5).call(Bank.transfer, "ann", target="bob")
        many: list[int] = await bank.call_many(Bank.transfer, [("ann", "bob", 1)])
        some = await bank.call_many(Bank.transfer, [("ann", "bob")], return_exceptions=True)
        errors = [each for each in some if isinstance(each, Exception)]
        receipt = await bank.submit(Bank.transfer, "ann", "bob", 5)
        left = await receipt.result(timeout=3)
        again = bank.receipt(str(receipt), Bank.transfer)
        left = await again.result()
        await bank.after(receipt)
        print(left, many, errors, bank.tentative.balance("ann"))
        read: int = await bank.read(Bank.balance, "ann")
        peeked: int = bank.peek(Bank.balance, "ann")
        print(read, peeked)
        try:
            await bank.call(Bank.transfer, "ann", "bob")
        except totempole.Unknown as unknown:
            print(unknown.receipt)


def blocking() -> None:
    with totempole.blocking.connect() as session, session.replica(Bank, "bank") as bank:
        left: int = bank.call(Bank.transfer, "ann", "bob", 10)
        left = bank.submit(Bank.transfer, "ann", "bob").result()
        print(left, bank.read(Bank.balance, "ann") + bank.peek(Bank.balance, "ann"))
"""

MISTAKES = (
    'await bank.call(Bank.transfer, "ann", 10)',
    'await bank.call(Bank.transfer, "ann")',
    'await bank.call(Bank.transfer, "ann", "bob", many=1)',
    "await bank.read(Bank.balance, 7)",
    "bank.peek(Bank.balance)",
    "await bank.call(str.upper)",
    'text: str = await bank.call(Bank.transfer, "ann", "bob")',
    'receipt: totempole.CallReceipt[str] = await bank.submit(Bank.transfer, "ann", "bob")',
    "bank.tentative.nothing()",
)


def mypy(directory: Path, program: str) -> list[str]:
    file = directory / "program.py"
    file.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(directory / "cache"), str(file)]
    return subprocess.run(command, capture_output=True, text=True, cwd=directory).stdout.splitlines()


def test_a_program_is_typed_and_mistakes_are_found(tmp_path: Path) -> None:
    assert mypy(tmp_path, PROGRAM)[-1].startswith("Success")
    head, _, _ = PROGRAM.partition("        left: int")
    mistakes = "".join(f"        {mistake}\n" for mistake in MISTAKES)
    found = mypy(tmp_path, head + mistakes)
    first = len(head.splitlines()) + 1
    for line, mistake in enumerate(MISTAKES, first):
        assert any(f":{line}: error:" in each for each in found), (mistake, found)
