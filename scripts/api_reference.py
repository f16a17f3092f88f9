"""Writes docs/api.md from the docstrings: `python scripts/api_reference.py`.

A public name is one of `totempole.__all__`, or a name of `totempole.blocking` below. `missing()` gives those
without a docstring; tests/docs/test_api_docs.py wants none, and the committed page to be current.
"""

from __future__ import annotations

import ast
import enum
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import totempole
from totempole.settings import kind_of, value_text

PAGE = Path(__file__).parent.parent / "docs" / "api.md"

SECTIONS: dict[str, tuple[str, ...]] = {
    "Sessions and nodes": (
        "connect",
        "Node",
        "run",
        "Session",
        "Group",
        "MulticastReceipt",
        "Delivered",
        "SessionEvents",
        "Primary",
        "Reconnect",
        "Tls",
    ),
    "Events": (
        "Messages",
        "View",
        "State",
        "Safe",
        "Gap",
        "Reconnected",
        "NetworkChanged",
        "NetworkStatus",
        "ProcessId",
        "Place",
        "Service",
        "AGREED",
        "SAFE",
    ),
    "The durable log": (
        "Log",
        "Receipt",
        "Fence",
        "Record",
        "LogBatch",
        "Notice",
        "Feed",
        "log_reader",
        "LogReader",
    ),
    "Replicated objects": (
        "command",
        "migration",
        "Replica",
        "CallReceipt",
        "PrimaryChanged",
        "Refused",
        "ordered",
    ),
    "Settings": (
        "NodeConfig",
        "NetworkConfig",
        "Peer",
        "SecurityConfig",
        "RingConfig",
        "RingKind",
        "RedundancyConfig",
        "GroupConfig",
        "ClientsConfig",
        "LogSection",
        "MetricsConfig",
        "TraceConfig",
        "LoggingConfig",
    ),
    "Errors": (
        "TotemError",
        "ConfigurationError",
        "SessionError",
        "TlsError",
        "Unknown",
        "NotPrimary",
        "FencedError",
        "NetworkError",
        "StorageError",
        "LogError",
        "ObjectError",
        "CommandRaisedError",
    ),
}
BLOCKING = ("connect", "Node", "Session", "Group")
"""Of `totempole.blocking`."""

INTERNAL = {
    "Session": frozenset(
        {
            "ask_log",
            "end_feed",
            "flush",
            "log_reconnect",
            "log_services",
            "over",
            "protocol",
            "reconnect",
            "wait_for_sent",
        }
    ),
}
"""Names without an underscore that are for other parts of the package."""
MADE = ("Node", "Primary", "blocking.Node")
"""Classes that are no dataclasses and that programs make themselves: how is shown."""

HEAD = """\
# API reference

Written from the docstrings by `scripts/api_reference.py`: edit those. All names are in the package
`totempole`. [Groups](groups.md), [the durable log](log.md), [replicated objects](objects.md) and
[running a node](node.md) say how they are used.
"""


class Member(NamedTuple):
    """A field, a property or a method of a class, or a public name."""

    name: str
    kind: str
    """field, property, method, class, function, value or module."""
    shown: str
    text: str


# What there is


def public_names() -> Iterator[tuple[str, Any]]:
    for names in SECTIONS.values():
        for name in names:
            yield name, getattr(totempole, name)
    for name in BLOCKING:
        yield f"blocking.{name}", getattr(totempole.blocking, name)


def missing() -> list[str]:
    """Public names, and members of public classes, without a docstring."""
    found = []
    for name, thing in public_names():
        if not _doc(thing, name):
            found.append(name)
        if inspect.isclass(thing):
            found += [f"{name}.{member.name}" for member in members(name, thing) if not member.text]
    return found


def members(name: str, cls: type) -> list[Member]:
    hidden = INTERNAL.get(name.rpartition(".")[2], frozenset())
    found: dict[str, Member] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("totempole"):
            found |= {member.name: member for member in _own_members(base, cls)}
    return [member for member in found.values() if member.name not in hidden]


def _own_members(base: type, cls: type) -> Iterator[Member]:
    texts = _field_texts(base)
    if issubclass(base, enum.Enum):
        for item in base:
            yield Member(item.name, "field", item.name, texts.get(item.name, ""))
        return
    if is_dataclass(base):
        for item in fields(base):
            if item.name in base.__annotations__ and not item.name.startswith("_"):
                text = texts.get(item.name) or item.metadata.get("meaning") or _more_of(item.metadata)
                yield Member(item.name, "field", _field(item), text)
    else:
        for name in (*getattr(base, "_fields", ()), *_told_fields(base, texts)):
            if not name.startswith("_"):
                yield Member(name, "field", name, texts.get(name, ""))
    for name, thing in vars(base).items():
        if not name.startswith("_"):
            yield from _method(name, thing)


def _more_of(metadata: Any) -> str:
    return (
        f"of several `[[{metadata['more_of']}]]` tables, those after the first"
        if "more_of" in metadata
        else ""
    )


def _told_fields(base: type, texts: dict[str, str]) -> list[str]:
    """Attributes with a docstring of their own, of a class that is no dataclass and no tuple."""
    known = {*getattr(base, "_fields", ()), *(name for name, thing in vars(base).items() if callable(thing))}
    return [name for name in texts if name not in known]


def _method(name: str, thing: Any) -> Iterator[Member]:
    if isinstance(thing, (classmethod, staticmethod)):
        thing = thing.__func__
    if isinstance(thing, property):
        yield Member(name, "property", name, inspect.getdoc(thing) or "")
    elif isinstance(thing, FunctionType):
        word = "await " if inspect.iscoroutinefunction(thing) else ""
        yield Member(
            name, "method", f"{word}{name}{_signature(thing, bound=True)}", inspect.getdoc(thing) or ""
        )


@cache
def _field_texts(cls: type) -> dict[str, str]:
    """The strings that stand below fields, and below attributes that `__init__` sets."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    bodies = [tree.body]
    bodies += [
        each.body for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"
    ]
    texts = {}
    for body in bodies:
        for before, after in pairwise(body):
            name, text = _target(before), _string(after)
            if name and text:
                texts[name] = inspect.cleandoc(text)
    return texts


def _target(statement: ast.stmt) -> str:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    target = targets[0]
    if isinstance(target, ast.Name):
        return target.id
    return target.attr if isinstance(target, ast.Attribute) else ""


def _string(statement: ast.stmt) -> str:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


# How it is shown


def _doc(thing: Any, name: str) -> str:
    if isinstance(thing, totempole.Service) or inspect.ismodule(thing):
        return f"`Service.{name}`." if name.isupper() else (thing.__doc__ or "")
    return "" if thing.__doc__ is None or _is_generated(thing) else inspect.cleandoc(thing.__doc__)


def _is_generated(thing: Any) -> bool:
    """Python's own text for dataclasses and named tuples."""
    return inspect.isclass(thing) and thing.__doc__.startswith(f"{thing.__name__}(")


def _field(item: Any) -> str:
    if item.default is MISSING:
        return (
            item.name
            if item.default_factory is MISSING
            else f"{item.name} = {item.default_factory.__name__}()"
        )
    if "kind" in item.metadata or "meaning" in item.metadata:
        return f"{item.name} = {value_text(kind_of(item).show(item.default))}"
    return f"{item.name} = {item.default!r}"


def _signature(function: Any, bound: bool = False) -> str:
    """With annotations as they are written, and not as strings."""
    signature = inspect.signature(function)
    parameters = [_plain(each) for each in list(signature.parameters.values())[1 if bound else 0 :]]
    answer = signature.return_annotation
    text = str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    return text if answer in ("None", inspect.Signature.empty) else f"{text} -> {answer}"


class _Written(str):
    """An annotation that is shown without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    changed: dict[str, Any] = {}
    if parameter.annotation is not inspect.Parameter.empty:
        changed["annotation"] = _Written(parameter.annotation)
    if isinstance(parameter.default, enum.Enum):
        changed["default"] = _Written(parameter.default.name)
    return parameter.replace(**changed)


def entry(name: str, thing: Any) -> Iterator[str]:
    text = _doc(thing, name)
    if inspect.isclass(thing):
        yield f"### {name}\n"
        yield text + "\n"
        yield from _constructor(name, thing)
        yield from _table(members(name, thing))
        yield from _methods(members(name, thing))
    elif inspect.isroutine(thing):
        yield f"### {name}\n"
        yield f"```\n{name}{_signature(thing)}\n```\n"
        yield text + "\n"
    else:
        yield f"### {name}\n"
        yield text.strip() + "\n"


def _constructor(name: str, cls: type) -> Iterator[str]:
    if name in MADE:
        init = vars(cls)["__init__"]
        yield f"```\n{name}{_signature(init, bound=True)}\n```\n"
        if init.__doc__:
            yield inspect.cleandoc(init.__doc__) + "\n"


def _table(found: list[Member]) -> Iterator[str]:
    rows = [member for member in found if member.kind != "method"]
    if rows:
        lines = ["| name | is |", "|---|---|"]
        for member in rows:
            text = " ".join(member.text.split()).replace("|", "\\|")
            lines.append(f"| `{member.shown}` | {text} |")
        yield "\n".join(lines) + "\n"


def _methods(found: list[Member]) -> Iterator[str]:
    for member in found:
        if member.kind == "method":
            yield f"**`{member.shown}`**\n"
            yield member.text + "\n"


def page() -> str:
    parts = [HEAD]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in names:
            parts += entry(name, getattr(totempole, name))
    parts.append("## Without asyncio\n")
    parts.append("`totempole.blocking` has the same names, without `async` and `await`.\n")
    for name in BLOCKING:
        parts += entry(f"blocking.{name}", getattr(totempole.blocking, name))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
