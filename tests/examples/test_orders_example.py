"""The example examples/orders: its books find every error, and the whole of it survives what it kills."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from daemons import wait_until

ORDERS = Path(__file__).parents[2] / "examples" / "orders"
LIMIT_S = 1200
"""A run that ends takes a minute or two; one that fails may have met a very busy machine."""
COUNT = 40


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Its modules can be imported, and are forgotten after."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(ORDERS))
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(ORDERS)):
            del sys.modules[name]


# Books


def records(count: int) -> list[tuple[str, int, int, bytes]]:
    """So many orders, each with its invoice behind it."""
    from books import prices
    from produce import order

    found, price = [], prices()
    for number in range(count):
        placed = order(number)
        invoice = placed | {"position": 2 * number, "amount": placed["quantity"] * price[placed["product"]]}
        found.append(("orders", 2 * number, 0, json.dumps(placed).encode()))
        found.append(("invoices", 2 * number + 1, 0, json.dumps(invoice).encode()))
    return found


def books_of(rows: list[tuple[str, int, int, bytes]]) -> Any:
    from books import Books

    books = Books()
    for row in rows:
        books.add(*row)
    return books


def table_of(rows: list[tuple[str, int, int, bytes]]) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for log, _, _, payload in rows:
        if log == "invoices":
            sold = json.loads(payload)
            row = table.setdefault(sold["product"], dict.fromkeys(("orders", "quantity", "amount"), 0))
            row["orders"] += 1
            row["quantity"] += sold["quantity"]
            row["amount"] += sold["amount"]
            row["position"] = sold["position"]
    return table


def wrong_rows(rows: list[tuple[str, int, int, bytes]], table: dict[str, dict[str, int]]) -> list[str]:
    from books import compare

    compared = compare(books_of(rows), table, COUNT)
    return [what.strip() for what, expected, found in compared if expected != found]


@pytest.mark.usefixtures("example")
def test_books_that_are_right() -> None:
    rows = records(COUNT)
    books = books_of(rows)
    assert not wrong_rows(rows, table_of(rows))
    assert (len(books.orders), books.invoices, books.waiting) == (COUNT, COUNT, {})
    assert books.amount_ordered == books.amount_invoiced > 0
    assert not books.problems


@pytest.mark.usefixtures("example")
def test_books_find_what_is_missing() -> None:
    rows = records(COUNT)
    table = table_of(rows)
    assert {"orders in the log", "invoices in the log"} <= {*wrong_rows(rows[:-2], table)}
    assert {"invoices in the log", "orders without an invoice"} <= {*wrong_rows(rows[:-1], table)}


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize(
    ("row", "problem"), [(4, "order-000002 is in the log twice"), (5, "order-000002 has two invoices")]
)
def test_books_find_what_is_there_twice(row: int, problem: str) -> None:
    rows = records(COUNT)
    books = books_of([*rows, rows[row]])
    assert books.problems == [problem]
    assert "twice, or wrong" in wrong_rows([*rows, rows[row]], table_of(rows))


@pytest.mark.usefixtures("example")
def test_books_find_an_invoice_that_is_wrong_or_too_early() -> None:
    rows = records(COUNT)
    log, position, time_us, payload = rows[7]
    cheaper = json.dumps(json.loads(payload) | {"amount": 1}).encode()
    assert (
        "order-000003 has an invoice of 1"
        in books_of([*rows[:7], (log, position, time_us, cheaper)]).problems[0]
    )
    assert books_of([rows[1], rows[0]]).problems == ["order-000000 was never ordered"]


@pytest.mark.usefixtures("example")
def test_books_find_an_order_with_other_content() -> None:
    rows = records(COUNT)
    other = json.dumps(json.loads(rows[0][3]) | {"quantity": 77}).encode()
    assert "with the content that was sent" in wrong_rows(
        [("orders", 0, 0, other), *rows[1:]], table_of(rows)
    )


@pytest.mark.usefixtures("example")
def test_books_compare_the_running_table_at_its_own_position() -> None:
    rows = records(COUNT)
    books = books_of(rows)
    half = table_of(rows[:COUNT])
    books.check_table(half)
    assert not books.problems
    assert books.table_position == COUNT - 2
    whole = table_of(rows)
    whole["tea"]["amount"] += 1
    books.check_table(whole)
    assert len(books.problems) == 1
    assert "tea" in books.problems[0]
    assert wrong_rows(rows, whole) == ["running table: tea"]


@pytest.mark.usefixtures("example")
def test_books_wait_for_orders_that_the_running_table_has_already() -> None:
    rows = records(COUNT)
    books = books_of(rows[:COUNT])
    books.check_table(table_of(rows))
    assert books.table_position == -1
    assert not books.problems


@pytest.mark.usefixtures("example")
def test_orders_are_the_same_in_every_life_of_the_producers_and_have_prices() -> None:
    from books import prices
    from produce import PRODUCTS, order

    assert [order(number) for number in range(COUNT)] == [order(number) for number in range(COUNT)]
    assert len({order(number)["id"] for number in range(COUNT)}) == COUNT
    assert {*PRODUCTS} == {*prices()}


# Nodes and parts


@pytest.mark.usefixtures("example")
def test_the_settings_of_nodes_can_be_loaded(tmp_path: Path) -> None:
    from nodes import NUMBERS, write_settings

    from totempole import NodeConfig

    configs = [NodeConfig.load(write_settings(tmp_path, number)) for number in NUMBERS]
    assert [config.processor for config in configs] == [1, 2, 3]
    assert len({config.networks[0].address for config in configs}) == 3


@pytest.mark.usefixtures("example")
def test_a_part_that_ends_is_started_again_and_dies_with_its_children(tmp_path: Path) -> None:
    from parts import Part, descendants

    part = Part("part", [sys.executable, "-c", FORKING], tmp_path)
    try:
        for _ in range(2):
            wait_until(lambda: part.keep_running() or (part.process and descendants(part.process.pid)))
            pids = [part.process.pid, *descendants(part.process.pid)]
            part.kill(down_s=0.0)
            wait_until(lambda pids=pids: not [pid for pid in pids if is_alive(pid)])
    finally:
        part.end()


FORKING = "import os, time; os.fork(); time.sleep(600)"


def is_alive(pid: int) -> bool:
    """A zombie is not: whoever is to take its exit code may take its time."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# The whole


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run(*arguments: object) -> str:
    argv = [sys.executable, str(ORDERS / "run.py"), *map(str, arguments), "--port", str(free_port())]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            out, _ = process.communicate(timeout=LIMIT_S)
        except BaseException:
            process.send_signal(signal.SIGTERM)
            print(process.communicate()[0])
            raise
    assert process.returncode == 0, out
    return out


@pytest.mark.nodes
@pytest.mark.usefixtures("example")
def test_orders_are_in_the_log_once_and_on_the_dashboard(tmp_path: Path) -> None:
    """The producers and a node are killed. The producers begin again."""
    from nodes import Nodes
    from parts import Part

    def program(name: str, *words: object) -> Part:
        argv = [sys.executable, str(ORDERS / f"{name}.py"), str(tmp_path), *map(str, words)]
        return Part(name, argv, tmp_path)

    def state() -> dict[str, Any]:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/state", timeout=LIMIT_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
        return {"orders": 0}

    port = free_port()
    producers, dashboard = (
        program("produce", "--orders", 300, "--rate", 200),
        program("dashboard", "--port", port),
    )
    with Nodes(tmp_path) as nodes:
        try:
            producers.start()
            dashboard.start()
            wait_until(lambda: state()["orders"] > 50)
            producers.kill(down_s=0.0)
            nodes.kill(1)
            wait_until(lambda: producers.keep_running() or producers.is_done)
            wait_until(lambda: state()["orders"] == 300)
            seen = state()
            assert [node["standing"] for node in seen["nodes"]] == ["down", "primary", "primary"]
            assert (seen["waiting"], seen["invoices"], seen["problems"]) == (300, 0, [])
            assert seen["ordered"] == seen["unpaid"] > 0
            with urlopen(f"http://127.0.0.1:{port}/", timeout=LIMIT_S) as answer:
                assert b"Orders, live" in answer.read()
        finally:
            producers.end()
            dashboard.end()


@pytest.mark.long
@pytest.mark.nodes
@pytest.mark.spark
def test_every_order_has_one_invoice_though_all_parts_are_killed() -> None:
    out = run("--fire", "--orders", 1000, "--rate", 50, "--ahead", 100, "--seed", 1)
    assert "WRONG" not in out
    for kind in ("node", "executor", "driver", "producers"):
        assert f"{kind} " in out.partition("killed:")[2], out


def test_the_notebook_has_no_outputs() -> None:
    cells = json.loads((ORDERS / "orders.ipynb").read_text())["cells"]
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]


NOTEBOOK = """
import json
cells = [cell for cell in json.load(open("orders.ipynb"))["cells"] if cell["cell_type"] == "code"]
names = {}
try:
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
finally:
    names["nodes"].close()
"""


@pytest.mark.long
@pytest.mark.nodes
@pytest.mark.spark
def test_the_notebook_runs(tmp_path: Path) -> None:
    """Its cells assert what they say."""
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK],
        cwd=ORDERS,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
