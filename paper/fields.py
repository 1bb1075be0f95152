"""From the plain values of a file to a dataclass, with an error for what is missing, unknown or of another type."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

Kind = TypeVar("Kind")


def filled(kind: type[Kind], values: Mapping[str, Any], where: str) -> Kind:
    """A dataclass with some values; ``where`` names their file in errors."""
    hints = get_type_hints(kind)
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise ValueError(f"{where} must use the names {', '.join(known)}; got {name!r}.")
    missing = [
        name
        for name, field in known.items()
        if name not in values and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise ValueError(f"{where} must give {', '.join(missing)}.")
    return kind(**{name: _value(hints[name], value, f"{where}: {name}") for name, value in values.items()})


def _value(hint: Any, value: Any, where: str) -> Any:
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{where} must be a list; got {value!r}.")
        return tuple(_value(get_args(hint)[0], item, where) for item in value)
    expected = {int: (int,), float: (int, float), str: (str,)}.get(hint)
    if expected is None:
        return value
    if isinstance(value, bool) or not isinstance(value, expected):
        raise ValueError(f"{where} must be {_NAMES[hint]}; got {value!r}.")
    return hint(value)


_NAMES = {int: "a whole number", float: "a number (write 1.0e-6, not 1e-6)", str: "text"}
