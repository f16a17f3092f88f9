"""What the records must add up to. The dashboard looks at it live, and `run.py` at the end.

There is one order over all logs, so one reading of it is enough. An order comes before its invoice, or there
is something wrong. Money is in cents: whole numbers add up exactly.
"""

from __future__ import annotations

import csv
import json
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet
from produce import order

PRICES = Path(__file__).with_name("prices.csv")


class Sale(NamedTuple):
    position: int
    time_us: int
    product: str
    quantity: int
    amount: int


@dataclass
class Totals:
    """One row of the running table, as the log has it."""

    orders: int = 0
    quantity: int = 0
    amount: int = 0

    def add(self, sale: Sale) -> None:
        self.orders += 1
        self.quantity += sale.quantity
        self.amount += sale.amount


def prices() -> dict[str, int]:
    with PRICES.open(encoding="utf-8") as file:
        return {row["product"]: int(row["price"]) for row in csv.DictReader(file)}


@dataclass
class Books:
    prices: dict[str, int] = field(default_factory=prices)
    orders: dict[str, Sale] = field(default_factory=dict)
    """By id."""
    waiting: dict[str, Sale] = field(default_factory=dict)
    """Orders without an invoice, the oldest first."""
    amount_ordered: int = 0
    amount_invoiced: int = 0
    invoices: int = 0
    problems: list[str] = field(default_factory=list)
    table: dict[str, Totals] = field(default_factory=dict)
    """What the running table must be, after the orders up to `table_position`."""
    table_position: int = -1
    _later: deque[Sale] = field(default_factory=deque)
    """Orders that the running table does not have yet."""

    def add(self, log: str, position: int, time_us: int, payload: bytes) -> Sale | None:
        """Takes the next record of the order. Of an invoice: the order that it is for."""
        if log == "orders":
            self._add_order(json.loads(payload), position, time_us)
        elif log == "invoices":
            return self._add_invoice(json.loads(payload))
        return None

    def _add_order(self, content: dict[str, object], position: int, time_us: int) -> None:
        id, product, quantity = str(content["id"]), str(content["product"]), int(str(content["quantity"]))
        sale = Sale(position, time_us, product, quantity, quantity * self.prices[product])
        if id in self.orders:
            self.problems.append(f"{id} is in the log twice")
            return
        self.orders[id] = self.waiting[id] = sale
        self.amount_ordered += sale.amount
        self._later.append(sale)

    def _add_invoice(self, content: dict[str, object]) -> Sale | None:
        id, amount = str(content["id"]), int(str(content["amount"]))
        self.invoices += 1
        self.amount_invoiced += amount
        sale = self.waiting.pop(id, None)
        if sale is None:
            self.problems.append(f"{id} has two invoices" if id in self.orders else f"{id} was never ordered")
        elif (sale.position, sale.amount) != (content["position"], amount):
            self.problems.append(f"{id} has an invoice of {amount} for order {content['position']}: {sale}")
        return sale

    def check_table(self, found: dict[str, dict[str, int]]) -> None:
        """Compares the running table with the log, if it is newer than the one before."""
        position = max([row["position"] for row in found.values()], default=-1)
        last = self._later[-1].position if self._later else self.table_position
        if not self.table_position < position <= last:
            return  # seen before, or of orders that are on their way to us
        while self._later and self._later[0].position <= position:
            sale = self._later.popleft()
            self.table.setdefault(sale.product, Totals()).add(sale)
        self.table_position = position
        for product in sorted(self.table.keys() | found.keys()):
            expected = vars(self.table.get(product, Totals()))
            row = {name: found.get(product, {}).get(name, 0) for name in expected}
            if row != expected:
                self.problems.append(f"running table at {position}: {product} has {row}, not {expected}")


def newest_table(directory: Path) -> dict[str, dict[str, int]]:
    """The running table by product, after the last batch that is complete."""
    batches = [int(file.parent.name.removeprefix("batch=")) for file in directory.glob("table/*/_SUCCESS")]
    if not batches:
        return {}
    try:
        rows = pyarrow.parquet.read_table(directory / f"table/batch={max(batches)}", partitioning=None)
    except (OSError, pyarrow.ArrowInvalid):  # it is just being written once more, after a crash
        return {}
    return {row.pop("product"): row for row in rows.to_pylist()}


def compare(
    books: Books, table: dict[str, dict[str, int]], count: int
) -> list[tuple[str, int | str, int | str]]:
    """What there must be after so many orders, and what there is."""
    expected: dict[str, Totals] = {}
    content = {str(placed["id"]): placed for placed in map(order, range(count))}
    for placed in content.values():
        product, quantity = str(placed["product"]), int(str(placed["quantity"]))
        sale = Sale(0, 0, product, quantity, quantity * books.prices[product])
        expected.setdefault(product, Totals()).add(sale)
    sent = {id: (placed["product"], placed["quantity"]) for id, placed in content.items()}
    as_sent = [id for id, sale in books.orders.items() if sent.get(id) == (sale.product, sale.quantity)]
    total = sum(row.amount for row in expected.values())
    rows: list[tuple[str, int | str, int | str]] = [
        ("orders in the log", count, len(books.orders)),
        ("  with the content that was sent", count, len(as_sent)),
        ("invoices in the log", count, books.invoices),
        ("orders without an invoice", 0, len(books.waiting)),
        ("twice, or wrong", 0, len(books.problems)),
        ("sum of the invoices", money(total), money(books.amount_invoiced)),
    ]
    for product in sorted(expected.keys() | table.keys()):
        found = {name: table.get(product, {}).get(name, 0) for name in vars(Totals())}
        wanted = expected.get(product, Totals())
        rows.append((f"running table: {product}", shown(wanted), shown(Totals(**found))))
    return rows


def shown(row: Totals) -> str:
    return f"{row.orders} / {row.quantity} / {money(row.amount)}"


def money(cents: int) -> str:
    return f"{cents / 100:,.2f}"
