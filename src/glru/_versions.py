"""The versions that a result depends on."""

import importlib.metadata
import platform

import glru

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "polars")


def versions() -> dict[str, str]:
    """The versions of this package and of what it stands on."""
    found = {"glru": glru.__version__, "python": platform.python_version(), "platform": platform.platform()}
    return found | {name: importlib.metadata.version(name) for name in PACKAGES}
