"""One of the two processes that `twins` starts: applies the commands it is given, and tells what it then
holds.

It is run as a program. It reads one JSON object from its input and writes a line of JSON after each command:
the outcome, the attributes that have changed, and what the command has called that is different in every
process.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import random
import sys
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

CLOCK_SHIFT_S = 34_567_890.5
"""More than a year: one of the twins lives in the future."""
BALLAST = 100_000
"""Objects that move all later ones to other addresses."""
_held: list[object] = []
CLOCKS = ("time", "monotonic", "perf_counter", "process_time")

SUSPECTS = {
    ("time", name): f"time.{name}" for clock in (*CLOCKS, "thread_time") for name in (clock, f"{clock}_ns")
} | {
    ("time", "localtime"): "time.localtime",
    ("time", "gmtime"): "time.gmtime",
    ("time", "strftime"): "time.strftime",
    ("builtins", "id"): "id()",
    ("builtins", "hash"): "hash()",
    ("builtins", "open"): "open()",
    ("_io", "open"): "open()",
    ("posix", "urandom"): "os.urandom (secrets, uuid4)",
    ("posix", "getpid"): "os.getpid",
    ("posix", "getcwd"): "os.getcwd",
    ("posix", "listdir"): "os.listdir",
    ("_socket", "gethostname"): "socket.gethostname",
    ("_uuid", "generate_time_safe"): "uuid.uuid1",
}
"""Functions whose answers differ from process to process."""


def main() -> None:
    task = json.load(sys.stdin)
    _be_different(task["twin"])
    sys.path[:] = task["path"]
    # Not before: the clock is another one from here on.
    from totempole.checkers.describing import described_attributes
    from totempole.objects.commands import ObjectType
    from totempole.objects.machine import ObjectMachine

    cls = _class_of(task["module"], task["file"], task["class"])
    object_type: ObjectType[Any] = ObjectType.of(cls)
    suspects: set[str] = set()
    before: dict[str, str] = {}
    # What other code of this process prints must not get between the lines.
    tell, sys.stdout = _teller(), sys.stderr
    with _watched(suspects):
        machine: Any = ObjectMachine(object_type)
    for number, payload in enumerate(task["payloads"]):
        with _watched(suspects):
            outcomes = machine.apply(b64decode(payload), number, task["time_us"] + number * 1_000)
        restored = bool(task["restore_every"]) and number % task["restore_every"] == task["restore_every"] - 1
        if restored:
            machine = ObjectMachine.restore(object_type, machine.snapshot())
        after = described_attributes(machine.state)
        tell(
            outcomes=[[int(each.kind), each.value.hex()] for each in outcomes],
            changed={name: text for name, text in after.items() if before.get(name) != text},
            gone=[name for name in before if name not in after],
            suspects=sorted(suspects),
            restored=restored,
        )
        before = after
        suspects.clear()


def _be_different(twin: int) -> None:
    random.seed(twin)
    if twin:
        for clock in CLOCKS:
            _shift(clock, CLOCK_SHIFT_S)
            _shift(f"{clock}_ns", int(CLOCK_SHIFT_S * 1e9))
        _held.extend(object() for _ in range(BALLAST))


def _shift(name: str, by: float) -> None:
    original: Callable[[], Any] = getattr(time, name)
    setattr(time, name, lambda: original() + by)


def _teller() -> Callable[..., None]:
    out = sys.stdout

    def tell(**values: Any) -> None:
        out.write(json.dumps(values) + "\n")
        out.flush()

    return tell


@contextmanager
def _watched(suspects: set[str]) -> Iterator[None]:
    """Notes the functions of SUSPECTS that are called by the object's own code."""
    shared: Any = getattr(random, "_inst", None)

    def watch(frame: FrameType, event: str, called: Any) -> None:
        if event != "c_call" or str(frame.f_globals.get("__name__", "")).startswith("totempole."):
            return
        module, name = getattr(called, "__module__", None), getattr(called, "__name__", "")
        owner = getattr(called, "__self__", None)
        suspect = SUSPECTS.get((str(module), name))
        if suspect is not None:
            suspects.add(suspect)
        elif owner is shared and shared is not None:
            suspects.add("random")
        elif (
            isinstance(owner, type) and owner.__module__ == "datetime" and name in ("now", "today", "utcnow")
        ):
            suspects.add(f"{owner.__name__}.{name}")

    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)


def _class_of(module_name: str, file: str, qualified: str) -> type:
    found: Any = _module(module_name, file)
    for name in qualified.split("."):
        found = getattr(found, name)
    assert isinstance(found, type), f"{qualified} is a class"
    return found


def _module(name: str, file: str) -> ModuleType:
    """As the parent has it: by its name, or, as test files often have to be, from its file."""
    if name != "__main__":
        try:
            module = importlib.import_module(name)
            if getattr(module, "__file__", None) == file:
                return module
        except ImportError:
            pass
    name = "twin_main" if name == "__main__" else name
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None, "a Python file"
    assert spec.loader is not None, "a Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
