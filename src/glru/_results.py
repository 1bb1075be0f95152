"""How results are displayed: a few lines in a terminal, a table in a notebook, a data frame."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIGITS = 4
"""Significant digits that both ends of an interval must share to be shown as one number."""


class Shown(ABC):
    """A result that is displayed as a title and lines of a name and a value; ``certified``: whether everything it states is proven."""

    @abstractmethod
    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        """The title and the lines."""

    def __repr__(self) -> str:
        title, lines = self._summary()
        width = max([12, *(len(name) for name, _ in lines)])
        return "\n".join([title, *(f"  {name:<{width}} {value}" for name, value in lines)])

    def _repr_html_(self) -> str:
        title, lines = self._summary()
        left = 'style="text-align: left"'
        rows = "".join(
            f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(value)}</td></tr>" for name, value in lines
        )
        caption = f'<caption style="text-align: left; white-space: nowrap">{escape(title)}</caption>'
        return f"<table>{caption}<tbody>{rows}</tbody></table>"


class Drawable(Shown):
    """A result that is drawn without being asked about anything."""

    @abstractmethod
    def _display(self) -> Any:
        """The picture of the result."""

    def plot(self, ax: Any = None) -> Any:
        """Draw the result.

        Parameters
        ----------
        ax : matplotlib Axes, or a sequence of them for several pictures, default=None
            Where to draw; a new figure if not given.

        Returns
        -------
        display
            A class of :mod:`glru.display`, with the axes in ``ax_`` and the figure in ``figure_``.
        """
        return self._display().plot(ax)


def show_interval(low: float, high: float) -> str:
    """Both ends of an interval, or one number where they agree to four digits or more."""
    if low == high:
        return f"{low:.6g}"
    for digits in (DIGITS + 2, DIGITS + 1, DIGITS):
        if f"{low:.{digits}g}" == f"{high:.{digits}g}":
            return f"{low:.{digits}g}"
    # Ends on two sides of a rounding edge may be close all the same.
    if high - low <= 10.0**-DIGITS * min(abs(low), abs(high)):
        return f"{0.5 * (low + high):.{DIGITS}g}"
    return f"{low:.{DIGITS}g} to {high:.{DIGITS}g}"


def format_count(number: int, what: str) -> str:
    """``1 row``, ``2 rows``, ``1,234 rows``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def list_some(values: Iterable[Any], show: Callable[[Any], str] = str, most: int = 5) -> str:
    """The first few values, and how many more there are."""
    values = [*values]
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(map(show, values[:most])) + more


def show_count(low: int, high: int) -> str:
    """A count, or its two ends if it is not known exactly."""
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def unmask_column(values: NDArray[Any]) -> Any:
    """A column of a frame: None where values are masked."""
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.getdata(values) if not values.mask.any() else values.tolist()
    return values


def find_display(name: str) -> Any:
    """A class of :mod:`glru.display`: pictures are a layer above, and are loaded only for those who draw."""
    return getattr(import_module("glru.display"), name)


def make_frame(columns: dict[str, Any]) -> Any:
    """A pandas frame, or a polars frame if pandas is not installed."""
    for package in ("pandas", "polars"):
        if find_spec(package) is not None:
            return import_module(package).DataFrame(columns)
    raise ImportError("to_frame needs pandas or polars, and neither is installed. Use `pip install pandas`.")
