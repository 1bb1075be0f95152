"""The versions that a result depends on."""

import importlib.metadata
import platform

import glru

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "polars")


def list_versions() -> dict[str, str]:
    """Return the versions of this package and of its dependencies that are installed."""
    found = {"glru": glru.__version__, "python": platform.python_version(), "platform": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
