"""How a mutant is made: a named function, method, property or constant of the library gets a weaker behaviour in this process.

A function keeps its identity and only runs other code, so that every module, table or object that holds it runs the mutant, whenever
it was imported. Constants are replaced in every module that has imported them. Nothing on disk changes.
"""

import builtins
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from inspect import getattr_static
from types import CodeType, FunctionType, ModuleType
from typing import Any

Change = Callable[[Any], Any]
"""Makes the weaker behaviour out of the right one: of a function a function, of a constant a constant."""


class Unbound(Exception):
    """A mutant whose target, or a name used in it, is not in the library any more."""


@dataclass(frozen=True)
class Mutant:
    """One way to break the proofs.

    Attributes
    ----------
    target : str
        What is replaced, ``"module:name"`` or ``"module:Class.name"``.
    change : callable
        Makes the weaker behaviour out of the right one.
    tests : str
        Files in ``tests``, separated by spaces, quickest first, one of which must fail.
    """

    target: str
    change: Change
    tests: str

    def locate(self) -> tuple[Any, str, Any]:
        """The module or class, the name in it, and what the name stands for (the function behind a property)."""
        module, _, path = self.target.partition(":")
        *classes, name = path.split(".")
        try:
            owner: Any = importlib.import_module(module)
            for part in classes:
                owner = getattr(owner, part)
            # What a class inherits is not its own to change.
            found = vars(owner)[name]
        except (ImportError, AttributeError, KeyError):
            raise Unbound(f"{self.target} does not exist any more. Bind the mutant to what took its place.") from None
        if isinstance(found, property):
            found = found.fget
        elif isinstance(found, cached_property):
            found = found.func
        elif isinstance(found, classmethod | staticmethod):
            found = found.__func__
        if isinstance(found, FunctionType) and found.__closure__ is not None:
            raise Unbound(
                f"{self.target} is a closure, whose code cannot be replaced. Bind the mutant to another function."
            )
        return owner, name, found

    def make(self) -> Any:
        """The weaker behaviour; nothing is installed."""
        _, _, found = self.locate()
        return self.change(_copy(found) if isinstance(found, FunctionType) else found)

    def install(self) -> None:
        """Put the weaker behaviour in place for the rest of the process."""
        owner, name, found = self.locate()
        weaker = self.make()
        if isinstance(found, FunctionType):
            _redirect(found, weaker)
            return
        if not isinstance(owner, ModuleType):
            setattr(owner, name, weaker)
            return
        for module in [m for key, m in sys.modules.items() if key.split(".")[0] == owner.__name__.split(".")[0]]:
            if getattr_static(module, name, None) is found:
                setattr(module, name, weaker)


def _copy(function: FunctionType, scope: dict[str, Any] | None = None) -> FunctionType:
    new = FunctionType(
        function.__code__,
        function.__globals__ if scope is None else scope,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    new.__kwdefaults__ = function.__kwdefaults__
    return new


def _redirect(function: FunctionType, weaker: Callable[..., Any]) -> None:
    """Make every call of a function, wherever a reference to it is kept, a call of another one."""
    hidden = f"_mutant_of_{function.__name__}"
    made: dict[str, Any] = {}
    exec(f"def redirected(*args, **kwargs): return {hidden}(*args, **kwargs)", made)
    function.__globals__[hidden] = weaker
    function.__code__ = made["redirected"].__code__
    function.__defaults__ = function.__kwdefaults__ = None


def inside(**changes: Change) -> Change:
    """Within one function, some of the names it uses stand for something else; each change is given what they stood for."""

    def change(function: FunctionType) -> Callable[..., Any]:
        scope = dict(function.__globals__)
        for name, make in changes.items():
            if name not in _names(function.__code__) or not (name in scope or hasattr(builtins, name)):
                raise Unbound(
                    f"{function.__module__}:{function.__qualname__} does not use {name} any more. Bind the mutant to what does."
                )
            scope[name] = make(scope[name] if name in scope else getattr(builtins, name))
        return _copy(function, scope)

    return change


def _names(code: CodeType) -> set[str]:
    """The names that code uses, nested functions included."""
    nested = (_names(part) for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*nested)


def always(value: Any) -> Change:
    """A constant, whatever the arguments."""
    return lambda function: lambda *args, **kwargs: value


def become(value: Any) -> Change:
    """Another value of a constant."""
    return lambda old: value


def result(edit: Callable[[Any], Any]) -> Change:
    """What is returned, edited."""
    return lambda function: lambda *args, **kwargs: edit(function(*args, **kwargs))


def scaled(factor: float) -> Change:
    """What is returned, times a factor."""
    return result(lambda value: tuple(factor * v for v in value) if isinstance(value, tuple) else factor * value)


def scaled_argument(factor: float) -> Change:
    """The first argument times a factor."""
    return lambda function: lambda first, *args, **kwargs: function(factor * first, *args, **kwargs)
