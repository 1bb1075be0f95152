"""Optional dependencies: imported on demand; if one is missing, the error names the extra that installs it."""

from importlib import import_module
from typing import Any


def require(module: str, extra: str, purpose: str) -> Any:
    """Import an optional dependency for a purpose, the subject of the error if it is missing, which names the extra that installs it.

    Examples
    --------
    >>> require("no_such_module", "all", "this example")
    Traceback (most recent call last):
    ModuleNotFoundError: this example needs no-such-module: pip install 'glru[all]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        # A dependency that is there, but misses a module of its own, says so itself.
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        package = module.partition(".")[0].replace("_", "-")
        raise ModuleNotFoundError(
            f"{purpose} needs {package}: pip install 'glru[{extra}]'", name=error.name, path=error.path
        ) from None
