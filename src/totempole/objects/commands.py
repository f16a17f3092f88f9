"""What a class must say to become a replicated object, and what is made of it.

    class Bank:
        object_version = 1

        def __init__(self) -> None:
            self.accounts: dict[str, int] = {}

        @command
        def transfer(self, source: str, target: str, amount: int) -> int:
            if self.accounts.get(source, 0) < amount:
                raise Refused("not enough")
            ...

The class stays plain. A command is applied at every host, in the order of the log. It must depend on nothing
but the state, its arguments and `ordered`. It must check before it changes: if it raises, what it has changed
by then stays changed, at every host alike. It must end: a command that does not stops every host at the same
place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Generic, TypeVar, cast, get_type_hints, overload

from totempole.errors import CannotCarryError, ObjectError
from totempole.objects.codec import Codec, write
from totempole.objects.records import METHOD_CHARACTERS_MAX, Call, Kind, Limits, Outcome

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

SINCE: Final = "__totempole_command_since__"
FROM_VERSION: Final = "__totempole_migration_from__"


class Refused(Exception):
    """A command raises it to say no. It is a result like any other, and the same at every host: the caller
    gets it with its text."""


class CommandRaisedError(ObjectError):
    """The command raised an exception that is not `Refused`, at every host alike. The text names it."""


class TooOldError(ObjectError):
    """The call was sent again so late that its outcome is no longer known. It was not applied again."""


class CallRefusedError(ObjectError):
    """The object does not know the command, its version or its arguments. It was not applied."""


@overload
def command(method: F, /) -> F: ...
@overload
def command(*, since: int) -> Callable[[F], F]: ...
def command(method: Callable[..., Any] | None = None, /, *, since: int = 0) -> Callable[..., Any]:
    """Marks a method as a command, and returns it as it is. `since`: the first version of the object that has
    it."""

    def mark(marked: F) -> F:
        setattr(marked, SINCE, since)
        return marked

    return mark if method is None else mark(method)


def migration(from_version: int) -> Callable[[F], F]:
    """Marks a static method that makes the state of this version of one of `from_version`. The annotation of
    its parameter is the class of that version, with its commands: hosts need it until all have upgraded."""

    def mark(function: F) -> F:
        inner = function.__func__ if isinstance(function, staticmethod) else function
        setattr(inner, FROM_VERSION, from_version)
        return function

    return mark


class Command:
    """One command of a class: how its arguments and its result are written."""

    __slots__ = (
        "_arguments",
        "_defaults",
        "_quick_types",
        "call",
        "decode",
        "decode_quickly",
        "function",
        "keywords",
        "name",
        "parameters",
        "quick_results",
        "result",
        "since",
    )

    def __init__(self, cls: type, name: str, function: Callable[..., Any], since: int) -> None:
        where = f"{cls.__name__}.{name}"
        _refuse_function(where, name, function)
        self.name = name
        self.function = function
        self.since = since
        parameters = list(inspect.signature(function).parameters.values())
        if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
            raise ObjectError(f"{where}: a command is a method, and takes self")
        parameters = parameters[1:]
        for each in parameters:
            if each.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                raise ObjectError(
                    f"{where}: *{each.name} cannot be carried: name each parameter, or take a list"
                )
        self.parameters = tuple([each.name for each in parameters])
        self.keywords = tuple([p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY])
        """Those at the end that can only be given by name."""
        self._defaults = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
        hints = _hints(where, function)
        types = [hints.get(parameter, Any) for parameter in self.parameters]
        for parameter, annotation in zip(self.parameters, types, strict=True):
            _carried(f"{where}, parameter {parameter!r}", annotation)
        self._arguments: Codec[Any] = Codec(tuple[tuple(types)] if types else tuple[()])  # type: ignore[misc]
        quick = [_only(Codec(annotation).quick) for annotation in types]
        self._quick_types = None if self.keywords or None in quick else tuple(quick)
        """Arguments of exactly these types are carried as they are, and need no check. None: there are none
        such."""
        self.decode = self._arguments.decode
        self.decode_quickly = self._arguments.decode_quickly
        self.result: Codec[Any] = _carried(f"{where}, result", hints.get("return", Any))
        self.quick_results = self.result.quick
        self.call: Callable[..., Any] = self._call_by_name if self.keywords else function
        """Takes the state, and the arguments as they are decoded."""

    def encode(self, where: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """All arguments in the order of the parameters, defaults filled in: hosts do not look at their
        own."""
        if not kwargs and tuple(map(type, args)) == self._quick_types:
            try:
                return write(tuple(args))
            except (OverflowError, UnicodeEncodeError):
                pass  # a large int, or half of a character
        values = self._bind(where, args, kwargs)
        try:
            content = self._arguments.encode(values)
            self._arguments.decode(content)
            return content
        except CannotCarryError:
            self._blame(where, values)
            raise

    def _bind(self, where: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        names = self.parameters
        if len(args) == len(names) and not kwargs and not self.keywords:
            return tuple(args)
        positional = len(names) - len(self.keywords)
        if len(args) > positional:
            raise ObjectError(f"{where} takes {positional} positional arguments, and was given {len(args)}")
        given = {**self._defaults, **dict(zip(names, args, strict=False))}
        for name, value in kwargs.items():
            if name not in names:
                raise ObjectError(f"{where} has no parameter {name!r}")
            if name in names[: len(args)]:
                raise ObjectError(f"{where}: parameter {name!r} is given twice")
            given[name] = value
        missing = [name for name in names if name not in given]
        if missing:
            raise ObjectError(f"{where}: parameter {missing[0]!r} is not given")
        return tuple([given[name] for name in names])

    def _blame(self, where: str, values: tuple[Any, ...]) -> None:
        """Raises the error again with the name of the parameter."""
        hints = _hints(where, self.function)
        for name, value in zip(self.parameters, values, strict=True):
            try:
                Codec(hints.get(name, Any)).encode_checked(value)
            except CannotCarryError as error:
                raise CannotCarryError(f"{where}, parameter {name!r}: {error}") from None

    def _call_by_name(self, state: Any, *arguments: Any) -> Any:
        count = len(arguments) - len(self.keywords)
        named = dict(zip(self.keywords, arguments[count:], strict=True))
        return self.function(state, *arguments[:count], **named)


def _only(types: frozenset[type]) -> type | None:
    """The one that it has."""
    return next(iter(types)) if len(types) == 1 else None


class ObjectType(Generic[T]):
    """What is known of a class: its name, its version and its commands. `ObjectType.of(Bank)`."""

    def __init__(self, cls: type[T]) -> None:
        self.cls = cls
        self.name: str = getattr(cls, "object_name", cls.__name__)
        self.version: int = getattr(cls, "object_version", 1)
        self.runs_from: int = getattr(cls, "object_runs_from", self.version)
        """The class runs commands of the versions from this one on as they ran then. Its state has not
        changed."""
        self.limits: Limits = getattr(cls, "object_limits", Limits())
        _check_attributes(self)
        self.commands: dict[str, Command] = {}
        for name in dir(cls):
            marked = inspect.getattr_static(cls, name)
            inner = getattr(marked, "__func__", marked)
            since = getattr(inner, SINCE, getattr(marked, SINCE, None))
            if since is not None:
                if inner is not marked:
                    raise ObjectError(
                        f"{cls.__name__}.{name}: a command is a plain method, no static or class method"
                    )
                self.commands[name] = Command(cls, name, marked, since)
        if not self.commands:
            raise ObjectError(
                f"{cls.__name__} has no commands: mark the methods that change it with @command"
            )

    @staticmethod
    def of(cls: type[T]) -> ObjectType[T]:
        """The same one each time. Raises ObjectError if the class cannot be an object."""
        if not isinstance(cls, type):
            raise ObjectError(f'{cls!r} is no class: give the class itself, as in replica(Bank, "bank")')
        return cast("ObjectType[T]", _type_of(cast(Any, cls)))

    def command_of(self, method: Callable[..., Any] | str) -> Command:
        """By the method itself, of this class, a base or another version of it; or by its name."""
        name = method if isinstance(method, str) else getattr(method, "__name__", str(method))
        found = self.commands.get(name)
        if found is None:
            known = ", ".join(self.commands)
            raise ObjectError(
                f"{self.cls.__name__}.{name} is no command: mark it with @command (it has {known})"
            )
        return found

    def encode_call(
        self,
        method: Callable[..., Any] | str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        number: int = 0,
    ) -> Call:
        """Raises ObjectError, with the parameter's name, before anything is sent."""
        found = self.command_of(method)
        return Call(number, found.name, found.encode(f"{self.cls.__name__}.{found.name}", args, kwargs or {}))

    def decode_result(self, method: Callable[..., Any] | str, outcome: Outcome) -> Any:
        """The result of a call, or what the caller is to be told: raises Refused, CommandRaisedError,
        TooOldError or CallRefusedError."""
        if outcome.kind is Kind.DONE:
            return self.command_of(method).result.decode(outcome.value)
        raise error_of(outcome)


def error_of(outcome: Outcome) -> Exception:
    """What an outcome that is not DONE raises at its caller."""
    if outcome.kind is Kind.REFUSED:
        return Refused(outcome.text)
    if outcome.kind is Kind.RAISED:
        return CommandRaisedError(outcome.text)
    if outcome.kind is Kind.TOO_OLD:
        return TooOldError(outcome.text)
    return CallRefusedError(outcome.text)


@cache
def _type_of(cls: type[Any]) -> ObjectType[Any]:
    return ObjectType(cls)


def _check_attributes(of: ObjectType[Any]) -> None:
    where = of.cls.__name__
    if not isinstance(of.version, int) or isinstance(of.version, bool) or not 0 < of.version < 2**31:
        raise ObjectError(f"{where}.object_version = {of.version!r}: a version is a whole number from 1")
    if not isinstance(of.runs_from, int) or not 0 < of.runs_from <= of.version:
        raise ObjectError(
            f"{where}.object_runs_from = {of.runs_from!r}: it is a version from 1 to {of.version}"
        )
    if not isinstance(of.name, str) or not 0 < len(of.name) <= METHOD_CHARACTERS_MAX:
        raise ObjectError(
            f"{where}.object_name = {of.name!r}: a name has 1 to {METHOD_CHARACTERS_MAX} characters"
        )
    if not isinstance(of.limits, Limits):
        raise ObjectError(f"{where}.object_limits = {of.limits!r}: it is a Limits(…)")


def _refuse_function(where: str, name: str, function: Any) -> None:
    if not inspect.isfunction(function):
        raise ObjectError(f"{where}: a command is a plain method")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ObjectError(
            f"{where}: a command cannot be async: it must not wait for anything outside the order"
        )
    if inspect.isgeneratorfunction(function):
        raise ObjectError(f"{where}: a command cannot be a generator: return a list")
    if len(name) > METHOD_CHARACTERS_MAX:
        raise ObjectError(f"{where}: its name has more than {METHOD_CHARACTERS_MAX} characters")


def _hints(where: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise ObjectError(f"{where}: its annotations cannot be read: {error}") from None


def _carried(where: str, annotation: Any) -> Codec[Any]:
    try:
        return Codec(annotation)
    except CannotCarryError as error:
        raise CannotCarryError(f"{where}: {error}") from None
