"""pytest's plugin: asynchronous tests run in virtual time.

A coroutine function is run by `totempole.testing.run`, unless it is marked for another plugin (`asyncio`,
`anyio`, `trio`); marked with `totem` it is in any case. `--totem-seed` runs the tests with one seed,
`--totem-real` on real daemons.

It is a module by itself, so that a run of pytest without such tests loads nothing of Totempole.
"""

from __future__ import annotations

import inspect
import os

import pytest

OTHERS = ("asyncio", "anyio", "trio")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("totempole")
    group.addoption("--totem-seed", type=int, metavar="N", help="the seed of simulated clusters")
    group.addoption("--totem-real", action="store_true", help="real daemons in place of simulated ones")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "totem: run this asynchronous test in virtual time")
    seed = config.getoption("--totem-seed")
    if seed is not None:
        os.environ["TOTEMPOLE_SEED"] = str(seed)
    if config.getoption("--totem-real"):
        os.environ["TOTEMPOLE_REAL"] = "1"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    __tracebackhide__ = True
    test = pyfuncitem.obj
    is_ours = pyfuncitem.get_closest_marker("totem") is not None
    is_others = any(pyfuncitem.get_closest_marker(name) is not None for name in OTHERS)
    if not inspect.iscoroutinefunction(test) or (is_others and not is_ours):
        return None
    from totempole.testing.running import run

    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    run(lambda: test(**arguments))
    return True
