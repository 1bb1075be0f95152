"""Counts, numbers and intervals as text."""

import math

LARGEST_PLAIN = 1e9
"""Larger numbers are written with a power of ten."""


def format_count(number: int, what: str) -> str:
    """``1 row``, ``2 rows``, ``1,234 rows``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def format_number(value: float, digits: int = 4) -> str:
    """A number to some digits: ``0.1235``, ``31,840`` (not ``3.184e+04``), ``1.592e+09``."""
    text = f"{value:.{digits}g}"
    if not 1e4 <= abs(float(text)) < LARGEST_PLAIN:
        return text
    whole, point, rest = (f"{float(text):.0f}" if "e+" in text else text).partition(".")
    return f"{int(whole):,}{point}{rest}"


def format_tick(value: float) -> str:
    """A tick label, short: ``0.25``, ``200k``, ``1.5M``."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if max(unit, 1e4) <= abs(value) < LARGEST_PLAIN:
            return f"{value / unit:.6g}{name}"
    return f"{value:.6g}"


def format_move(before: float, lower: float, upper: float) -> str:
    """``before to after``, with enough digits (four to ten) to see that they differ."""
    for digits in range(4, 11):
        first, last = format_number(before, digits), format_interval(lower, upper, digits)
        if first != last:
            break
    return f"{first} to {last}"


def format_interval(lower: float, upper: float, digits: int = 4) -> str:
    """An interval as text: a single number where both ends agree to the digits shown; whole numbers in full."""
    if all(float(end).is_integer() and abs(end) < 1e15 for end in (lower, upper)):
        return f"{lower:,.0f}" if lower == upper else f"{lower:,.0f} to {upper:,.0f}"
    if not math.isfinite(lower) and not math.isfinite(upper):
        return "unknown"
    low, high = format_number(lower, digits), format_number(upper, digits)
    return low if low == high else f"{low} to {high}"
